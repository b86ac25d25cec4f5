/* policy.h: a KV-cache policy as data: score x budget x evict x refresh.
 *
 * A policy is a small POD that a backend executes; no code here runs during a step.  That is why policy stands to the
 * left of cache and backend: they include it, it includes neither.  Exact semantics of every field: docs/POLICIES.md.
 * Presets are the files of configs/policies/, embedded in the binary.
 */
#ifndef RK_POLICY_POLICY_H
#define RK_POLICY_POLICY_H

#include <stdbool.h>
#include <stdio.h>
#include "base/err.h"

enum rk_score {
	RK_SCORE_NONE,		/* every position is kept: vanilla */
	RK_SCORE_ATTENTION,	/* probabilities of the last queries, grouped and pooled: RefreshKV, SnapKV */
	RK_SCORE_ACCUMULATED,	/* probabilities summed over all queries and over the group's heads: H2O */
	RK_SCORE_POSITION,	/* first `sinks`, then most recent: StreamingLLM */
};
enum rk_group { RK_GROUP_MAX, RK_GROUP_MEAN, RK_GROUP_FIRST };	/* over the query heads of a KV head */
enum rk_evict {
	RK_EVICT_NONE,		/* the partial cache grows with every generated token */
	RK_EVICT_LOWEST,	/* the entry with the lowest score at the last selection; appended entries queue behind it */
	RK_EVICT_OLDEST,	/* the oldest entry that is not a sink */
	RK_EVICT_LOWEST_ACCUMULATED,	/* the lowest accumulator older than the K/2 most recent positions */
};
enum rk_refresh {
	RK_REFRESH_NEVER,	/* the full cache is not kept after the prefill */
	RK_REFRESH_STRIDE,	/* step i when i mod stride = stride-1 */
	RK_REFRESH_QUERY,	/* step i when i mod qc = qc-1 and the cosine of the query with that of the last refresh is below s */
};
enum rk_query {		/* the compared query: before or after RoPE; the mean over the heads, or all heads one after the other */
	RK_QUERY_PRE, RK_QUERY_POST, RK_QUERY_PRE_CAT, RK_QUERY_POST_CAT,
};
enum rk_attend { RK_ATTEND_FULL, RK_ATTEND_SELECTED };	/* what a refresh step attends: everything, or only the new selection */

typedef struct rk_policy {
	char name[32];		/* preset it started from */
	enum rk_score score;
	enum rk_group group;
	int window;		/* attention: last queries of the prompt whose probabilities are averaged; >= 1 */
	int pool;		/* odd width of the max-pooling over positions; 1 = none */
	double k;		/* budget K: below 1 a fraction of the prompt, from 1 up tokens; unused by RK_SCORE_NONE */
	int sinks;		/* position: first positions always kept */
	enum rk_evict evict;
	enum rk_refresh refresh;
	int stride;
	int qc;
	float s;
	enum rk_query query;
	enum rk_attend attend;
	int tail;		/* glance: a full step every `tail` steps renews the stand-in for what is not selected; 0: none */
	int bits;		/* what a refresh scores: 0 the keys, else their sketches of 2, 3, 4 or 8 bits (a glance) */
} rk_policy;

#define RK_SPEC_MAX 240

/* spec: "refreshkv", "refreshkv:qc=10,s=0.9,k=0.125", or "FILE.yaml[:key=value,...]" (a name with a '/' or ending in
 * .yaml).  Errors (RK_EUSAGE) name the preset, key, value and limit, and the nearest valid name. */
int rk_policy_parse(rk_policy *p, const char *spec, rk_err *e);
/* Does parsing this spec read a file? */
bool rk_policy_is_file(const char *spec);
/* Applies "key=value[,key=value...]" to an existing policy; *p is unchanged on error. */
int rk_policy_set(rk_policy *p, const char *assignments, rk_err *e);
/* Canonical spec: the preset and every parameter that has a meaning for it.  Parsing it gives the same policy. */
void rk_policy_spec(const rk_policy *p, char out[RK_SPEC_MAX]);
/* K in tokens for a prompt of n_prompt: max(1, floor(k * n_prompt)) or k.  Fixed at the prefill. */
int rk_policy_budget(const rk_policy *p, int n_prompt);
/* One sentence where k is a fraction that leaves next to nothing of this prompt, else "". */
#define RK_REMARK_MAX 280
void rk_policy_remark(const rk_policy *p, int n_prompt, char out[RK_REMARK_MAX]);
/* RK_EUSAGE when that K leaves nothing beside the sinks; known only with the prompt where k is a fraction. */
int rk_policy_check_budget(const rk_policy *p, int n_prompt, rk_err *e);
/* Does a step ever look at the full cache again? */
bool rk_policy_keeps_full(const rk_policy *p);
/* The compared query, see enum rk_query: taken after RoPE?  All heads' rather than their mean? */
bool rk_policy_query_post(const rk_policy *p);
bool rk_policy_query_cat(const rk_policy *p);

int rk_policy_n_preset(void);
const char *rk_policy_preset_name(int i);
const char *rk_policy_preset_doc(int i);	/* one line: what it is and whom it cites */
void rk_policy_help(FILE *f);			/* presets and parameters, for --help */

#endif
