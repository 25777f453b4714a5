/* top_views.c - the views of `verbena top`: of each the columns, and how their numbers come about */
#include "top.h"

#include <math.h>

/* ---- an object's numbers ---- */

double object_number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_integer(value) ? (double)json_integer_value(value) : NAN;
}

/* What was counted in the last interval. */
static double counted(const struct row *row, const char *key)
{
	if (!row->before)
		return NAN;
	return fmax(object_number(row->now, key) - object_number(row->before, key), 0);
}

static double rate(const struct row *row, const char *key)
{
	return row->seconds > 0 ? counted(row, key) / row->seconds : NAN;
}

double column_value(const struct column *column, const struct row *row)
{
	if (column->number)
		return object_number(row->now, column->number);
	if (column->rate)
		return rate(row, column->rate);
	return column->value ? column->value(row) : NAN;
}

static double ratio(double part, double whole)
{
	return whole > 0 ? part / whole : NAN;
}

static double pid_of(const struct row *row)
{
	return (double)row->process->pid;
}

/* ---- workers ---- */

double worker_busy(const struct row *row)
{
	return ratio(counted(row, "busy_cycles"), counted(row, "total_cycles"));
}

static double busy_turns(const struct row *row)
{
	return counted(row, "iterations") - counted(row, "idle_iterations");
}

static double worker_bursts(const struct row *row)
{
	return row->seconds > 0 ? busy_turns(row) / row->seconds : NAN;
}

static double worker_per_burst(const struct row *row)
{
	return ratio(counted(row, "messages"), busy_turns(row));
}

static double worker_cycles(const struct row *row)
{
	return ratio(counted(row, "busy_cycles"), counted(row, "messages"));
}

static const struct column worker_columns[] = {
	{"PID", "pid", 8, SHOWN_COUNT, .value = pid_of},
	{"CORE", "core", 5, SHOWN_COUNT, .number = "core"},
	{"BUSY", "busy_share", 6, SHOWN_SHARE, .value = worker_busy},
	{"", NULL, N_HISTORY + 1, SHOWN_SPARK, .value = NULL},
	{"MSG/S", "msg_rate", 9, SHOWN_NUMBER, .rate = "messages"},
	{"B/S", "byte_rate", 9, SHOWN_NUMBER, .rate = "bytes"},
	{"BURST/S", "burst_rate", 9, SHOWN_NUMBER, .value = worker_bursts},
	{"/BURST", "messages_per_burst", 7, SHOWN_NUMBER, .value = worker_per_burst},
	{"CYC/MSG", "cycles_per_message", 8, SHOWN_NUMBER, .value = worker_cycles},
};

/* ---- queues ---- */

static double queue_bytes(const struct row *row)
{
	return rate(row, "tx_bytes") + rate(row, "rx_bytes");
}

static double queue_per_doorbell(const struct row *row)
{
	return ratio(counted(row, "tx_messages"), counted(row, "tx_doorbells"));
}

static double queue_in_flight(const struct row *row)
{
	double out = object_number(row->now, "tx_messages") - object_number(row->now, "tx_done") -
		object_number(row->now, "tx_flushed");

	return fmax(out, 0);
}

static double queue_drops(const struct row *row)
{
	return object_number(row->now, "rx_no_buf") + object_number(row->now, "tx_flushed") +
		object_number(row->now, "rx_flushed");
}

static const struct column queue_columns[] = {
	{"PID", "pid", 8, SHOWN_COUNT, .value = pid_of},
	{"W", "worker", 3, SHOWN_COUNT, .number = "worker"},
	{"TYPE", "transport", 5, SHOWN_TEXT, .text = "transport"},
	{"TX/S", "tx_rate", 9, SHOWN_NUMBER, .rate = "tx_messages"},
	{"RX/S", "rx_rate", 9, SHOWN_NUMBER, .rate = "rx_messages"},
	{"B/S", "byte_rate", 9, SHOWN_NUMBER, .value = queue_bytes},
	{"/BELL", "messages_per_doorbell", 7, SHOWN_NUMBER, .value = queue_per_doorbell},
	{"FLIGHT", "in_flight", 7, SHOWN_COUNT, .value = queue_in_flight},
	{"DROPS", "drops", 7, SHOWN_NUMBER, .value = queue_drops},
};

/* ---- pools, ports ---- */

static double pool_used(const struct row *row)
{
	double bufs = object_number(row->now, "bufs");

	return ratio(bufs - object_number(row->now, "free_bufs"), bufs);
}

static const struct column pool_columns[] = {
	{"PID", "pid", 8, SHOWN_COUNT, .value = pid_of},
	{"NODE", "node", 5, SHOWN_COUNT, .number = "node"},
	{"SIZE", "buf_bytes", 8, SHOWN_COUNT, .number = "buf_bytes"},
	{"BUFS", "bufs", 9, SHOWN_COUNT, .number = "bufs"},
	{"FREE", "free_bufs", 9, SHOWN_COUNT, .number = "free_bufs"},
	{"USED", "used_share", 6, SHOWN_SHARE, .value = pool_used},
	{"EMPTY", "empty", 8, SHOWN_NUMBER, .number = "empty"},
};

static double port_speed(const struct row *row)
{
	return object_number(row->now, "speed_mbit") * 1e6;
}

static const struct column port_columns[] = {
	{"PID", "pid", 8, SHOWN_COUNT, .value = pid_of},
	{"DRIVER", "driver", 8, SHOWN_TEXT, .text = "driver"},
	{"UP", "up", 4, SHOWN_COUNT, .number = "up"},
	{"BIT/S", "speed_bit", 9, SHOWN_NUMBER, .value = port_speed},
	{"MTU", "mtu", 6, SHOWN_COUNT, .number = "mtu"},
	{"QUEUES", "queues", 8, SHOWN_COUNT, .number = "queues"},
	{"DOWNS", "went_down", 6, SHOWN_COUNT, .number = "went_down"},
};

/* ---- channels ---- */

static const struct column channel_columns[] = {
	{"PID", "pid", 8, SHOWN_COUNT, .value = pid_of},
	{"W", "worker", 3, SHOWN_COUNT, .number = "worker"},
	{"PEER", "peer", 22, SHOWN_TEXT, .text = "peer"},
	{"STATE", "state", 11, SHOWN_TEXT, .text = "state"},
	{"TX/S", "tx_rate", 9, SHOWN_NUMBER, .rate = "tx_messages"},
	{"RX/S", "rx_rate", 9, SHOWN_NUMBER, .rate = "rx_messages"},
	{"CREDIT", "tx_credits", 7, SHOWN_COUNT, .number = "tx_credits"},
};

/* The columns that sort at first: what is of most interest on top. */
const struct view views[] = {
	{"workers", KIND_WORKER, "WORKER", 8, worker_columns, ARRAY_SIZE(worker_columns), 4},
	{"queues", KIND_QUEUE, "QUEUE", 16, queue_columns, ARRAY_SIZE(queue_columns), 5},
	{"pools", KIND_POOL, "POOL", 20, pool_columns, ARRAY_SIZE(pool_columns), 5},
	{"ports", KIND_PORT, "PORT", 20, port_columns, ARRAY_SIZE(port_columns), 5},
	{"channels", KIND_CHANNEL, "CHANNEL", 11, channel_columns, ARRAY_SIZE(channel_columns), 4},
};
const size_t n_views = ARRAY_SIZE(views);
static_assert(ARRAY_SIZE(worker_columns) <= MAX_COLUMNS && ARRAY_SIZE(queue_columns) <= MAX_COLUMNS,
	"a row has a value for each column");
