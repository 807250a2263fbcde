/*
 * Thousands of queue pairs between two processes, each with 64 threads that post and poll. All
 * payload lies in one region, which is paged on demand if RDMALAB_TEST_ON_DEMAND is set, so that
 * many queue pairs share a page. Each queue pair sends in both directions and then reads what the
 * peer sent, and every byte is checked. RDMALAB_TEST_QPS is their number. The last line is
 * "all passed".
 */
#define _GNU_SOURCE
#include "endpoint.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

/* Each queue pair has so many places in memory: what it sends, what it receives in each round, and
 * what it reads. */
enum { THREADS = 64, ROUNDS = 2, PLACES = ROUNDS + 2, BYTES = 256, LIMIT_S = 90 };

static const int RIGHTS =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/* What the threads of a process share. */
static struct {
    struct endpoint base;
    struct endpoint *qps;
    struct address *local, *remote;
    int count;
    uint8_t *memory;
    struct ibv_mr *mr;
    pthread_barrier_t barrier;
} all;

struct worker {
    pthread_t thread;
    struct ibv_cq *cq;
    int first, end; /* Its queue pairs. */
};

static uint8_t *place(int qp, int number)
{
    return all.memory + ((size_t)qp * PLACES + number) * BYTES;
}

static uint8_t seed(int qp, int is_parent)
{
    return (uint8_t)(qp * 2 + is_parent);
}

static long resident_bytes(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld %ld", &pages, &resident) == 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

/* Waits until so many requests and receives are complete. */
static void await(struct worker *worker, int left)
{
    struct ibv_wc wc[16];
    time_t give_up = time(NULL) + LIMIT_S;
    while (left > 0) {
        int found = ibv_poll_cq(worker->cq, 16, wc);
        CHECK(found >= 0);
        for (int i = 0; i < found; i++)
            EQUAL(wc[i].status, IBV_WC_SUCCESS);
        left -= found;
        if (found == 0) {
            CHECK(time(NULL) < give_up);
            sched_yield();
        }
    }
    EQUAL(left, 0);
}

static void begin(int qp, enum ibv_wr_opcode opcode, int from)
{
    struct endpoint *ep = &all.qps[qp];
    struct ibv_sge sge = {(uintptr_t)place(qp, from), BYTES, all.mr->lkey};
    struct ibv_send_wr wr = {
        .opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
    wr.wr.rdma.remote_addr = ep->remote.memory + (uintptr_t)qp * PLACES * BYTES;
    wr.wr.rdma.rkey = ep->remote.rkey;
    post(ep, &wr);
}

/* The program's main thread works between two of these. */
static void meet(void)
{
    pthread_barrier_wait(&all.barrier);
    pthread_barrier_wait(&all.barrier);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    int is_parent = all.base.is_parent, count = worker->end - worker->first;
    for (int qp = worker->first; qp < worker->end; qp++) {
        struct endpoint *ep = &all.qps[qp];
        *ep = all.base;
        ep->send_cq = ep->recv_cq = worker->cq;
        make_qp(ep, IBV_QPT_RC, 0);
        ep->local.memory = (uintptr_t)all.memory;
        ep->local.rkey = all.mr->rkey;
        all.local[qp] = ep->local;
    }
    meet();
    for (int qp = worker->first; qp < worker->end; qp++) {
        struct endpoint *ep = &all.qps[qp];
        ep->remote = all.remote[qp];
        connect_to_remote(ep);
        for (int round = 1; round <= ROUNDS; round++) {
            struct ibv_sge sge = {(uintptr_t)place(qp, round), BYTES, all.mr->lkey};
            struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad = NULL;
            EQUAL(ibv_post_recv(ep->qp, &wr, &bad), 0);
        }
        fill(place(qp, 0), BYTES, seed(qp, is_parent));
    }
    meet();
    for (int round = 1; round <= ROUNDS; round++) {
        for (int qp = worker->first; qp < worker->end; qp++)
            begin(qp, IBV_WR_SEND, 0);
    }
    await(worker, 2 * ROUNDS * count);
    for (int qp = worker->first; qp < worker->end; qp++)
        begin(qp, IBV_WR_RDMA_READ, PLACES - 1);
    await(worker, count);
    for (int qp = worker->first; qp < worker->end; qp++) {
        for (int number = 1; number < PLACES; number++)
            CHECK(is_filled(place(qp, number), BYTES, seed(qp, !is_parent)));
    }
    meet();
    for (int qp = worker->first; qp < worker->end; qp++)
        EQUAL(ibv_destroy_qp(all.qps[qp].qp), 0);
    return NULL;
}

static void exchange_addresses(void)
{
    /* More than a socket buffers: one sends while the other receives. */
    size_t bytes = all.count * sizeof *all.local;
    for (int turn = 0; turn < 2; turn++) {
        char *at = (char *)(turn == all.base.is_parent ? all.local : all.remote);
        for (size_t done = 0; done < bytes;) {
            ssize_t some = turn == all.base.is_parent
                               ? write(all.base.socket, at + done, bytes - done)
                               : read(all.base.socket, at + done, bytes - done);
            CHECK(some > 0);
            done += some;
        }
    }
}

static void prepare(void)
{
    open_endpoint(&all.base);
    size_t bytes = (size_t)all.count * PLACES * BYTES;
    CHECK(posix_memalign((void **)&all.memory, 4096, bytes) == 0);
    memset(all.memory, 0, bytes);
    int paged = getenv("RDMALAB_TEST_ON_DEMAND") != NULL ? IBV_ACCESS_ON_DEMAND : 0;
    CHECK((all.mr = ibv_reg_mr(all.base.pd, all.memory, bytes, RIGHTS | paged)) != NULL);
    CHECK((all.qps = calloc(all.count, sizeof *all.qps)) != NULL);
    CHECK((all.local = calloc(all.count, sizeof *all.local)) != NULL);
    CHECK((all.remote = calloc(all.count, sizeof *all.remote)) != NULL);
    EQUAL(pthread_barrier_init(&all.barrier, NULL, THREADS + 1), 0);
}

static void run(void)
{
    static struct worker workers[THREADS];
    prepare();
    for (int i = 0; i < THREADS; i++) {
        struct worker *worker = &workers[i];
        worker->first = i * all.count / THREADS;
        worker->end = (i + 1) * all.count / THREADS;
        int entries = (worker->end - worker->first) * (2 * ROUNDS + 1) + 1;
        CHECK((worker->cq = ibv_create_cq(all.base.context, entries, NULL, NULL, 0)) != NULL);
    }
    memset(all.qps, 1, all.count * sizeof *all.qps);
    memset(all.local, 1, all.count * sizeof *all.local);
    long before = resident_bytes();
    for (int i = 0; i < THREADS; i++)
        EQUAL(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    pthread_barrier_wait(&all.barrier);
    long made = resident_bytes();
    exchange_addresses();
    meet();
    barrier(&all.base);
    meet();
    long used = resident_bytes();
    barrier(&all.base);
    pthread_barrier_wait(&all.barrier);
    for (int i = 0; i < THREADS; i++) {
        EQUAL(pthread_join(workers[i].thread, NULL), 0);
        EQUAL(ibv_destroy_cq(workers[i].cq), 0);
    }
    EQUAL(ibv_dereg_mr(all.mr), 0);
    close_endpoint(&all.base);
    if (all.base.is_parent) {
        printf("%d queue pairs with their threads: %ld bytes each when made, %ld when used\n",
               all.count, (made - before) / all.count, (used - before) / all.count);
    }
}

int main(void)
{
    const char *count = getenv("RDMALAB_TEST_QPS");
    all.count = count != NULL ? atoi(count) : 4000;
    CHECK(all.count >= THREADS);
    int link[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, link) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    role = pid != 0 ? "parent" : "child";
    all.base.is_parent = pid != 0;
    all.base.socket = link[pid != 0];
    close(link[pid == 0]);
    run();
    if (pid == 0)
        return 0;
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    printf("all passed\n");
    return 0;
}
