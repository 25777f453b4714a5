/* mpi_check.c - an MPI program that checks its data: point to point, collectives, one-sided; any number of ranks */

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { LARGEST = 1 << 20, LAPS = 4, WINDOW = 4 /* messages at once to a rank */ };

static const int sizes[] = {0, 1, 8, 1000, 100 * 1000, LARGEST};
enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static int me, n_ranks;

/* Byte `at` of what `from` sends to `to` in message `number`: no two messages are alike. */
static uint8_t byte_of(int from, int to, int number, int at)
{
	uint32_t x = (uint32_t)at * 2654435761u + (uint32_t)(from * 31 + to * 7 + number) * 40503u;

	return (uint8_t)(x >> 13 ^ x >> 24);
}

static void fill(uint8_t *bytes, int size, int from, int to, int number)
{
	for (int i = 0; i < size; i++)
		bytes[i] = byte_of(from, to, number, i);
}

static void wrong(const char *what, int size, int at, long got, long wanted)
{
	fprintf(stderr, "mpi_check: rank %d: %s of %d: at %d is %ld, not %ld\n", me, what, size, at,
		got, wanted);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static void check(const char *what, const uint8_t *bytes, int size, int from, int to, int number)
{
	for (int i = 0; i < size; i++)
		if (bytes[i] != byte_of(from, to, number, i))
			wrong(what, size, i, bytes[i], byte_of(from, to, number, i));
}

static uint8_t *bytes_of(size_t size)
{
	uint8_t *bytes = calloc(size, 1);

	if (!bytes) {
		fprintf(stderr, "mpi_check: no memory for %zu bytes\n", size);
		MPI_Abort(MPI_COMM_WORLD, 1);
		exit(1);
	}
	return bytes;
}

/* Each rank to the next, around the ring, a message at a time. */
static void ring(int size)
{
	int next = (me + 1) % n_ranks, before = (me + n_ranks - 1) % n_ranks, count;
	uint8_t *out = bytes_of(LARGEST), *in = bytes_of(LARGEST);
	MPI_Status status;

	for (int lap = 0; lap < LAPS; lap++) {
		fill(out, size, me, next, lap);
		MPI_Sendrecv(out, size, MPI_BYTE, next, lap, in, LARGEST, MPI_BYTE, before, lap,
			MPI_COMM_WORLD, &status);
		MPI_Get_count(&status, MPI_BYTE, &count);
		if (count != size)
			wrong("length", size, 0, count, size);
		check("message", in, size, before, me, lap);
	}
	free(in);
	free(out);
}

/* All ranks to all at once: no receive is posted before all is sent, and then in another order. */
static void crowd(int size)
{
	int n = WINDOW * n_ranks;
	size_t length = (size_t)size;
	uint8_t *out = bytes_of((size_t)n * length + 1), *in = bytes_of((size_t)n * length + 1);
	MPI_Request *requests = (MPI_Request *)bytes_of(2 * (size_t)n * sizeof(*requests));

	for (int i = 0; i < n; i++) {
		fill(out + (size_t)i * length, size, me, i / WINDOW, i % WINDOW);
		MPI_Isend(out + (size_t)i * length, size, MPI_BYTE, i / WINDOW, i % WINDOW,
			MPI_COMM_WORLD, &requests[i]);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = n - 1; i >= 0; i--)
		MPI_Irecv(in + (size_t)i * length, size, MPI_BYTE, i / WINDOW, i % WINDOW,
			MPI_COMM_WORLD, &requests[n + i]);
	MPI_Waitall(2 * n, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < n; i++)
		check("message in the crowd", in + (size_t)i * length, size, i / WINDOW, me,
			i % WINDOW);
	free(requests);
	free(in);
	free(out);
}

static void allreduce(int n)
{
	int64_t *mine = (int64_t *)bytes_of(((size_t)n + 1) * sizeof(*mine));
	int64_t *sum = (int64_t *)bytes_of(((size_t)n + 1) * sizeof(*sum));

	for (int i = 0; i < n; i++)
		mine[i] = (int64_t)(me + 1) * (i + 1);
	MPI_Allreduce(mine, sum, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++) {
		int64_t wanted = (int64_t)n_ranks * (n_ranks + 1) / 2 * (i + 1);

		if (sum[i] != wanted)
			wrong("allreduce", n, i, sum[i], wanted);
	}
	free(sum);
	free(mine);
}

static void broadcast(int size)
{
	uint8_t *bytes = bytes_of(LARGEST);

	for (int root = 0; root < n_ranks; root++) {
		if (me == root)
			fill(bytes, size, root, 0, size);
		MPI_Bcast(bytes, size, MPI_BYTE, root, MPI_COMM_WORLD);
		check("bcast", bytes, size, root, 0, size);
	}
	free(bytes);
}

static void all_to_all(int size)
{
	size_t length = (size_t)size;
	uint8_t *out = bytes_of((size_t)n_ranks * length + 1),
		*in = bytes_of((size_t)n_ranks * length + 1);

	for (int to = 0; to < n_ranks; to++)
		fill(out + (size_t)to * length, size, me, to, size);
	MPI_Alltoall(out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD);
	for (int from = 0; from < n_ranks; from++)
		check("alltoall", in + (size_t)from * length, size, from, me, size);
	free(in);
	free(out);
}

/* Each puts into a part of its own in every window, then gets what all the others have put there. */
static void put_and_get(int size)
{
	MPI_Aint part = size;
	uint8_t *out = bytes_of((size_t)n_ranks * (size_t)size + 1),
		*in = bytes_of((size_t)size + 1), *window;
	MPI_Win win;

	MPI_Win_allocate(n_ranks * part + 1, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	MPI_Win_fence(0, win);
	for (int to = 0; to < n_ranks; to++) {
		fill(out + to * part, size, me, to, size);
		MPI_Put(out + to * part, size, MPI_BYTE, to, me * part, size, MPI_BYTE, win);
	}
	MPI_Win_fence(0, win);
	for (int from = 0; from < n_ranks; from++)
		check("put", window + from * part, size, from, me, size);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int at = 0; at < n_ranks; at++)
		for (int from = 0; from < n_ranks; from++) {
			MPI_Win_lock(MPI_LOCK_SHARED, at, 0, win);
			MPI_Get(in, size, MPI_BYTE, at, from * part, size, MPI_BYTE, win);
			MPI_Win_unlock(at, win);
			check("get", in, size, from, at, size);
		}
	MPI_Win_free(&win);
	free(in);
	free(out);
}

/* A counter at rank 0 that all take numbers from: each number once, so the sum is known. */
static void counter(int n)
{
	int64_t one = 1, number, taken = 0, total = 0, *window, wanted = (int64_t)n * n_ranks;
	MPI_Win win;

	MPI_Win_allocate(
		sizeof(*window), sizeof(*window), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	*window = 0;
	MPI_Win_fence(0, win);
	MPI_Win_lock_all(0, win);
	for (int i = 0; i < n; i++) {
		MPI_Fetch_and_op(&one, &number, MPI_INT64_T, 0, 0, MPI_SUM, win);
		MPI_Win_flush(0, win);
		taken += number;
	}
	MPI_Win_unlock_all(win);
	MPI_Reduce(&taken, &total, 1, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	if (me == 0 && *window != wanted)
		wrong("counter", n, 0, *window, wanted);
	if (me == 0 && total != wanted * (wanted - 1) / 2)
		wrong("sum of the counter's numbers", n, 0, total, wanted * (wanted - 1) / 2);
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	static void (*const checks[])(int size) = {ring, crowd, broadcast, all_to_all, put_and_get};
	static const int counts[] = {1, 8, 1000, 50 * 1000};

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
		for (int k = 0; k < N_SIZES; k++)
			checks[i](sizes[k]);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		allreduce(counts[i]);
	counter(20);
	MPI_Barrier(MPI_COMM_WORLD);
	if (me == 0)
		printf("mpi_check: %d ranks, all data as it should be\n", n_ranks);
	MPI_Finalize();
	return 0;
}
