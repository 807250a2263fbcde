/*
 * A program as users write them: two processes, an RC connection, every opcode, an SRQ, events, and
 * what goes wrong. It needs nothing but <infiniband/verbs.h>, and runs on adapters as well (with
 * RDMALAB_TEST_DEVICE); one line for each part that passed.
 */
#include "user.h"

#include <fcntl.h>

/* ---- The parts: the parent asks, the child answers ---- */

static void sends(struct end *end)
{
    struct ibv_sge sge[2];
    static const uint32_t lengths[] = {0, 1, 1024, 1025, 300000};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint32_t length = lengths[i];
        if (end->is_parent) {
            meet(end);
            fill(end->buffer, length, (uint8_t)i);
            struct ibv_send_wr wr = request(end, sge, IBV_WR_SEND_WITH_IMM, 0, length);
            wr.imm_data = htobe32(77 + i);
            post(end, &wr);
            EQUAL(expect(end->send_cq, wr.wr_id, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
        } else {
            post_recv(end, i, 0, BUFFER_BYTES);
            meet(end);
            struct ibv_wc wc = expect(end->recv_cq, i, IBV_WC_SUCCESS);
            EQUAL(wc.opcode, IBV_WC_RECV);
            EQUAL(wc.byte_len, length);
            EQUAL(wc.qp_num, end->qp->qp_num);
            CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
            EQUAL(be32toh(wc.imm_data), 77 + i);
            CHECK(is_filled(end->buffer, length, (uint8_t)i));
        }
    }
    /* Gathered from two pieces, inline: the memory may change at once. */
    if (end->is_parent) {
        meet(end);
        fill(end->buffer, 48, 9);
        struct ibv_send_wr wr = request(end, sge, IBV_WR_SEND, 0, 20);
        sge[1] = (struct ibv_sge){.addr = sge[0].addr + 20, .length = 28, .lkey = 0};
        wr.num_sge = 2;
        wr.send_flags |= IBV_SEND_INLINE;
        post(end, &wr);
        memset(end->buffer, 0, 48);
        expect(end->send_cq, wr.wr_id, IBV_WC_SUCCESS);
    } else {
        post_recv(end, 99, 0, 48);
        meet(end);
        EQUAL(expect(end->recv_cq, 99, IBV_WC_SUCCESS).byte_len, 48);
        CHECK(is_filled(end->buffer, 48, 9));
    }
    meet(end);
}

static void one_sided(struct end *end)
{
    struct ibv_sge sge;
    if (!end->is_parent) {
        memset(end->buffer, 0, BUFFER_BYTES);
        post_recv(end, 5, 0, 0);
        meet(end);
        struct ibv_wc wc = expect(end->recv_cq, 5, IBV_WC_SUCCESS);
        EQUAL(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        EQUAL(wc.byte_len, 100000);
        CHECK(is_filled(end->buffer + 64, 100000, 3));
        meet(end);
        meet(end); /* Atomics run meanwhile. */
        uint64_t word;
        memcpy(&word, end->buffer + 8192, 8);
        EQUAL(word, 1234 + 5);
        return;
    }
    meet(end);
    fill(end->buffer + 64, 100000, 3);
    struct ibv_send_wr wr = request(end, &sge, IBV_WR_RDMA_WRITE_WITH_IMM, 64, 100000);
    post(end, &wr);
    EQUAL(expect(end->send_cq, wr.wr_id, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
    meet(end);
    /* Read back what was written, to another place. */
    wr = request(end, &sge, IBV_WR_RDMA_READ, 64, 100000);
    sge.addr = (uintptr_t)end->buffer + 500000;
    post(end, &wr);
    struct ibv_wc wc = expect(end->send_cq, wr.wr_id, IBV_WC_SUCCESS);
    EQUAL(wc.opcode, IBV_WC_RDMA_READ);
    CHECK(is_filled(end->buffer + 500000, 100000, 3));
    /* A word of the peer: set it, swap it (once it fits, once not), add to it. */
    uint64_t word = 42;
    memcpy(end->buffer + 8192, &word, 8);
    wr = request(end, &sge, IBV_WR_RDMA_WRITE, 8192, 8);
    post(end, &wr);
    expect(end->send_cq, wr.wr_id, IBV_WC_SUCCESS);
    static const struct { uint64_t compare, swap, before; } swaps[] = {
        {42, 1234, 42}, {42, 9999, 1234}};
    for (int i = 0; i < 2; i++) {
        wr = request(end, &sge, IBV_WR_ATOMIC_CMP_AND_SWP, 8192, 8);
        wr.wr.atomic.compare_add = swaps[i].compare;
        wr.wr.atomic.swap = swaps[i].swap;
        post(end, &wr);
        EQUAL(expect(end->send_cq, wr.wr_id, IBV_WC_SUCCESS).opcode, IBV_WC_COMP_SWAP);
        memcpy(&word, end->buffer + 8192, 8);
        EQUAL(word, swaps[i].before);
    }
    wr = request(end, &sge, IBV_WR_ATOMIC_FETCH_AND_ADD, 8192, 8);
    wr.wr.atomic.compare_add = 5;
    post(end, &wr);
    EQUAL(expect(end->send_cq, wr.wr_id, IBV_WC_SUCCESS).opcode, IBV_WC_FETCH_ADD);
    memcpy(&word, end->buffer + 8192, 8);
    EQUAL(word, 1234);
    meet(end);
}

/* Sixteen unsignalled requests fill the queue; only a signalled completion makes room. */
static void unsignalled(struct end *end)
{
    if (end->is_parent) {
        struct ibv_sge sge;
        struct ibv_send_wr wr = request(end, &sge, IBV_WR_RDMA_WRITE, 0, 8), *bad = NULL;
        for (uint32_t i = 0; i < end->cap.max_send_wr; i++) {
            wr.send_flags = i + 1 == end->cap.max_send_wr ? IBV_SEND_SIGNALED : 0;
            post(end, &wr);
        }
        EQUAL(ibv_post_send(end->qp, &wr, &bad), ENOMEM);
        CHECK(bad == &wr);
        expect(end->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        wr.send_flags = IBV_SEND_SIGNALED;
        post(end, &wr);
        expect(end->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        struct ibv_wc none;
        EQUAL(ibv_poll_cq(end->send_cq, 1, &none), 0);
    }
    meet(end);
}

static void completion_event(struct end *end, int solicited)
{
    struct ibv_sge sge;
    if (end->is_parent) {
        meet(end);
        /* The first is not solicited: with `solicited` it must not wake the child. */
        for (int i = 0; i < 2; i++) {
            struct ibv_send_wr wr = request(end, &sge, IBV_WR_SEND, 0, 16);
            wr.send_flags |= i == 1 ? IBV_SEND_SOLICITED : 0;
            post(end, &wr);
            expect(end->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        }
    } else {
        post_recv(end, 1, 0, 16);
        post_recv(end, 2, 16, 16);
        EQUAL(ibv_req_notify_cq(end->recv_cq, solicited), 0);
        meet(end);
        struct ibv_cq *cq = NULL;
        void *context = NULL;
        alarm(30);
        EQUAL(ibv_get_cq_event(end->channel, &cq, &context), 0);
        alarm(0);
        CHECK(cq == end->recv_cq && context == end);
        ibv_ack_cq_events(cq, 1);
        expect(end->recv_cq, 1, IBV_WC_SUCCESS);
        if (solicited) {
            struct ibv_wc wc;
            EQUAL(ibv_poll_cq(end->recv_cq, 1, &wc), 1); /* It was there with the event. */
            EQUAL(wc.wr_id, 2);
        } else {
            expect(end->recv_cq, 2, IBV_WC_SUCCESS);
        }
        /* There is no second event, and a non-blocking descriptor says so. */
        int flags = fcntl(end->channel->fd, F_GETFL);
        CHECK(fcntl(end->channel->fd, F_SETFL, flags | O_NONBLOCK) == 0);
        EQUAL(ibv_get_cq_event(end->channel, &cq, &context), -1);
        EQUAL(errno, EAGAIN);
        CHECK(fcntl(end->channel->fd, F_SETFL, flags) == 0);
    }
    meet(end);
}

static void shared_receives(struct end *end)
{
    struct ibv_sge sge;
    if (end->is_parent) {
        meet(end);
        for (int i = 0; i < 4; i++) {
            struct ibv_send_wr wr = request(end, &sge, IBV_WR_SEND, 0, 8);
            post(end, &wr);
            expect(end->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        }
    } else {
        for (int i = 0; i < 6; i++) {
            post_recv(end, 10 + i, 64 * i, 64);
        }
        struct ibv_srq_attr attr = {.srq_limit = 3};
        EQUAL(ibv_modify_srq(end->srq, &attr, IBV_SRQ_LIMIT), 0);
        meet(end);
        for (int i = 0; i < 4; i++) {
            expect(end->recv_cq, 10 + i, IBV_WC_SUCCESS);
        }
        /* Two receives are left, fewer than the limit: an event, and the limit is disarmed. */
        struct ibv_async_event event;
        alarm(30);
        EQUAL(ibv_get_async_event(end->context, &event), 0);
        alarm(0);
        EQUAL(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
        CHECK(event.element.srq == end->srq);
        ibv_ack_async_event(&event);
        EQUAL(ibv_query_srq(end->srq, &attr), 0);
        EQUAL(attr.srq_limit, 0);
    }
    meet(end);
}

/* ---- What goes wrong ---- */

/* Puts a request that the peer refuses behind another; both ends' QPs are in ERR afterwards. */
static void refused(struct end *end, int reads)
{
    struct ibv_sge sge;
    if (end->is_parent) {
        meet(end);
        enum ibv_wr_opcode opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        struct ibv_send_wr wr = request(end, &sge, opcode, 0, 64);
        if (reads) {
            wr.wr.rdma.remote_addr = end->there.memory + BUFFER_BYTES - 63; /* One byte over. */
        } else {
            wr.wr.rdma.rkey ^= 0x5a5a00;
        }
        post(end, &wr);
        expect(end->send_cq, wr.wr_id, IBV_WC_REM_ACCESS_ERR);
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        EQUAL(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init), 0);
        EQUAL(attr.qp_state, IBV_QPS_ERR);
        /* From now on everything is flushed, unsignalled requests too. */
        wr = request(end, &sge, IBV_WR_SEND, 0, 8);
        wr.send_flags = 0;
        post(end, &wr);
        expect(end->send_cq, wr.wr_id, IBV_WC_WR_FLUSH_ERR);
    } else {
        post_recv(end, 8, 0, 64);
        meet(end);
        struct ibv_async_event event;
        alarm(30);
        EQUAL(ibv_get_async_event(end->context, &event), 0);
        alarm(0);
        EQUAL(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
        CHECK(event.element.qp == end->qp);
        ibv_ack_async_event(&event);
        expect(end->recv_cq, 8, IBV_WC_WR_FLUSH_ERR);
    }
    meet(end);
}

static void too_short(struct end *end)
{
    struct ibv_sge sge;
    if (end->is_parent) {
        meet(end);
        struct ibv_send_wr wr = request(end, &sge, IBV_WR_SEND, 0, 64);
        post(end, &wr);
        expect(end->send_cq, wr.wr_id, IBV_WC_REM_INV_REQ_ERR);
    } else {
        post_recv(end, 8, 0, 63);
        meet(end);
        expect(end->recv_cq, 8, IBV_WC_LOC_LEN_ERR);
    }
    meet(end);
}

static void local_protection(struct end *end)
{
    if (end->is_parent) {
        struct ibv_sge sge;
        struct ibv_send_wr wr = request(end, &sge, IBV_WR_RDMA_WRITE, 0, 64);
        sge.lkey ^= 0x5a5a00;
        post(end, &wr);
        expect(end->send_cq, wr.wr_id, IBV_WC_LOC_PROT_ERR);
    }
    meet(end);
}

/* Requests that are refused when they are posted, and change nothing. */
static void refused_at_once(struct end *end)
{
    if (end->is_parent) {
        struct ibv_sge sge[5];
        struct ibv_send_wr *bad = NULL;
        struct ibv_send_wr wr =
            request(end, sge, IBV_WR_RDMA_WRITE, 0, end->cap.max_inline_data + 1);
        wr.send_flags |= IBV_SEND_INLINE;
        EQUAL(ibv_post_send(end->qp, &wr, &bad), EINVAL);
        CHECK(bad == &wr);
        wr = request(end, sge, IBV_WR_RDMA_WRITE, 0, 8);
        wr.num_sge = (int)end->cap.max_send_sge + 1;
        if (wr.num_sge <= 5) {
            EQUAL(ibv_post_send(end->qp, &wr, &bad), EINVAL);
        }
        wr = request(end, sge, IBV_WR_RDMA_READ, 0, 8);
        wr.send_flags |= IBV_SEND_INLINE;
        EQUAL(ibv_post_send(end->qp, &wr, &bad), EINVAL);
        struct ibv_wc none;
        EQUAL(ibv_poll_cq(end->send_cq, 1, &none), 0);
        /* Of a list, what stands before the bad one is posted. */
        struct ibv_send_wr good = request(end, sge, IBV_WR_RDMA_WRITE, 0, 8);
        good.next = &wr;
        EQUAL(ibv_post_send(end->qp, &good, &bad), EINVAL);
        CHECK(bad == &wr);
        expect(end->send_cq, good.wr_id, IBV_WC_SUCCESS);
    }
    meet(end);
}

static void unreliable(struct end *end)
{
    if (end->is_parent) {
        struct ibv_sge sge;
        struct ibv_send_wr *bad = NULL, wr = request(end, &sge, IBV_WR_RDMA_READ, 0, 8);
        EQUAL(ibv_post_send(end->qp, &wr, &bad), EINVAL);
        wr = request(end, &sge, IBV_WR_ATOMIC_FETCH_AND_ADD, 8192, 8);
        EQUAL(ibv_post_send(end->qp, &wr, &bad), EINVAL);
        meet(end);
        fill(end->buffer, 5000, 21);
        wr = request(end, &sge, IBV_WR_SEND, 0, 5000);
        post(end, &wr);
        expect(end->send_cq, wr.wr_id, IBV_WC_SUCCESS);
    } else {
        post_recv(end, 3, 0, 5000);
        meet(end);
        EQUAL(expect(end->recv_cq, 3, IBV_WC_SUCCESS).byte_len, 5000);
        CHECK(is_filled(end->buffer, 5000, 21));
    }
    meet(end);
}

static void datagrams(struct end *end)
{
    struct ibv_port_attr port;
    EQUAL(ibv_query_port(end->context, 1, &port), 0);
    uint32_t mtu = 128u << port.active_mtu;
    if (end->is_parent) {
        struct ibv_ah_attr path = path_to(&end->there);
        struct ibv_ah *ah = ibv_create_ah(end->pd, &path);
        CHECK(ah != NULL);
        struct ibv_sge sge;
        struct ibv_send_wr *bad = NULL, wr = request(end, &sge, IBV_WR_SEND, 0, mtu + 1);
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = end->there.qp_num;
        wr.wr.ud.remote_qkey = 0x11111111;
        EQUAL(ibv_post_send(end->qp, &wr, &bad), EINVAL);
        wr.opcode = IBV_WR_RDMA_WRITE;
        sge.length = 8;
        EQUAL(ibv_post_send(end->qp, &wr, &bad), EINVAL);
        meet(end);
        fill(end->buffer, mtu, 33);
        sge.length = mtu;
        wr.opcode = IBV_WR_SEND;
        /* The first has another Q_Key, and is dropped silently. */
        for (int i = 0; i < 2; i++) {
            wr.wr.ud.remote_qkey = i == 0 ? 0x22222222 : 0x11111111;
            post(end, &wr);
            expect(end->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        }
        EQUAL(ibv_destroy_ah(ah), 0);
    } else {
        post_recv(end, 4, 0, mtu + 40);
        meet(end);
        struct ibv_wc wc = expect(end->recv_cq, 4, IBV_WC_SUCCESS);
        EQUAL(wc.byte_len, mtu + 40);
        EQUAL(wc.src_qp, end->there.qp_num);
        CHECK(is_filled(end->buffer + 40, mtu, 33));
        struct ibv_wc none;
        EQUAL(ibv_poll_cq(end->recv_cq, 1, &none), 0);
    }
    meet(end);
}

/* Runs a part on a QP of its own. */
static void part(struct end *end, const char *name, enum ibv_qp_type type, int with_srq,
                 void (*run)(struct end *))
{
    make_qp(end, type, with_srq);
    connect_qp(end);
    run(end);
    destroy_qp(end);
    if (end->is_parent) {
        printf("passed: %s\n", name);
        fflush(stdout);
    }
}

static void any_event(struct end *end) { completion_event(end, 0); }
static void solicited_event(struct end *end) { completion_event(end, 1); }
static void refused_write(struct end *end) { refused(end, 0); }
static void refused_read(struct end *end) { refused(end, 1); }

static void run_all(struct end *end)
{
    open_end(end);
    part(end, "RC SEND", IBV_QPT_RC, 0, sends);
    part(end, "RC WRITE, READ, atomics", IBV_QPT_RC, 0, one_sided);
    part(end, "unsignalled requests", IBV_QPT_RC, 0, unsignalled);
    part(end, "completion events", IBV_QPT_RC, 0, any_event);
    part(end, "solicited events", IBV_QPT_RC, 0, solicited_event);
    part(end, "RC SEND into an SRQ", IBV_QPT_RC, 1, sends);
    part(end, "SRQ limit", IBV_QPT_RC, 1, shared_receives);
    part(end, "WRITE with a wrong key", IBV_QPT_RC, 0, refused_write);
    part(end, "READ beyond a region", IBV_QPT_RC, 0, refused_read);
    part(end, "receive too short", IBV_QPT_RC, 0, too_short);
    part(end, "wrong local key", IBV_QPT_RC, 0, local_protection);
    part(end, "requests refused at once", IBV_QPT_RC, 0, refused_at_once);
    part(end, "UC", IBV_QPT_UC, 0, unreliable);
    part(end, "UD", IBV_QPT_UD, 0, datagrams);
    close_end(end);
}

int main(void)
{
    int link[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, link) == 0);
    /* Before any verb: each process opens the device for itself. */
    pid_t child = fork();
    CHECK(child >= 0);
    struct end end = {.is_parent = child != 0, .link = link[child != 0]};
    close(link[child == 0]);
    if (child == 0) {
        who = "child";
    }
    run_all(&end);
    if (child != 0) {
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        printf("all passed\n");
    }
    return 0;
}
