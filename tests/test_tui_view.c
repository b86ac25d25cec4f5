/* test_tui_view.c: the screen's model from made-up events, and panes drawn from it in memory, at every size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tui/pane.h"

#define LAYERS 6

static void start(rk_view *v, int n_lane)
{
	rk_event ev = { .type = RK_EV_START, .lane = -1, .start = { .n_prompt = 128, .n_lane = n_lane, .n_layer = LAYERS, .bytes_full = 1000000,
	                .bytes_partial = 125000 } };
	char specs[400] = "";

	for (int i = 0; i < n_lane; i++)
		strcat(specs, i == 1 ? "vanilla\n" : "refreshkv:k=0.125,pool=7,group=max,qc=5,s=0.85,query=pre,attend=full\n");
	ev.size = (uint32_t)strlen(specs);
	rk_view_event(v, &ev, specs);
}

static void token(rk_view *v, int lane, int index, int id, const char *text)
{
	rk_event ev = { .type = RK_EV_TOKEN, .lane = (int8_t)lane, .index = index, .size = (uint32_t)strlen(text) };

	ev.token.id = id;
	ev.token.pos = 100 + index;
	ev.token.logprob = -1;
	ev.token.kl = NAN;
	for (int i = 0; i < RK_TOP; i++) {
		ev.token.top_id[i] = id + i;
		ev.token.top_logprob[i] = -1.0f - (float)i;
	}
	rk_view_event(v, &ev, text);
}

/* Layer `full` takes a full step, the next one checks and stays partial. */
static void step(rk_view *v, int lane, int index, int full)
{
	rk_layer_step l[LAYERS];
	rk_event ev = { .type = RK_EV_STEP, .lane = (int8_t)lane, .index = index, .size = sizeof l };

	for (int i = 0; i < LAYERS; i++)
		l[i] = (rk_layer_step){ .cos = i == full ? 0.5f : i == full + 1 ? 0.9f : NAN, .churn = i == full ? 0.25f : NAN,
		                        .kind = i == full ? RK_STEP_FULL : RK_STEP_PARTIAL };
	ev.step.pos = 100 + index;
	ev.step.ns_shared = 8000000;
	ev.step.ns_attn = 2000000;
	ev.step.bytes_partial = 13000;
	ev.step.bytes_vanilla = 100000;
	rk_view_event(v, &ev, l);
}

static void shadow(rk_view *v, int index, float logprob)
{
	rk_event ev = { .type = RK_EV_SHADOW, .lane = 0, .index = index };

	ev.shadow.logprob = logprob;
	ev.shadow.kl = 0.1f;
	ev.shadow.same_top1 = true;
	ev.shadow.ns = 1000000;
	ev.shadow.ns_vanilla_attn = 5000000;
	rk_view_event(v, &ev, "");
}

static void occupancy(rk_view *v, int lane)
{
	rk_layer_occupancy o[LAYERS] = { 0 };
	rk_event ev = { .type = RK_EV_OCCUPANCY, .lane = (int8_t)lane, .size = sizeof o };

	for (int i = 0; i < LAYERS; i++)
		o[i] = (rk_layer_occupancy){ .sink = 4, .prompt = 20, .generated = 8, .recent = 10, .coverage = { 255, 128, 0, 1 } };
	rk_view_event(v, &ev, o);
}

static void end(rk_view *v, int lane, int n)
{
	rk_event ev = { .type = RK_EV_END, .lane = (int8_t)lane, .end = { .reason = RK_END_TOKEN, .n_token = n } };

	rk_view_event(v, &ev, "");
}

static void reply(rk_view *v, int lanes, int n)
{
	for (int i = 0; i < n; i++) {
		for (int l = 0; l < lanes; l++)
			token(v, l, i, i >= 5 && l ? 77 : i, i % 10 == 9 ? "\n" : i % 3 ? "word " : "Wörter ");
		for (int l = 0; l < lanes; l++)
			step(v, l, i, i % LAYERS);
		if (i % 16 == 15)
			occupancy(v, 0);
	}
	for (int l = 0; l < lanes; l++)
		end(v, l, n);
}

static void tokens_and_steps(void **state)
{
	rk_view v;

	(void)state;
	assert_int_equal(rk_view_init(&v, 64, NULL), 0);
	start(&v, 1);
	rk_view_say(&v, RK_ITEM_USER, "question");
	token(&v, 0, 0, 7, "Hello");
	assert_null(rk_view_layers_at(&v, 0, 0));
	step(&v, 0, 0, 2);
	token(&v, 0, 1, 8, " world");
	const rk_view_layer *l = rk_view_layers_at(&v, 0, 0);
	assert_non_null(l);
	assert_int_equal(l[2].kind, RK_STEP_FULL);
	assert_int_equal(l[2].cos, 5000);
	assert_int_equal(l[3].cos, 9000);
	assert_int_equal(l[0].cos, RK_VIEW_NO_COS);
	assert_int_equal(rk_view_token_at(&v, 0, 0)->n_full, 1);
	assert_int_equal(rk_view_token_of(&v, &v.item[v.n_item - 1], 0, 4), 0);
	assert_int_equal(rk_view_token_of(&v, &v.item[v.n_item - 1], 0, 5), 1);
	assert_int_equal(rk_view_token_of(&v, &v.item[v.n_item - 1], 0, 11), -1);
	assert_int_equal(rk_view_token_at(&v, 0, 1)->item, 1);
	rk_view_free(&v);
}

/* exp(mean NLL_policy - mean NLL_vanilla) over what the shadow has scored, and n/a without it. */
static void ratio(void **state)
{
	rk_view v;
	double running, windowed;

	(void)state;
	assert_int_equal(rk_view_init(&v, 1024, NULL), 0);
	start(&v, 1);
	for (int i = 0; i < 200; i++)
		token(&v, 0, i, i, "x");
	rk_view_ratio_at(&v, 199, &running, &windowed);
	assert_true(isnan(running) && isnan(windowed));
	for (int i = 0; i < 200; i++)
		shadow(&v, i, i < 100 ? -1.0f : -0.5f);
	rk_view_ratio_at(&v, 99, &running, &windowed);
	assert_true(fabs(running - 1) < 1e-9 && fabs(windowed - 1) < 1e-9);
	rk_view_ratio_at(&v, 199, &running, &windowed);
	assert_true(fabs(running - exp(0.25)) < 1e-6);
	assert_true(fabs(windowed - exp(0.5)) < 1e-6);
	rk_view_free(&v);
}

static void first_difference(void **state)
{
	rk_view v;

	(void)state;
	assert_int_equal(rk_view_init(&v, 64, NULL), 0);
	start(&v, 2);
	reply(&v, 2, 12);
	assert_int_equal(v.item[0].differs[0], -1);
	assert_int_equal(v.item[0].differs[1], 5);
	assert_true(isnan(rk_view_lane_ratio(&v, 0)));	/* other tokens: no ratio */
	rk_view_free(&v);
}

/* Lanes that are given the same tokens part where one would have taken another; their texts stay comparable. */
static void first_difference_of_given_tokens(void **state)
{
	rk_view v;

	(void)state;
	assert_int_equal(rk_view_init(&v, 64, NULL), 0);
	start(&v, 2);
	for (int i = 0; i < 8; i++)
		for (int lane = 0; lane < 2; lane++) {
			rk_event ev = { .type = RK_EV_TOKEN, .lane = (int8_t)lane, .index = i, .size = 1 };
			ev.token.id = 40 + i;
			ev.token.forced = true;
			ev.token.top_id[0] = lane && i >= 3 ? 7 : 8;
			ev.token.logprob = lane ? -1 : -2;
			rk_view_event(&v, &ev, "x");
		}
	assert_int_equal(v.item[0].differs[1], 3);
	assert_true(fabs(rk_view_lane_ratio(&v, 0) - exp(1)) < 1e-6);
	rk_view_free(&v);
}

/* 10,000 tokens through a ring of 256: text stays whole, details are those of the last 256, memory does not grow. */
static void bounded(void **state)
{
	rk_view v;

	(void)state;
	assert_int_equal(rk_view_init(&v, 256, NULL), 0);
	start(&v, 1);
	reply(&v, 1, 10000);
	assert_null(rk_view_token_at(&v, 0, 10000 - 257));
	assert_non_null(rk_view_token_at(&v, 0, 10000 - 256));
	assert_int_equal(v.item[0].text_len[0], v.lane[0].n_text);
	assert_true(v.lane[0].cap_text < 3 * v.lane[0].n_text);
	assert_false(v.out_of_memory);
	rk_view_free(&v);
}

/* A recording may say anything; and a session whose start was lost is not drawn. */
static void hostile(void **state)
{
	rk_view v;
	rk_event ev = { .type = RK_EV_START, .start = { .n_lane = 200, .n_layer = 5 } };

	(void)state;
	assert_int_equal(rk_view_init(&v, 64, NULL), 0);
	token(&v, 0, 0, 1, "x");
	step(&v, 3, 0, 1);
	rk_view_event(&v, &ev, "");
	ev.start.n_lane = 1;
	ev.start.n_layer = 100000;
	rk_view_event(&v, &ev, "");
	assert_int_equal(v.n_lane, 0);
	start(&v, 1);
	ev = (rk_event){ .type = RK_EV_STEP, .lane = 0, .size = 4 };
	rk_view_event(&v, &ev, "abcd");
	ev = (rk_event){ .type = RK_EV_OCCUPANCY, .lane = 0, .size = 4 };
	rk_view_event(&v, &ev, "abcd");
	ev = (rk_event){ .type = RK_EV_SHADOW, .lane = 0, .index = -5 };
	rk_view_event(&v, &ev, "");
	ev = (rk_event){ .type = RK_EV_TOKEN, .lane = -3 };
	rk_view_event(&v, &ev, "");
	ev = (rk_event){ .type = RK_EV_END, .lane = 7 };
	rk_view_event(&v, &ev, "");
	rk_view_free(&v);
}

/* Lines kept up to date token by token are those made in one go; notes may come into the middle of a reply. */
static void lines_grow_as_made_at_once(void **state)
{
	rk_view v;

	(void)state;
	for (int width = 3; width < 60; width += 5) {
		rk_chat_lines a = { 0 }, b = { 0 };
		assert_int_equal(rk_view_init(&v, 512, NULL), 0);
		start(&v, 1);
		rk_view_say(&v, RK_ITEM_USER, "A question with several words\nand a second line");
		for (int i = 0; i < 300; i++) {
			token(&v, 0, i, i, i % 17 == 0 ? "\n" : i % 31 == 0 ? " 漢字 " : i % 23 == 0 ? "averyverylongwordwithoutanybreaks" : " word");
			if (i == 100)
				rk_view_note(&v, "a note in between");
			rk_chat_lines_update(&a, &v, 0, width);
		}
		rk_chat_lines_update(&b, &v, 0, width);
		assert_int_equal(a.n, b.n);
		for (int i = 0; i < a.n; i++) {
			assert_int_equal(a.line[i].item, b.line[i].item);
			if (a.line[i].item >= 0) {
				assert_int_equal(a.line[i].at, b.line[i].at);
				assert_int_equal(a.line[i].len, b.line[i].len);
			}
		}
		rk_chat_lines_free(&a);
		rk_chat_lines_free(&b);
		rk_view_free(&v);
	}
}

/* Lanes move up when one is dropped: what they said is not what those in their places said before. */
static void replies_of_lanes_that_are_gone(void **state)
{
	static const char *const specs[] = { "vanilla\nsnapkv\nh2o\n", "snapkv\nh2o\n", "snapkv\nvanilla\n" };	/* one less, another one */
	rk_event ev = { .type = RK_EV_START, .lane = -1, .start = { .n_prompt = 128, .n_layer = LAYERS } };
	rk_view v;
	size_t len;

	(void)state;
	assert_int_equal(rk_view_init(&v, 64, NULL), 0);
	for (int i = 0; i < 3; i++) {
		ev.start.n_lane = i ? 2 : 3;
		ev.size = (uint32_t)strlen(specs[i]);
		rk_view_event(&v, &ev, specs[i]);
		for (int l = 0; l < ev.start.n_lane; l++) {
			char text[32];
			snprintf(text, sizeof text, "%d.%d", i, l);
			token(&v, l, 0, 7, text);
			end(&v, l, 1);
		}
		assert_int_equal(v.n_item, i + 1);
		for (int l = 0; l < 2; l++) {
			assert_int_equal(rk_chat_text(&v, &v.item[i], l, &len)[2], '0' + l);
			assert_int_equal(rk_view_token_of(&v, &v.item[i], l, 0), i);
			for (int k = 0; k < i; k++) {
				assert_memory_equal(rk_chat_text(&v, &v.item[k], l, &len), k ? "1.0" : "0.0", 3);
				assert_int_equal(rk_view_token_of(&v, &v.item[k], l, 0), -1);
			}
		}
	}
	/* the same lanes again, as after :new or a question asked again: what is there stays theirs */
	rk_view_event(&v, &ev, specs[2]);
	assert_int_equal(rk_view_token_of(&v, &v.item[2], 1, 0), 2);
	rk_view_free(&v);
}

/* ---- the whole screen in memory ---- */

static int no_event(void *ctx, rk_event *ev, const void **payload)
{
	(void)ctx;
	(void)ev;
	(void)payload;
	return 0;
}

static int asked;
static int ask(void *ctx, const char *user, rk_err *e)
{
	(void)ctx;
	(void)user;
	(void)e;
	asked++;
	return 0;
}

static rk_feed feed = { .fd = -1, .next = no_event, .ask = ask, .info = { .model = "model", .n_ctx = 4096, .weight_bytes = 1e8, .bandwidth = NAN } };

static void ui_open(rk_ui *ui)
{
	rk_settings set;

	rk_settings_default(&set, NULL);
	assert_int_equal(rk_ui_init(ui, &feed, &set, NULL), 0);
}

static char *dump(rk_ui *ui, int cols, int rows)
{
	char *out;
	size_t n;

	assert_int_equal(rk_canvas_resize(&ui->canvas, cols, rows, NULL), 0);
	rk_ui_draw(ui);
	FILE *f = open_memstream(&out, &n);
	rk_canvas_write(&ui->canvas, f);
	fclose(f);
	return out;
}

static void every_size_draws(void **state)
{
	static rk_ui ui;

	(void)state;
	for (int lanes = 0; lanes <= 2; lanes++)
		for (int utf8 = 0; utf8 <= 1; utf8++) {
			ui_open(&ui);
			ui.canvas.utf8 = utf8;
			if (lanes) {
				start(&ui.view, lanes);
				rk_view_say(&ui.view, RK_ITEM_USER, "wide: 漢字 👍🏽 e\u0301");
				reply(&ui.view, lanes, 70);
				for (int i = 0; i < 60; i++)
					shadow(&ui.view, i, -0.9f);
			}
			ui.inspect = true;
			for (int mode = 0; mode < 5; mode++) {
				ui.compare = mode == 1;
				ui.overlay = mode == 2 ? RK_OVERLAY_HELP : mode == 3 ? RK_OVERLAY_TOUR : RK_OVERLAY_NONE;
				ui.zoomed = mode == 4;
				ui.focus = (enum rk_pane_id)(mode == 4 ? RK_PANE_OCCUPANCY : RK_PANE_CHAT);
				ui.cursor = lanes && mode ? 30 : -1;
				for (int rows = 1; rows < 70; rows += rows < 30 ? 1 : 7)
					for (int cols = 1; cols < 220; cols += cols < 90 ? 3 : 17)
						free(dump(&ui, cols, rows));
			}
			rk_ui_free(&ui);
		}
}

static void says_what_is_not_known(void **state)
{
	static rk_ui ui;

	(void)state;
	ui_open(&ui);
	start(&ui.view, 1);
	for (int i = 0; i < 30; i++) {
		token(&ui.view, 0, i, i, "word ");
		step(&ui.view, 0, i, 0);
	}
	char *s = dump(&ui, 120, 40);
	assert_non_null(strstr(s, "no baseline"));
	assert_null(strstr(s, "1.000"));	/* never shown for a comparison that was not made */
	assert_non_null(strstr(s, "vanilla n/a"));
	assert_non_null(strstr(s, " n/a"));	/* layers without a full step */
	assert_non_null(strstr(s, "reported every 16 steps"));
	free(s);
	s = dump(&ui, 20, 5);
	assert_non_null(strstr(s, "have 20x5"));
	assert_non_null(strstr(s, "need 24x6"));
	free(s);
	rk_ui_free(&ui);
}

static void ascii_only(void **state)
{
	static rk_ui ui;

	(void)state;
	ui_open(&ui);
	ui.canvas.utf8 = false;
	start(&ui.view, 1);
	reply(&ui.view, 1, 40);
	char *s = dump(&ui, 120, 40);
	for (const char *p = s; *p; p++)
		assert_true((unsigned char)*p < 127);
	assert_non_null(strstr(s, "W?rter"));
	free(s);
	rk_ui_free(&ui);
}

static void keys_do_what_they_say(void **state)
{
	static rk_ui ui;

	(void)state;
	ui_open(&ui);
	start(&ui.view, 1);
	reply(&ui.view, 1, 40);
	rk_view_event(&ui.view, &(rk_event){ .type = RK_EV_IDLE }, "");
	free(dump(&ui, 120, 40));
	assert_true(ui.typing);
	rk_ui_key(&ui, 'q');	/* a letter while typing */
	assert_false(ui.quit);
	rk_ui_key(&ui, RK_KEY_PASTE_BEGIN);
	rk_ui_key(&ui, RK_KEY_ENTER);	/* pasted: does not send */
	rk_ui_key(&ui, 'z');
	rk_ui_key(&ui, RK_KEY_PASTE_END);
	assert_string_equal(ui.input.text, "q\nz");
	asked = 0;
	rk_ui_key(&ui, RK_KEY_ENTER);
	assert_int_equal(asked, 1);
	rk_view_event(&ui.view, &(rk_event){ .type = RK_EV_IDLE }, "");
	rk_ui_key(&ui, RK_KEY_ESC);
	assert_false(ui.typing);
	rk_ui_key(&ui, 'h');
	assert_int_equal(ui.cursor, 39);
	rk_ui_key(&ui, 'h');
	assert_int_equal(ui.cursor, 38);
	rk_ui_key(&ui, RK_KEY_ESC);
	assert_int_equal(ui.cursor, -1);
	rk_ui_key(&ui, RK_KEY_TAB);
	assert_int_equal(ui.focus, RK_PANE_SPEED);
	rk_ui_key(&ui, '/');
	for (const char *p = "wÖRT"; *p; p++)
		rk_ui_key(&ui, *p == (char)0xc3 ? (p++, 0xf6) : *p);
	rk_ui_key(&ui, RK_KEY_ENTER);
	assert_int_equal(ui.found_item, 0);
	rk_ui_command(&ui, "dmp");
	assert_true(ui.message_error);
	assert_non_null(strstr(ui.message, "dump"));
	rk_ui_key(&ui, RK_CTRL('c'));
	assert_false(ui.quit);
	rk_ui_key(&ui, RK_CTRL('c'));
	assert_true(ui.quit);
	rk_ui_free(&ui);
}

/* ---- lanes that the source has and the screen has not seen ---- */

static int lanes_there, lane_dropped, lanes_added;
static int n_lane(void *ctx) { (void)ctx; return lanes_there; }
static int add_lane(void *ctx, const char *spec, rk_err *e) { (void)ctx; (void)spec; (void)e; lanes_added++; return 0; }
static int drop_lane(void *ctx, int lane, rk_err *e) { (void)ctx; (void)e; lane_dropped = lane; return 0; }

static int ask_again(void *ctx, const rk_said *turn, int n, int seed, rk_err *e)
{
	(void)ctx;
	(void)turn;
	(void)n;
	(void)seed;
	(void)e;
	asked++;
	return 0;
}

/* A screen over f on which one question was answered by one lane. */
static void answered(rk_ui *ui, rk_feed *f)
{
	ui_open(ui);
	ui->feed = f;
	start(&ui->view, 1);
	rk_view_say(&ui->view, RK_ITEM_USER, "question");
	reply(&ui->view, 1, 3);
	ui->view.phase = RK_PHASE_IDLE;
}

/* A lane whose caches had no room never started: it can be dropped all the same, and counts. */
static void lanes_that_never_started(void **state)
{
	static rk_ui ui;
	rk_feed f = feed;

	(void)state;
	f.n_lane = n_lane;
	f.add_lane = add_lane;
	f.drop_lane = drop_lane;
	f.ask_again = ask_again;
	answered(&ui, &f);
	lanes_there = 2;
	lane_dropped = -1;
	rk_ui_drop_lane(&ui, 2);
	assert_non_null(strstr(ui.message, "1 to 2"));
	assert_int_equal(lane_dropped, -1);
	rk_ui_drop_lane(&ui, 1);
	assert_int_equal(lane_dropped, 1);
	ui.view.phase = RK_PHASE_IDLE;
	lanes_there = RK_LANES_SHOWN;
	rk_ui_add_lane(&ui, "vanilla");
	assert_int_equal(lanes_added, 0);
	lanes_there = 1;
	rk_ui_add_lane(&ui, "vanilla");
	assert_int_equal(lanes_added, 1);
	rk_ui_free(&ui);
}

static int asked_again, tokens_wait;
static int count_again(void *ctx, const rk_said *turn, int n, int seed, rk_err *e)
{
	asked_again++;
	return ask_again(ctx, turn, n, seed, e);
}

static int a_token(void *ctx, rk_event *ev, const void **payload)
{
	(void)ctx;
	*ev = (rk_event){ .type = RK_EV_TOKEN, .size = 1 };
	*payload = "x";
	return tokens_wait-- > 0;
}

/* A conversation that is asked again starts from an empty session: until it is answered, nobody else holds it. */
static void a_conversation_that_failed_goes_along(void **state)
{
	static rk_ui ui;
	rk_feed f = feed;

	(void)state;
	f.ask_again = count_again;
	f.next = a_token;
	answered(&ui, &f);
	rk_ui_regenerate(&ui, false);
	assert_int_equal(asked_again, 1);
	ui.view.phase = RK_PHASE_IDLE;	/* its prompt did not fit */
	rk_ui_ask(&ui, "another");
	assert_int_equal(asked_again, 2);
	tokens_wait = 1;
	rk_ui_drain(&ui);
	rk_ui_ask(&ui, "a further one");
	assert_int_equal(asked_again, 2);
	rk_ui_free(&ui);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tokens_and_steps), cmocka_unit_test(ratio), cmocka_unit_test(first_difference),
		cmocka_unit_test(first_difference_of_given_tokens), cmocka_unit_test(bounded),
		cmocka_unit_test(hostile), cmocka_unit_test(lines_grow_as_made_at_once), cmocka_unit_test(replies_of_lanes_that_are_gone),
		cmocka_unit_test(every_size_draws),
		cmocka_unit_test(says_what_is_not_known), cmocka_unit_test(ascii_only), cmocka_unit_test(keys_do_what_they_say),
		cmocka_unit_test(lanes_that_never_started), cmocka_unit_test(a_conversation_that_failed_goes_along),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
