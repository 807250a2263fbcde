/*
 * An MPI program of RMA windows with few operations: a shared counter (fetch-and-op), a ticket that
 * is taken under an exclusive lock, and pages that are put and got, each once. Every value is
 * checked. Rank 0 prints how long MPI_Init and MPI_Finalize took, and "all passed" at last.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "mpi_check.h"

enum { ROUNDS = 4, PAGE_WORDS = 512, PAGES = 4, WORDS = PAGES * PAGE_WORDS };

static int count;

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

/* All ranks count up a word of rank 0; each sees its own counts in order. */
static void fetch_and_op(MPI_Win window)
{
    const long one = 1;
    long before = -1, seen = -1;
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < ROUNDS; i++, before = seen) {
        MPI_Fetch_and_op(&one, &seen, MPI_LONG, 0, 0, MPI_SUM, window);
        MPI_Win_flush(0, window);
        CHECK(seen > before && seen < (long) ROUNDS * count);
    }
    MPI_Win_unlock_all(window);
}

/* Reads a word of rank 0 and writes it back, one rank at a time. */
static void lock_and_unlock(MPI_Win window)
{
    for (int i = 0; i < ROUNDS; i++) {
        long ticket = -1;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Get(&ticket, 1, MPI_LONG, 0, 1, 1, MPI_LONG, window);
        MPI_Win_flush(0, window);
        ticket++;
        MPI_Put(&ticket, 1, MPI_LONG, 0, 1, 1, MPI_LONG, window);
        MPI_Win_unlock(0, window);
    }
}

/* Each rank puts whole pages into the next one and reads them again. */
static void put_and_get(MPI_Win window)
{
    int next = (rank + 1) % count;
    long *out = malloc(WORDS * sizeof *out), *in = calloc(WORDS, sizeof *in);
    for (int i = 0; i < WORDS; i++)
        out[i] = (long) rank * WORDS + i;
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window);
    MPI_Put(out, WORDS, MPI_LONG, next, PAGE_WORDS, WORDS, MPI_LONG, window);
    MPI_Win_flush(next, window);
    MPI_Get(in, WORDS, MPI_LONG, next, PAGE_WORDS, WORDS, MPI_LONG, window);
    MPI_Win_unlock(next, window);
    for (int i = 0; i < WORDS; i++)
        CHECK(in[i] == out[i]);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    double begin = now_ms();
    MPI_Init(&argc, &argv);
    double init = now_ms() - begin;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    long *memory = calloc(PAGE_WORDS + WORDS, sizeof *memory);
    MPI_Win window;
    MPI_Win_create(memory, (PAGE_WORDS + WORDS) * sizeof *memory, sizeof *memory, MPI_INFO_NULL,
                   MPI_COMM_WORLD, &window);
    fetch_and_op(window);
    lock_and_unlock(window);
    put_and_get(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    CHECK(rank != 0 || (memory[0] == (long) ROUNDS * count && memory[1] == (long) ROUNDS * count));
    int before = (rank + count - 1) % count;
    for (int i = 0; i < WORDS; i++)
        CHECK(memory[PAGE_WORDS + i] == (long) before * WORDS + i);
    MPI_Win_unlock(rank, window);
    MPI_Win_free(&window);
    free(memory);
    begin = now_ms();
    MPI_Finalize();
    if (rank == 0)
        printf("MPI_Init took %.1f ms, MPI_Finalize %.1f ms\nall passed\n", init, now_ms() - begin);
    return 0;
}
