/*
 * A program as a user would write it against the system's header: it lists the devices, opens the
 * first, and exchanges messages between two QPs of its own, with classic and extended verbs.
 */
#include <endian.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                       \
    do {                                                                   \
        if (!(condition)) {                                            \
            fprintf(stderr, "program.c:%d: %s\n", __LINE__,        \
                #condition);                                   \
            return __LINE__;                                       \
        }                                                              \
    } while (0)

static char memory[4096];

struct ends {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct ibv_comp_channel *channel;
    struct ibv_cq_ex *cq;
    struct ibv_qp *a, *b;
};

static int query(struct ibv_context *context)
{
    struct ibv_device_attr_ex device = { 0 };
    struct ibv_port_attr port;
    struct ibv_gid_entry entry;

    CHECK(ibv_query_device_ex(context, NULL, &device) == 0);
    CHECK(device.orig_attr.phys_port_cnt == 1 && device.hca_core_clock);
    CHECK(ibv_query_port(context, 1, &port) == 0);
    CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_INFINIBAND);
    CHECK(port.port_cap_flags2 == 0);
    CHECK(ibv_query_gid_ex(context, 1, 1, &entry, 0) == 0);
    CHECK(entry.gid_type == IBV_GID_TYPE_ROCE_V2 && entry.gid.raw[0] == 0xfe);
    CHECK(ibv_alloc_null_mr(&(struct ibv_pd){ context, 0 }) == NULL);
    CHECK(errno == EOPNOTSUPP);
    return 0;
}

static struct ibv_qp *make_qp(struct ends *e)
{
    struct ibv_qp_init_attr_ex init = {
        .send_cq = ibv_cq_ex_to_cq(e->cq),
        .recv_cq = ibv_cq_ex_to_cq(e->cq),
        .cap = { 8, 8, 2, 2, 16 },
        .qp_type = IBV_QPT_RC,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = e->pd,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
    };

    return ibv_create_qp_ex(e->context, &init);
}

static int connect_qp(struct ibv_qp *qp, uint32_t to)
{
    struct ibv_qp_attr attr = { .dest_qp_num = to };

    attr.qp_state = IBV_QPS_INIT;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN) == 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    CHECK(qp->state == IBV_QPS_RTS);
    return 0;
}

static int make(struct ends *e, struct ibv_context *context)
{
    struct ibv_cq_init_attr_ex cq = {
        .cqe = 16,
        .cq_context = e,
        .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM |
                IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
    };
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

    e->context = context;
    CHECK((e->pd = ibv_alloc_pd(context)));
    CHECK((e->mr = ibv_reg_mr(e->pd, memory, sizeof memory, access)));
    CHECK((e->channel = ibv_create_comp_channel(context)));
    cq.channel = e->channel;
    CHECK((e->cq = ibv_create_cq_ex(context, &cq)));
    CHECK((e->a = make_qp(e)) && (e->b = make_qp(e)));
    CHECK(connect_qp(e->a, e->b->qp_num) == 0);
    CHECK(connect_qp(e->b, e->a->qp_num) == 0);
    return 0;
}

static int classic(struct ends *e)
{
    struct ibv_sge to = { (uintptr_t)memory + 1024, 64, e->mr->lkey };
    struct ibv_sge from = { (uintptr_t)memory, 6, e->mr->lkey };
    struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = &to, .num_sge = 1 }, *bad_receive;
    struct ibv_send_wr send = {
        .wr_id = 2,
        .sg_list = &from,
        .num_sge = 1,
        .opcode = IBV_WR_SEND_WITH_IMM,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED,
        .imm_data = htobe32(77),
    }, *bad_send;
    struct ibv_cq *cq;
    struct ibv_wc wc[4];
    void *context;

    strcpy(memory, "hello");
    CHECK(ibv_req_notify_cq(ibv_cq_ex_to_cq(e->cq), 1) == 0);
    CHECK(ibv_post_recv(e->b, &receive, &bad_receive) == 0);
    CHECK(ibv_post_send(e->a, &send, &bad_send) == 0);
    CHECK(ibv_get_cq_event(e->channel, &cq, &context) == 0);
    CHECK(cq == ibv_cq_ex_to_cq(e->cq) && context == e);
    ibv_ack_cq_events(cq, 1);
    CHECK(ibv_poll_cq(cq, 4, wc) == 2);
    CHECK(wc[0].wr_id == 1 && wc[0].opcode == IBV_WC_RECV && wc[0].byte_len == 6);
    CHECK((wc[0].wc_flags & IBV_WC_WITH_IMM) && be32toh(wc[0].imm_data) == 77);
    CHECK(wc[1].wr_id == 2 && wc[1].qp_num == e->a->qp_num);
    CHECK(strcmp(ibv_wc_status_str(wc[1].status), "success") == 0);
    CHECK(strcmp(memory + 1024, "hello") == 0);

    send.opcode = 12;
    CHECK(ibv_post_send(e->a, &send, &bad_send) == EINVAL && bad_send == &send);
    return 0;
}

static int extended(struct ends *e)
{
    struct ibv_poll_cq_attr poll = { 0 };
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(e->a);
    char text[] = "written";

    CHECK(qp);
    CHECK(ibv_start_poll(e->cq, &poll) == ENOENT);
    ibv_wr_start(qp);
    qp->wr_id = 3;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, e->mr->rkey, (uintptr_t)memory + 2048);
    ibv_wr_set_inline_data(qp, text, sizeof text);
    memset(text, 0, sizeof text);
    CHECK(ibv_wr_complete(qp) == 0);
    CHECK(ibv_start_poll(e->cq, &poll) == 0);
    CHECK(e->cq->wr_id == 3 && e->cq->status == IBV_WC_SUCCESS);
    CHECK(ibv_wc_read_opcode(e->cq) == IBV_WC_RDMA_WRITE);
    CHECK(ibv_wc_read_completion_ts(e->cq) > 0);
    CHECK(ibv_next_poll(e->cq) == ENOENT);
    ibv_end_poll(e->cq);
    CHECK(strcmp(memory + 2048, "written") == 0);

    ibv_wr_start(qp);
    ibv_wr_rdma_read(qp, e->mr->rkey, (uintptr_t)memory);
    CHECK(ibv_wr_complete(qp) == EINVAL);
    return 0;
}

static int take_down(struct ends *e)
{
    CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(e->cq)) == EBUSY);
    CHECK(ibv_destroy_qp(e->a) == 0 && ibv_destroy_qp(e->b) == 0);
    CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(e->cq)) == 0);
    CHECK(ibv_destroy_comp_channel(e->channel) == 0);
    CHECK(ibv_dereg_mr(e->mr) == 0 && ibv_dealloc_pd(e->pd) == 0);
    CHECK(ibv_close_device(e->context) == 0);
    return 0;
}

/* 0, or the line of the check that failed. */
int rdmalab_test_program(void)
{
    struct ibv_context *context;
    struct ibv_device **list;
    struct ends ends = { 0 };
    int devices, failed;

    CHECK((list = ibv_get_device_list(&devices)) && devices == 2);
    CHECK(strcmp(ibv_get_device_name(list[0]), "mock0") == 0);
    CHECK(be64toh(ibv_get_device_guid(list[0])) == 0x020102fffe030405ull);
    CHECK((context = ibv_open_device(list[0])));
    ibv_free_device_list(list);
    (void)((failed = query(context)) || (failed = make(&ends, context)) ||
           (failed = classic(&ends)) || (failed = extended(&ends)) ||
           (failed = take_down(&ends)));
    return failed;
}
