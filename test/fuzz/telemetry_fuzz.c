/* telemetry_fuzz.c - any bytes as a request of a telemetry client
 *
 * The first two bytes say how much room the answer has. What is answered lies within it, is one
 * object of JSON by its brackets and quotes, and has no byte that JSON has not.
 */

#include "obs/obs.h"
#include "obs/text.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void demand(bool holds)
{
	if (!holds)
		abort();
}

void vbn__obs_count(enum obs_count which)
{
	demand(which < OBS_COUNTS);
}

static const struct counter_name names[] = {{"sent", "messages sent"}, {"lost", "messages lost"}};
static const uint64_t values[2] = {1, UINT64_MAX};

static void describe(const struct counter_set *set, struct fact_list *list)
{
	vbn__fact_text(list, "text", set->object);
	vbn__fact_gauge(list, "gauge", "what goes up and down", 7);
}

static struct counter_set sets[40];

static void register_sets(void)
{
	static const char *const objects[] = {"mlx5_0/17", "o\"d\\d", "\xff\xfe", "\n\x01"};

	if (sets[0].kind)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
		sets[i] = (struct counter_set){.kind = i % 2 ? "queue" : "worker",
			.names = names,
			.values = values,
			.n = 2,
			.numbered = !(i % 2),
			.id = (uint32_t)i,
			.describe = i % 3 ? describe : NULL};
		strcpy(sets[i].object, objects[i % ARRAY_SIZE(objects)]);
		vbn__counters_add(&sets[i]);
	}
}

/* Every string ends, and every bracket is closed by its own. */
static void demand_json(const char *text, size_t len)
{
	char open[16];
	size_t depth = 0, n;
	bool string = false;

	demand(len && text[0] == '{');
	for (size_t i = 0; i < len; i += n) {
		n = vbn__utf8(text + i, len - i);
		demand(n && (unsigned char)text[i] >= ' ');
		if (string) {
			n += text[i] == '\\';
			string = text[i] != '"';
		} else if (text[i] == '"') {
			string = true;
		} else if (text[i] == '{' || text[i] == '[') {
			demand(depth < sizeof(open));
			open[depth++] = text[i] == '{' ? '}' : ']';
		} else if (text[i] == '}' || text[i] == ']') {
			demand(depth && open[--depth] == text[i]);
			demand(depth || i + 1 == len);
		}
	}
	demand(!depth && !string);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	static char answer[4096];
	size_t room, len;

	if (size < 2 || size - 2 > TELEMETRY_MAX_REQUEST + 1)
		return 0;
	register_sets();
	room = 1024 + (size_t)(bytes[0] | bytes[1] << 8) % (sizeof(answer) - 1024 + 1);
	len = vbn__telemetry_answer((const char *)bytes + 2, size - 2, answer, room);
	demand(len <= room);
	demand_json(answer, len);
	return 0;
}
