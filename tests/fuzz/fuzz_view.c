/* fuzz_view.c: any stream of events, however damaged, goes through the screen's model and every pane at any size.
 *
 * Input: records of a type byte, a lane, an index, sizes and a payload; see take().  Links with everything but main.o.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tui/pane.h"

static int no_event(void *ctx, rk_event *ev, const void **payload)
{
	(void)ctx;
	(void)ev;
	(void)payload;
	return 0;
}

static rk_feed feed = { .fd = -1, .next = no_event, .info = { .model = "m", .weight_bytes = NAN, .bandwidth = NAN } };

/* n bytes of the input, zeros where it has ended. */
static void take(const uint8_t **p, size_t *left, void *dst, size_t n)
{
	size_t k = n < *left ? n : *left;

	memset(dst, 0, n);
	memcpy(dst, *p, k);
	*p += k;
	*left -= k;
}

static void one_event(rk_ui *ui, const uint8_t **p, size_t *left)
{
	static uint64_t aligned[4096];
	rk_event ev = { 0 };
	uint8_t head[4];
	uint16_t size;

	take(p, left, head, sizeof head);
	take(p, left, &size, sizeof size);
	ev.type = head[0] % 14;
	ev.lane = (int8_t)head[1];
	ev.index = (int8_t)head[2];
	take(p, left, &ev.start, sizeof ev.start);
	if (ev.type == RK_EV_START && head[3] & 1) {	/* often a session that is possible */
		ev.start.n_lane = head[2] % 4 + 1;
		ev.start.n_layer = head[3] % 40 + 1;
	}
	ev.size = size % sizeof aligned;
	if (ev.type == RK_EV_STEP && head[3] & 1)
		ev.size = (uint32_t)ui->view.n_layer * sizeof(rk_layer_step);
	if (ev.type == RK_EV_OCCUPANCY && head[3] & 1)
		ev.size = (uint32_t)ui->view.n_layer * sizeof(rk_layer_occupancy);
	if (ev.size > sizeof aligned)
		ev.size = sizeof aligned;
	take(p, left, aligned, ev.size);
	rk_view_event(&ui->view, &ev, aligned);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static rk_ui ui;
	static rk_settings set;
	uint8_t dims[2];

	if (!set.theme.name[0])
		rk_settings_default(&set, NULL);
	if (rk_ui_init(&ui, &feed, &set, NULL))
		return 0;
	rk_view_free(&ui.view);
	rk_view_init(&ui.view, 32, NULL);	/* small, so that the rings go round */
	take(&data, &size, dims, sizeof dims);
	while (size > 0) {
		uint8_t key;
		one_event(&ui, &data, &size);
		take(&data, &size, &key, 1);
		if (ui.lane >= ui.view.n_lane)
			ui.lane = 0;
		if (key & 1 && key != 'S' && key != 'm')	/* not the keys that write files or need a terminal */
			rk_ui_key(&ui, key);
	}
	if (rk_canvas_resize(&ui.canvas, dims[0] + 1, dims[1] / 2 + 1, NULL) == 0)
		for (int id = -1; id < RK_N_PANE; id++) {
			ui.zoomed = id >= 0;
			ui.focus = id >= 0 ? (enum rk_pane_id)id : RK_PANE_CHAT;
			rk_ui_draw(&ui);
		}
	rk_ui_free(&ui);
	return 0;
}
