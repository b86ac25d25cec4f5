/* tour.c: a guided tour through one partial and one full step, with this session's own numbers. */
#include <math.h>
#include <string.h>
#include "tui/pane.h"

struct pick { int64_t serial; int layer; double cos, churn; };

/* The newest step at which some layer took this kind of decision (a check that stayed partial, or a full step), and of its
 * layers the one with the lowest cosine: the closest call, or the clearest case. */
static bool find(const rk_ui *ui, bool full, struct pick *p)
{
	const rk_view *v = &ui->view;
	int best = -1;

	for (int64_t s = v->lane[ui->lane].n_token - 1; v->n_lane && best < 0 && s >= rk_view_oldest(v, ui->lane); s--) {
		const rk_view_layer *l = rk_view_layers_at(v, ui->lane, s);
		for (int i = 0; l && i < v->n_layer; i++)
			if ((l[i].kind == RK_STEP_FULL) == full && (full || l[i].cos != RK_VIEW_NO_COS) && (best < 0 || l[i].cos < l[best].cos))
				best = i;
		if (best >= 0)
			*p = (struct pick){ s, best, l[best].cos == RK_VIEW_NO_COS ? (double)NAN : l[best].cos / 10000.0,
			                    l[best].churn == 255 ? (double)NAN : l[best].churn / 254.0 };
	}
	return best >= 0;
}

/* Text broken at blanks; returns the row after it. */
static int paragraph(rk_canvas *c, rk_rect r, int y, const char *s)
{
	size_t len = strlen(s);

	while (len > 0) {
		size_t n = len;
		if ((int)len > r.w - 4) {
			for (n = (size_t)(r.w - 4); n > 0 && s[n] != ' '; n--)
				;
			if (!n)
				return y;
		}
		rk_put(c, r, 2, y++, RK_ROLE_TEXT, s, n);
		while (n < len && s[n] == ' ')
			n++;
		s += n;
		len -= n;
	}
	return y + 1;
}

static void page_start(const rk_ui *ui, char *out, size_t size, const rk_policy *p)
{
	int n = ui->view.stats.n_prompt, k = rk_policy_budget(p, n);

	snprintf(out, size, "The prompt has %d tokens. It was read once with full attention, and every layer's keys and values of all of them "
	         "are in the full cache, C_f. For each KV head the policy chose K = %d positions (%.1f %% of the prompt) by the attention that the "
	         "prompt's last token paid them, and copied them into the partial cache, C_p. The layer also kept that token's query, "
	         "averaged over its heads: the reference query.", n, k, 100.0 * k / (n ? n : 1));
}

static void page_partial(const rk_ui *ui, char *out, size_t size, const rk_policy *p)
{
	struct pick k = { 0 };

	if (!find(ui, false, &k)) {
		snprintf(out, size, "No layer of this session has checked and stayed partial yet. Let the reply run on and come back.");
		return;
	}
	const rk_view_token *t = rk_view_token_at(&ui->view, ui->lane, k.serial);
	snprintf(out, size, "Step %d, layer %d: a partial step. A check was due, because every QC = %d steps there is one. The cosine between this "
	         "step's query and the reference query was %.4f. The threshold is s = %.2f, and %.4f is not below it: the model is "
	         "still asking about the same thing. So the layer attended to the %d positions of its partial cache and to the new token. Then the "
	         "position at the front of C_p, the one with the lowest score, was dropped and the new token took a place at the end.",
	         t->step + 1, k.layer, p->qc, k.cos, (double)p->s, k.cos, rk_policy_budget(p, ui->view.stats.n_prompt));
}

static void page_full(const rk_ui *ui, char *out, size_t size, const rk_policy *p)
{
	struct pick k = { 0 };

	if (!find(ui, true, &k)) {
		snprintf(out, size, "No layer of this session has taken a full step yet. Let the reply run on and come back.");
		return;
	}
	const rk_view_token *t = rk_view_token_at(&ui->view, ui->lane, k.serial);
	size_t n = (size_t)snprintf(out, size, "Step %d, layer %d: a full step. ", t->step + 1, k.layer);
	if (isfinite(k.cos))
		n += (size_t)snprintf(out + n, size - n, "The cosine was %.4f, below s = %.2f: the model has begun to ask about something else. ", k.cos,
		                      (double)p->s);
	n += (size_t)snprintf(out + n, size - n, "The layer attended to all %d positions. The probabilities of this query are the new scores, and "
	                      "the best %d positions are the new partial cache", t->pos + 1, rk_policy_budget(p, ui->view.stats.n_prompt));
	if (isfinite(k.churn))
		n += (size_t)snprintf(out + n, size - n, "; %.0f %% of what it held was replaced (churn)", 100 * k.churn);
	snprintf(out + n, size - n, ". This query becomes the new reference query. %d of the %d layers took a full step at this token.", t->n_full,
	         ui->view.n_layer);
}

static void page_cost(const rk_ui *ui, char *out, size_t size)
{
	const rk_view *v = &ui->view;
	rk_view_speed s = rk_view_speed_at(v, ui->lane, v->lane[ui->lane].n_token - 1, 64);
	double read = s.bytes_full + s.bytes_partial + s.bytes_score, running, windowed;
	char a[RK_FMT], b[RK_FMT];

	rk_view_ratio_at(v, v->lane[0].n_token - 1, &running, &windowed);
	size_t n = (size_t)snprintf(out, size, "Over the last %d steps a step read %s of keys and values; attending to everything would have read "
	                            "%s. That is what is saved. ", s.n, rk_fmt_bytes(a, read), rk_fmt_bytes(b, s.bytes_vanilla));
	if (ui->lane == 0 && isfinite(running))
		snprintf(out + n, size - n, "What is paid for it: a perplexity ratio of %.3f to vanilla on the same tokens. 1.000 would mean that nothing was "
		         "lost.", running);
	else
		snprintf(out + n, size - n, "What is paid for it is not measured here: there is no vanilla baseline.");
}

void rk_tour_draw(rk_ui *ui, rk_canvas *c, rk_rect r)
{
	static const char *const title[RK_TOUR_PAGES] = { "Reading the prompt", "A partial step", "A full step", "When which?", "What it saves, what it costs",
	                                                  "Where to look" };
	char text[1600] = "";
	rk_policy p = { 0 };
	char num[RK_FMT];

	int page = ui->overlay_top;
	bool known = rk_ui_policy(ui, ui->lane, &p) && p.score != RK_SCORE_NONE;
	rk_putf(c, r, 2, 0, RK_ROLE_TITLE, "Guided tour, %d of %d: %s", page + 1, RK_TOUR_PAGES, title[page]);
	if (!known && page < 4)
		snprintf(text, sizeof text, "%s", ui->view.n_lane ? "This lane attends to everything at every step; the tour needs a policy with a partial cache." :
		         "There is no session yet. Ask a question first; the tour uses its numbers.");
	else if (page == 0)
		page_start(ui, text, sizeof text, &p);
	else if (page == 1)
		page_partial(ui, text, sizeof text, &p);
	else if (page == 2)
		page_full(ui, text, sizeof text, &p);
	else if (page == 3)
		snprintf(text, sizeof text, "Each layer decides for itself. So far a layer takes a full step every %s steps on average: its effective stride. The "
		         "stride pane shows it layer by layer. Long bars are layers that rarely look back at the whole document. Raise s and "
		         "more checks fail: better and slower. Raise QC and checks are rarer: faster and blinder. The key p changes both while the "
		         "reply runs.", rk_fmt_real(num, rk_stats_stride(&ui->view.stats, ui->lane), 1));
	else if (page == 4 && ui->view.n_lane)
		page_cost(ui, text, sizeof text);
	else
		snprintf(text, sizeof text, "One cursor runs through everything: h and l move it from token to token in the conversation, and the timeline, the "
		         "occupancy, the ratio and the speed then speak of that token. Esc lets it go. Space holds the reply, . lets one token through. "
		         "The key ? explains every key and every word.");
	paragraph(c, r, 2, text);
	rk_puts(c, (rk_rect){ r.x, r.y + r.h, r.w, 1 }, 2, 0, RK_ROLE_DIM, " l next   h back   Esc closes ");
}
