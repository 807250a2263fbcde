/*
 * Conformance: memory windows, keys that a message names, and the protection domain of shared
 * receives. See conformance.h.
 */
#include "conformance.h"

enum { BYTES = 64, AT = 8192, KEY_BITS = 0xff };

/* A region of the receiver's buffer that windows may be bound to. */
static struct ibv_mr *bindable(struct endpoint *ep)
{
    struct ibv_mr *mr = ibv_reg_mr(ep->pd, ep->buffer, BUFFER_BYTES,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                       IBV_ACCESS_MW_BIND);
    CHECK(mr != NULL);
    return mr;
}

static struct ibv_mw *window(struct endpoint *ep, enum ibv_mw_type type)
{
    struct ibv_mw *mw = ibv_alloc_mw(ep->pd, type);
    CHECK(mw != NULL);
    return mw;
}

/* The part of the receiver's buffer that a window is bound to. */
static struct ibv_mw_bind_info part(struct endpoint *ep, uint64_t bytes)
{
    return (struct ibv_mw_bind_info){.mr = bindable(ep),
                                     .addr = (uintptr_t)ep->buffer + AT,
                                     .length = bytes,
                                     .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
}

/* Binds a window of type 2 by a work request of the receiver's QP. */
static const char *bind_2(struct endpoint *ep, struct ibv_mw *mw, uint32_t rkey, uint64_t bytes)
{
    struct ibv_send_wr wr = {.wr_id = 1,
                             .opcode = IBV_WR_BIND_MW,
                             .send_flags = IBV_SEND_SIGNALED,
                             .bind_mw = {.mw = mw, .rkey = rkey, .bind_info = part(ep, bytes)}};
    return execute(ep, &wr);
}

static const char *bind_1(struct endpoint *ep, struct ibv_mw *mw, unsigned more_access)
{
    struct ibv_mw_bind bind = {
        .wr_id = 1, .send_flags = IBV_SEND_SIGNALED, .bind_info = part(ep, BYTES)};
    bind.bind_info.mw_access_flags |= more_access;
    return result(ep, ibv_bind_mw(ep->qp, mw, &bind));
}

/* Writes to the part that windows are bound to. */
static const char *write_by(struct pair *pair, enum ibv_wr_opcode opcode, uint32_t rkey)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair->a, &sge, opcode, 0, BYTES);
    wr.wr.rdma.remote_addr = (uintptr_t)pair->b.buffer + AT;
    wr.wr.rdma.rkey = rkey;
    return execute(&pair->a, &wr);
}

/* IBA vol. 1, 10.6.7.2.2: the program chooses the low 8 bits of a key, the adapter the others. */
static void key_bits(void)
{
    struct pair pair;
    open_pair(&pair, IBV_QPT_RC, 0);
    struct ibv_mw *mw = window(&pair.b, IBV_MW_TYPE_2);
    uint32_t low = (mw->rkey + 1) & KEY_BITS, key = (mw->rkey & ~(uint32_t)KEY_BITS) | low;
    outcome("mw2-key-bits-bind", "success", "%s", bind_2(&pair.b, mw, key ^ WRONG, BYTES));
    outcome("mw2-key-bits-write", "success", "%s", write_by(&pair, IBV_WR_RDMA_WRITE, key));
}

static void empty_window(void)
{
    struct pair pair;
    open_pair(&pair, IBV_QPT_RC, 0);
    struct ibv_mw *mw = window(&pair.b, IBV_MW_TYPE_2);
    outcome("mw2-length-0", ibv_wc_status_str(IBV_WC_MW_BIND_ERR), "%s",
            bind_2(&pair.b, mw, ibv_inc_rkey(mw->rkey), 0));
}

/* Zero-based addresses exist for windows of type 2 only (IBA vol. 1, 10.6.7.2.1). */
static void zero_based(void)
{
    struct pair pair;
    open_pair(&pair, IBV_QPT_RC, 0);
    struct ibv_mw *mw = window(&pair.b, IBV_MW_TYPE_1);
    outcome("mw1-zero-based", ibv_wc_status_str(IBV_WC_MW_BIND_ERR), "%s",
            bind_1(&pair.b, mw, IBV_ACCESS_ZERO_BASED));
}

/*
 * A SEND with Invalidate of a key that cannot be invalidated (IBA vol. 1, 9.9.6.3, class J): the
 * receiver learns of it, and the requester gets no NAK. Whether it gets an ACK, which may already
 * be on its way, is not asked.
 */
static void invalidates(struct pair *pair, uint32_t rkey, const char *name)
{
    struct ibv_sge sge;
    post_recv(&pair->b, 1, 0, BYTES);
    struct ibv_send_wr wr = request(&pair->a, &sge, IBV_WR_SEND_WITH_INV, 0, BYTES);
    wr.invalidate_rkey = rkey;
    const char *status = execute(&pair->a, &wr);
    int silent = strcmp(status, ibv_wc_status_str(IBV_WC_SUCCESS)) == 0 ||
                 strcmp(status, ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR)) == 0;
    outcome(part_of(name, "requester"), "no NAK", "%s", silent ? "no NAK" : status);
    status = next_status(pair->b.recv_cq);
    outcome(part_of(name, "receiver"), "local protection error, QP ERR", "%s, QP %s", status,
            state_after(&pair->b));
}

static void invalidates_nothing(void)
{
    struct pair pair;
    open_pair(&pair, IBV_QPT_RC, 0);
    invalidates(&pair, pair.b.mr->rkey ^ WRONG, "send-inv-bad-key");
}

static void invalidates_type_1(void)
{
    struct pair pair;
    open_pair(&pair, IBV_QPT_RC, 0);
    struct ibv_mw *mw = window(&pair.b, IBV_MW_TYPE_1);
    outcome("send-inv-type-1-bind", "success", "%s", bind_1(&pair.b, mw, 0));
    invalidates(&pair, mw->rkey, "send-inv-type-1");
}

/* The NAK is the requester's status (class C); the receive that was due has one too (11.6.2). */
static void write_with_wrong_key(void)
{
    struct pair pair;
    open_pair(&pair, IBV_QPT_RC, 0);
    post_recv(&pair.b, 1, 0, BYTES);
    const char *status =
        write_by(&pair, IBV_WR_RDMA_WRITE_WITH_IMM, pair.b.mr->rkey ^ WRONG);
    outcome("write-imm-bad-key-requester", "remote access error", "%s", status);
    outcome("write-imm-bad-key-receive", "local access error", "%s",
            next_status(pair.b.recv_cq));
}

/* IBA vol. 1, 10.2.3.2: receives belong to the domain of the SRQ, whatever that of the QP is. */
static void shared_receive(const char *name, const char *rule, int of_srq)
{
    struct endpoint a, b;
    open_with_psn(&a, IBV_QPT_RC, 1);
    memset(&b, 0, sizeof b);
    open_endpoint(&b);
    struct ibv_pd *pd = ibv_alloc_pd(b.context);
    CHECK(pd != NULL);
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    CHECK((b.srq = ibv_create_srq(pd, &attr)) != NULL);
    make_qp(&b, IBV_QPT_RC, 0);
    if (of_srq) {
        CHECK((b.mr = ibv_reg_mr(pd, b.buffer, BUFFER_BYTES, IBV_ACCESS_LOCAL_WRITE)) != NULL);
    }
    a.remote = b.local;
    b.remote = a.local;
    connect_to_remote(&a);
    connect_to_remote(&b);
    post_recv(&b, 1, 0, BYTES);
    send_to(&a, &b.local, BYTES);
    outcome(name, rule, "%s", next_status(b.recv_cq));
}

static void domain_of_srq(void) { shared_receive("srq-key-of-its-domain", "success", 1); }
static void domain_of_qp(void)
{
    shared_receive("srq-key-of-the-qps-domain", "local protection error", 0);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"mw2-key-bits", key_bits},
        {"mw2-length-0", empty_window},
        {"mw1-zero-based", zero_based},
        {"send-inv-bad-key", invalidates_nothing},
        {"send-inv-type-1", invalidates_type_1},
        {"write-imm-bad-key", write_with_wrong_key},
        {"srq-key-of-its-domain", domain_of_srq},
        {"srq-key-of-the-qps-domain", domain_of_qp},
    };
    return run_cases(argc, argv, cases, sizeof cases / sizeof *cases);
}
