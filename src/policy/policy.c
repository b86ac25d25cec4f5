/* policy.c: policies as text and back: presets, "preset:key=value,..." specs, YAML files.
 *
 * One row of params[] per parameter (type, range, default, meaning) drives the command line, YAML, the canonical spec
 * and --help.  A parameter that has no meaning for a policy cannot be given, and its field holds the default, so that
 * a policy is exactly what its spec says.  The presets are read from the embedded files once, under pthread_once;
 * everything else is pure, so all of it may be called from any thread.
 */
#include "policy/policy.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/embedded.h"
#include "base/near.h"
#include "base/opt.h"
#include "base/yaml.h"

#define MAX_PRESET 32
#define MAX_PATH 1024
#define MAX_VALUE 64
#define MAX_HINT 300
#define PRESET_DIR "configs/policies/"
#define PRESET_EXT ".yaml"

/* ---- parameters ---- */

static const char *const score_names[] = { "none", "attention", "accumulated", "position", NULL };
static const char *const group_names[] = { "max", "mean", "first", NULL };
static const char *const evict_names[] = { "none", "lowest", "oldest", "lowest-accumulated", NULL };
static const char *const refresh_names[] = { "never", "stride", "query", NULL };
static const char *const query_names[] = { "pre", "post", "pre-cat", "post-cat", NULL };
static const char *const attend_names[] = { "full", "selected", NULL };

static bool any_policy(const rk_policy *p) { (void)p; return true; }
static bool has_budget(const rk_policy *p) { return p->score != RK_SCORE_NONE; }
static bool by_attention(const rk_policy *p) { return p->score == RK_SCORE_ATTENTION; }
static bool selects_once(const rk_policy *p) { return by_attention(p) && p->refresh == RK_REFRESH_NEVER; }
static bool by_position(const rk_policy *p) { return p->score == RK_SCORE_POSITION; }
static bool by_stride(const rk_policy *p) { return p->refresh == RK_REFRESH_STRIDE; }
static bool by_query(const rk_policy *p) { return p->refresh == RK_REFRESH_QUERY; }
static bool refreshes(const rk_policy *p) { return p->refresh != RK_REFRESH_NEVER; }
/* Where everything is attended the scores of the keys come for nothing. */
static bool scores_first(const rk_policy *p) { return refreshes(p) && p->attend == RK_ATTEND_SELECTED; }
static bool glances(const rk_policy *p) { return scores_first(p) && p->bits > 0; }

enum { SCORE, EVICT, REFRESH, K, POOL, GROUP, WINDOW, SINKS, STRIDE, QC, S, QUERY, ATTEND, BITS, TAIL, N_PARAM };
#define BIT(param) (1u << (param))
#define AXES (BIT(SCORE) | BIT(EVICT) | BIT(REFRESH))	/* these make the kind of policy; the rest tune it */

#define MAX_TOKENS 1e9		/* of a budget; far beyond any context, exact in a double and in an int */
#define MAX_STEPS 1000000	/* of a stride */

static const struct param {
	rk_opt opt;
	bool (*matters)(const rk_policy *p);	/* has the parameter a meaning for p's axes? */
} params[N_PARAM] = {
	[SCORE] = { { .name = "score", .kind = RK_OPT_ENUM, .at = offsetof(rk_policy, score),
		.def = "none", .names = score_names,
		.doc = "what makes a position worth keeping" }, any_policy },
	[EVICT] = { { .name = "evict", .kind = RK_OPT_ENUM, .at = offsetof(rk_policy, evict),
		.def = "none", .names = evict_names,
		.doc = "who leaves the partial cache when a token is appended" }, any_policy },
	[REFRESH] = { { .name = "refresh", .kind = RK_OPT_ENUM, .at = offsetof(rk_policy, refresh),
		.def = "never", .names = refresh_names,
		.doc = "when the partial cache is chosen anew from the full one; stride, qc and s imply it" }, any_policy },
	[K] = { { .name = "k", .kind = RK_OPT_DOUBLE, .at = offsetof(rk_policy, k),
		.def = "0.125", .max = MAX_TOKENS, .above_min = true,
		.doc = "budget per layer and KV head: below 1 a fraction of the prompt, from 1 up tokens" }, has_budget },
	[POOL] = { { .name = "pool", .kind = RK_OPT_INT, .at = offsetof(rk_policy, pool),
		.def = "7", .min = 1, .max = 255,
		.doc = "odd width of the max-pooling of scores over positions; 1: none" }, by_attention },
	[GROUP] = { { .name = "group", .kind = RK_OPT_ENUM, .at = offsetof(rk_policy, group),
		.def = "max", .names = group_names,
		.doc = "how the query heads that share a KV head make one score" }, by_attention },
	[WINDOW] = { { .name = "window", .kind = RK_OPT_INT, .at = offsetof(rk_policy, window),
		.def = "1", .min = 1, .max = 1024,
		.doc = "last queries of the prompt whose probabilities are averaged" }, selects_once },
	[SINKS] = { { .name = "sinks", .kind = RK_OPT_INT, .at = offsetof(rk_policy, sinks),
		.def = "4", .min = 0, .max = MAX_STEPS,
		.doc = "first positions that always stay; fewer than the budget" }, by_position },
	[STRIDE] = { { .name = "stride", .kind = RK_OPT_INT, .at = offsetof(rk_policy, stride),
		.def = "10", .min = 1, .max = MAX_STEPS,
		.doc = "every layer refreshes at each stride-th step" }, by_stride },
	[QC] = { { .name = "qc", .kind = RK_OPT_INT, .at = offsetof(rk_policy, qc),
		.def = "5", .min = 1, .max = MAX_STEPS,
		.doc = "each layer compares its query at each qc-th step" }, by_query },
	[S] = { { .name = "s", .kind = RK_OPT_FLOAT, .at = offsetof(rk_policy, s),
		.def = "0.85", .min = -1, .max = 2, .above_min = true,
		.doc = "a layer refreshes when the cosine is below s; above 1: at every check" }, by_query },
	[QUERY] = { { .name = "query", .kind = RK_OPT_ENUM, .at = offsetof(rk_policy, query),
		.def = "pre", .names = query_names,
		.doc = "the compared query: before or after RoPE, mean over the heads or all of them (-cat)" }, by_query },
	[ATTEND] = { { .name = "attend", .kind = RK_OPT_ENUM, .at = offsetof(rk_policy, attend),
		.def = "full", .names = attend_names,
		.doc = "what a refresh step attends: every position, or only the new selection" }, refreshes },
	[BITS] = { { .name = "bits", .kind = RK_OPT_INT, .at = offsetof(rk_policy, bits),
		.def = "0", .min = 0, .max = 8,
		.doc = "a refresh scores sketches of the keys, of 2, 3, 4 or 8 bits; 0: the keys themselves" }, scores_first },
	[TAIL] = { { .name = "tail", .kind = RK_OPT_INT, .at = offsetof(rk_policy, tail),
		.def = "0", .min = 0, .max = MAX_STEPS,
		.doc = "every so many steps all is attended, and the output of what is not selected kept to stand in for it; 0: never" },
		glances },
};

static void get(const rk_policy *p, int param, char out[MAX_VALUE])
{
	rk_opt_value_format(&params[param].opt, p, out, MAX_VALUE);
}

static void set_default(rk_policy *p, int param)
{
	/* Cannot fail: the table's defaults are valid, and the tests parse each of them. */
	(void)rk_opt_value_set(&params[param].opt, p, params[param].opt.name, params[param].opt.def, NULL);
}

static int unknown_param(const char *who, const char *key, rk_err *e)
{
	const char *names[N_PARAM];
	char hint[MAX_HINT];
	for (int i = 0; i < N_PARAM; i++)
		names[i] = params[i].opt.name;
	rk_near_hint(hint, sizeof hint, key, names, N_PARAM);
	return rk_fail(e, RK_EUSAGE, "%sunknown key '%.40s'; %s", who, key, hint);
}

/* key = value into p; `given` collects which parameters were set.  who: "" or "policy NAME: ", for errors. */
static int set_one(rk_policy *p, unsigned *given, const char *who, const char *key, const char *value, rk_err *e)
{
	for (int i = 0; i < N_PARAM; i++) {
		if (strcmp(params[i].opt.name, key))
			continue;
		char what[MAX_VALUE];
		snprintf(what, sizeof what, "%s%s", who, key);
		if (*given & BIT(i))
			return rk_fail(e, RK_EUSAGE, "%s is given twice", what);
		*given |= BIT(i);
		return rk_opt_value_set(&params[i].opt, p, what, value, e);
	}
	return unknown_param(who, key, e);
}

/* ---- what makes sense together ---- */

static int check_axes(const rk_policy *p, rk_err *e)
{
	static const enum rk_evict evict_of[] = {	/* of each score */
		[RK_SCORE_NONE] = RK_EVICT_NONE, [RK_SCORE_ATTENTION] = RK_EVICT_LOWEST,
		[RK_SCORE_ACCUMULATED] = RK_EVICT_LOWEST_ACCUMULATED, [RK_SCORE_POSITION] = RK_EVICT_OLDEST,
	};
	const char *score = score_names[p->score], *evict = evict_names[p->evict], *refresh = refresh_names[p->refresh];
	if (refreshes(p) && !by_attention(p))
		return rk_fail(e, RK_EUSAGE, "policy %s: score=%s needs refresh=never, not refresh=%s", p->name, score,
		               refresh);
	/* A growing cache is the one choice there is: SnapKV's, which selects once and then keeps what is generated. */
	bool grows = selects_once(p) && p->evict == RK_EVICT_NONE;
	if (p->evict == evict_of[p->score] || grows)
		return 0;
	if (refreshes(p))
		return rk_fail(e, RK_EUSAGE, "policy %s: refresh=%s needs evict=lowest, not evict=%s", p->name, refresh,
		               evict);
	return rk_fail(e, RK_EUSAGE, "policy %s: score=%s needs evict=%s%s, not evict=%s", p->name, score,
	               evict_names[evict_of[p->score]], selects_once(p) ? " or none" : "", evict);
}

static int check_values(const rk_policy *p, rk_err *e)
{
	char k[MAX_VALUE];
	get(p, K, k);
	if (p->k >= 1 && p->k != floor(p->k))
		return rk_fail(e, RK_EUSAGE, "policy %s: k=%s counts tokens from 1 up and must be whole there", p->name,
		               k);
	if (p->pool % 2 == 0)
		return rk_fail(e, RK_EUSAGE, "policy %s: pool=%d must be odd (1 to 255)", p->name, p->pool);
	if (p->bits && !(p->bits >= 2 && p->bits <= 4) && p->bits != 8)
		return rk_fail(e, RK_EUSAGE, "policy %s: bits=%d is not 0, 2, 3, 4 or 8", p->name, p->bits);
	if (by_position(p) && p->k >= 1 && p->k <= p->sinks)
		return rk_fail(e, RK_EUSAGE, "policy %s: k=%s must exceed sinks=%d", p->name, k, p->sinks);
	return 0;
}

/* After some parameters of a valid policy were set: decides the implied refresh, refuses what has no meaning or does not
 * go together, and resets what has no meaning. */
static int settle(rk_policy *p, unsigned given, rk_err *e)
{
	if (!(given & BIT(REFRESH)) && refreshes(p)) {
		if (given & BIT(STRIDE))
			p->refresh = RK_REFRESH_STRIDE;
		else if (given & (BIT(QC) | BIT(S)))
			p->refresh = RK_REFRESH_QUERY;
	}
	if (check_axes(p, e))
		return -1;
	for (int i = 0; i < N_PARAM; i++) {
		if (params[i].matters(p))
			continue;
		if (given & BIT(i)) {
			char v[MAX_VALUE];
			get(p, i, v);
			return rk_fail(e, RK_EUSAGE, "policy %s: %s=%s has no meaning with score=%s, refresh=%s%s", p->name,
			               params[i].opt.name, v, score_names[p->score], refresh_names[p->refresh],
			               i < BITS || !refreshes(p) ? "" : p->attend == RK_ATTEND_FULL ? ", attend=full" : ", bits=0");
		}
		set_default(p, i);
	}
	return check_values(p, e);
}

/* ---- presets and files ---- */

static struct preset {
	rk_policy pol;
	char doc[160], cite[120], departs[320];	/* departs: from its own paper; "" where it does not */
	char line[160 + 120 + 3];		/* "doc (cite)" */
} presets[MAX_PRESET];
static int n_preset;
static rk_err preset_err;	/* code RK_OK unless an embedded file is wrong */
static pthread_once_t preset_once = PTHREAD_ONCE_INIT;

/* NULL with *e: no such preset. */
static const rk_policy *find_preset(const char *name, rk_err *e)
{
	const char *names[MAX_PRESET];
	char hint[MAX_HINT];
	for (int i = 0; i < n_preset; i++) {
		if (!strcmp(presets[i].pol.name, name))
			return &presets[i].pol;
		names[i] = presets[i].pol.name;
	}
	rk_near_hint(hint, sizeof hint, name, names, n_preset);
	rk_fail(e, RK_EUSAGE, "unknown policy '%.40s'; %s", name, hint);
	return NULL;
}

/* A policy file being read.  `preset: NAME`, its first parameter, is the preset it starts from; a preset's own
 * file names itself. */
typedef struct policy_file {
	struct preset *self;	/* a preset's own file; NULL for a user's */
	rk_policy pol;
	bool started;		/* pol holds a policy to change */
	unsigned given;
} policy_file;

static int take_text(char *out, size_t size, const char *key, const char *value, rk_err *e)
{
	if (strlen(value) >= size)
		return rk_fail(e, RK_EUSAGE, "%s is longer than %zu bytes", key, size - 1);
	memcpy(out, value, strlen(value) + 1);
	return 0;
}

static int take_line(void *arg, const char *key, const char *value, int line, rk_err *e)
{
	(void)line;
	policy_file *f = arg;
	struct preset unused, *text = f->self ? f->self : &unused;
	if (!strcmp(key, "doc"))
		return take_text(text->doc, sizeof text->doc, key, value, e);
	if (!strcmp(key, "cite"))
		return take_text(text->cite, sizeof text->cite, key, value, e);
	if (!strcmp(key, "departs"))
		return take_text(text->departs, sizeof text->departs, key, value, e);
	if (!strcmp(key, "preset")) {
		if (f->self && strcmp(value, f->pol.name))
			return rk_fail(e, RK_EUSAGE, "preset '%.40s' must be %s here", value, f->pol.name);
		if (f->self)
			return 0;
		const rk_policy *start = find_preset(value, e);
		if (!start)
			return -1;
		f->pol = *start;
		f->started = true;
		return 0;
	}
	if (!f->started)
		return rk_fail(e, RK_EUSAGE, "'%.40s' comes before 'preset: NAME', which says what the policy starts from",
		               key);
	return set_one(&f->pol, &f->given, "", key, value, e);
}

static int finish_file(policy_file *f, const char *name, rk_err *e)
{
	rk_err why = { 0 };
	if (!f->started)
		return rk_fail(e, RK_EUSAGE, "%.200s: 'preset: NAME' is missing, which says what the policy starts from",
		               name);
	if (settle(&f->pol, f->given, &why))
		return rk_fail(e, why.code, "%.200s: %s", name, why.msg);
	return 0;
}

static int load_preset(struct preset *out, const rk_embedded *file, const char *stem, size_t len, rk_err *e)
{
	policy_file f = { .self = out, .started = true };
	if (len >= sizeof f.pol.name)
		return rk_fail(e, RK_EFAIL, "%s: a preset's name is limited to %zu bytes", file->name,
		               sizeof f.pol.name - 1);
	memcpy(f.pol.name, stem, len);
	for (int i = 0; i < N_PARAM; i++)
		set_default(&f.pol, i);
	if (rk_yaml_read(file->name, file->data, file->len, take_line, &f, e) || finish_file(&f, file->name, e))
		return -1;
	out->pol = f.pol;
	char *end = stpcpy(out->line, out->doc);
	end = stpcpy(stpcpy(end, " ("), out->cite);
	stpcpy(end, ")");
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct preset *)a)->pol.name, ((const struct preset *)b)->pol.name);
}

/* Fills presets[] from every embedded file of PRESET_DIR. */
static void load_presets(void)
{
	for (size_t i = 0; i < rk_embedded_count && !preset_err.code; i++) {
		const rk_embedded *file = &rk_embedded_files[i];
		const char *stem = file->name + strlen(PRESET_DIR);
		if (strncmp(file->name, PRESET_DIR, strlen(PRESET_DIR)))
			continue;
		if (n_preset == MAX_PRESET)
			rk_fail(&preset_err, RK_EFAIL, "%s: more than %d presets", file->name, MAX_PRESET);
		else if (!load_preset(&presets[n_preset], file, stem, strlen(stem) - strlen(PRESET_EXT), &preset_err))
			n_preset++;
	}
	/* The embedded files are in order of path, where "refreshkv-fixed.yaml" comes before "refreshkv.yaml". */
	qsort(presets, (size_t)n_preset, sizeof *presets, by_name);
}

static int need_presets(rk_err *e)
{
	pthread_once(&preset_once, load_presets);
	return preset_err.code ? rk_fail(e, preset_err.code, "%s", preset_err.msg) : 0;
}

/* ---- the contract ---- */

/* Bytes of the name in front of ":key=value,...".  A file's path may hold ':' before its ".yaml". */
static size_t name_len(const char *spec)
{
	const char *ext = strstr(spec, PRESET_EXT);
	size_t n = ext ? (size_t)(ext - spec) + strlen(PRESET_EXT) : 0;
	return ext && (spec[n] == ':' || spec[n] == '\0') ? n : strcspn(spec, ":");
}

bool rk_policy_is_file(const char *spec)
{
	size_t n = name_len(spec), ext = strlen(PRESET_EXT);
	return memchr(spec, '/', n) || (n > ext && !strncmp(spec + n - ext, PRESET_EXT, ext));
}

static int load_file(rk_policy *p, const char *path, rk_err *e)
{
	policy_file f = { 0 };
	if (rk_yaml_load(path, take_line, &f, e) || finish_file(&f, path, e))
		return -1;
	*p = f.pol;
	return 0;
}

int rk_policy_parse(rk_policy *p, const char *spec, rk_err *e)
{
	char name[MAX_PATH];
	size_t n = name_len(spec);
	if (need_presets(e))
		return -1;
	if (n >= sizeof name)
		return rk_fail(e, RK_EUSAGE, "policy '%.40s...' has a name longer than %d bytes", spec, MAX_PATH - 1);
	memcpy(name, spec, n);
	name[n] = '\0';

	rk_policy q = { 0 };
	if (rk_policy_is_file(spec)) {
		if (load_file(&q, name, e))
			return -1;
	} else {
		const rk_policy *preset = find_preset(name, e);
		if (!preset)
			return -1;
		q = *preset;
	}
	if (spec[n] == ':' && rk_policy_set(&q, spec + n + 1, e))
		return -1;
	*p = q;
	return 0;
}

int rk_policy_set(rk_policy *p, const char *assignments, rk_err *e)
{
	rk_policy q = *p;
	unsigned given = 0;
	char who[48];
	snprintf(who, sizeof who, "policy %s: ", p->name);
	const char *at = assignments;
	for (bool more = true; more;) {
		char word[MAX_VALUE];
		size_t n = strcspn(at, ",");
		if (n >= sizeof word)
			return rk_fail(e, RK_EUSAGE, "%s'%.40s...' is longer than %d bytes", who, at, MAX_VALUE - 1);
		memcpy(word, at, n);
		word[n] = '\0';
		char *eq = strchr(word, '=');
		if (!eq)
			return rk_fail(e, RK_EUSAGE, "%s'%s' is not key=value", who, word);
		*eq = '\0';
		if (set_one(&q, &given, who, word, eq + 1, e))
			return -1;
		more = at[n] == ',';
		at += n + more;
	}
	if (settle(&q, given, e))
		return -1;
	*p = q;
	return 0;
}

void rk_policy_spec(const rk_policy *p, char out[RK_SPEC_MAX])
{
	size_t at = (size_t)snprintf(out, RK_SPEC_MAX, "%s", p->name);
	const rk_policy *base = need_presets(NULL) ? NULL : find_preset(p->name, NULL);
	if (!base)
		return;		/* not made by rk_policy_parse; its name is all there is to say */
	/* An axis is named only where it departs from the preset, the refresh only where no stride, qc or s implies it. */
	unsigned shown = ~AXES;
	shown |= p->score != base->score ? BIT(SCORE) : 0;
	shown |= p->evict != base->evict ? BIT(EVICT) : 0;
	shown |= refreshes(p) != refreshes(base) ? BIT(REFRESH) : 0;
	const char *sep = ":";
	for (int i = 0; i < N_PARAM && at < RK_SPEC_MAX; i++) {
		if (!(shown & BIT(i)) || !params[i].matters(p))
			continue;
		char v[MAX_VALUE];
		get(p, i, v);
		at += (size_t)snprintf(out + at, RK_SPEC_MAX - at, "%s%s=%s", sep, params[i].opt.name, v);
		sep = ",";
	}
}

int rk_policy_budget(const rk_policy *p, int n_prompt)
{
	if (p->score == RK_SCORE_NONE)
		return 0;
	if (p->k >= 1)
		return (int)p->k;
	/* 0.29 of 100 is 29 although the product in binary is a hair less. */
	int k = (int)floor(p->k * n_prompt + 1e-9);
	return k > 1 ? k : 1;
}

/* Positions per layer and KV head below which the default model's replies fall apart, whatever the policy: at 16 they are still words. */
#define FEW 16

void rk_policy_remark(const rk_policy *p, int n_prompt, char out[RK_REMARK_MAX])
{
	int k = rk_policy_budget(p, n_prompt);
	char v[MAX_VALUE];

	out[0] = '\0';
	if (p->score == RK_SCORE_NONE || p->k >= 1 || k >= FEW || n_prompt < 1)
		return;
	get(p, K, v);
	snprintf(out, RK_REMARK_MAX, "policy %s keeps %d of this first prompt's %d tokens (k=%s), too few for a sensible reply; %s:k=64 does not "
	         "depend on the prompt", p->name, k, n_prompt, v, p->name);
}

int rk_policy_check_budget(const rk_policy *p, int n_prompt, rk_err *e)
{
	int k = rk_policy_budget(p, n_prompt);
	if (by_position(p) && k <= p->sinks) {
		char v[MAX_VALUE];
		get(p, K, v);
		return rk_fail(e, RK_EUSAGE, "policy %s: k=%s of a prompt of %d tokens keeps %d, which must exceed sinks=%d",
		               p->name, v, n_prompt, k, p->sinks);
	}
	return 0;
}

bool rk_policy_keeps_full(const rk_policy *p)
{
	return p->score == RK_SCORE_NONE || refreshes(p);
}

bool rk_policy_query_post(const rk_policy *p)
{
	return p->query == RK_QUERY_POST || p->query == RK_QUERY_POST_CAT;
}

bool rk_policy_query_cat(const rk_policy *p)
{
	return p->query == RK_QUERY_PRE_CAT || p->query == RK_QUERY_POST_CAT;
}

int rk_policy_n_preset(void)
{
	return need_presets(NULL) ? 0 : n_preset;
}

const char *rk_policy_preset_name(int i)
{
	return presets[i].pol.name;
}

const char *rk_policy_preset_doc(int i)
{
	return presets[i].line;
}

/* ---- help ---- */

static void help_param(const struct param *m, FILE *f)
{
	char range[128], doc[600];
	bool all = true;
	rk_opt_range(&m->opt, range, sizeof range);
	size_t at = (size_t)snprintf(doc, sizeof doc, "%s (%s; default %s); for:", m->opt.doc, range, m->opt.def);
	for (int i = 0; i < n_preset && at < sizeof doc; i++) {
		if (m->matters(&presets[i].pol))
			at += (size_t)snprintf(doc + at, sizeof doc - at, " %s", presets[i].pol.name);
		else
			all = false;
	}
	if (all)	/* the axes, whose values come from the preset */
		snprintf(doc, sizeof doc, "%s (%s)", m->opt.doc, range);
	rk_opt_wrap(f, fprintf(f, "  %s", m->opt.name), 12, doc);
}

void rk_policy_help(FILE *f)
{
	rk_err e;
	if (need_presets(&e)) {
		fprintf(f, "%s\n", e.msg);
		return;
	}
	fputs("Policies, written PRESET, PRESET:key=value,... or FILE.yaml[:key=value,...]:\n", f);
	for (int i = 0; i < n_preset; i++) {
		char spec[RK_SPEC_MAX];
		rk_policy_spec(&presets[i].pol, spec);
		fprintf(f, "  %s\n", spec);
		rk_opt_wrap(f, 0, 6, presets[i].line);
		if (presets[i].departs[0])
			rk_opt_wrap(f, fprintf(f, "      departs from its paper:"), 6, presets[i].departs);
	}
	fputs("\nParameters of a policy:\n", f);
	for (int i = 0; i < N_PARAM; i++)
		help_param(&params[i], f);
}
