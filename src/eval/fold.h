/* fold.h: text made comparable by the rules that the official scorers apply with Python's str.
 *
 * Text is UTF-8; bytes that are none pass through.  Pure functions; whoever gets a char * frees it, NULL means no memory.
 */
#ifndef RK_EVAL_FOLD_H
#define RK_EVAL_FOLD_H

#include <stdbool.h>
#include <stddef.h>

/* A copy in lower case, letter by letter. */
char *rk_fold_lower(const char *s);
/* Lower case without ASCII punctuation and the mark `also`, without the words that the pattern names (PCRE2, on word boundaries:
 * "a|an|the"), and with what blanks are left made single, at the ends none. */
char *rk_fold_normal(const char *s, const char *also, const char *words);
bool rk_fold_blank(int c);	/* is code point c white space for str.strip and str.split? */
/* s without blanks at its ends: *len bytes from what is returned. */
const char *rk_fold_strip(const char *s, size_t *len);

#endif
