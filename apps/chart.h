/* chart.h - charts as SVG in a page, drawn here so that the page needs nothing else */
#ifndef CHART_H
#define CHART_H

#include "cmd.h"

enum scale {
	SCALE_LINEAR, /* from 0 */
	SCALE_LOG10,
	SCALE_SIZE,  /* bytes, by powers of two */
	SCALE_NINES, /* per cent, as many digits from 100 as nines */
};

struct series {
	const char *name;
	const double *xs, *ys; /* the caller's */
	size_t n;
};

struct chart {
	const char *title, *x_name, *y_name;
	enum scale x_scale, y_scale;
	const struct series *series;
	size_t n_series;
};

/* An <svg> element; a note where there is nothing to draw. */
void chart_draw(FILE *file, const struct chart *chart);

/* Text as it may stand in a page, in an attribute, too. */
void html_text(FILE *file, const char *text);

/* 2413456 is "2.41 M". */
const char *human_number(double value, char text[32]);

#endif
