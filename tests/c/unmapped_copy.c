#include "unmapped_copy.h"

#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096 };

static struct ibv_context *context;
static struct ibv_pd *pd;

static int failed(const char *what)
{
    perror(what);
    return -1;
}

static void *new_page(void)
{
    void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return page == MAP_FAILED ? NULL : page;
}

int register_page(void)
{
    if (context == NULL) {
        struct ibv_device **list = ibv_get_device_list(NULL);
        context = list != NULL && list[0] != NULL ? ibv_open_device(list[0]) : NULL;
        pd = context != NULL ? ibv_alloc_pd(context) : NULL;
    }
    if (pd == NULL || ibv_reg_mr(pd, new_page(), PAGE_BYTES, 0) == NULL) {
        return failed("registering memory");
    }
    return 0;
}

/* A UD queue pair that may send. */
static struct ibv_qp *make_qp(struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = IBV_QPT_UD,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};
    int at_first = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    if (qp == NULL || ibv_modify_qp(qp, &attr, at_first) != 0) {
        return NULL;
    }
    attr.qp_state = IBV_QPS_RTR;
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE) != 0) {
        return NULL;
    }
    attr.qp_state = IBV_QPS_RTS;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0 ? qp : NULL;
}

int copy_from_unmapped_memory(void)
{
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    struct ibv_qp *qp = cq != NULL ? make_qp(cq) : NULL;
    struct ibv_port_attr port;
    struct ibv_ah_attr to = {.port_num = 1, .is_global = 1};
    char *page = new_page();
    struct ibv_mr *mr = page != NULL ? ibv_reg_mr(pd, page, PAGE_BYTES, 0) : NULL;
    if (qp == NULL || mr == NULL || ibv_query_port(context, 1, &port) != 0 ||
        ibv_query_gid(context, 1, 0, &to.grh.dgid) != 0) {
        return failed("preparing a datagram");
    }
    to.dlid = port.lid;
    struct ibv_sge part = {.addr = (uintptr_t)page, .length = 64, .lkey = mr->lkey};
    struct ibv_send_wr *bad, send = {
        .sg_list = &part,
        .num_sge = 1,
        .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.ud = {.ah = ibv_create_ah(pd, &to), .remote_qpn = qp->qp_num, .remote_qkey = 1},
    };
    /* Not unmapped: another thread could map something else there. */
    mprotect(page, PAGE_BYTES, PROT_NONE);
    if (send.wr.ud.ah == NULL || ibv_post_send(qp, &send, &bad) != 0) {
        return failed("sending a datagram");
    }
    struct ibv_wc done;
    int polled;
    do {
        polled = ibv_poll_cq(cq, 1, &done);
    } while (polled == 0);
    if (polled != 1 || done.status != IBV_WC_LOC_PROT_ERR) {
        fprintf(stderr, "the datagram completed with status %d\n", done.status);
        return -1;
    }
    if (ibv_destroy_ah(send.wr.ud.ah) || ibv_destroy_qp(qp) || ibv_dereg_mr(mr) ||
        ibv_destroy_cq(cq) || munmap(page, PAGE_BYTES)) {
        return failed("destroying");
    }
    return 0;
}
