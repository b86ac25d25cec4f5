/* export_csv.c: three tables; see export.h.  Text is quoted as in RFC 4180; an unknown value is an empty field. */
#include "trace/export.h"

#include <math.h>
#include <string.h>

const char *rk_step_kind_name(enum rk_step_kind kind)
{
	return kind == RK_STEP_FULL ? "full" : kind == RK_STEP_GLANCE ? "glance" : "partial";
}

struct csv {
	const rk_csv_files *f;
	const rk_series *s;
	size_t n_token[RK_MAX_LANE];		/* rows written */
	rk_layer_step last[RK_MAX_LANE][RK_MAX_LAYER];	/* of each lane's last step, for the positions that follow it */
	bool positions;
};

static void put_text(FILE *f, const char *s, size_t n)
{
	fputs(",\"", f);
	for (size_t i = 0; i < n; i++)
		fputs(s[i] == '"' ? "\"\"" : (char[]){ s[i], '\0' }, f);
	fputc('"', f);
}

static void put_real(FILE *f, float v)
{
	fputc(',', f);
	if (isfinite(v))
		fprintf(f, "%.9g", (double)v);
}

static void put_token(struct csv *c, const rk_event *ev)
{
	FILE *f = c->f->token;
	const rk_series_lane *l = &c->s->lane[ev->lane];
	const rk_series_token *t = &l->token[c->n_token[ev->lane]++];

	fprintf(f, "%d,%d,%d,%d", ev->lane, ev->index, ev->token.pos, ev->token.id);
	put_text(f, l->text + t->text, t->n_text);
	put_real(f, ev->token.logprob);
	put_real(f, ev->token.lse);
	put_real(f, -t->base_nll);
	put_real(f, t->kl);
	fprintf(f, ",%s,%d,%.6f\n", isnan(t->kl) ? "" : t->same_top1 ? "1" : "0", ev->token.forced, (double)ev->t_ns / 1e9);
}

static void put_refresh(FILE *f, const rk_event *ev, int layer, const rk_layer_step *step)
{
	fprintf(f, "%d,%d,%d", ev->lane, ev->index, layer);
	put_real(f, step ? step->cos : NAN);
	put_real(f, step ? step->churn : NAN);
}

static void put_step(struct csv *c, const rk_event *ev, const rk_layer_step *layers)
{
	FILE *f = c->f->step;

	memcpy(c->last[ev->lane], layers, ev->size);
	for (int i = 0; i < c->s->n_layer; i++) {
		fprintf(f, "%d,%d,%d,%d,%s", ev->lane, ev->index, ev->step.pos, i, rk_step_kind_name(layers[i].kind));
		put_real(f, layers[i].cos);
		put_real(f, layers[i].churn);
		fputc('\n', f);
		if (!c->positions && !isnan(layers[i].churn)) {
			put_refresh(c->f->refresh, ev, i, &layers[i]);
			fputs(",,,\n", c->f->refresh);
		}
	}
}

/* Consecutive positions in the order of the slots: "7 12-15 3". */
static void put_ranges(FILE *f, const int32_t *p, int32_t n)
{
	for (int32_t i = 0, j; i < n; i = j) {
		for (j = i + 1; j < n && p[j] == p[j - 1] + 1; j++)
			;
		fprintf(f, j - i > 1 ? "%s%d-%d" : "%s%d", i ? " " : "", p[i], p[j - 1]);
	}
}

/* The selection of the prefill (step -1) has no step that it belongs to. */
static void put_positions(struct csv *c, const rk_event *ev, const int32_t *p)
{
	FILE *f = c->f->refresh;
	const int32_t *end = p + ev->size / sizeof *p;
	int layer = ev->positions.layer;

	for (int h = 0; p < end; h++) {
		int32_t n = *p++;
		put_refresh(f, ev, layer, ev->index < 0 ? NULL : &c->last[ev->lane][layer]);
		fprintf(f, ",%d,%d,", h, n);
		put_ranges(f, p, n);
		fputc('\n', f);
		p += n;
	}
}

int rk_export_csv(rk_trace *t, const rk_csv_files *files, rk_err *e)
{
	rk_series s;
	rk_event ev;
	const void *payload;
	struct csv c = { .f = files, .s = &s, .positions = rk_trace_head(t)->positions };
	int rc;

	rk_series_init(&s, rk_trace_head(t));
	for (int i = 0; i < RK_MAX_LANE; i++)
		for (int j = 0; j < RK_MAX_LAYER; j++)
			c.last[i][j] = (rk_layer_step){ .cos = NAN, .churn = NAN };
	fputs("lane,index,pos,id,text,logprob,lse,logprob_full,kl,same_top1,forced,seconds\n", files->token);
	fputs("lane,step,pos,layer,kind,cos,churn\n", files->step);
	fputs("lane,step,layer,cos,churn,kv_head,n_kept,kept\n", files->refresh);
	/* Twice: what full attention says of a token comes after the token. */
	rc = rk_series_load(&s, t, e) || rk_trace_seek(t, 0, e) ? -1 : 0;
	while (rc == 0 && (rc = rk_trace_next(t, &ev, &payload, e)) > 0) {
		rc = 0;
		if (ev.type == RK_EV_TOKEN && c.n_token[ev.lane] < s.lane[ev.lane].n_token)
			put_token(&c, &ev);
		else if (ev.type == RK_EV_STEP)
			put_step(&c, &ev, payload);
		else if (ev.type == RK_EV_POSITIONS)
			put_positions(&c, &ev, payload);
	}
	rk_series_free(&s);
	return rc;
}
