/*
 * A program that closes its device before it destroys what it made there, as perftest does: the
 * close succeeds, and every object works and goes as if the device were open.
 */
#include "endpoint.h"

static void one_write(struct endpoint *endpoint)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(endpoint, &sge, IBV_WR_RDMA_WRITE, 0, 8);
    wr.wr.rdma.remote_addr = (uintptr_t)endpoint->buffer + 64;
    wr.wr.rdma.rkey = endpoint->mr->rkey;
    post(endpoint, &wr);
    expect(endpoint->send_cq, wr.wr_id, IBV_WC_SUCCESS);
}

int main(void)
{
    struct endpoint endpoint = {.is_parent = 1, .socket = -1};
    open_endpoint(&endpoint);
    make_qp(&endpoint, IBV_QPT_RC, 1);
    struct ibv_mw *mw = ibv_alloc_mw(endpoint.pd, IBV_MW_TYPE_1);
    CHECK(mw != NULL);
    struct ibv_ah_attr path = path_to(&endpoint.local);
    struct ibv_ah *ah = ibv_create_ah(endpoint.pd, &path);
    CHECK(ah != NULL);
    /* The QP is connected to itself. */
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = endpoint.qp->qp_num,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = path,
    };
    EQUAL(ibv_modify_qp(endpoint.qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
          0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    EQUAL(ibv_modify_qp(endpoint.qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
          0);
    one_write(&endpoint);
    EQUAL(ibv_close_device(endpoint.context), 0);
    /* Use what is left of the heap, so that something else lies where the context was. */
    for (int i = 0; i < 1000; i++) {
        memset(malloc(16 * (size_t)i), 0x5a, 16 * (size_t)i);
    }
    one_write(&endpoint);
    EQUAL(ibv_dealloc_mw(mw), 0);
    EQUAL(ibv_destroy_ah(ah), 0);
    EQUAL(ibv_destroy_qp(endpoint.qp), 0);
    EQUAL(ibv_destroy_srq(endpoint.srq), 0);
    EQUAL(ibv_destroy_cq(endpoint.send_cq), 0);
    if (endpoint.recv_cq != endpoint.send_cq) {
        EQUAL(ibv_destroy_cq(endpoint.recv_cq), 0);
    }
    EQUAL(ibv_destroy_comp_channel(endpoint.channel), 0);
    EQUAL(ibv_dereg_mr(endpoint.mr), 0);
    EQUAL(ibv_dealloc_pd(endpoint.pd), 0);
    printf("all passed\n");
    return 0;
}
