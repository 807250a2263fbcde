/*
 * A complete verbs program: two processes, an RC connection, every opcode, an SRQ, events, and the
 * error completions. It needs only <infiniband/verbs.h>, and runs on adapters as well (set
 * RDMALAB_TEST_DEVICE). It prints one line for each part that passed.
 */
#include "endpoint.h"

#include <fcntl.h>

/* ---- The parts: the parent is the requester, the child the responder ---- */

static void sends(struct endpoint *ep)
{
    struct ibv_sge sge[2];
    static const uint32_t lengths[] = {0, 1, 1024, 1025, 300000};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint32_t length = lengths[i];
        if (ep->is_parent) {
            barrier(ep);
            fill(ep->buffer, length, (uint8_t)i);
            struct ibv_send_wr wr = request(ep, sge, IBV_WR_SEND_WITH_IMM, 0, length);
            wr.imm_data = htobe32(77 + i);
            post(ep, &wr);
            EQUAL(expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
        } else {
            post_recv(ep, i, 0, BUFFER_BYTES);
            barrier(ep);
            struct ibv_wc wc = expect(ep->recv_cq, i, IBV_WC_SUCCESS);
            EQUAL(wc.opcode, IBV_WC_RECV);
            EQUAL(wc.byte_len, length);
            EQUAL(wc.qp_num, ep->qp->qp_num);
            CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
            EQUAL(be32toh(wc.imm_data), 77 + i);
            CHECK(is_filled(ep->buffer, length, (uint8_t)i));
        }
    }
    /* Gathered from two pieces, inline: the memory may change at once. */
    if (ep->is_parent) {
        barrier(ep);
        fill(ep->buffer, 48, 9);
        struct ibv_send_wr wr = request(ep, sge, IBV_WR_SEND, 0, 20);
        sge[1] = (struct ibv_sge){.addr = sge[0].addr + 20, .length = 28, .lkey = 0};
        wr.num_sge = 2;
        wr.send_flags |= IBV_SEND_INLINE;
        post(ep, &wr);
        memset(ep->buffer, 0, 48);
        expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS);
    } else {
        post_recv(ep, 99, 0, 48);
        barrier(ep);
        EQUAL(expect(ep->recv_cq, 99, IBV_WC_SUCCESS).byte_len, 48);
        CHECK(is_filled(ep->buffer, 48, 9));
    }
    barrier(ep);
}

static void one_sided(struct endpoint *ep)
{
    struct ibv_sge sge;
    if (!ep->is_parent) {
        memset(ep->buffer, 0, BUFFER_BYTES);
        post_recv(ep, 5, 0, 0);
        barrier(ep);
        struct ibv_wc wc = expect(ep->recv_cq, 5, IBV_WC_SUCCESS);
        EQUAL(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        EQUAL(wc.byte_len, 100000);
        CHECK(is_filled(ep->buffer + 64, 100000, 3));
        barrier(ep);
        barrier(ep); /* Atomics run meanwhile. */
        uint64_t word;
        memcpy(&word, ep->buffer + 8192, 8);
        EQUAL(word, 1234 + 5);
        return;
    }
    barrier(ep);
    fill(ep->buffer + 64, 100000, 3);
    struct ibv_send_wr wr = request(ep, &sge, IBV_WR_RDMA_WRITE_WITH_IMM, 64, 100000);
    post(ep, &wr);
    EQUAL(expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
    barrier(ep);
    /* Read back what was written, to another place. */
    wr = request(ep, &sge, IBV_WR_RDMA_READ, 64, 100000);
    sge.addr = (uintptr_t)ep->buffer + 500000;
    post(ep, &wr);
    struct ibv_wc wc = expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS);
    EQUAL(wc.opcode, IBV_WC_RDMA_READ);
    CHECK(is_filled(ep->buffer + 500000, 100000, 3));
    /* A word of the peer: set it, swap it (once it fits, once not), add to it. */
    uint64_t word = 42;
    memcpy(ep->buffer + 8192, &word, 8);
    wr = request(ep, &sge, IBV_WR_RDMA_WRITE, 8192, 8);
    post(ep, &wr);
    expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS);
    static const struct { uint64_t compare, swap, before; } swaps[] = {
        {42, 1234, 42}, {42, 9999, 1234}};
    for (int i = 0; i < 2; i++) {
        wr = request(ep, &sge, IBV_WR_ATOMIC_CMP_AND_SWP, 8192, 8);
        wr.wr.atomic.compare_add = swaps[i].compare;
        wr.wr.atomic.swap = swaps[i].swap;
        post(ep, &wr);
        EQUAL(expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS).opcode, IBV_WC_COMP_SWAP);
        memcpy(&word, ep->buffer + 8192, 8);
        EQUAL(word, swaps[i].before);
    }
    wr = request(ep, &sge, IBV_WR_ATOMIC_FETCH_AND_ADD, 8192, 8);
    wr.wr.atomic.compare_add = 5;
    post(ep, &wr);
    EQUAL(expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS).opcode, IBV_WC_FETCH_ADD);
    memcpy(&word, ep->buffer + 8192, 8);
    EQUAL(word, 1234);
    barrier(ep);
}

/* Sixteen unsignalled requests fill the queue; only a signalled completion makes room. */
static void unsignalled(struct endpoint *ep)
{
    if (ep->is_parent) {
        struct ibv_sge sge;
        struct ibv_send_wr wr = request(ep, &sge, IBV_WR_RDMA_WRITE, 0, 8), *bad = NULL;
        for (uint32_t i = 0; i < ep->cap.max_send_wr; i++) {
            wr.send_flags = i + 1 == ep->cap.max_send_wr ? IBV_SEND_SIGNALED : 0;
            post(ep, &wr);
        }
        EQUAL(ibv_post_send(ep->qp, &wr, &bad), ENOMEM);
        CHECK(bad == &wr);
        expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        wr.send_flags = IBV_SEND_SIGNALED;
        post(ep, &wr);
        expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        struct ibv_wc none;
        EQUAL(ibv_poll_cq(ep->send_cq, 1, &none), 0);
    }
    barrier(ep);
}

static void completion_event(struct endpoint *ep, int solicited)
{
    struct ibv_sge sge;
    if (ep->is_parent) {
        barrier(ep);
        /* The first is not solicited: with `solicited` it must not wake the child. */
        for (int i = 0; i < 2; i++) {
            struct ibv_send_wr wr = request(ep, &sge, IBV_WR_SEND, 0, 16);
            wr.send_flags |= i == 1 ? IBV_SEND_SOLICITED : 0;
            post(ep, &wr);
            expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        }
    } else {
        post_recv(ep, 1, 0, 16);
        post_recv(ep, 2, 16, 16);
        EQUAL(ibv_req_notify_cq(ep->recv_cq, solicited), 0);
        barrier(ep);
        struct ibv_cq *cq = NULL;
        void *context = NULL;
        alarm(30);
        EQUAL(ibv_get_cq_event(ep->channel, &cq, &context), 0);
        alarm(0);
        CHECK(cq == ep->recv_cq && context == ep);
        ibv_ack_cq_events(cq, 1);
        expect(ep->recv_cq, 1, IBV_WC_SUCCESS);
        if (solicited) {
            struct ibv_wc wc;
            EQUAL(ibv_poll_cq(ep->recv_cq, 1, &wc), 1); /* It was there with the event. */
            EQUAL(wc.wr_id, 2);
        } else {
            expect(ep->recv_cq, 2, IBV_WC_SUCCESS);
        }
        /* There is no second event, and a non-blocking descriptor says so. */
        int flags = fcntl(ep->channel->fd, F_GETFL);
        CHECK(fcntl(ep->channel->fd, F_SETFL, flags | O_NONBLOCK) == 0);
        EQUAL(ibv_get_cq_event(ep->channel, &cq, &context), -1);
        EQUAL(errno, EAGAIN);
        CHECK(fcntl(ep->channel->fd, F_SETFL, flags) == 0);
    }
    barrier(ep);
}

static void shared_receives(struct endpoint *ep)
{
    struct ibv_sge sge;
    if (ep->is_parent) {
        barrier(ep);
        for (int i = 0; i < 4; i++) {
            struct ibv_send_wr wr = request(ep, &sge, IBV_WR_SEND, 0, 8);
            post(ep, &wr);
            expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        }
    } else {
        for (int i = 0; i < 6; i++) {
            post_recv(ep, 10 + i, 64 * i, 64);
        }
        struct ibv_srq_attr attr = {.srq_limit = 3};
        EQUAL(ibv_modify_srq(ep->srq, &attr, IBV_SRQ_LIMIT), 0);
        barrier(ep);
        for (int i = 0; i < 4; i++) {
            expect(ep->recv_cq, 10 + i, IBV_WC_SUCCESS);
        }
        /* Two receives are left, fewer than the limit: an event, and the limit is disarmed. */
        struct ibv_async_event event;
        alarm(30);
        EQUAL(ibv_get_async_event(ep->context, &event), 0);
        alarm(0);
        EQUAL(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
        CHECK(event.element.srq == ep->srq);
        ibv_ack_async_event(&event);
        EQUAL(ibv_query_srq(ep->srq, &attr), 0);
        EQUAL(attr.srq_limit, 0);
    }
    barrier(ep);
}

/* ---- What goes wrong ---- */

/* Puts a request that the peer refuses behind another; both ends' QPs are in ERR afterwards. */
static void refused(struct endpoint *ep, int reads)
{
    struct ibv_sge sge;
    if (ep->is_parent) {
        barrier(ep);
        enum ibv_wr_opcode opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        struct ibv_send_wr wr = request(ep, &sge, opcode, 0, 64);
        if (reads) {
            wr.wr.rdma.remote_addr = ep->remote.memory + BUFFER_BYTES - 63; /* One byte over. */
        } else {
            wr.wr.rdma.rkey ^= 0x5a5a00;
        }
        post(ep, &wr);
        expect(ep->send_cq, wr.wr_id, IBV_WC_REM_ACCESS_ERR);
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        EQUAL(ibv_query_qp(ep->qp, &attr, IBV_QP_STATE, &init), 0);
        EQUAL(attr.qp_state, IBV_QPS_ERR);
        /* From now on everything is flushed, unsignalled requests too. */
        wr = request(ep, &sge, IBV_WR_SEND, 0, 8);
        wr.send_flags = 0;
        post(ep, &wr);
        expect(ep->send_cq, wr.wr_id, IBV_WC_WR_FLUSH_ERR);
    } else {
        post_recv(ep, 8, 0, 64);
        barrier(ep);
        struct ibv_async_event event;
        alarm(30);
        EQUAL(ibv_get_async_event(ep->context, &event), 0);
        alarm(0);
        EQUAL(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
        CHECK(event.element.qp == ep->qp);
        ibv_ack_async_event(&event);
        expect(ep->recv_cq, 8, IBV_WC_WR_FLUSH_ERR);
    }
    barrier(ep);
}

static void too_short(struct endpoint *ep)
{
    struct ibv_sge sge;
    if (ep->is_parent) {
        barrier(ep);
        struct ibv_send_wr wr = request(ep, &sge, IBV_WR_SEND, 0, 64);
        post(ep, &wr);
        expect(ep->send_cq, wr.wr_id, IBV_WC_REM_INV_REQ_ERR);
    } else {
        post_recv(ep, 8, 0, 63);
        barrier(ep);
        expect(ep->recv_cq, 8, IBV_WC_LOC_LEN_ERR);
    }
    barrier(ep);
}

static void local_protection(struct endpoint *ep)
{
    if (ep->is_parent) {
        struct ibv_sge sge;
        struct ibv_send_wr wr = request(ep, &sge, IBV_WR_RDMA_WRITE, 0, 64);
        sge.lkey ^= 0x5a5a00;
        post(ep, &wr);
        expect(ep->send_cq, wr.wr_id, IBV_WC_LOC_PROT_ERR);
    }
    barrier(ep);
}

/* Requests that are refused when they are posted, and change nothing. */
static void refused_at_once(struct endpoint *ep)
{
    if (ep->is_parent) {
        struct ibv_sge sge[5];
        struct ibv_send_wr *bad = NULL;
        struct ibv_send_wr wr =
            request(ep, sge, IBV_WR_RDMA_WRITE, 0, ep->cap.max_inline_data + 1);
        wr.send_flags |= IBV_SEND_INLINE;
        EQUAL(ibv_post_send(ep->qp, &wr, &bad), EINVAL);
        CHECK(bad == &wr);
        wr = request(ep, sge, IBV_WR_RDMA_WRITE, 0, 8);
        wr.num_sge = (int)ep->cap.max_send_sge + 1;
        if (wr.num_sge <= 5) {
            EQUAL(ibv_post_send(ep->qp, &wr, &bad), EINVAL);
        }
        wr = request(ep, sge, IBV_WR_RDMA_READ, 0, 8);
        wr.send_flags |= IBV_SEND_INLINE;
        EQUAL(ibv_post_send(ep->qp, &wr, &bad), EINVAL);
        struct ibv_wc none;
        EQUAL(ibv_poll_cq(ep->send_cq, 1, &none), 0);
        /* Of a list, what stands before the bad one is posted. */
        struct ibv_send_wr good = request(ep, sge, IBV_WR_RDMA_WRITE, 0, 8);
        good.next = &wr;
        EQUAL(ibv_post_send(ep->qp, &good, &bad), EINVAL);
        CHECK(bad == &wr);
        expect(ep->send_cq, good.wr_id, IBV_WC_SUCCESS);
    }
    barrier(ep);
}

static void unreliable(struct endpoint *ep)
{
    if (ep->is_parent) {
        struct ibv_sge sge;
        struct ibv_send_wr *bad = NULL, wr = request(ep, &sge, IBV_WR_RDMA_READ, 0, 8);
        EQUAL(ibv_post_send(ep->qp, &wr, &bad), EINVAL);
        wr = request(ep, &sge, IBV_WR_ATOMIC_FETCH_AND_ADD, 8192, 8);
        EQUAL(ibv_post_send(ep->qp, &wr, &bad), EINVAL);
        barrier(ep);
        fill(ep->buffer, 5000, 21);
        wr = request(ep, &sge, IBV_WR_SEND, 0, 5000);
        post(ep, &wr);
        expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS);
    } else {
        post_recv(ep, 3, 0, 5000);
        barrier(ep);
        EQUAL(expect(ep->recv_cq, 3, IBV_WC_SUCCESS).byte_len, 5000);
        CHECK(is_filled(ep->buffer, 5000, 21));
    }
    barrier(ep);
}

static void datagrams(struct endpoint *ep)
{
    struct ibv_port_attr port;
    EQUAL(ibv_query_port(ep->context, 1, &port), 0);
    uint32_t mtu = 128u << port.active_mtu;
    if (ep->is_parent) {
        struct ibv_ah_attr path = path_to(&ep->remote);
        struct ibv_ah *ah = ibv_create_ah(ep->pd, &path);
        CHECK(ah != NULL);
        struct ibv_sge sge;
        struct ibv_send_wr *bad = NULL, wr = request(ep, &sge, IBV_WR_RDMA_WRITE, 0, 8);
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = ep->remote.qp_num;
        EQUAL(ibv_post_send(ep->qp, &wr, &bad), EINVAL);
        barrier(ep);
        fill(ep->buffer, mtu, 33);
        sge.length = mtu;
        wr.opcode = IBV_WR_SEND;
        /* The first has another Q_Key, and is dropped silently. */
        for (int i = 0; i < 2; i++) {
            wr.wr.ud.remote_qkey = i == 0 ? 0x22222222 : 0x11111111;
            post(ep, &wr);
            expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        }
        EQUAL(ibv_destroy_ah(ah), 0);
    } else {
        post_recv(ep, 4, 0, mtu + 40);
        barrier(ep);
        struct ibv_wc wc = expect(ep->recv_cq, 4, IBV_WC_SUCCESS);
        EQUAL(wc.byte_len, mtu + 40);
        EQUAL(wc.src_qp, ep->remote.qp_num);
        CHECK(is_filled(ep->buffer + 40, mtu, 33));
        struct ibv_wc none;
        EQUAL(ibv_poll_cq(ep->recv_cq, 1, &none), 0);
    }
    barrier(ep);
}

/* Runs a part on a QP of its own. */
static void part(struct endpoint *ep, const char *name, enum ibv_qp_type type, int with_srq,
                 void (*run)(struct endpoint *))
{
    make_qp(ep, type, with_srq);
    connect_qp(ep);
    run(ep);
    destroy_qp(ep);
    if (ep->is_parent) {
        printf("passed: %s\n", name);
        fflush(stdout);
    }
}

static void any_event(struct endpoint *ep) { completion_event(ep, 0); }
static void solicited_event(struct endpoint *ep) { completion_event(ep, 1); }
static void refused_write(struct endpoint *ep) { refused(ep, 0); }
static void refused_read(struct endpoint *ep) { refused(ep, 1); }

static void run_all(struct endpoint *ep)
{
    open_endpoint(ep);
    part(ep, "RC SEND", IBV_QPT_RC, 0, sends);
    part(ep, "RC WRITE, READ, atomics", IBV_QPT_RC, 0, one_sided);
    part(ep, "unsignalled requests", IBV_QPT_RC, 0, unsignalled);
    part(ep, "completion events", IBV_QPT_RC, 0, any_event);
    part(ep, "solicited events", IBV_QPT_RC, 0, solicited_event);
    part(ep, "RC SEND into an SRQ", IBV_QPT_RC, 1, sends);
    part(ep, "SRQ limit", IBV_QPT_RC, 1, shared_receives);
    part(ep, "WRITE with a wrong key", IBV_QPT_RC, 0, refused_write);
    part(ep, "READ beyond a region", IBV_QPT_RC, 0, refused_read);
    part(ep, "receive too short", IBV_QPT_RC, 0, too_short);
    part(ep, "wrong local key", IBV_QPT_RC, 0, local_protection);
    part(ep, "requests refused at once", IBV_QPT_RC, 0, refused_at_once);
    prefetch(ep);
    part(ep, "UC", IBV_QPT_UC, 0, unreliable);
    part(ep, "UD", IBV_QPT_UD, 0, datagrams);
    close_endpoint(ep);
}

int main(void)
{
    int link[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, link) == 0);
    /* Before any verb: each process opens the device for itself. */
    pid_t child = fork();
    CHECK(child >= 0);
    struct endpoint ep = {.is_parent = child != 0, .socket = link[child != 0]};
    close(link[child == 0]);
    if (child == 0) {
        role = "child";
    }
    run_all(&ep);
    if (child != 0) {
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        printf("all passed\n");
    }
    return 0;
}
