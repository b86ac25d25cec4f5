/* summary.h: figures of one policy over the records of an evaluation, or over those of one task or length. */
#ifndef RK_EVAL_SUMMARY_H
#define RK_EVAL_SUMMARY_H

#include <jansson.h>
#include <stdbool.h>

typedef struct rk_eval_figures {	/* NAN: not known */
	int n;			/* records */
	double score;		/* mean, 0 to 1 */
	double ratio;		/* score over the baseline's on the same records; with ppl: exp of the difference of mean NLL */
	double ppl, kl, same_top1;
	double stride;		/* layer steps per full one */
	double ms;		/* per token, median over the records */
	double bytes, bytes_vanilla;	/* read per step */
	int garbled;
} rk_eval_figures;

/* spec: the policy as the header has it (canonical); task NULL, length 0, index -1: all of them. */
rk_eval_figures rk_eval_sum(const json_t *list, const char *spec, const char *base, const char *task, int length, int index);

/* The reply of policy `spec` in a record; NULL: the record is of another group.  *at: its place. */
const json_t *rk_eval_reply(const json_t *record, const char *spec, size_t *at);

#endif
