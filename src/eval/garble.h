/* garble.h: is a reply broken rather than wrong?  Counted per policy, so that a policy that ruins the text is seen and not
 * averaged away.  Pure functions of the text. */
#ifndef RK_EVAL_GARBLE_H
#define RK_EVAL_GARBLE_H

/* "empty": nothing but blanks.  "repeats": of the 16-byte substrings of the reply's last 512 bytes fewer than a third are distinct,
 * as where the model goes round in a loop; replies below 96 bytes are too short to tell.  NULL: neither. */
const char *rk_garbled(const char *reply);

#endif
