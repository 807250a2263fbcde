/*
 * Polls an empty completion queue with a spin lock held, as UCX does, and counts how often the
 * library yields the processor meanwhile. With a second thread that waits for the lock on the same
 * processor, the library must soon stop: that thread runs until its time slice ends, and would find
 * the lock taken each time. Alone, the library must yield, because a peer may need the processor.
 * The last line is "all passed".
 */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* With two processors or more the library yields in one of 512 polls at most. */
enum { YIELDS = 400, POLLS = 512 * YIELDS, ROUNDS = 50 };

static pthread_spinlock_t lock;
static atomic_bool done;
static atomic_long turns;
static __thread int is_polling;
static long yields;

/* Replaces the C library's function. */
int sched_yield(void)
{
    if (is_polling)
        yields++;
    return (int) syscall(SYS_sched_yield);
}

static void check(int holds, const char *what)
{
    if (!holds) {
        printf("%s\n", what);
        exit(1);
    }
}

static void *wait_for_lock(void *nothing)
{
    while (!atomic_load(&done)) {
        pthread_spin_lock(&lock);
        atomic_fetch_add(&turns, 1);
        pthread_spin_unlock(&lock);
    }
    return nothing;
}

static long count_yields(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    yields = 0;
    is_polling = 1;
    for (int i = 0; i < POLLS; i++) {
        pthread_spin_lock(&lock);
        check(ibv_poll_cq(cq, 1, &wc) == 0, "the queue is not empty");
        pthread_spin_unlock(&lock);
    }
    is_polling = 0;
    return yields;
}

/* The threads that this one starts later stay on the same processor. */
static void stay_on_one_processor(void)
{
    cpu_set_t set;
    int cpu = sched_getcpu();
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    check(cpu >= 0 && sched_setaffinity(0, sizeof set, &set) == 0, "cannot choose a processor");
}

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = list != NULL && list[0] != NULL ? ibv_open_device(list[0]) : NULL;
    struct ibv_cq *cq = context != NULL ? ibv_create_cq(context, 16, NULL, NULL, 0) : NULL;
    check(cq != NULL, "no completion queue");
    stay_on_one_processor();
    pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
    long alone = count_yields(cq);
    pthread_t waiting;
    check(pthread_create(&waiting, NULL, wait_for_lock, NULL) == 0, "no thread");
    while (atomic_load(&turns) == 0) {
        sched_yield();
    }
    /* The scheduler decides when the waiting thread first uses up a time slice. */
    long watched = YIELDS;
    for (int i = 0; i < ROUNDS && watched >= YIELDS / 2; i++)
        watched = count_yields(cq);
    atomic_store(&done, 1);
    pthread_join(waiting, NULL);
    printf("%d polls: %ld yields alone, %ld beside a waiting thread\n", POLLS, alone, watched);
    check(alone >= YIELDS, "alone the library does not yield");
    check(watched < YIELDS / 2, "the library goes on yielding");
    puts("all passed");
    return 0;
}
