/* cmd_export.c: `refreshkv export`: a trace for other programs and other people. */
#include "cmd/cmd.h"

#include <stdlib.h>
#include <string.h>
#include "cmd/film.h"
#include "cmd/out.h"
#include "trace/export.h"

enum format { FORMAT_CSV, FORMAT_CHROME, FORMAT_HTML, FORMAT_SVG, FORMAT_ASCIICAST };

struct opts {
	enum format to;
	enum rk_pane pane;
	const char *out, *size;
	double speed;
	int cols, rows;		/* what size says */
};

static const char *const format_names[] = { "csv", "chrome", "html", "svg", "asciicast", NULL };	/* in the order of enum format */

static const rk_opt rows[] = {
	{ "to", 0, RK_OPT_ENUM, offsetof(struct opts, to), .def = "html", .names = format_names,
	  .doc = "csv: three tables; chrome: trace events for Perfetto or chrome://tracing; html: one page that needs nothing else; "
	         "svg: one pane as a drawing; asciicast: the replayed screen for asciinema" },
	{ "pane", 0, RK_OPT_ENUM, offsetof(struct opts, pane), .def = "timeline", .names = rk_pane_names, .doc = "what --to svg draws" },
	{ "size", 0, RK_OPT_STR, offsetof(struct opts, size), .def = "120x40", .metavar = "COLSxROWS",
	  .doc = "of the screen of --to asciicast, up to 500x200" },
	{ "speed", 0, RK_OPT_DOUBLE, offsetof(struct opts, speed), .def = "1", .min = 0.01, .max = 1000, .metavar = "TIMES",
	  .doc = "of --to asciicast: times the recorded pace" },
	{ "output", 'o', RK_OPT_STR, offsetof(struct opts, out), .metavar = "OUT",
	  .doc = "file to write, -: standard output; without it the trace's name with another ending.  For csv OUT.token.csv, OUT.step.csv and "
	         "OUT.refresh.csv" },
	{ 0 }
};

static const rk_opt_group groups[] = { { "Export", rows, 0 }, { 0 } };

const rk_opt_cmd rk_cmd_export_opt = {
	.name = "export", .operands = "TRACE", .groups = groups, .min_operand = 1, .max_operand = 1,
	.doc = "Turn a trace into CSV tables, a Chrome/Perfetto trace, a web page, drawings or a screen recording.",
};

/* The trace's name without its endings. */
static char *stem_of(const char *path)
{
	static const char *const ends[] = { ".zst", ".jsonl" };
	char *stem = strdup(path);
	for (size_t i = 0; stem && i < sizeof ends / sizeof *ends; i++) {
		size_t n = strlen(stem), m = strlen(ends[i]);
		if (n > m && !strcmp(stem + n - m, ends[i]))
			stem[n - m] = '\0';
	}
	return stem;
}

static int export_csv(rk_trace *t, const char *stem, rk_err *e)
{
	static const char *const ends[] = { ".token.csv", ".step.csv", ".refresh.csv" };
	rk_out out[3] = { 0 };
	int rc = 0;
	if (!strcmp(stem, "-"))
		return rk_fail(e, RK_EUSAGE, "--to csv writes three tables, which do not fit standard output: give a name with -o");
	for (int i = 0; i < 3 && rc == 0; i++) {
		char path[RK_PATH_MAX];
		snprintf(path, sizeof path, "%s%s", stem, ends[i]);
		rc = rk_out_open(&out[i], path, e);
	}
	if (rc == 0)
		rc = rk_export_csv(t, &(rk_csv_files){ out[0].f, out[1].f, out[2].f }, e);
	for (int i = 0; i < 3 && rc == 0; i++)
		rc = rk_out_commit(&out[i], e);
	for (int i = 0; i < 3; i++)
		rk_out_discard(&out[i]);
	return rc;
}

static int export_file(rk_trace *t, const struct opts *o, const char *stem, rk_err *e)
{
	static const char *const ends[] = { [FORMAT_HTML] = "html", [FORMAT_CHROME] = "chrome.json", [FORMAT_ASCIICAST] = "cast" };
	char path[RK_PATH_MAX];
	rk_out out;
	int rc;
	if (o->out)
		snprintf(path, sizeof path, "%s", o->out);
	else if (o->to == FORMAT_SVG)
		snprintf(path, sizeof path, "%s.%s.svg", stem, rk_pane_names[o->pane]);
	else
		snprintf(path, sizeof path, "%s.%s", stem, ends[o->to]);
	if (rk_out_open(&out, path, e))
		return -1;
	if (o->to == FORMAT_CHROME)
		rc = rk_export_chrome(t, out.f, e);
	else if (o->to == FORMAT_HTML)
		rc = rk_export_html(t, out.f, e);
	else if (o->to == FORMAT_ASCIICAST)
		rc = rk_film(t, o->cols, o->rows, o->speed, out.f, e);
	else
		rc = rk_export_svg(t, o->pane, out.f, e);
	if (rc == 0)
		rc = rk_out_commit(&out, e);
	rk_out_discard(&out);
	return rc;
}

int rk_cmd_export(int argc, char **argv, rk_err *e)
{
	struct opts o;
	rk_opt_list files;
	rk_trace *t;
	switch (rk_opt_parse(&rk_cmd_export_opt, argc, argv, &o, &files, e)) {
	case 1: rk_opt_help(&rk_cmd_export_opt, stdout); return rk_out_flush(stdout, "standard output", e);
	case -1: return -1;
	}
	if (rk_film_size(o.size, &o.cols, &o.rows, e) || rk_trace_open(&t, files.v[0], e))
		return -1;
	char *stem = stem_of(files.v[0]);
	int rc = !stem ? rk_fail(e, RK_ENOMEM, "no memory") : o.to == FORMAT_CSV ? export_csv(t, o.out ? o.out : stem, e) :
	         export_file(t, &o, stem, e);
	rk_cmd_trace_remarks(stderr, "refreshkv: ", "\n", t, files.v[0], 0);
	free(stem);
	rk_trace_close(t);
	return rc;
}
