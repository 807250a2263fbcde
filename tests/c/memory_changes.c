/*
 * What a process does to memory under an on-demand region: munmap, mremap, a mapping in place of
 * another one, madvise, mprotect, brk and fork.
 *
 * With traffic: when the call has returned, nothing is written to the pages that were there.
 * Without traffic: under a profile whose pages take time to come, the next access is a page fault
 * again, which takes at least as long as the wait after its RNR NAK.
 */
#define _GNU_SOURCE
#include "endpoint.h"

#include <malloc.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, PAGES = 64, BYTES = PAGES * PAGE };

/* Longer than the device relies on a look at the memory map (50 ms), us. */
enum { LOOK_US = 70000 };

static const int RW = PROT_READ | PROT_WRITE;
static const int RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND;

/* An RNR NAK asks for 0.64 ms, and the adapters wait at least as long. */
static const double WAIT_MS = 0.64;

static int pages_take_time(void)
{
    return getenv("RDMALAB_PROFILE") != NULL;
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

/* The memory of the child. */
struct memory {
    uint8_t *at;        /* It is registered. */
    uint8_t *same;      /* The same pages at another address, if they are of a file. */
    uint8_t *moved;     /* Where mremap moved them. */
};

static void do_munmap(struct memory *memory)
{
    EQUAL(munmap(memory->at, BYTES), 0);
}

static void do_mremap(struct memory *memory)
{
    memory->moved = mremap(memory->at, BYTES, 2 * BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
                           memory->moved);
    CHECK(memory->moved != MAP_FAILED);
}

static void do_mmap(struct memory *memory)
{
    int map = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    CHECK(mmap(memory->at, BYTES, RW, map, -1, 0) == memory->at);
}

static void do_madvise(struct memory *memory)
{
    EQUAL(madvise(memory->at, BYTES, MADV_DONTNEED), 0);
}

static void do_mprotect(struct memory *memory)
{
    EQUAL(mprotect(memory->at, BYTES, PROT_READ), 0);
}

static void do_brk(struct memory *memory)
{
    CHECK(sbrk(-BYTES) == memory->at + BYTES);
    CHECK(sbrk(BYTES) == memory->at);
}

/* Memory at the end of the heap. malloc has room below, so it does not move the end. */
static uint8_t *end_of_heap(void)
{
    CHECK(mallopt(M_TRIM_THRESHOLD, 1 << 30) && mallopt(M_MMAP_THRESHOLD, 32 << 20));
    free(malloc(16 << 20));
    uint8_t *end = sbrk(0);
    intptr_t gap = -(intptr_t)end & (PAGE - 1);
    CHECK(sbrk(gap + BYTES) == end);
    return end + gap;
}

static void do_fork(struct memory *memory)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(memory->at == NULL);
    int status = 1;
    CHECK(waitpid(pid, &status, 0) == pid);
    EQUAL(status, 0);
}

struct change {
    const char *name;
    void (*apply)(struct memory *memory);
    int of_a_file;      /* Whether the memory is shared, and of a file. */
    int with_traffic;
    int goes_on;        /* Whether the region can be accessed afterwards. */
};

static const struct change changes[] = {
    {"munmap under traffic", do_munmap, 1, 1, 0},
    {"mremap under traffic", do_mremap, 1, 1, 0},
    {"mmap under traffic", do_mmap, 1, 1, 1},
    {"madvise under traffic", do_madvise, 0, 1, 1},
    {"fork under traffic", do_fork, 0, 1, 1},
    {"madvise", do_madvise, 0, 0, 1},
    {"mmap", do_mmap, 1, 0, 1},
    {"mprotect", do_mprotect, 0, 0, 1},
    {"brk", do_brk, 0, 0, 1},
    {"fork", do_fork, 0, 0, 1},
};

struct shown {
    uint64_t memory;
    uint32_t rkey;
};

static struct ibv_wc transfer(struct endpoint *ep, enum ibv_wr_opcode opcode, struct shown *shown,
                              uint32_t bytes)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(ep, &sge, opcode, 0, bytes);
    wr.wr.rdma.remote_addr = shown->memory;
    wr.wr.rdma.rkey = shown->rkey;
    post(ep, &wr);
    return wait_for(ep->send_cq);
}

/* How long a READ of a page takes, ms. */
static double read_page(struct endpoint *ep, struct shown *shown)
{
    double begin = now_ms();
    EQUAL(transfer(ep, IBV_WR_RDMA_READ, shown, PAGE).status, IBV_WC_SUCCESS);
    return now_ms() - begin;
}

/* WRITEs until the child says that it is enough, or one fails. */
static void write_on(struct endpoint *ep, const struct change *change, struct shown *shown)
{
    char enough;
    for (uint8_t seed = 1;; seed++) {
        fill(ep->buffer, BYTES, seed);
        enum ibv_wc_status status = transfer(ep, IBV_WR_RDMA_WRITE, shown, BYTES).status;
        if (status != IBV_WC_SUCCESS) {
            CHECK(!change->goes_on);
            CHECK(recv(ep->socket, &enough, 1, MSG_WAITALL) == 1);
            return;
        }
        if (recv(ep->socket, &enough, 1, MSG_DONTWAIT) == 1) {
            CHECK(change->goes_on);
            return;
        }
    }
}

static void parent(struct endpoint *ep, const struct change *change)
{
    struct shown shown;
    CHECK(recv(ep->socket, &shown, sizeof shown, MSG_WAITALL) == sizeof shown);
    if (change->with_traffic) {
        write_on(ep, change, &shown);
        barrier(ep);
        return;
    }
    read_page(ep, &shown);
    usleep(LOOK_US);
    read_page(ep, &shown);
    barrier(ep);
    barrier(ep);
    double ms = read_page(ep, &shown);
    CHECK(!pages_take_time() || ms >= WAIT_MS);
    barrier(ep);
}

/* Returns when the last byte changed so many times. */
static void await_writes(const uint8_t *memory, int times)
{
    const volatile uint8_t *last = memory + BYTES - 1;
    double give_up_ms = now_ms() + 30000;
    for (uint8_t seen = *last; times > 0; times--) {
        while (*last == seen)
            CHECK(now_ms() < give_up_ms);
        seen = *last;
    }
}

static void under_traffic(struct endpoint *ep, const struct change *change, struct memory *memory)
{
    static uint8_t before[BYTES];
    await_writes(memory->at, 5);
    change->apply(memory);
    if (memory->same != NULL) {
        memcpy(before, memory->same, BYTES);
        usleep(20000);
        CHECK(memcmp(before, memory->same, BYTES) == 0);
    }
    if (change->goes_on)
        await_writes(memory->at, 3);
    CHECK(write(ep->socket, "", 1) == 1);
    barrier(ep);
}

static void child(struct endpoint *ep, const struct change *change)
{
    int map = MAP_PRIVATE | MAP_ANONYMOUS, fd = -1;
    struct memory memory = {.moved = mmap(NULL, 2 * BYTES, PROT_NONE, map, -1, 0)};
    CHECK(memory.moved != MAP_FAILED);
    if (change->of_a_file) {
        map = MAP_SHARED;
        fd = memfd_create("pages", 0);
        CHECK(fd >= 0);
        EQUAL(ftruncate(fd, 2 * BYTES), 0);
        memory.same = mmap(NULL, BYTES, RW, map, fd, 0);
        CHECK(memory.same != MAP_FAILED);
    }
    memory.at = change->apply == do_brk ? end_of_heap() : mmap(NULL, BYTES, RW, map, fd, 0);
    CHECK(memory.at != MAP_FAILED);
    struct ibv_mr *mr = ibv_reg_mr(ep->pd, memory.at, BYTES, RIGHTS);
    CHECK(mr != NULL);
    struct shown shown = {(uintptr_t)memory.at, mr->rkey};
    CHECK(write(ep->socket, &shown, sizeof shown) == sizeof shown);
    if (change->with_traffic) {
        under_traffic(ep, change, &memory);
    } else {
        barrier(ep);
        change->apply(&memory);
        usleep(LOOK_US);
        barrier(ep);
        barrier(ep);
    }
    EQUAL(ibv_dereg_mr(mr), 0);
}

static void run(const struct change *change)
{
    int link[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, link) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    static char name[64];
    snprintf(name, sizeof name, "%s: %s", change->name, pid != 0 ? "parent" : "child");
    role = name;
    struct endpoint ep = {.is_parent = pid != 0, .socket = link[pid != 0]};
    close(link[pid == 0]);
    open_endpoint(&ep);
    make_qp(&ep, IBV_QPT_RC, 0);
    connect_qp(&ep);
    if (pid == 0)
        child(&ep, change);
    else
        parent(&ep, change);
    destroy_qp(&ep);
    close_endpoint(&ep);
    int status = 0;
    if (pid != 0) {
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    exit(0);
}

int main(void)
{
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        /* A process of its own, because a device is opened before no fork. */
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            run(&changes[i]);
        int status = 0;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    printf("all passed\n");
    return 0;
}
