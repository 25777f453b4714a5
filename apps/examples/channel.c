/* channel.c - channels: connect by address, send, get an answer, end
 *
 *     verbena vhca -- ./channel                        both ends in this process
 *     verbena vhca -- ./channel :4000                  listens, for one peer
 *     verbena vhca -- ./channel 127.0.0.1:4000 hello   sends words, prints what comes back
 */
#include <stdio.h>
#include <string.h>
#include <verbena.h>

struct job {
	struct vbn_port *port;
	struct vbn_channel_group *group;
	const char *listen_at, *connect_to;
	const char *const *words;
	int n_words, n_said;
	int n_open; /* channels not closed yet */
};

/* The listening end sends each message back, in the buf that it came in. */
static int answer(struct vbn_channel *channel, const void *data, size_t len, void *arg)
{
	struct job *job = arg;

	printf("a peer connects: %.*s\n", (int)len, (const char *)data);
	vbn_channel_set_context(channel, job); /* that is how it is told from one that asks */
	job->n_open++;
	return 0;
}

/* The next word, when the last one has come back: so neither end ever has to keep what a channel has
 * no room for. A program that sends more at a time waits for VBN_CHANNEL_READY with the rest. */
static void say(struct job *job, struct vbn_channel *channel)
{
	struct vbn_buf *buf;

	if (job->n_said == job->n_words ||
		vbn_buf_alloc(vbn_channel_group_pool(job->group), &buf, 1) < 0) {
		vbn_channel_end(channel);
		return;
	}
	buf->len = (uint32_t)snprintf((char *)buf->data, 4096, "%s", job->words[job->n_said++]) + 1;
	if (vbn_channel_send(channel, &buf, 1) != 1) {
		vbn_buf_free(&buf, 1);
		vbn_channel_end(channel);
	}
}

static void on_event(struct job *job, struct vbn_channel_event *event)
{
	bool answers = vbn_channel_context(event->channel);

	switch (event->op) {
	case VBN_CHANNEL_OPENED:
		if (!answers)
			say(job, event->channel);
		break;
	case VBN_CHANNEL_MESSAGE:
		if (answers && vbn_channel_send(event->channel, &event->buf, 1) == 1)
			break; /* the buf is the library's */
		if (!answers)
			printf("came back: %s\n", (char *)event->data);
		vbn_channel_release(event);
		if (!answers)
			say(job, event->channel);
		break;
	case VBN_CHANNEL_ENDED: vbn_channel_end(event->channel); break;
	case VBN_CHANNEL_FAILED:
		fprintf(stderr, "%s\n", vbn_channel_error(event->channel));
		/* fall through */
	case VBN_CHANNEL_CLOSED:
		vbn_channel_close(event->channel);
		if (!--job->n_open)
			vbn_stop();
		break;
	}
}

static int poll_channels(struct vbn_worker *worker, void *arg)
{
	struct job *job = arg;
	struct vbn_channel_event events[32];
	int n = vbn_channel_poll(job->group, events, 32);

	(void)worker;
	for (int i = 0; i < n; i++)
		on_event(job, &events[i]);
	return n;
}

static void end(struct vbn_worker *worker, void *arg)
{
	(void)worker;
	vbn_channel_group_destroy(((struct job *)arg)->group);
}

static int set_up(struct vbn_worker *worker, void *arg)
{
	struct job *job = arg;
	struct vbn_channel_group_conf conf = {0};
	struct vbn_channel_listener *listener;
	struct vbn_channel *channel;
	int ret = vbn_channel_group_create(worker, job->port, &conf, &job->group);

	if (!ret)
		ret = vbn_worker_add_exit(worker, end, job);
	if (!ret && job->listen_at) {
		ret = vbn_channel_listen(job->group, job->listen_at, answer, job, &listener);
		if (!ret && !job->n_words)
			fprintf(stderr, "listening on %s\n",
				vbn_channel_listener_address(listener));
		if (!ret && job->n_words && !job->connect_to)
			job->connect_to = vbn_channel_listener_address(listener);
	}
	if (!ret && job->connect_to) {
		ret = vbn_channel_connect(job->group, job->connect_to, "hello", 5, &channel);
		job->n_open++;
	}
	return ret ? ret : vbn_worker_add_poll(worker, poll_channels, job);
}

int main(int argc, char **argv)
{
	static const char *const words[] = {"one", "two", "three"};
	struct job job = {.listen_at = "127.0.0.1:0", .words = words, .n_words = 3};
	struct vbn_run_conf run = {.cores = "0"};
	int ret;

	if (argc > 1 && argv[1][0] == '-' && strncmp(argv[1], "--vbn-", 6)) {
		fprintf(stderr,
			"usage: channel [ADDR:PORT [WORD...]]\n"
			"Both ends here; with ADDR:PORT alone it listens, with words it connects.\n");
		return strcmp(argv[1], "--help") ? 2 : 0;
	}
	if (vbn_init(&argc, &argv) || vbn_port_open("mlx5_0", NULL, &job.port))
		return 1;
	if (argc == 2)
		job = (struct job){.port = job.port, .listen_at = argv[1]};
	if (argc > 2)
		job = (struct job){.port = job.port,
			.connect_to = argv[1],
			.words = (const char *const *)argv + 2,
			.n_words = argc - 2};
	ret = vbn_run(&run, set_up, &job);
	vbn_port_close(job.port);
	vbn_fini();
	return ret != 0;
}
