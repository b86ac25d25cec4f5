/* words.h: plain English words of other kinds than nouns.h: adjectives for keys of two words, verbs for lists to count.
 *
 * Lower case ASCII, sorted, no word in two lists.  RULER takes its words from a package of its own; the kind of words matters
 * there, not which they are.
 */
#ifndef RK_EVAL_WORDS_H
#define RK_EVAL_WORDS_H

#include "eval/nouns.h"

#define RK_N_ADJ 330
#define RK_N_VERB 196
#define RK_N_WORD (RK_N_NOUN + RK_N_ADJ + RK_N_VERB)
#define RK_N_COMPOUND (RK_N_NOUN * (RK_N_NOUN - 1))
#define RK_WORD_MAX 32

extern const char *const rk_adj[RK_N_ADJ], *const rk_verb[RK_N_VERB];

/* Word i of nouns, adjectives and verbs together, 0 <= i < RK_N_WORD. */
const char *rk_word(int i);
/* Two nouns in one word, for lists longer than RK_N_WORD: 0 <= i < RK_N_COMPOUND, no two alike; written to out. */
const char *rk_word_compound(int i, char out[RK_WORD_MAX]);

#endif
