/* err.h: how every function in refreshkv reports failure.
 *
 * A function that can fail returns int: 0 on success, -1 with *e filled in.  The message names the file, key, value
 * and limit, is one line, and has no trailing newline.  Nothing below main() prints it or exits.
 */
#ifndef RK_BASE_ERR_H
#define RK_BASE_ERR_H

/* The value is also the exit status of the program. */
enum rk_code {
	RK_OK = 0,
	RK_EFAIL = 1,	/* the run failed: input/output, cancelled, bad document */
	RK_EUSAGE = 2,	/* unknown option, value out of range */
	RK_EMODEL = 3,	/* the model file is missing, damaged or not supported */
	RK_ENOMEM = 4,	/* the memory plan does not fit */
};

typedef struct rk_err {
	enum rk_code code;
	char msg[480];
} rk_err;

/* Fills *e (which may be NULL) and returns -1, so that callers can write `return rk_fail(e, ...)`. */
int rk_fail(rk_err *e, enum rk_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
