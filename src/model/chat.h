/* chat.h: chat templates, recognised from the file's Jinja source and formatted by our own code.
 *
 * Known: chatml, llama3.  A template that is not recognised is an error that names the flag to choose one.
 * Formatting is incremental, so that a further turn only adds tokens: the text of turn k+1 starts by closing turn k's reply.
 */
#ifndef RK_MODEL_CHAT_H
#define RK_MODEL_CHAT_H

#include "model/tokenizer.h"

enum rk_chat { RK_CHAT_RAW, RK_CHAT_CHATML, RK_CHAT_LLAMA3 };

typedef struct rk_chat_template {
	enum rk_chat kind;
	char system[256];	/* the template's own default system message; "" when it has none */
} rk_chat_template;

/* name: NULL = recognise from the file; else "chatml", "llama3" or "raw". */
int rk_chat_detect(rk_chat_template *c, const rk_gguf *g, const char *name, rk_err *e);
const char *rk_chat_name(const rk_chat_template *c);

/* The text that turns a user's message into a prompt that ends where the reply starts.  first = the session's first
 * turn (adds the system message: `system`, or the template's own when NULL); later turns first close the previous
 * reply (closed = the reply already ended with its end token, which is in the cache).  *out is allocated; free() it.
 * Special tokens are written by name: tokenize with RK_TOK_SPECIAL.  The template writes its own BOS, if it has one.
 * said (NULL: not wanted): where in it the system message and the user's are, for rk_tokenize_said; a raw "template" has no words of its
 * own to be told from them, and leaves both empty. */
int rk_chat_turn(const rk_chat_template *c, const char *system, const char *user, bool first, bool closed, char **out, rk_stretch said[2],
                 rk_err *e);

#endif
