/*
 * One endpoint of a connection: open, connect, post, poll, close.
 */
#include "endpoint.h"

const char *role = "parent";

static const char *device_name(void)
{
    const char *name = getenv("RDMALAB_TEST_DEVICE");
    return name != NULL ? name : "soft0";
}

/* Fetches all pages of on-demand memory: unreliable transports lose a message that faults. */
void prefetch(struct endpoint *ep)
{
    struct ibv_sge all = {
        .addr = (uintptr_t)ep->buffer, .length = BUFFER_BYTES, .lkey = ep->mr->lkey};
    if (getenv("RDMALAB_TEST_ON_DEMAND") != NULL) {
        EQUAL(ibv_advise_mr(ep->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH,
                            &all, 1), 0);
    }
}

static int gid_index(void)
{
    const char *index = getenv("RDMALAB_TEST_GID");
    return index != NULL ? atoi(index) : 0;
}

void open_endpoint(struct endpoint *ep)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list != NULL);
    for (int i = 0; i < count; i++) {
        if (strcmp(ibv_get_device_name(list[i]), device_name()) == 0) {
            ep->context = ibv_open_device(list[i]);
        }
    }
    ibv_free_device_list(list);
    CHECK(ep->context != NULL);
    CHECK((ep->pd = ibv_alloc_pd(ep->context)) != NULL);
    CHECK((ep->channel = ibv_create_comp_channel(ep->context)) != NULL);
    CHECK((ep->send_cq = ibv_create_cq(ep->context, 64, NULL, NULL, 0)) != NULL);
    CHECK((ep->recv_cq = ibv_create_cq(ep->context, 64, ep, ep->channel, 0)) != NULL);
    CHECK(posix_memalign((void **)&ep->buffer, 4096, BUFFER_BYTES) == 0);
    memset(ep->buffer, 0, BUFFER_BYTES);
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                 IBV_ACCESS_REMOTE_ATOMIC;
    if (getenv("RDMALAB_TEST_ON_DEMAND") != NULL) {
        access |= IBV_ACCESS_ON_DEMAND;
    }
    ep->mr = ibv_reg_mr(ep->pd, ep->buffer, BUFFER_BYTES, access);
    CHECK(ep->mr != NULL);
}

void make_qp(struct endpoint *ep, enum ibv_qp_type type, int with_srq)
{
    if (with_srq) {
        struct ibv_srq_init_attr srq = {.attr = {.max_wr = 32, .max_sge = 1}};
        CHECK((ep->srq = ibv_create_srq(ep->pd, &srq)) != NULL);
    }
    struct ibv_qp_init_attr init = {
        .send_cq = ep->send_cq,
        .recv_cq = ep->recv_cq,
        .srq = ep->srq,
        .cap = {.max_send_wr = 16, .max_recv_wr = with_srq ? 0 : 16, .max_send_sge = 4,
                .max_recv_sge = 4, .max_inline_data = 64},
        .qp_type = type,
    };
    CHECK((ep->qp = ibv_create_qp(ep->pd, &init)) != NULL);
    ep->cap = init.cap;
    CHECK(init.cap.max_inline_data >= 64);
    initialise_qp(ep);

    struct ibv_port_attr port;
    EQUAL(ibv_query_port(ep->context, 1, &port), 0);
    EQUAL(port.state, IBV_PORT_ACTIVE);
    ep->local = (struct address){
        .qp_num = ep->qp->qp_num,
        .psn = ep->is_parent ? 0xfffffe : 17, /* The parent's PSN wraps around soon. */
        .rkey = ep->mr->rkey,
        .lid = port.lid,
        .memory = (uintptr_t)ep->buffer,
    };
    EQUAL(ibv_query_gid(ep->context, 1, gid_index(), &ep->local.gid), 0);
}

void initialise_qp(struct endpoint *ep)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qkey = QKEY,
        .qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
    };
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (ep->qp->qp_type == IBV_QPT_UC) {
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    }
    mask |= ep->qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    EQUAL(ibv_modify_qp(ep->qp, &attr, mask), 0);
}

static void exchange(struct endpoint *ep, const void *out, void *in, size_t bytes)
{
    CHECK(write(ep->socket, out, bytes) == (ssize_t)bytes);
    CHECK(recv(ep->socket, in, bytes, MSG_WAITALL) == (ssize_t)bytes);
}

void barrier(struct endpoint *ep)
{
    char byte = 0;
    exchange(ep, &byte, &byte, 1);
}

struct ibv_ah_attr path_to(const struct address *to)
{
    struct ibv_ah_attr path = {.dlid = to->lid, .port_num = 1};
    if (to->lid == 0) {
        path.is_global = 1;
        path.grh.dgid = to->gid;
        path.grh.sgid_index = (uint8_t)gid_index();
        path.grh.hop_limit = 1;
    }
    return path;
}

static struct ibv_qp_attr to_rtr(const struct endpoint *ep)
{
    return (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = ep->remote.qp_num,
        .rq_psn = ep->remote.psn,
        .max_dest_rd_atomic = 4,
        .min_rnr_timer = 12,
        .ah_attr = path_to(&ep->remote),
    };
}

enum {
    RTR_UD = IBV_QP_STATE,
    RTR_UC = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
    RTR_RC = RTR_UC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
};

void connect_qp(struct endpoint *ep)
{
    exchange(ep, &ep->local, &ep->remote, sizeof ep->local);
    if (ep->qp->qp_type == IBV_QPT_RC) {
        /* Without min_rnr_timer, which is required, the transition is refused. */
        struct ibv_qp_attr attr = to_rtr(ep);
        EQUAL(ibv_modify_qp(ep->qp, &attr, RTR_RC & ~IBV_QP_MIN_RNR_TIMER), EINVAL);
    }
    connect_to_remote(ep);
    barrier(ep);
}

void connect_to_remote(struct endpoint *ep)
{
    int is_rc = ep->qp->qp_type == IBV_QPT_RC, is_ud = ep->qp->qp_type == IBV_QPT_UD;
    struct ibv_qp_attr attr = to_rtr(ep);
    EQUAL(ibv_modify_qp(ep->qp, &attr, is_rc ? RTR_RC : is_ud ? RTR_UD : RTR_UC), 0);
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = ep->local.psn;
    attr.timeout = 14;
    attr.retry_cnt = ep->retries != 0 ? ep->retries : 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (is_rc) {
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    EQUAL(ibv_modify_qp(ep->qp, &attr, mask), 0);
}

void destroy_qp(struct endpoint *ep)
{
    barrier(ep);
    EQUAL(ibv_destroy_qp(ep->qp), 0);
    if (ep->srq != NULL) {
        EQUAL(ibv_destroy_srq(ep->srq), 0);
    }
    ep->qp = NULL;
    ep->srq = NULL;
    barrier(ep);
}

void close_endpoint(struct endpoint *ep)
{
    EQUAL(ibv_dealloc_pd(ep->pd), EBUSY); /* The memory region still uses it. */
    EQUAL(ibv_dereg_mr(ep->mr), 0);
    EQUAL(ibv_destroy_comp_channel(ep->channel), EBUSY);
    EQUAL(ibv_destroy_cq(ep->send_cq), 0);
    EQUAL(ibv_destroy_cq(ep->recv_cq), 0);
    EQUAL(ibv_destroy_comp_channel(ep->channel), 0);
    EQUAL(ibv_dealloc_pd(ep->pd), 0);
    EQUAL(ibv_close_device(ep->context), 0);
    free(ep->buffer);
}

/* ---- Requests and completions ---- */

void post_recv(struct endpoint *ep, uint64_t wr_id, uint32_t offset, uint32_t length)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)ep->buffer + offset, .length = length, .lkey = ep->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
    if (ep->srq != NULL) {
        EQUAL(ibv_post_srq_recv(ep->srq, &wr, &bad), 0);
    } else {
        EQUAL(ibv_post_recv(ep->qp, &wr, &bad), 0);
    }
}

struct ibv_send_wr request(struct endpoint *ep, struct ibv_sge *sge, enum ibv_wr_opcode opcode,
                           uint32_t offset, uint32_t length)
{
    *sge = (struct ibv_sge){
        .addr = (uintptr_t)ep->buffer + offset, .length = length, .lkey = ep->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 1000 + opcode, .sg_list = sge, .num_sge = 1,
                             .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = ep->remote.memory + offset;
        wr.wr.atomic.rkey = ep->remote.rkey;
    } else {
        wr.wr.rdma.remote_addr = ep->remote.memory + offset;
        wr.wr.rdma.rkey = ep->remote.rkey;
    }
    return wr;
}

void post(struct endpoint *ep, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad = NULL;
    EQUAL(ibv_post_send(ep->qp, wr, &bad), 0);
}

struct ibv_wc wait_for(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    int count = 0;
    alarm(30); /* Kills the process if no completion comes. */
    do {
        count = ibv_poll_cq(cq, 1, &wc);
    } while (count == 0);
    alarm(0);
    EQUAL(count, 1);
    return wc;
}

struct ibv_wc expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
    struct ibv_wc wc = wait_for(cq);
    if (wc.status != status) {
        fprintf(stderr, "%s: request %llu: %s, not %s\n", role, (unsigned long long)wc.wr_id,
                ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
        exit(1);
    }
    EQUAL(wc.wr_id, wr_id);
    return wc;
}

void fill(uint8_t *bytes, size_t length, uint8_t seed)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(seed + i * 31 + (i >> 8));
    }
}

int is_filled(const uint8_t *bytes, size_t length, uint8_t seed)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != (uint8_t)(seed + i * 31 + (i >> 8))) {
            return 0;
        }
    }
    return 1;
}
