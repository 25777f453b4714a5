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

static double ratio(double part, double whole)
{
	return whole > 0 ? part / whole : NAN;
}

static double pid_of(const struct row *row)
{
	return (double)row->process->pid;
}

/* ---- workers ---- */

static double worker_core(const struct row *row)
{
	return object_number(row->now, "core");
}

double worker_busy(const struct row *row)
{
	return ratio(counted(row, "busy_cycles"), counted(row, "total_cycles"));
}

static double worker_messages(const struct row *row)
{
	return rate(row, "messages");
}

static double worker_bytes(const struct row *row)
{
	return rate(row, "bytes");
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
	{"PID", "pid", 8, SHOWN_COUNT, pid_of, NULL},
	{"CORE", "core", 5, SHOWN_COUNT, worker_core, NULL},
	{"BUSY", "busy_share", 6, SHOWN_SHARE, worker_busy, NULL},
	{"", NULL, N_HISTORY + 1, SHOWN_SPARK, NULL, NULL},
	{"MSG/S", "msg_rate", 9, SHOWN_NUMBER, worker_messages, NULL},
	{"B/S", "byte_rate", 9, SHOWN_NUMBER, worker_bytes, NULL},
	{"BURST/S", "burst_rate", 9, SHOWN_NUMBER, worker_bursts, NULL},
	{"/BURST", "messages_per_burst", 7, SHOWN_NUMBER, worker_per_burst, NULL},
	{"CYC/MSG", "cycles_per_message", 8, SHOWN_NUMBER, worker_cycles, NULL},
};

/* ---- queues ---- */

static double queue_worker(const struct row *row)
{
	return object_number(row->now, "worker");
}

static double queue_tx(const struct row *row)
{
	return rate(row, "tx_messages");
}

static double queue_rx(const struct row *row)
{
	return rate(row, "rx_messages");
}

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
	{"PID", "pid", 8, SHOWN_COUNT, pid_of, NULL},
	{"W", "worker", 3, SHOWN_COUNT, queue_worker, NULL},
	{"TYPE", "transport", 5, SHOWN_TEXT, NULL, "transport"},
	{"TX/S", "tx_rate", 9, SHOWN_NUMBER, queue_tx, NULL},
	{"RX/S", "rx_rate", 9, SHOWN_NUMBER, queue_rx, NULL},
	{"B/S", "byte_rate", 9, SHOWN_NUMBER, queue_bytes, NULL},
	{"/BELL", "messages_per_doorbell", 7, SHOWN_NUMBER, queue_per_doorbell, NULL},
	{"FLIGHT", "in_flight", 7, SHOWN_COUNT, queue_in_flight, NULL},
	{"DROPS", "drops", 7, SHOWN_NUMBER, queue_drops, NULL},
};

/* ---- pools, ports ---- */

static double pool_bufs(const struct row *row)
{
	return object_number(row->now, "bufs");
}

static double pool_free(const struct row *row)
{
	return object_number(row->now, "free_bufs");
}

static double pool_used(const struct row *row)
{
	double bufs = pool_bufs(row);

	return ratio(bufs - pool_free(row), bufs);
}

static double pool_node(const struct row *row)
{
	return object_number(row->now, "node");
}

static double pool_size(const struct row *row)
{
	return object_number(row->now, "buf_bytes");
}

static double pool_empty(const struct row *row)
{
	return object_number(row->now, "empty");
}

static const struct column pool_columns[] = {
	{"PID", "pid", 8, SHOWN_COUNT, pid_of, NULL},
	{"NODE", "node", 5, SHOWN_COUNT, pool_node, NULL},
	{"SIZE", "buf_bytes", 8, SHOWN_COUNT, pool_size, NULL},
	{"BUFS", "bufs", 9, SHOWN_COUNT, pool_bufs, NULL},
	{"FREE", "free_bufs", 9, SHOWN_COUNT, pool_free, NULL},
	{"USED", "used_share", 6, SHOWN_SHARE, pool_used, NULL},
	{"EMPTY", "empty", 8, SHOWN_NUMBER, pool_empty, NULL},
};

static double port_up(const struct row *row)
{
	return object_number(row->now, "up");
}

static double port_speed(const struct row *row)
{
	return object_number(row->now, "speed_mbit") * 1e6;
}

static double port_mtu(const struct row *row)
{
	return object_number(row->now, "mtu");
}

static double port_queues(const struct row *row)
{
	return object_number(row->now, "queues");
}

static double port_downs(const struct row *row)
{
	return object_number(row->now, "went_down");
}

static const struct column port_columns[] = {
	{"PID", "pid", 8, SHOWN_COUNT, pid_of, NULL},
	{"DRIVER", "driver", 8, SHOWN_TEXT, NULL, "driver"},
	{"UP", "up", 4, SHOWN_COUNT, port_up, NULL},
	{"BIT/S", "speed_bit", 9, SHOWN_NUMBER, port_speed, NULL},
	{"MTU", "mtu", 6, SHOWN_COUNT, port_mtu, NULL},
	{"QUEUES", "queues", 8, SHOWN_COUNT, port_queues, NULL},
	{"DOWNS", "went_down", 6, SHOWN_COUNT, port_downs, NULL},
};

/* ---- channels ---- */

static double channel_credits(const struct row *row)
{
	return object_number(row->now, "tx_credits");
}

static const struct column channel_columns[] = {
	{"PID", "pid", 8, SHOWN_COUNT, pid_of, NULL},
	{"W", "worker", 3, SHOWN_COUNT, queue_worker, NULL},
	{"PEER", "peer", 22, SHOWN_TEXT, NULL, "peer"},
	{"STATE", "state", 11, SHOWN_TEXT, NULL, "state"},
	{"TX/S", "tx_rate", 9, SHOWN_NUMBER, queue_tx, NULL},
	{"RX/S", "rx_rate", 9, SHOWN_NUMBER, queue_rx, NULL},
	{"CREDIT", "tx_credits", 7, SHOWN_COUNT, channel_credits, NULL},
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
