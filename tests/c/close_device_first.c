/*
 * Closes the device before destroying the objects made on it, as perftest does. The close must
 * succeed, and every object must still work and can be destroyed.
 */
#include "endpoint.h"

static void one_write(struct endpoint *ep)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(ep, &sge, IBV_WR_RDMA_WRITE, 0, 8);
    wr.wr.rdma.remote_addr = (uintptr_t)ep->buffer + 64;
    wr.wr.rdma.rkey = ep->mr->rkey;
    post(ep, &wr);
    expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS);
}

int main(void)
{
    struct endpoint ep = {.is_parent = 1, .socket = -1};
    open_endpoint(&ep);
    make_qp(&ep, IBV_QPT_RC, 1);
    struct ibv_mw *mw = ibv_alloc_mw(ep.pd, IBV_MW_TYPE_1);
    CHECK(mw != NULL);
    struct ibv_ah_attr path = path_to(&ep.local);
    struct ibv_ah *ah = ibv_create_ah(ep.pd, &path);
    CHECK(ah != NULL);
    /* The QP is connected to itself. */
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = ep.qp->qp_num,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = path,
    };
    EQUAL(ibv_modify_qp(ep.qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
          0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    EQUAL(ibv_modify_qp(ep.qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
          0);
    one_write(&ep);
    EQUAL(ibv_close_device(ep.context), 0);
    /* Reuse freed heap memory, so that a stale pointer to the context reads other bytes. */
    for (int i = 0; i < 1000; i++) {
        memset(malloc(16 * (size_t)i), 0x5a, 16 * (size_t)i);
    }
    one_write(&ep);
    EQUAL(ibv_dealloc_mw(mw), 0);
    EQUAL(ibv_destroy_ah(ah), 0);
    EQUAL(ibv_destroy_qp(ep.qp), 0);
    EQUAL(ibv_destroy_srq(ep.srq), 0);
    EQUAL(ibv_destroy_cq(ep.send_cq), 0);
    if (ep.recv_cq != ep.send_cq) {
        EQUAL(ibv_destroy_cq(ep.recv_cq), 0);
    }
    EQUAL(ibv_destroy_comp_channel(ep.channel), 0);
    EQUAL(ibv_dereg_mr(ep.mr), 0);
    EQUAL(ibv_dealloc_pd(ep.pd), 0);
    printf("all passed\n");
    return 0;
}
