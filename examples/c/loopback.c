/*
 * A verbs program in C: two queue pairs of one process, connected to each other; one sends the
 * other a message. It knows nothing of rdmalab: `rdmalab exec -- ./loopback` runs it on the soft
 * device, `./loopback` on the first adapter of this host.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_BYTES = 4096, FIRST_PSN = 7, PORT = 1 };

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static struct ibv_context *open_first_device(void)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    struct ibv_context *context = list != NULL && count > 0 ? ibv_open_device(list[0]) : NULL;
    if (context == NULL) {
        fail("no RDMA device: try `rdmalab exec -- ./loopback`");
    }
    printf("device %s\n", ibv_get_device_name(context->device));
    ibv_free_device_list(list);
    return context;
}

/* A queue pair in INIT: receives can be posted. */
static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = PORT};
    if (qp == NULL || ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                                   IBV_QP_ACCESS_FLAGS) != 0) {
        fail("cannot make a queue pair");
    }
    return qp;
}

/* INIT to RTR to RTS: from here on the queue pair receives, and sends. */
static void connect_qp(struct ibv_qp *qp, const struct ibv_qp *peer)
{
    struct ibv_port_attr port;
    union ibv_gid gid;
    if (ibv_query_port(qp->context, PORT, &port) != 0 ||
        ibv_query_gid(qp->context, PORT, 0, &gid) != 0) {
        fail("cannot query the port");
    }
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = port.active_mtu,
        .dest_qp_num = peer->qp_num,
        .rq_psn = FIRST_PSN,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        /* Ethernet ports are addressed by GID, InfiniBand ports by LID. */
        .ah_attr = {.port_num = PORT,
                    .dlid = port.lid,
                    .is_global = port.link_layer == IBV_LINK_LAYER_ETHERNET,
                    .grh = {.dgid = gid, .hop_limit = 64}},
    };
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                     IBV_QP_MIN_RNR_TIMER) != 0) {
        fail("cannot go to RTR");
    }
    struct ibv_qp_attr rts = {
        .qp_state = IBV_QPS_RTS,
        .sq_psn = FIRST_PSN,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .max_rd_atomic = 1,
    };
    if (ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) != 0) {
        fail("cannot go to RTS");
    }
}

int main(void)
{
    struct ibv_context *context = open_first_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    char *buffer = calloc(1, BUFFER_BYTES);
    if (pd == NULL || cq == NULL || buffer == NULL) {
        fail("cannot make the objects");
    }
    struct ibv_mr *mr = ibv_reg_mr(pd, buffer, BUFFER_BYTES, IBV_ACCESS_LOCAL_WRITE);
    if (mr == NULL) {
        fail("cannot register memory");
    }
    struct ibv_qp *sender = make_qp(pd, cq), *receiver = make_qp(pd, cq);
    connect_qp(sender, receiver);
    connect_qp(receiver, sender);

    /* The message lies in the first half of the buffer, and is received into the second half. */
    strcpy(buffer, "a message");
    char *received = buffer + BUFFER_BYTES / 2;
    struct ibv_sge from = {.addr = (uintptr_t)buffer, .length = 10, .lkey = mr->lkey};
    struct ibv_sge to = {
        .addr = (uintptr_t)received, .length = BUFFER_BYTES / 2, .lkey = mr->lkey};
    struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &to, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr send = {.wr_id = 2,
                               .sg_list = &from,
                               .num_sge = 1,
                               .opcode = IBV_WR_SEND,
                               .send_flags = IBV_SEND_SIGNALED},
                       *bad_send;
    if (ibv_post_recv(receiver, &receive, &bad_receive) != 0 ||
        ibv_post_send(sender, &send, &bad_send) != 0) {
        fail("cannot post");
    }
    for (int completed = 0; completed < 2;) {
        struct ibv_wc wc;
        int polled = ibv_poll_cq(cq, 1, &wc);
        if (polled < 0 || (polled == 1 && wc.status != IBV_WC_SUCCESS)) {
            fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc.status));
            return 1;
        }
        completed += polled;
    }
    printf("received \"%s\"\n", received);

    ibv_destroy_qp(sender);
    ibv_destroy_qp(receiver);
    ibv_dereg_mr(mr);
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
    free(buffer);
    return 0;
}
