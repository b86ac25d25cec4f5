/* nouns.h: plain English words for the made-up keys and sentences of chain-of-key and needle: 3 to 8 letters, no two of which
 * spell a third or make the same compound (test_eval_tasks.c checks). */
#ifndef RK_EVAL_NOUNS_H
#define RK_EVAL_NOUNS_H

#define RK_N_NOUN 320
extern const char *const rk_noun[RK_N_NOUN];

#endif
