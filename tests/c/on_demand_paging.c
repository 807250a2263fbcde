/*
 * Memory that is paged on demand: what a device says of it, registration, advice and its errors,
 * memory that is mapped anew under a region, windows, and regions that are registered anew.
 *
 * The parent reads and writes memory of the child. Under a profile whose pages take time to come,
 * the first access to a page takes at least as long as the wait after its RNR NAK. The fastest of
 * several later accesses does not, and neither does the first one to a page that was prefetched.
 */
#include "endpoint.h"

#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, PAGES = 8 };

static const int RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND;

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static int pages_take_time(void)
{
    return getenv("RDMALAB_PROFILE") != NULL;
}

static void capabilities(struct endpoint *ep)
{
    struct ibv_device_attr_ex attr;
    EQUAL(ibv_query_device_ex(ep->context, NULL, &attr), 0);
    EQUAL(attr.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
    uint32_t all = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
                   IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
    EQUAL(attr.odp_caps.per_transport_caps.rc_odp_caps, all);
}

static int advise(struct endpoint *ep, unsigned advice, unsigned flags, void *at, uint32_t bytes,
                  uint32_t lkey)
{
    struct ibv_sge sge = {.addr = (uintptr_t)at, .length = bytes, .lkey = lkey};
    return ibv_advise_mr(ep->pd, advice, flags, &sge, 1);
}

static void advice(struct endpoint *ep, uint8_t *memory, struct ibv_mr *mr)
{
    unsigned read = IBV_ADVISE_MR_ADVICE_PREFETCH, flush = IBV_ADVISE_MR_FLAG_FLUSH;
    unsigned write = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    EQUAL(advise(ep, read, 0, memory, PAGE, mr->lkey), 0);
    EQUAL(advise(ep, write, flush, memory, PAGES * PAGE, mr->lkey), 0);
    EQUAL(advise(ep, write, flush, memory + PAGE, PAGES * PAGE, mr->lkey), EFAULT);
    EQUAL(advise(ep, read, flush, memory, PAGE, mr->lkey + 0x100), EFAULT);
    EQUAL(advise(ep, 3, flush, memory, PAGE, mr->lkey), EOPNOTSUPP);
    EQUAL(advise(ep, read, flush | 2, memory, PAGE, mr->lkey), EINVAL);
    EQUAL(advise(ep, read, flush, ep->buffer, PAGE, ep->mr->lkey), EINVAL); /* It is pinned. */
    EQUAL(ibv_advise_mr(ep->pd, read, flush, NULL, 0), EINVAL);
    struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = PAGE, .lkey = mr->lkey};
    struct ibv_pd *other = ibv_alloc_pd(ep->context);
    CHECK(other != NULL);
    EQUAL(ibv_advise_mr(other, read, flush, &sge, 1), EPERM);
    EQUAL(ibv_dealloc_pd(other), 0);
    struct ibv_mr *only_read = ibv_reg_mr(ep->pd, memory, PAGE, IBV_ACCESS_ON_DEMAND);
    CHECK(only_read != NULL);
    EQUAL(advise(ep, read, flush, memory, PAGE, only_read->lkey), 0);
    EQUAL(advise(ep, write, flush, memory, PAGE, only_read->lkey), EPERM);
    EQUAL(ibv_dereg_mr(only_read), 0);
}

/* Transfers a page of the child's memory, from or to the own buffer; says how long it took, ms. */
static double transfer(struct endpoint *ep, enum ibv_wr_opcode opcode, uint64_t at, uint32_t rkey)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(ep, &sge, opcode, 0, PAGE);
    wr.wr.rdma.remote_addr = at;
    wr.wr.rdma.rkey = rkey;
    double begin = now_ms();
    post(ep, &wr);
    expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS);
    return now_ms() - begin;
}

enum { LATER = 20 };

/* An RNR NAK asks for 0.64 ms, and the adapter waits 3.46 times as long. */
static const double WAIT_MS = 0.64 * 3.46;

/* The time of the fastest of several READs, ms. */
static double fastest(struct endpoint *ep, uint64_t at, uint32_t rkey)
{
    double least_ms = 1e9;
    for (int i = 0; i < LATER; i++) {
        double ms = transfer(ep, IBV_WR_RDMA_READ, at, rkey);
        least_ms = ms < least_ms ? ms : least_ms;
    }
    return least_ms;
}

struct shown {
    uint64_t memory;
    uint32_t rkey, implicit_rkey;
};

/* The parent reads memory that the child offers; the access to it finds its page missing. */
static void first_access(struct endpoint *ep, uint8_t value)
{
    struct shown shown;
    CHECK(recv(ep->socket, &shown, sizeof shown, MSG_WAITALL) == sizeof shown);
    double first_ms = transfer(ep, IBV_WR_RDMA_READ, shown.memory, shown.rkey);
    CHECK(is_filled(ep->buffer, PAGE, value));
    CHECK(!pages_take_time() || first_ms >= WAIT_MS);
    barrier(ep);
}

static void offer(struct endpoint *ep, uint8_t *memory, uint8_t value, uint32_t rkey)
{
    fill(memory, PAGE, value);
    struct shown shown = {(uintptr_t)memory, rkey, 0};
    CHECK(write(ep->socket, &shown, sizeof shown) == sizeof shown);
    barrier(ep);
}

/* A window of a region that is paged on demand, and a region that becomes one and moves. */
static void window_and_new_registration(struct endpoint *ep, uint8_t *memory)
{
    struct ibv_mr *mr = ibv_reg_mr(ep->pd, memory, PAGE, RIGHTS | IBV_ACCESS_MW_BIND);
    struct ibv_mw *window = ibv_alloc_mw(ep->pd, IBV_MW_TYPE_1);
    CHECK(mr != NULL && window != NULL);
    struct ibv_mw_bind bind = {.wr_id = 77, .send_flags = IBV_SEND_SIGNALED,
                               .bind_info = {mr, (uintptr_t)memory, PAGE, IBV_ACCESS_REMOTE_READ}};
    EQUAL(ibv_bind_mw(ep->qp, window, &bind), 0);
    expect(ep->send_cq, 77, IBV_WC_SUCCESS);
    offer(ep, memory, 11, window->rkey);
    EQUAL(ibv_dealloc_mw(window), 0);

    EQUAL(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE), 0);
    EQUAL(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RIGHTS), 0);
    offer(ep, memory, 12, mr->rkey);
    uint8_t *other = memory + PAGE;
    EQUAL(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, PAGE, 0), 0);
    offer(ep, other, 13, mr->rkey);
    EQUAL(ibv_dereg_mr(mr), 0);
}

static void parent(struct endpoint *ep)
{
    struct shown shown;
    CHECK(recv(ep->socket, &shown, sizeof shown, MSG_WAITALL) == sizeof shown);
    double first_ms = transfer(ep, IBV_WR_RDMA_READ, shown.memory, shown.rkey);
    CHECK(is_filled(ep->buffer, PAGE, 1));
    CHECK(!pages_take_time() || first_ms >= WAIT_MS);
    CHECK(fastest(ep, shown.memory, shown.rkey) < WAIT_MS);
    CHECK(fastest(ep, shown.memory + (PAGES - 1) * PAGE, shown.rkey) < WAIT_MS);
    /* The whole address space. */
    transfer(ep, IBV_WR_RDMA_READ, shown.memory + PAGE, shown.implicit_rkey);
    fill(ep->buffer, PAGE, 7);
    transfer(ep, IBV_WR_RDMA_WRITE, shown.memory + PAGE, shown.rkey);
    barrier(ep);
    /* The child has mapped other pages there. */
    barrier(ep);
    transfer(ep, IBV_WR_RDMA_READ, shown.memory, shown.rkey);
    CHECK(is_filled(ep->buffer, PAGE, 9));
    transfer(ep, IBV_WR_RDMA_WRITE, shown.memory, shown.rkey);
    barrier(ep);
    for (uint8_t value = 11; value <= 13; value++)
        first_access(ep, value);
}

static void child(struct endpoint *ep)
{
    int map = MAP_PRIVATE | MAP_ANONYMOUS, rw = PROT_READ | PROT_WRITE;
    uint8_t *memory = mmap(NULL, PAGES * PAGE, rw, map, -1, 0);
    CHECK(memory != MAP_FAILED);
    struct ibv_mr *advised = ibv_reg_mr(ep->pd, memory, PAGES * PAGE, RIGHTS);
    CHECK(advised != NULL);
    advice(ep, memory, advised);
    EQUAL(ibv_dereg_mr(advised), 0);

    /* Pages need not be mapped when they are registered. */
    EQUAL(munmap(memory, PAGES * PAGE), 0);
    struct ibv_mr *mr = ibv_reg_mr(ep->pd, memory, PAGES * PAGE, RIGHTS);
    struct ibv_mr *implicit = ibv_reg_mr(ep->pd, NULL, SIZE_MAX, RIGHTS);
    CHECK(mr != NULL && implicit != NULL);
    CHECK(mmap(memory, PAGES * PAGE, rw, map | MAP_FIXED, -1, 0) == memory);
    fill(memory, PAGE, 1);
    EQUAL(advise(ep, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH,
                 memory + (PAGES - 1) * PAGE, PAGE, mr->lkey), 0);
    struct shown shown = {(uintptr_t)memory, mr->rkey, implicit->rkey};
    CHECK(write(ep->socket, &shown, sizeof shown) == sizeof shown);
    barrier(ep);
    CHECK(is_filled(memory + PAGE, PAGE, 7));
    CHECK(mmap(memory, PAGES * PAGE, rw, map | MAP_FIXED, -1, 0) == memory);
    fill(memory, PAGE, 9);
    barrier(ep);
    barrier(ep);
    CHECK(is_filled(memory, PAGE, 9));
    EQUAL(ibv_dereg_mr(implicit), 0);
    EQUAL(ibv_dereg_mr(mr), 0);
    window_and_new_registration(ep, memory);
    EQUAL(munmap(memory, PAGES * PAGE), 0);
}

int main(void)
{
    int link[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, link) == 0);
    /* Before any verb: each process opens the device for itself. */
    pid_t pid = fork();
    CHECK(pid >= 0);
    struct endpoint ep = {.is_parent = pid != 0, .socket = link[pid != 0]};
    close(link[pid == 0]);
    open_endpoint(&ep);
    capabilities(&ep);
    make_qp(&ep, IBV_QPT_RC, 0);
    connect_qp(&ep);
    if (pid == 0) {
        role = "child";
        child(&ep);
    } else {
        parent(&ep);
    }
    destroy_qp(&ep);
    close_endpoint(&ep);
    if (pid != 0) {
        int status = 0;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        printf("all passed\n");
    }
    return 0;
}
