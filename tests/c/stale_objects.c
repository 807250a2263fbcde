/*
 * Objects that the program has destroyed, or whose `handle` or `context` it has overwritten. Verbs
 * that make, change or destroy objects must refuse them with an error number, as the kernel does
 * when it does not find a handle. Nothing may be freed twice.
 */
#include "endpoint.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

/* The verb refused: `ENOENT` or `EINVAL`. */
static void refused(int line, int status)
{
    if (status != ENOENT && status != EINVAL) {
        fprintf(stderr, "line %d: status %d, neither ENOENT nor EINVAL\n", line, status);
        exit(1);
    }
}

#define REFUSED(call) refused(__LINE__, (call))
/* For verbs that return a pointer and set `errno`. */
#define NOT_MADE(call) refused(__LINE__, (errno = 0, (call)) == NULL ? errno : 0)

/* Overwrites a field during the calls, and restores it. */
#define WITH(field, value, calls)                                                                  \
    do {                                                                                           \
        __typeof__(field) made_ = (field);                                                         \
        (field) = (value);                                                                         \
        calls;                                                                                     \
        (field) = made_;                                                                           \
    } while (0)

static struct ibv_qp *make_ud(void)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = IBV_QPT_UD,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    return ibv_create_qp(pd, &init);
}

static struct ibv_ah *make_ah(struct ibv_pd *of)
{
    struct ibv_ah_attr to = {.port_num = 1, .is_global = 1};
    EQUAL(ibv_query_gid(context, 1, 0, &to.grh.dgid), 0);
    return ibv_create_ah(of, &to);
}

static struct ibv_srq *make_srq(struct ibv_pd *of)
{
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
    return ibv_create_srq(of, &init);
}

static void destroyed_twice(void)
{
    static char memory[64];
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    struct ibv_srq_attr limits;

    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    EQUAL(ibv_dereg_mr(mr), 0);
    REFUSED(ibv_dereg_mr(mr));
    CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);

    struct ibv_qp *qp = make_ud();
    CHECK(qp != NULL);
    EQUAL(ibv_destroy_qp(qp), 0);
    REFUSED(ibv_destroy_qp(qp));
    REFUSED(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    REFUSED(ibv_query_qp(qp, &attr, IBV_QP_STATE, NULL));

    struct ibv_srq *srq = make_srq(pd);
    CHECK(srq != NULL);
    EQUAL(ibv_destroy_srq(srq), 0);
    REFUSED(ibv_destroy_srq(srq));
    REFUSED(ibv_query_srq(srq, &limits));

    struct ibv_ah *ah = make_ah(pd);
    CHECK(ah != NULL);
    EQUAL(ibv_destroy_ah(ah), 0);
    REFUSED(ibv_destroy_ah(ah));

    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    CHECK(channel != NULL);
    EQUAL(ibv_destroy_comp_channel(channel), 0);
    REFUSED(ibv_destroy_comp_channel(channel));
    NOT_MADE(ibv_create_cq(context, 1, NULL, channel, 0));

    struct ibv_cq *second = ibv_create_cq(context, 1, NULL, NULL, 0);
    CHECK(second != NULL);
    EQUAL(ibv_destroy_cq(second), 0);
    REFUSED(ibv_destroy_cq(second));
    REFUSED(ibv_resize_cq(second, 2));

    struct ibv_pd *other = ibv_alloc_pd(context);
    CHECK(other != NULL);
    EQUAL(ibv_dealloc_pd(other), 0);
    REFUSED(ibv_dealloc_pd(other));
    NOT_MADE(ibv_reg_mr(other, memory, sizeof memory, 0));
    NOT_MADE(make_srq(other));
    NOT_MADE(make_ah(other));
}

static void overwritten(void)
{
    static char memory[64];
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    struct ibv_context *nowhere = (struct ibv_context *)0x10;
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp *qp = make_ud();
    struct ibv_srq *srq = make_srq(pd);
    CHECK(mr != NULL && qp != NULL && srq != NULL);
    WITH(mr->handle, mr->handle + 100, REFUSED(ibv_dereg_mr(mr)));
    WITH(mr->context, nowhere, REFUSED(ibv_dereg_mr(mr)));
    WITH(qp->handle, qp->handle + 100, {
        REFUSED(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
        REFUSED(ibv_destroy_qp(qp));
    });
    WITH(qp->context, nowhere, REFUSED(ibv_destroy_qp(qp)));
    WITH(srq->handle, 0, REFUSED(ibv_destroy_srq(srq)));
    WITH(srq->context, nowhere, REFUSED(ibv_destroy_srq(srq)));
    WITH(cq->handle, cq->handle + 100, {
        REFUSED(ibv_destroy_cq(cq));
        NOT_MADE(make_ud());
    });
    WITH(cq->context, nowhere, REFUSED(ibv_resize_cq(cq, 8)));
    WITH(pd->handle, pd->handle + 100, {
        REFUSED(ibv_dealloc_pd(pd));
        NOT_MADE(ibv_reg_mr(pd, memory, sizeof memory, 0));
    });
    WITH(pd->context, nowhere, NOT_MADE(ibv_reg_mr(pd, memory, sizeof memory, 0)));
    /* Each object is as it was. */
    EQUAL(ibv_destroy_srq(srq), 0);
    EQUAL(ibv_destroy_qp(qp), 0);
    EQUAL(ibv_dereg_mr(mr), 0);
}

int main(void)
{
    struct endpoint ep = {.is_parent = 1, .socket = -1};
    open_endpoint(&ep);
    context = ep.context;
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    CHECK(pd != NULL && cq != NULL);
    destroyed_twice();
    overwritten();
    EQUAL(ibv_destroy_cq(cq), 0);
    EQUAL(ibv_dealloc_pd(pd), 0);
    EQUAL(ibv_close_device(context), 0);
    CHECK(ibv_close_device(context) != 0);
    puts("all passed");
    return 0;
}
