/*
 * An MPI program for two processes with two threads each (MPI_THREAD_MULTIPLE). Each thread
 * exchanges messages of 8 bytes with the thread of the same number in the other process, then long
 * ones in memory that is mapped for each, and checks each. The last line of rank 0 is "all passed".
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "mpi_check.h"

#define THREADS 2
#define ROUNDS 300
#define LONG_ROUNDS 4
/* Words of a long message. */
#define WORDS 20000

static uint64_t received[THREADS];

/* The message of a rank's thread in a round: no two are equal. */
static uint64_t message(int from, int thread, int round)
{
    return (uint64_t) (from + 1) << 48 | (uint64_t) (thread + 1) << 32 | (uint64_t) round;
}

static void send_one(int thread, int round)
{
    uint64_t word = message(rank, thread, round);
    MPI_Send(&word, sizeof word, MPI_BYTE, 1 - rank, thread, MPI_COMM_WORLD);
}

static void receive_one(int thread, int round)
{
    /* A message that is too long or too short is noticed. */
    unsigned char bytes[16];
    uint64_t word;
    int length = -1;
    MPI_Status status;
    MPI_Recv(bytes, sizeof bytes, MPI_BYTE, MPI_ANY_SOURCE, thread, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &length);
    memcpy(&word, bytes, sizeof word);
    CHECK(length == sizeof word && status.MPI_SOURCE == 1 - rank && status.MPI_TAG == thread);
    CHECK(word == message(1 - rank, thread, round));
    received[thread]++;
}

static uint64_t *map_message(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *mapped = mmap(NULL, WORDS * 8, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(mapped != MAP_FAILED);
    return mapped;
}

/* Both ends send at once. Nobody has touched the memory of the message that comes. */
static void exchange_long(int thread, int round)
{
    uint64_t *out = map_message(), *in = map_message();
    for (int i = 0; i < WORDS; i++) {
        out[i] = message(rank, thread, round * WORDS + i);
    }
    MPI_Sendrecv(out, WORDS, MPI_UINT64_T, 1 - rank, thread, in, WORDS, MPI_UINT64_T, 1 - rank,
                 thread, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < WORDS; i++) {
        CHECK(in[i] == message(1 - rank, thread, round * WORDS + i));
    }
    CHECK(munmap(out, WORDS * 8) == 0 && munmap(in, WORDS * 8) == 0);
}

static void *exchange(void *number)
{
    int thread = (int) (intptr_t) number;
    for (int round = 0; round < ROUNDS; round++) {
        if (rank == 0) {
            send_one(thread, round);
            receive_one(thread, round);
        } else {
            receive_one(thread, round);
            send_one(thread, round);
        }
    }
    for (int round = 0; round < LONG_ROUNDS; round++) {
        exchange_long(thread, round);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, count;
    uint64_t mine = 0, all = 0;
    pthread_t threads[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    CHECK(count == 2 && provided == MPI_THREAD_MULTIPLE);
    for (intptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, exchange, (void *) i) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(received[i] == ROUNDS);
        mine += received[i];
    }
    MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    CHECK(all == 2 * THREADS * ROUNDS);
    /* No message is left. */
    int waits = 1;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &waits, MPI_STATUS_IGNORE);
    CHECK(!waits);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0) {
        puts("all passed");
    }
    return 0;
}
