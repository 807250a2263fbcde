/*
 * An MPI program for two or more processes that checks what it receives: point to point in all
 * sizes, from anybody, collectives, and one-sided. The last line of rank 0 is "all passed".
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_check.h"

/* Around the limits of every protocol: inline, one packet, eager, rendezvous. */
static const int sizes[] = {0,    1,    7,     8,     63,    64,     65,     255,
                            1023, 1024, 4095,  4096,  4097,  8191,   8192,   8193,
                            8257, 9000, 16384, 65535, 65536, 100000, 262144, 1048579};
#define SIZES ((int) (sizeof sizes / sizeof *sizes))
#define LARGEST 1048579
#define FLOOD 2000
#define WINDOW 64

static int count;

/* The byte at a position of a message. The seed is different in every message. */
static unsigned char byte_of(unsigned seed, size_t at)
{
    return (unsigned char) ((seed * 2654435761u + at * 40503u + (at >> 8)) >> 5);
}

static void fill(unsigned char *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = byte_of(seed, i);
    }
}

static int is_filled(const unsigned char *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != byte_of(seed, i)) {
            fprintf(stderr, "rank %d: byte %zu of %zu is %#x, not %#x\n", rank, i, length,
                    bytes[i], byte_of(seed, i));
            return 0;
        }
    }
    return 1;
}

/* Each rank sends to the next and receives from the previous one, in all sizes. */
static void point_to_point(unsigned char *out, unsigned char *in)
{
    int next = (rank + 1) % count, before = (rank + count - 1) % count;
    for (int i = 0; i < SIZES; i++) {
        MPI_Status status;
        int length = -1;
        fill(out, sizes[i], rank * 100 + i);
        memset(in, 0xee, sizes[i] + 1);
        MPI_Sendrecv(out, sizes[i], MPI_BYTE, next, i, in, LARGEST + 1, MPI_BYTE, before, i,
                     MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &length);
        CHECK(length == sizes[i] && status.MPI_SOURCE == before);
        CHECK(is_filled(in, sizes[i], before * 100 + i) && in[sizes[i]] == 0xee);

        /* Synchronous mode: the sender waits until the receive has matched. */
        MPI_Request request;
        MPI_Irecv(in, LARGEST, MPI_BYTE, before, 1000 + i, MPI_COMM_WORLD, &request);
        MPI_Ssend(out, sizes[i], MPI_BYTE, next, 1000 + i, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(is_filled(in, sizes[i], before * 100 + i));
    }
}

/* All ranks send many small messages to rank 0, which receives them from any source, in order. */
static void flood(void)
{
    if (rank == 0) {
        int *expected = calloc(count, sizeof *expected);
        for (int i = 0; i < FLOOD * (count - 1); i++) {
            uint64_t words[4];
            MPI_Status status;
            MPI_Recv(words, 4, MPI_UINT64_T, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &status);
            int from = status.MPI_SOURCE;
            CHECK(words[0] == (uint64_t) expected[from] && words[3] == ~words[0]);
            expected[from]++;
        }
        free(expected);
        return;
    }
    uint64_t words[WINDOW][4];
    MPI_Request requests[WINDOW];
    for (int i = 0; i < WINDOW; i++) {
        requests[i] = MPI_REQUEST_NULL;
    }
    for (int i = 0; i < FLOOD; i++) {
        int slot = i % WINDOW;
        MPI_Wait(&requests[slot], MPI_STATUS_IGNORE);
        words[slot][0] = i, words[slot][1] = rank;
        words[slot][2] = 0, words[slot][3] = ~(uint64_t) i;
        MPI_Isend(words[slot], 4, MPI_UINT64_T, 0, 7, MPI_COMM_WORLD, &requests[slot]);
    }
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
}

/* Large messages in both directions at the same time. */
static void crossing(unsigned char *out, unsigned char *in)
{
    int next = (rank + 1) % count, before = (rank + count - 1) % count;
    enum { PIECES = 8, PIECE = 131072 };
    MPI_Request requests[2 * PIECES];
    fill(out, (size_t) PIECES * PIECE, 500 + rank);
    memset(in, 0, (size_t) PIECES * PIECE);
    for (int i = 0; i < PIECES; i++) {
        MPI_Irecv(in + i * PIECE, PIECE, MPI_BYTE, before, 50 + i, MPI_COMM_WORLD, &requests[i]);
    }
    for (int i = PIECES - 1; i >= 0; i--) {
        MPI_Isend(out + i * PIECE, PIECE, MPI_BYTE, next, 50 + i, MPI_COMM_WORLD,
                  &requests[PIECES + i]);
    }
    MPI_Waitall(2 * PIECES, requests, MPI_STATUSES_IGNORE);
    CHECK(is_filled(in, (size_t) PIECES * PIECE, 500 + before));
}

static void collectives(void)
{
    enum { WORDS = 30000 };
    static const int lengths[] = {1, 10, 1000, WORDS};
    int64_t *mine = malloc(sizeof *mine * WORDS * count);
    int64_t *all = malloc(sizeof *all * WORDS * count);
    for (int l = 0; l < 4; l++) {
        int n = lengths[l], root = l % count;
        for (int i = 0; i < n; i++) {
            mine[i] = (int64_t) (rank + 1) * (i + 1);
        }
        int64_t ranks = (int64_t) count * (count + 1) / 2;
        MPI_Allreduce(mine, all, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++) {
            CHECK(all[i] == ranks * (i + 1));
        }
        MPI_Bcast(mine, n, MPI_INT64_T, root, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++) {
            CHECK(mine[i] == (int64_t) (root + 1) * (i + 1));
        }
        for (int i = 0; i < n; i++) {
            mine[i] = (int64_t) rank << 32 | i;
        }
        MPI_Allgather(mine, n, MPI_INT64_T, all, n, MPI_INT64_T, MPI_COMM_WORLD);
        for (int i = 0; i < n * count; i++) {
            CHECK(all[i] == ((int64_t) (i / n) << 32 | i % n));
        }
        for (int i = 0; i < n * count; i++) {
            mine[i] = (int64_t) rank << 40 | i;
        }
        MPI_Alltoall(mine, n, MPI_INT64_T, all, n, MPI_INT64_T, MPI_COMM_WORLD);
        for (int i = 0; i < n * count; i++) {
            CHECK(all[i] == ((int64_t) (i / n) << 40 | (rank * n + i % n)));
        }
        MPI_Scatter(mine, n, MPI_INT64_T, all, n, MPI_INT64_T, root, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++) {
            CHECK(all[i] == ((int64_t) root << 40 | (rank * n + i)));
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    free(mine);
    free(all);
}

/* A window: put, get, accumulate and compare-and-swap, with fences and with locks. */
static void one_sided(void)
{
    enum { WORDS = 4096, ROUNDS = 200 };
    int64_t *memory, *local = malloc(sizeof *local * WORDS);
    MPI_Win window;
    MPI_Win_allocate(sizeof *memory * WORDS, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
                     &window);
    int next = (rank + 1) % count, before = (rank + count - 1) % count;

    MPI_Win_fence(0, window);
    for (int i = 0; i < WORDS; i++) {
        memory[i] = -1;
        local[i] = (int64_t) rank * WORDS + i;
    }
    MPI_Win_fence(0, window);
    MPI_Put(local, WORDS / 2, MPI_INT64_T, next, 0, WORDS / 2, MPI_INT64_T, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < WORDS; i++) {
        CHECK(memory[i] == (i < WORDS / 2 ? (int64_t) before * WORDS + i : -1));
    }
    MPI_Win_fence(0, window);
    memset(local, 0, sizeof *local * WORDS);
    MPI_Get(local, WORDS, MPI_INT64_T, next, 0, WORDS, MPI_INT64_T, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < WORDS; i++) {
        CHECK(local[i] == (i < WORDS / 2 ? (int64_t) rank * WORDS + i : -1));
    }

    /* A counter at rank 0, which all count up at once; and one that is swapped, one at a time. */
    memory[0] = memory[1] = 0;
    MPI_Win_fence(0, window);
    MPI_Win_lock_all(0, window);
    const int64_t one = 1;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t seen = -1;
        MPI_Fetch_and_op(&one, &seen, MPI_INT64_T, 0, 0, MPI_SUM, window);
        MPI_Win_flush(0, window);
        CHECK(seen >= i && seen < (int64_t) ROUNDS * count);
    }
    for (int i = 0; i < ROUNDS / 10; i++) {
        int64_t seen = 0, expected, wanted;
        do {
            expected = seen, wanted = seen + 1;
            MPI_Compare_and_swap(&wanted, &expected, &seen, MPI_INT64_T, 0, 1, window);
            MPI_Win_flush(0, window);
        } while (seen != expected);
    }
    MPI_Win_unlock_all(window);
    MPI_Win_fence(0, window);
    if (rank == 0) {
        CHECK(memory[0] == (int64_t) ROUNDS * count);
        CHECK(memory[1] == (int64_t) (ROUNDS / 10) * count);
    }
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
    free(local);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    CHECK(count >= 2);
    unsigned char *out = malloc(LARGEST + 1), *in = malloc(LARGEST + 1);
    point_to_point(out, in);
    flood();
    crossing(out, in);
    collectives();
    one_sided();
    MPI_Barrier(MPI_COMM_WORLD);
    free(out);
    free(in);
    MPI_Finalize();
    if (rank == 0) {
        puts("all passed");
    }
    return 0;
}
