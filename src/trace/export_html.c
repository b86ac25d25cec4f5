/* export_html.c: one page with everything in it, and the panes as files of their own; see export.h.
 *
 * The page is src/trace/report.html with its {{places}} filled in; report.css and report.js go inside.  All three travel in
 * the binary.
 */
#include "trace/export.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/embedded.h"
#include "trace/json.h"
#include "trace/svg.h"

#define MAX_TOKEN 5000	/* of a lane's reply that the page shows token by token */
#define MAX_POINT 2000	/* of a ratio curve */

struct page {
	FILE *f;
	const rk_series *s;
	rk_stats *stats;	/* of the last session */
};

static const char *embedded(const char *name)
{
	const rk_embedded *file = rk_embedded_find(name);

	return file ? file->data : "";
}

static void put_style(const struct page *p) { fputs(embedded("src/trace/report.css"), p->f); }
static void put_script(const struct page *p) { fputs(embedded("src/trace/report.js"), p->f); }
static void put_timeline(const struct page *p) { rk_svg_pane(p->f, p->s, RK_PANE_TIMELINE, NULL); }
static void put_stride(const struct page *p) { rk_svg_pane(p->f, p->s, RK_PANE_STRIDE, NULL); }
static void put_occupancy(const struct page *p) { rk_svg_pane(p->f, p->s, RK_PANE_OCCUPANCY, NULL); }
static void put_ratio(const struct page *p) { rk_svg_pane(p->f, p->s, RK_PANE_RATIO, NULL); }

static void put_text(FILE *f, const char *s)
{
	rk_xml_text(f, s, strlen(s));
}

static void put_title(const struct page *p)
{
	put_text(p->f, p->s->head.model[0] ? p->s->head.model : "A trace");
	if (p->s->n_lane == 1) {
		char name[RK_SPEC_MAX];
		snprintf(name, sizeof name, "%s", p->s->lane[0].spec);
		name[strcspn(name, ":")] = '\0';	/* the preset; the table has the parameters */
		fputs(" under ", p->f);
		put_text(p->f, name);
	} else {
		fprintf(p->f, " under %d policies", p->s->n_lane);
	}
}

static void put_facts(const struct page *p)
{
	const rk_trace_header *h = &p->s->head;
	FILE *f = p->f;

	fprintf(f, "refreshkv ");
	put_text(f, h->program);
	fputc(' ', f);
	put_text(f, h->command);
	if (p->s->n_prompt)
		fprintf(f, ", %d tokens of prompt", p->s->n_prompt);
	fprintf(f, ", %d layers, %d KV heads, ", h->n_layer, h->n_kv_head);
	put_text(f, h->device);
	fputc(' ', f);
	put_text(f, h->isa);
	fprintf(f, ", %d threads. Recorded ", h->n_thread);
	put_text(f, h->started);
	fputs(", run ", f);
	put_text(f, h->run_id);
	if (h->model_sha256[0])
		fprintf(f, ", model SHA-256 %.12s", h->model_sha256);
	if (p->s->lost)
		fprintf(f, ". %lld events were lost while recording", (long long)p->s->lost);
	fputc('.', f);
}

static void put_cell(FILE *f, double v, int decimals, const char *unit)
{
	if (isfinite(v))
		fprintf(f, "<td>%.*f%s</td>", decimals, v, unit);
	else
		fputs("<td>n/a</td>", f);
}

static void put_summary(const struct page *p)
{
	rk_stats *stats = p->stats;
	FILE *f = p->f;

	fputs("<table><tr><th>policy</th><th>tokens</th><th>perplexity ratio</th><th>ms/token</th><th>MB read/step</th>"
	      "<th>of vanilla</th><th>effective stride</th></tr>\n", f);
	for (int i = 0; i < p->s->n_lane; i++) {
		const rk_lane_stats *l = &stats->lane[i];
		fputs("<tr><td>", f);
		put_text(f, p->s->lane[i].spec);
		fprintf(f, "</td><td>%zu</td>", p->s->lane[i].n_token);
		put_cell(f, rk_series_ratio(p->s, i, 0, p->s->lane[i].n_token), 4, "");
		put_cell(f, rk_stats_ms_median(stats, i), 2, "");
		put_cell(f, rk_stats_bytes_per_step(stats, i) / 1e6, 2, "");
		double read = (double)(l->bytes_full + l->bytes_partial + l->bytes_score);
		put_cell(f, l->bytes_vanilla ? 100 * read / (double)l->bytes_vanilla : (double)NAN, 1, " %");
		put_cell(f, rk_stats_stride(stats, i), 1, "");
		fputs("</tr>\n", f);
	}
	fputs("</table>", f);
}

/* ---- the reply, a span per token ---- */

static int full_layers(const rk_series *s, const rk_series_lane *l, size_t step)
{
	int n = 0;

	for (int i = 0; i < s->n_layer && step < l->n_step; i++)
		n += l->cell[step * (size_t)s->n_layer + (size_t)i] == RK_CELL_FULL;
	return n;
}

static void put_replies(const struct page *p)
{
	FILE *f = p->f;

	for (int i = 0; i < p->s->n_lane; i++) {
		const rk_series_lane *l = &p->s->lane[i];
		if (p->s->n_lane > 1) {
			fprintf(f, "<p>%d: ", i + 1);
			put_text(f, l->spec);
			fputs("</p>", f);
		}
		fprintf(f, "<div class=\"reply\" data-lane=\"%d\">", i);
		for (size_t j = 0; j < l->n_token && j < MAX_TOKEN; j++) {
			const rk_series_token *t = &l->token[j];
			int full = full_layers(p->s, l, t->step);
			if (!t->n_text)
				continue;
			fprintf(f, "<span data-i=\"%zu\" data-full=\"%d\" style=\"--full:%.2f\">", j, full, (double)full / p->s->n_layer);
			rk_xml_text(f, l->text + t->text, t->n_text);
			fputs("</span>", f);
		}
		fputs("</div>\n", f);
		if (l->n_token > MAX_TOKEN)
			fprintf(f, "<p>The first %d of %zu tokens.</p>\n", MAX_TOKEN, l->n_token);
	}
}

/* ---- the data behind the pointer ---- */

/* A row per layer, a character per column: "." partial, "c" checked, "g" glance, 1 to 8 eighths of the steps full. */
static json_t *cells_json(const rk_series *s, const rk_series_lane *l)
{
	size_t per = rk_svg_steps_per_column(l), n_col = (l->n_step + per - 1) / per;
	char *row = malloc(n_col + 1);
	json_t *rows = json_array();

	for (int i = 0; row && i < s->n_layer && n_col; i++) {
		for (size_t j = 0; j < n_col; j++) {
			int shade = rk_svg_shade(l, s->n_layer, j, i);
			row[j] = (char)(shade == RK_SHADE_GLANCE ? 'g' : shade == RK_SHADE_CHECKED ? 'c' : shade == 0 ? '.' : '0' + shade);
		}
		json_array_append_new(rows, json_stringn(row, n_col));
	}
	free(row);
	return rows;
}

static json_t *tokens_json(const rk_series_lane *l)
{
	json_t *a = json_array();

	for (size_t i = 0; i < l->n_token && i < MAX_TOKEN; i++) {
		const rk_series_token *t = &l->token[i];
		json_array_append_new(a, json_pack("[o, o, o, I]", rk_json_text(l->text + t->text, t->n_text), rk_trace_real(-t->nll),
		                                   rk_trace_real(-t->base_nll), (json_int_t)t->step));
	}
	return a;
}

static json_t *ratio_json(const rk_series *s, int lane, size_t per)
{
	const rk_series_lane *l = &s->lane[lane];
	json_t *a = json_array();
	rk_ratio_point *p = lane != s->base && rk_series_has_ratio(s, lane) ? rk_svg_ratio_curve(l) : NULL;

	for (size_t i = 0; p && i < l->n_token; i += per)
		json_array_append_new(a, json_pack("[o, o]", rk_trace_real((float)p[i].running), rk_trace_real((float)p[i].windowed)));
	free(p);
	return a;
}

/* The page's script reads it; "<" is escaped, so that no text can end the script. */
static void put_data(const struct page *p)
{
	json_t *lanes = json_array();
	size_t longest = 0;

	for (int i = 0; i < p->s->n_lane; i++)
		longest = p->s->lane[i].n_token > longest ? p->s->lane[i].n_token : longest;
	size_t per = longest / MAX_POINT + 1;
	for (int i = 0; i < p->s->n_lane; i++) {
		const rk_series_lane *l = &p->s->lane[i];
		json_array_append_new(lanes, json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "count", (json_int_t)l->n_token,
			"steps", (json_int_t)l->n_step, "per", (json_int_t)rk_svg_steps_per_column(l), "ratioPer", (json_int_t)per,
			"cells", cells_json(p->s, l), "tokens", tokens_json(l), "ratio", ratio_json(p->s, i, per)));
	}
	json_t *root = json_pack("{s:i, s:o}", "layers", p->s->n_layer, "lanes", lanes);
	char *text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
	json_decref(root);
	for (const char *c = text ? text : "{\"layers\":0,\"lanes\":[]}"; *c; c++)
		if (*c == '<')
			fputs("\\u003c", p->f);
		else
			fputc(*c, p->f);
	free(text);
}

static const struct place {
	const char *name;
	void (*put)(const struct page *p);
} places[] = {
	{ "title", put_title }, { "style", put_style }, { "facts", put_facts }, { "summary", put_summary }, { "timeline", put_timeline },
	{ "stride", put_stride }, { "occupancy", put_occupancy }, { "ratio", put_ratio }, { "replies", put_replies }, { "data", put_data },
	{ "script", put_script },
};

static void put_place(const struct page *p, const char *name, size_t n)
{
	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		if (strlen(places[i].name) == n && !memcmp(places[i].name, name, n))
			places[i].put(p);
}

static int load(rk_series *s, rk_stats *stats, rk_trace *t, rk_err *e)
{
	rk_event ev;
	const void *payload;
	int rc = rk_trace_seek(t, 0, e);

	rk_series_init(s, rk_trace_head(t));
	rk_stats_init(stats);
	while (rc == 0 && (rc = rk_trace_next(t, &ev, &payload, e)) > 0)
		rc = rk_series_add(s, &ev, payload, e) || rk_stats_add(stats, &ev, payload, e) ? -1 : 0;
	rk_series_end(s);
	return rc;
}

int rk_export_html(rk_trace *t, FILE *f, rk_err *e)
{
	rk_series s;
	rk_stats stats;
	const struct page p = { f, &s, &stats };
	const char *at = embedded("src/trace/report.html"), *open, *close;
	int rc = load(&s, &stats, t, e);

	while (rc == 0 && (open = strstr(at, "{{")) && (close = strstr(open, "}}"))) {
		fwrite(at, 1, (size_t)(open - at), f);
		put_place(&p, open + 2, (size_t)(close - open - 2));
		at = close + 2;
	}
	if (rc == 0)
		fputs(at, f);
	rk_stats_free(&stats);
	rk_series_free(&s);
	return rc;
}

int rk_export_svg(rk_trace *t, enum rk_pane pane, FILE *f, rk_err *e)
{
	rk_series s;
	int rc;

	rk_series_init(&s, rk_trace_head(t));
	rc = rk_series_load(&s, t, e);
	if (rc == 0)
		rk_svg_pane(f, &s, pane, embedded("src/trace/report.css"));
	rk_series_free(&s);
	return rc;
}
