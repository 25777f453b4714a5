/* chart.c - a line chart: axes with round marks, a line and its name for each series */
#include "chart.h"

#include <math.h>

#define WIDTH  860.0
#define HEIGHT 320.0
#define LEFT   80.0
#define RIGHT  32.0
#define TOP    32.0
#define BOTTOM 46.0

static const char *const colours[] = {
	"#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#0a7b83", "#bf3989", "#57606a"};

void html_text(FILE *file, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '<': fputs("&lt;", file); break;
		case '>': fputs("&gt;", file); break;
		case '&': fputs("&amp;", file); break;
		case '"': fputs("&quot;", file); break;
		default: fputc(*text, file);
		}
}

static const char *unit_of(double *value)
{
	static const char *const units[] = {"", " k", " M", " G", " T"};
	size_t i = 0;

	for (; *value >= 1000 && i + 1 < ARRAY_SIZE(units); i++)
		*value /= 1000;
	return units[i];
}

const char *human_number(double value, char text[32])
{
	const char *unit = unit_of(&value);

	snprintf(text, 32, "%.*f%s", *unit ? 2 : 0, value, unit);
	return text;
}

/* A round number. */
static void label_of(double value, char text[32])
{
	const char *unit = unit_of(&value);

	snprintf(text, 32, "%.4g%s", value, unit);
}

/* ---- one axis: a value's place, from 0 to 1 ---- */

struct axis {
	enum scale scale;
	double low, high; /* as the scale bends them */
};

static double bend(enum scale scale, double value)
{
	switch (scale) {
	case SCALE_LOG10: return log10(value > 1e-9 ? value : 1e-9);
	case SCALE_SIZE: return log2(value > 1 ? value : 1);
	case SCALE_NINES: return -log10(value < 99.9999999 ? 1 - value / 100 : 1e-9);
	case SCALE_LINEAR: break;
	}
	return value;
}

static double place(const struct axis *axis, double value)
{
	return (bend(axis->scale, value) - axis->low) / (axis->high - axis->low);
}

static void axis_fit(struct axis *axis, enum scale scale, const struct chart *chart, bool is_x)
{
	*axis = (struct axis){.scale = scale, .low = INFINITY, .high = -INFINITY};
	for (size_t i = 0; i < chart->n_series; i++)
		for (size_t j = 0; j < chart->series[i].n; j++) {
			double value =
				bend(scale, is_x ? chart->series[i].xs[j] : chart->series[i].ys[j]);

			axis->low = fmin(axis->low, value);
			axis->high = fmax(axis->high, value);
		}
	if (scale == SCALE_LINEAR)
		axis->low = 0;
	if (scale == SCALE_LOG10) {
		axis->low = floor(axis->low);
		axis->high = ceil(axis->high);
	}
	if (scale == SCALE_LINEAR && !is_x)
		axis->high *= 1.08;
	if (!(axis->high > axis->low))
		axis->high = axis->low + 1;
}

/* ---- marks ---- */

struct canvas {
	FILE *file;
	struct axis x, y;
};

static double at_x(const struct canvas *canvas, double value)
{
	return LEFT + place(&canvas->x, value) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const struct canvas *canvas, double value)
{
	return HEIGHT - BOTTOM - place(&canvas->y, value) * (HEIGHT - TOP - BOTTOM);
}

static void mark(const struct canvas *canvas, bool is_x, double value, const char *label)
{
	double x = is_x ? at_x(canvas, value) : LEFT, y = is_x ? TOP : at_y(canvas, value);

	fprintf(canvas->file,
		"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>", x, y,
		is_x ? x : WIDTH - RIGHT, is_x ? HEIGHT - BOTTOM : y);
	fprintf(canvas->file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n",
		is_x ? x : LEFT - 8, is_x ? HEIGHT - BOTTOM + 16 : y + 4, is_x ? "middle" : "end",
		label);
}

/* The next of 1, 2, 5, 10, 20, … that makes at most eight marks. */
static double round_step(double range)
{
	double step = pow(10, floor(log10(range / 8)));

	while (range / step > 8)
		step *= range / step > 40 ? 10 : range / step > 20 ? 5 : 2;
	return step;
}

static void mark_linear(const struct canvas *canvas, bool is_x)
{
	const struct axis *axis = is_x ? &canvas->x : &canvas->y;
	double step = round_step(axis->high - axis->low);
	char label[32];

	for (double value = 0; value <= axis->high * 1.0001; value += step) {
		label_of(value, label);
		mark(canvas, is_x, value, label);
	}
}

static void mark_log(const struct canvas *canvas, bool is_x)
{
	const struct axis *axis = is_x ? &canvas->x : &canvas->y;
	char label[32];

	for (double power = ceil(axis->low); power <= axis->high + 0.001; power++) {
		label_of(pow(10, power), label);
		mark(canvas, is_x, pow(10, power), label);
	}
}

static void mark_sizes(const struct canvas *canvas, bool is_x)
{
	static const char *const units[] = {"", " KiB", " MiB", " GiB"};
	const struct axis *axis = is_x ? &canvas->x : &canvas->y;
	int every = (int)((axis->high - axis->low) / 12) + 1;
	char label[32];

	for (int power = (int)ceil(axis->low); power <= axis->high; power += every) {
		snprintf(label, sizeof(label), "%d%s", 1 << power % 10, units[power / 10 % 4]);
		mark(canvas, is_x, pow(2, power), label);
	}
}

static void mark_nines(const struct canvas *canvas)
{
	static const struct {
		double percent;
		const char *label;
	} marks[] = {{0, "0"}, {50, "50 %"}, {90, "90 %"}, {99, "99 %"}, {99.9, "99.9 %"},
		{99.99, "99.99 %"}, {99.999, "99.999 %"}};

	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		if (place(&canvas->x, marks[i].percent) <= 1.001)
			mark(canvas, true, marks[i].percent, marks[i].label);
}

static void mark_axis(const struct canvas *canvas, bool is_x)
{
	switch (is_x ? canvas->x.scale : canvas->y.scale) {
	case SCALE_LINEAR: mark_linear(canvas, is_x); break;
	case SCALE_LOG10: mark_log(canvas, is_x); break;
	case SCALE_SIZE: mark_sizes(canvas, is_x); break;
	case SCALE_NINES: mark_nines(canvas); break;
	}
}

/* ---- lines ---- */

static void draw_series(const struct canvas *canvas, const struct series *series, size_t i)
{
	const char *colour = colours[i % ARRAY_SIZE(colours)];

	fprintf(canvas->file,
		"<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\" points=\"", colour);
	for (size_t j = 0; j < series->n; j++)
		fprintf(canvas->file, "%.1f,%.1f ", at_x(canvas, series->xs[j]),
			at_y(canvas, series->ys[j]));
	fputs("\"/>\n", canvas->file);
	for (size_t j = 0; j < series->n && series->n <= 40; j++)
		fprintf(canvas->file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\" fill=\"%s\"/>",
			at_x(canvas, series->xs[j]), at_y(canvas, series->ys[j]), colour);
	fprintf(canvas->file, "<text x=\"%.1f\" y=\"20\" fill=\"%s\" class=\"name\">",
		LEFT + 130.0 * (double)i, colour);
	html_text(canvas->file, series->name);
	fputs("</text>\n", canvas->file);
}

static bool is_empty(const struct chart *chart)
{
	for (size_t i = 0; i < chart->n_series; i++)
		if (chart->series[i].n)
			return false;
	return true;
}

static void draw_names(const struct canvas *canvas, const struct chart *chart)
{
	fprintf(canvas->file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">",
		LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 10);
	html_text(canvas->file, chart->x_name);
	fprintf(canvas->file,
		"</text><text transform=\"translate(14 %.1f) rotate(-90)\" text-anchor=\"middle\">",
		TOP + (HEIGHT - TOP - BOTTOM) / 2);
	html_text(canvas->file, chart->y_name);
	fputs("</text>\n", canvas->file);
}

void chart_draw(FILE *file, const struct chart *chart)
{
	struct canvas canvas = {.file = file};

	fputs("<h2>", file);
	html_text(file, chart->title);
	fputs("</h2>\n", file);
	if (is_empty(chart)) {
		fputs("<p>nothing was measured</p>\n", file);
		return;
	}
	axis_fit(&canvas.x, chart->x_scale, chart, true);
	axis_fit(&canvas.y, chart->y_scale, chart, false);
	fprintf(file, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n", WIDTH, HEIGHT);
	mark_axis(&canvas, true);
	mark_axis(&canvas, false);
	draw_names(&canvas, chart);
	for (size_t i = 0; i < chart->n_series; i++)
		draw_series(&canvas, &chart->series[i], i);
	fputs("</svg>\n", file);
}
