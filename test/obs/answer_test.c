/* answer_test.c - what the telemetry socket answers, and metrics as text: any request, any name, any
 * number of objects */

#include "../unit/unit.h"

#include "obs/json.h"
#include "obs/metrics.h"
#include "obs/obs.h"
#include "obs/text.h"

#include <jansson.h>
#include <verbena.h>

static const struct counter_name names[] = {
	{"sent", "messages sent"}, {"lost_bytes", "bytes lost"}};
static uint64_t values[2] = {1, INT64_MAX}, more_values[1] = {7};
static const struct counter_name more_names[] = {{"fired", "timers"}};

static void describe(const struct counter_set *set, struct fact_list *list)
{
	(void)set;
	vbn__fact_text(list, "driver", "any \"driver\"");
	vbn__fact_number(list, "depth", 64);
	vbn__fact_gauge(list, "free_bufs", "what is free", 5);
	vbn__fact_counter(list, "messages", "messages", 12);
}

static struct counter_set more = {
	.kind = "worker", .object = "3", .names = more_names, .values = more_values, .n = 1};
static struct counter_set worker = {.kind = "worker",
	.object = "3",
	.names = names,
	.values = values,
	.n = 2,
	.id = 3,
	.numbered = true,
	.more = &more,
	.describe = describe};

static struct counter_set set_of(const char *kind, const char *object)
{
	struct counter_set set = {.kind = kind, .names = names, .values = values, .n = 2};

	snprintf(set.object, sizeof(set.object), "%s", object);
	return set;
}

static char answered[TELEMETRY_MAX_ANSWER + 1];

static json_t *ask_bytes(const char *request, size_t len, size_t size)
{
	size_t n = vbn__telemetry_answer(request, len, answered, size);
	json_error_t error;
	json_t *json;

	assert_in_range(n, 1, size);
	answered[n] = '\0';
	json = json_loadb(answered, n, JSON_ALLOW_NUL, &error);
	if (!json)
		unit_fail("no JSON: %s\n%s", error.text, answered);
	return json;
}

/* The whole answer, as compact text with sorted keys left as they are. */
static const char *ask(const char *request)
{
	json_decref(ask_bytes(request, strlen(request), TELEMETRY_MAX_ANSWER));
	return answered;
}

static void objects(void **state)
{
	struct counter_set queue = set_of("queue", "mlx5_0/17");

	(void)state;
	vbn__counters_add(&worker);
	vbn__counters_add(&queue);
	assert_string_equal(ask("/verbena/worker/list"), "{\"/verbena/worker/list\":[3]}");
	assert_string_equal(ask("/verbena/worker/info,3"),
		"{\"/verbena/worker/info\":{\"id\":3,\"name\":\"3\",\"driver\":\"any \\\"driver\\\"\",\"depth\":64}}");
	assert_string_equal(ask("/verbena/worker/stats,3"),
		"{\"/verbena/worker/stats\":{\"sent\":1,\"lost_bytes\":9223372036854775807,\"fired\":7,\"free_bufs\":5,\"messages\":12}}");
	assert_string_equal(ask("/verbena/queue/stats,mlx5_0/17\n"),
		"{\"/verbena/queue/stats\":{\"sent\":1,\"lost_bytes\":9223372036854775807}}");
	assert_has(ask("/verbena/queue/all"), "\"name\":\"mlx5_0/17\",\"sent\":1");
	assert_string_equal(ask("/verbena/pool/list"), "{\"/verbena/pool/list\":[]}");
	vbn__counters_remove(&queue);
	vbn__counters_remove(&worker);
	assert_string_equal(ask("/verbena/worker/list"), "{\"/verbena/worker/list\":[]}");
}

/* Numbered ones stand in the order of their numbers, the others as they came. */
static void order(void **state)
{
	struct counter_set two = worker, zero = worker, a = set_of("pool", "a"),
			   b = set_of("pool", "b");

	(void)state;
	two.id = 2;
	zero.id = 0;
	two.more = zero.more = NULL;
	vbn__counters_add(&worker);
	vbn__counters_add(&a);
	vbn__counters_add(&zero);
	vbn__counters_add(&b);
	vbn__counters_add(&two);
	assert_string_equal(ask("/verbena/worker/list"), "{\"/verbena/worker/list\":[0,2,3]}");
	assert_string_equal(ask("/verbena/worker/list,1"), "{\"/verbena/worker/list\":[2,3]}");
	assert_true(a.id < b.id);
	vbn__counters_remove(&a);
	vbn__counters_remove(&two);
	vbn__counters_remove(&worker);
	vbn__counters_add(&a);
	assert_true(a.id > b.id); /* an id is never used again */
	assert_string_equal(ask("/verbena/worker/list"), "{\"/verbena/worker/list\":[0]}");
	vbn__counters_remove(&zero);
	vbn__counters_remove(&b);
	vbn__counters_remove(&a);
}

static void refusals(void **state)
{
	static const struct {
		const char *request, *says;
	} cases[] = {
		{"", "no such command"},
		{"nonsense", "no such command"},
		{"/verbena/queue/stats", "which queue is not said"},
		{"/verbena/queue/stats,", "which queue is not said"},
		{"/verbena/queue/stats,99", "there is no queue 99"},
		{"/verbena/queue/info,x", "there is no queue x"},
		{"/verbena/queue/list,x", "no id to begin with"},
		{"/verbena/queue/list,99999999999", "no id to begin with"},
		{"/verbena/queue/everything", "no such command"},
		{"/verbena/queue", "no such command"},
		{"/verbena//list", "no such command"},
		{"/help", "of which command"},
		{"/help,/nothing", "there is no command /nothing"},
	};
	const char *error;
	json_t *json;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		json = ask_bytes(cases[i].request, strlen(cases[i].request), sizeof(answered) - 1);
		assert_int_equal(json_object_size(json), 2);
		error = json_string_value(json_object_get(json, "error"));
		assert_has(error ? error : "nothing", cases[i].says);
		assert_true(json_is_null(json_object_iter_value(json_object_iter(json))));
		json_decref(json);
	}
}

static void hostile_bytes(void **state)
{
	static char request[TELEMETRY_MAX_REQUEST + 1];
	unsigned int seed = 1;

	(void)state;
	memset(request, 'x', sizeof(request));
	json_decref(ask_bytes(request, sizeof(request), 1024));
	assert_has(answered, "no command is so long");
	memset(request, '"', sizeof(request));
	json_decref(ask_bytes(request, sizeof(request), 1024));
	memset(request, 0xff, sizeof(request));
	request[3] = ',';
	json_decref(ask_bytes(request, sizeof(request) - 1, 1024));
	assert_has(answered, "\\u00ff");
	memcpy(request, "/help,", 6);
	json_decref(ask_bytes(request, sizeof(request) - 1, 1024));
	for (int i = 0; i < 3000; i++) {
		size_t len = (size_t)rand_r(&seed) % sizeof(request);

		for (size_t k = 0; k < len; k++)
			request[k] = (char)rand_r(&seed);
		json_decref(ask_bytes(request, len, 1024));
	}
}

/* Every page is whole, and together they are all. */
static size_t count_pages(const char *command, size_t size, size_t *n_pages)
{
	char request[80];
	size_t n = 0;
	json_t *json, *next;

	snprintf(request, sizeof(request), "%s", command);
	for (*n_pages = 1;; (*n_pages)++) {
		json = ask_bytes(request, strlen(request), size);
		n += json_array_size(json_object_get(json, command));
		next = json_object_get(json, "next");
		if (!next)
			break;
		snprintf(request, sizeof(request), "%s,%lld", command,
			(long long)json_integer_value(next));
		json_decref(json);
		if (*n_pages > 1000)
			unit_fail("%s never ends", command);
	}
	json_decref(json);
	return n;
}

static void many(void **state)
{
	enum { N = 1000 };
	struct counter_set *sets = calloc(N, sizeof(*sets));
	char object[32];
	size_t n_pages;

	(void)state;
	for (int i = 0; i < N; i++) {
		snprintf(object, sizeof(object), "mlx5_0/%d", i);
		sets[i] = set_of("queue", object);
		vbn__counters_add(&sets[i]);
	}
	assert_int_equal(count_pages("/verbena/queue/list", 1024, &n_pages), N);
	assert_true(n_pages > 3);
	assert_int_equal(count_pages("/verbena/queue/all", 4096, &n_pages), N);
	assert_true(n_pages > 10);
	assert_int_equal(count_pages("/verbena/queue/list", TELEMETRY_MAX_ANSWER, &n_pages), N);
	assert_int_equal(n_pages, 1);
	for (int i = 0; i < N; i++)
		vbn__counters_remove(&sets[i]);
	free(sets);
}

static void commands(void **state)
{
	struct counter_set odd = set_of("odd_kind", "x");
	json_t *json, *list;
	const char *last = "";

	(void)state;
	vbn__counters_add(&odd);
	json = ask_bytes("/", 1, TELEMETRY_MAX_ANSWER);
	list = json_object_get(json, "/");
	assert_true(json_array_size(list) >= 3 + 8 * 4);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *name = json_string_value(json_array_get(list, i));
		char request[80];

		assert_true(strcmp(last, name) < 0);
		last = name;
		snprintf(request, sizeof(request), "/help,%s", name);
		ask(request);
		if (strstr(answered, "\"error\""))
			unit_fail("no help for %s: %s", name, answered);
	}
	assert_has(ask("/"), "/verbena/odd_kind/stats");
	json_decref(json);
	vbn__counters_remove(&odd);
	assert_has(ask("/info"), "\"version\":\"Verbena ");
}

/* ---- a program's own ---- */

static int echo(const char *params, char *json, size_t size, void *arg)
{
	if (!strcmp(params, "fail"))
		return -EIO;
	if (!strcmp(params, "nothing"))
		return 0;
	if (!strcmp(params, "long")) {
		memset(json, '1', size);
		return 0;
	}
	snprintf(json, size, "{\"%s\":\"%s\"}", (const char *)arg, params);
	return 0;
}

static void own_commands(void **state)
{
	static const char *const bad[] = {"", "/", "nothing", "/verbena/x", "/info", "/help",
		"/a b", "/a,b", "/0123456789012345678901234567890123456789012345678901234567890"};

	(void)state;
	unit_catch_log();
	assert_int_equal(
		vbn_telemetry_command("/me/echo", "Says it again", echo, (char[]){"k"}), 0);
	assert_int_equal(vbn_telemetry_command("/me/echo", "", echo, NULL), -EEXIST);
	assert_logged("/me/echo");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(vbn_telemetry_command(bad[i], "", echo, NULL), -EINVAL);
	assert_string_equal(ask("/me/echo,a,b"), "{\"/me/echo\":{\"k\":\"a,b\"}}");
	assert_string_equal(ask("/me/echo,fail"),
		"{\"/me/echo\":null,\"error\":\"the program's command failed: Input/output error\"}");
	assert_has(ask("/me/echo,nothing"), "null");
	assert_has(ask("/me/echo,long"), "null");
	assert_has(ask("/help,/me/echo"), "Says it again");
	assert_has(ask("/"), "\"/me/echo\"");
	vbn_telemetry_remove("/me/echo");
	vbn_telemetry_remove("/me/echo");
	assert_has(ask("/me/echo,a"), "no such command");
	for (int i = 0; i < 64; i++) {
		char name[16];

		snprintf(name, sizeof(name), "/me/%d", i);
		assert_int_equal(vbn_telemetry_command(name, NULL, echo, NULL), 0);
	}
	assert_int_equal(vbn_telemetry_command("/me/64", NULL, echo, NULL), -ENOSPC);
	for (int i = 0; i < 64; i++) {
		char name[16];

		snprintf(name, sizeof(name), "/me/%d", i);
		vbn_telemetry_remove(name);
	}
}

static void own_counters(void **state)
{
	static const struct vbn_counter_name own_names[] = {
		{"gets", "GETs that were answered"}, {"puts", NULL}};
	static const struct vbn_counter_name bad_names[] = {{"Gets!", ""}};
	static uint64_t own[2];
	struct vbn_counters_conf conf = {
		.kind = "kv", .object = "store", .names = own_names, .values = own, .n = 2};
	struct vbn_counters *counters;

	(void)state;
	unit_catch_log();
	assert_int_equal(vbn_counters_add(&conf, &counters), 0);
	vbn_count(&own[0], 41);
	vbn_count(&own[0], 1);
	assert_string_equal(
		ask("/verbena/kv/stats,store"), "{\"/verbena/kv/stats\":{\"gets\":42,\"puts\":0}}");
	vbn_counters_remove(counters);
	vbn_counters_remove(NULL);
	assert_has(ask("/verbena/kv/stats,store"), "null");
	conf.kind = "queue";
	assert_int_equal(vbn_counters_add(&conf, &counters), -EINVAL);
	conf.kind = "no good";
	assert_int_equal(vbn_counters_add(&conf, &counters), -EINVAL);
	conf.kind = "kv";
	conf.names = bad_names;
	conf.n = 1;
	assert_int_equal(vbn_counters_add(&conf, &counters), -EINVAL);
	assert_null(counters);
}

/* ---- text ---- */

static void utf8(void **state)
{
	static const struct {
		const char *text;
		size_t n;
	} cases[] = {
		{"a", 1},
		{"\xc3\xbc", 2},
		{"\xe2\x82\xac", 3},
		{"\xf0\x9f\x8c\xbf", 4},
		{"\x80", 0},
		{"\xc0\x80", 0},
		{"\xc3", 0},
		{"\xc3(", 0},
		{"\xe0\x80\x80", 0},
		{"\xed\xa0\x80", 0},
		{"\xf4\x90\x80\x80", 0},
		{"\xf8\x88\x80\x80\x80", 0},
		{"\xe2\x82", 0},
		{"", 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(vbn__utf8(cases[i].text, strlen(cases[i].text)), cases[i].n);
}

/* At each size there is: what is written is within it, and one that is not full is whole. */
static void json_of_any_size(void **state)
{
	char text[128];

	(void)state;
	for (size_t size = 0; size < sizeof(text); size++) {
		struct json json;

		memset(text, '#', sizeof(text));
		vbn__json_start(&json, text, size);
		vbn__json_open(&json, '{');
		vbn__json_text_pair(&json, "a", "\xc3\xbc\x01\"\\\xff");
		vbn__json_pair(&json, "b", 5);
		vbn__json_key(&json, "c");
		vbn__json_open(&json, '[');
		vbn__json_number(&json, 1);
		vbn__json_raw(&json, "null");
		vbn__json_close(&json, ']');
		vbn__json_close(&json, '}');
		for (size_t i = size; i < sizeof(text); i++)
			assert_int_equal(text[i], '#');
		if (json.full)
			continue;
		*json.at = '\0';
		assert_string_equal(
			text, "{\"a\":\"\xc3\xbc\\u0001\\\"\\\\\\u00ff\",\"b\":5,\"c\":[1,null]}");
	}
}

static void metrics(void **state)
{
	struct counter_set queue = set_of("queue", "a\"b\\c\nd\xff"), twin = queue;
	size_t len;
	static char text[16384];
	char *made;

	(void)state;
	vbn__counters_add(&worker);
	vbn__counters_add(&queue);
	vbn__counters_add(&twin);
	made = vbn__metrics_text(&len);
	assert_non_null(made);
	assert_in_range(len, 6, sizeof(text) - 1);
	memcpy(text, made, len);
	text[len] = '\0';
	free(made);
	assert_has(text,
		"# TYPE verbena_worker_lost_bytes counter\n# UNIT verbena_worker_lost_bytes bytes\n"
		"# HELP verbena_worker_lost_bytes bytes lost\n"
		"verbena_worker_lost_bytes_total{worker=\"3\"} 9223372036854775807\n");
	assert_has(text, "verbena_worker_fired_total{worker=\"3\"} 7\n");
	assert_has(text, "verbena_worker_free_bufs{worker=\"3\"} 5\n");
	assert_has(text, "verbena_worker_messages_total{worker=\"3\"} 12\n");
	assert_has(text,
		"verbena_worker_info{worker=\"3\",driver=\"any \\\"driver\\\"\",depth=\"64\"} 1\n");
	assert_has(text, "verbena_queue_sent_total{queue=\"a\\\"b\\\\c\\nd?\",id=\"");
	assert_string_equal(text + len - 6, "# EOF\n");
	vbn__counters_remove(&worker);
	vbn__counters_remove(&queue);
	vbn__counters_remove(&twin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects),
		cmocka_unit_test(order),
		cmocka_unit_test(refusals),
		cmocka_unit_test(hostile_bytes),
		cmocka_unit_test(many),
		cmocka_unit_test(commands),
		cmocka_unit_test(own_commands),
		cmocka_unit_test(own_counters),
		cmocka_unit_test(utf8),
		cmocka_unit_test(json_of_any_size),
		cmocka_unit_test(metrics),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
