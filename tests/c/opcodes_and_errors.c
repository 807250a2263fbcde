/*
 * A program as users write them: two processes, an RC connection, every opcode, an SRQ, events, and
 * what goes wrong. It needs nothing but <infiniband/verbs.h>, and runs on adapters as well (with
 * RDMALAB_TEST_DEVICE); one line for each part that passed.
 */
#include "endpoint.h"

#include <fcntl.h>

/* ---- The parts: the parent asks, the child answers ---- */

static void sends(struct endpoint *endpoint)
{
    struct ibv_sge sge[2];
    static const uint32_t lengths[] = {0, 1, 1024, 1025, 300000};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint32_t length = lengths[i];
        if (endpoint->is_parent) {
            barrier(endpoint);
            fill(endpoint->buffer, length, (uint8_t)i);
            struct ibv_send_wr wr = request(endpoint, sge, IBV_WR_SEND_WITH_IMM, 0, length);
            wr.imm_data = htobe32(77 + i);
            post(endpoint, &wr);
            EQUAL(expect(endpoint->send_cq, wr.wr_id, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
        } else {
            post_recv(endpoint, i, 0, BUFFER_BYTES);
            barrier(endpoint);
            struct ibv_wc wc = expect(endpoint->recv_cq, i, IBV_WC_SUCCESS);
            EQUAL(wc.opcode, IBV_WC_RECV);
            EQUAL(wc.byte_len, length);
            EQUAL(wc.qp_num, endpoint->qp->qp_num);
            CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
            EQUAL(be32toh(wc.imm_data), 77 + i);
            CHECK(is_filled(endpoint->buffer, length, (uint8_t)i));
        }
    }
    /* Gathered from two pieces, inline: the memory may change at once. */
    if (endpoint->is_parent) {
        barrier(endpoint);
        fill(endpoint->buffer, 48, 9);
        struct ibv_send_wr wr = request(endpoint, sge, IBV_WR_SEND, 0, 20);
        sge[1] = (struct ibv_sge){.addr = sge[0].addr + 20, .length = 28, .lkey = 0};
        wr.num_sge = 2;
        wr.send_flags |= IBV_SEND_INLINE;
        post(endpoint, &wr);
        memset(endpoint->buffer, 0, 48);
        expect(endpoint->send_cq, wr.wr_id, IBV_WC_SUCCESS);
    } else {
        post_recv(endpoint, 99, 0, 48);
        barrier(endpoint);
        EQUAL(expect(endpoint->recv_cq, 99, IBV_WC_SUCCESS).byte_len, 48);
        CHECK(is_filled(endpoint->buffer, 48, 9));
    }
    barrier(endpoint);
}

static void one_sided(struct endpoint *endpoint)
{
    struct ibv_sge sge;
    if (!endpoint->is_parent) {
        memset(endpoint->buffer, 0, BUFFER_BYTES);
        post_recv(endpoint, 5, 0, 0);
        barrier(endpoint);
        struct ibv_wc wc = expect(endpoint->recv_cq, 5, IBV_WC_SUCCESS);
        EQUAL(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        EQUAL(wc.byte_len, 100000);
        CHECK(is_filled(endpoint->buffer + 64, 100000, 3));
        barrier(endpoint);
        barrier(endpoint); /* Atomics run meanwhile. */
        uint64_t word;
        memcpy(&word, endpoint->buffer + 8192, 8);
        EQUAL(word, 1234 + 5);
        return;
    }
    barrier(endpoint);
    fill(endpoint->buffer + 64, 100000, 3);
    struct ibv_send_wr wr = request(endpoint, &sge, IBV_WR_RDMA_WRITE_WITH_IMM, 64, 100000);
    post(endpoint, &wr);
    EQUAL(expect(endpoint->send_cq, wr.wr_id, IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_WRITE);
    barrier(endpoint);
    /* Read back what was written, to another place. */
    wr = request(endpoint, &sge, IBV_WR_RDMA_READ, 64, 100000);
    sge.addr = (uintptr_t)endpoint->buffer + 500000;
    post(endpoint, &wr);
    struct ibv_wc wc = expect(endpoint->send_cq, wr.wr_id, IBV_WC_SUCCESS);
    EQUAL(wc.opcode, IBV_WC_RDMA_READ);
    CHECK(is_filled(endpoint->buffer + 500000, 100000, 3));
    /* A word of the peer: set it, swap it (once it fits, once not), add to it. */
    uint64_t word = 42;
    memcpy(endpoint->buffer + 8192, &word, 8);
    wr = request(endpoint, &sge, IBV_WR_RDMA_WRITE, 8192, 8);
    post(endpoint, &wr);
    expect(endpoint->send_cq, wr.wr_id, IBV_WC_SUCCESS);
    static const struct { uint64_t compare, swap, before; } swaps[] = {
        {42, 1234, 42}, {42, 9999, 1234}};
    for (int i = 0; i < 2; i++) {
        wr = request(endpoint, &sge, IBV_WR_ATOMIC_CMP_AND_SWP, 8192, 8);
        wr.wr.atomic.compare_add = swaps[i].compare;
        wr.wr.atomic.swap = swaps[i].swap;
        post(endpoint, &wr);
        EQUAL(expect(endpoint->send_cq, wr.wr_id, IBV_WC_SUCCESS).opcode, IBV_WC_COMP_SWAP);
        memcpy(&word, endpoint->buffer + 8192, 8);
        EQUAL(word, swaps[i].before);
    }
    wr = request(endpoint, &sge, IBV_WR_ATOMIC_FETCH_AND_ADD, 8192, 8);
    wr.wr.atomic.compare_add = 5;
    post(endpoint, &wr);
    EQUAL(expect(endpoint->send_cq, wr.wr_id, IBV_WC_SUCCESS).opcode, IBV_WC_FETCH_ADD);
    memcpy(&word, endpoint->buffer + 8192, 8);
    EQUAL(word, 1234);
    barrier(endpoint);
}

/* Sixteen unsignalled requests fill the queue; only a signalled completion makes room. */
static void unsignalled(struct endpoint *endpoint)
{
    if (endpoint->is_parent) {
        struct ibv_sge sge;
        struct ibv_send_wr wr = request(endpoint, &sge, IBV_WR_RDMA_WRITE, 0, 8), *bad = NULL;
        for (uint32_t i = 0; i < endpoint->cap.max_send_wr; i++) {
            wr.send_flags = i + 1 == endpoint->cap.max_send_wr ? IBV_SEND_SIGNALED : 0;
            post(endpoint, &wr);
        }
        EQUAL(ibv_post_send(endpoint->qp, &wr, &bad), ENOMEM);
        CHECK(bad == &wr);
        expect(endpoint->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        wr.send_flags = IBV_SEND_SIGNALED;
        post(endpoint, &wr);
        expect(endpoint->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        struct ibv_wc none;
        EQUAL(ibv_poll_cq(endpoint->send_cq, 1, &none), 0);
    }
    barrier(endpoint);
}

static void completion_event(struct endpoint *endpoint, int solicited)
{
    struct ibv_sge sge;
    if (endpoint->is_parent) {
        barrier(endpoint);
        /* The first is not solicited: with `solicited` it must not wake the child. */
        for (int i = 0; i < 2; i++) {
            struct ibv_send_wr wr = request(endpoint, &sge, IBV_WR_SEND, 0, 16);
            wr.send_flags |= i == 1 ? IBV_SEND_SOLICITED : 0;
            post(endpoint, &wr);
            expect(endpoint->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        }
    } else {
        post_recv(endpoint, 1, 0, 16);
        post_recv(endpoint, 2, 16, 16);
        EQUAL(ibv_req_notify_cq(endpoint->recv_cq, solicited), 0);
        barrier(endpoint);
        struct ibv_cq *cq = NULL;
        void *context = NULL;
        alarm(30);
        EQUAL(ibv_get_cq_event(endpoint->channel, &cq, &context), 0);
        alarm(0);
        CHECK(cq == endpoint->recv_cq && context == end);
        ibv_ack_cq_events(cq, 1);
        expect(endpoint->recv_cq, 1, IBV_WC_SUCCESS);
        if (solicited) {
            struct ibv_wc wc;
            EQUAL(ibv_poll_cq(endpoint->recv_cq, 1, &wc), 1); /* It was there with the event. */
            EQUAL(wc.wr_id, 2);
        } else {
            expect(endpoint->recv_cq, 2, IBV_WC_SUCCESS);
        }
        /* There is no second event, and a non-blocking descriptor says so. */
        int flags = fcntl(endpoint->channel->fd, F_GETFL);
        CHECK(fcntl(endpoint->channel->fd, F_SETFL, flags | O_NONBLOCK) == 0);
        EQUAL(ibv_get_cq_event(endpoint->channel, &cq, &context), -1);
        EQUAL(errno, EAGAIN);
        CHECK(fcntl(endpoint->channel->fd, F_SETFL, flags) == 0);
    }
    barrier(endpoint);
}

static void shared_receives(struct endpoint *endpoint)
{
    struct ibv_sge sge;
    if (endpoint->is_parent) {
        barrier(endpoint);
        for (int i = 0; i < 4; i++) {
            struct ibv_send_wr wr = request(endpoint, &sge, IBV_WR_SEND, 0, 8);
            post(endpoint, &wr);
            expect(endpoint->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        }
    } else {
        for (int i = 0; i < 6; i++) {
            post_recv(endpoint, 10 + i, 64 * i, 64);
        }
        struct ibv_srq_attr attr = {.srq_limit = 3};
        EQUAL(ibv_modify_srq(endpoint->srq, &attr, IBV_SRQ_LIMIT), 0);
        barrier(endpoint);
        for (int i = 0; i < 4; i++) {
            expect(endpoint->recv_cq, 10 + i, IBV_WC_SUCCESS);
        }
        /* Two receives are left, fewer than the limit: an event, and the limit is disarmed. */
        struct ibv_async_event event;
        alarm(30);
        EQUAL(ibv_get_async_event(endpoint->context, &event), 0);
        alarm(0);
        EQUAL(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
        CHECK(event.element.srq == endpoint->srq);
        ibv_ack_async_event(&event);
        EQUAL(ibv_query_srq(endpoint->srq, &attr), 0);
        EQUAL(attr.srq_limit, 0);
    }
    barrier(endpoint);
}

/* ---- What goes wrong ---- */

/* Puts a request that the peer refuses behind another; both ends' QPs are in ERR afterwards. */
static void refused(struct endpoint *endpoint, int reads)
{
    struct ibv_sge sge;
    if (endpoint->is_parent) {
        barrier(endpoint);
        enum ibv_wr_opcode opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        struct ibv_send_wr wr = request(endpoint, &sge, opcode, 0, 64);
        if (reads) {
            wr.wr.rdma.remote_addr = endpoint->remote.memory + BUFFER_BYTES - 63; /* One byte over. */
        } else {
            wr.wr.rdma.rkey ^= 0x5a5a00;
        }
        post(endpoint, &wr);
        expect(endpoint->send_cq, wr.wr_id, IBV_WC_REM_ACCESS_ERR);
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        EQUAL(ibv_query_qp(endpoint->qp, &attr, IBV_QP_STATE, &init), 0);
        EQUAL(attr.qp_state, IBV_QPS_ERR);
        /* From now on everything is flushed, unsignalled requests too. */
        wr = request(endpoint, &sge, IBV_WR_SEND, 0, 8);
        wr.send_flags = 0;
        post(endpoint, &wr);
        expect(endpoint->send_cq, wr.wr_id, IBV_WC_WR_FLUSH_ERR);
    } else {
        post_recv(endpoint, 8, 0, 64);
        barrier(endpoint);
        struct ibv_async_event event;
        alarm(30);
        EQUAL(ibv_get_async_event(endpoint->context, &event), 0);
        alarm(0);
        EQUAL(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
        CHECK(event.element.qp == endpoint->qp);
        ibv_ack_async_event(&event);
        expect(endpoint->recv_cq, 8, IBV_WC_WR_FLUSH_ERR);
    }
    barrier(endpoint);
}

static void too_short(struct endpoint *endpoint)
{
    struct ibv_sge sge;
    if (endpoint->is_parent) {
        barrier(endpoint);
        struct ibv_send_wr wr = request(endpoint, &sge, IBV_WR_SEND, 0, 64);
        post(endpoint, &wr);
        expect(endpoint->send_cq, wr.wr_id, IBV_WC_REM_INV_REQ_ERR);
    } else {
        post_recv(endpoint, 8, 0, 63);
        barrier(endpoint);
        expect(endpoint->recv_cq, 8, IBV_WC_LOC_LEN_ERR);
    }
    barrier(endpoint);
}

static void local_protection(struct endpoint *endpoint)
{
    if (endpoint->is_parent) {
        struct ibv_sge sge;
        struct ibv_send_wr wr = request(endpoint, &sge, IBV_WR_RDMA_WRITE, 0, 64);
        sge.lkey ^= 0x5a5a00;
        post(endpoint, &wr);
        expect(endpoint->send_cq, wr.wr_id, IBV_WC_LOC_PROT_ERR);
    }
    barrier(endpoint);
}

/* Requests that are refused when they are posted, and change nothing. */
static void refused_at_once(struct endpoint *endpoint)
{
    if (endpoint->is_parent) {
        struct ibv_sge sge[5];
        struct ibv_send_wr *bad = NULL;
        struct ibv_send_wr wr =
            request(endpoint, sge, IBV_WR_RDMA_WRITE, 0, endpoint->cap.max_inline_data + 1);
        wr.send_flags |= IBV_SEND_INLINE;
        EQUAL(ibv_post_send(endpoint->qp, &wr, &bad), EINVAL);
        CHECK(bad == &wr);
        wr = request(endpoint, sge, IBV_WR_RDMA_WRITE, 0, 8);
        wr.num_sge = (int)endpoint->cap.max_send_sge + 1;
        if (wr.num_sge <= 5) {
            EQUAL(ibv_post_send(endpoint->qp, &wr, &bad), EINVAL);
        }
        wr = request(endpoint, sge, IBV_WR_RDMA_READ, 0, 8);
        wr.send_flags |= IBV_SEND_INLINE;
        EQUAL(ibv_post_send(endpoint->qp, &wr, &bad), EINVAL);
        struct ibv_wc none;
        EQUAL(ibv_poll_cq(endpoint->send_cq, 1, &none), 0);
        /* Of a list, what stands before the bad one is posted. */
        struct ibv_send_wr good = request(endpoint, sge, IBV_WR_RDMA_WRITE, 0, 8);
        good.next = &wr;
        EQUAL(ibv_post_send(endpoint->qp, &good, &bad), EINVAL);
        CHECK(bad == &wr);
        expect(endpoint->send_cq, good.wr_id, IBV_WC_SUCCESS);
    }
    barrier(endpoint);
}

static void unreliable(struct endpoint *endpoint)
{
    if (endpoint->is_parent) {
        struct ibv_sge sge;
        struct ibv_send_wr *bad = NULL, wr = request(endpoint, &sge, IBV_WR_RDMA_READ, 0, 8);
        EQUAL(ibv_post_send(endpoint->qp, &wr, &bad), EINVAL);
        wr = request(endpoint, &sge, IBV_WR_ATOMIC_FETCH_AND_ADD, 8192, 8);
        EQUAL(ibv_post_send(endpoint->qp, &wr, &bad), EINVAL);
        barrier(endpoint);
        fill(endpoint->buffer, 5000, 21);
        wr = request(endpoint, &sge, IBV_WR_SEND, 0, 5000);
        post(endpoint, &wr);
        expect(endpoint->send_cq, wr.wr_id, IBV_WC_SUCCESS);
    } else {
        post_recv(endpoint, 3, 0, 5000);
        barrier(endpoint);
        EQUAL(expect(endpoint->recv_cq, 3, IBV_WC_SUCCESS).byte_len, 5000);
        CHECK(is_filled(endpoint->buffer, 5000, 21));
    }
    barrier(endpoint);
}

static void datagrams(struct endpoint *endpoint)
{
    struct ibv_port_attr port;
    EQUAL(ibv_query_port(endpoint->context, 1, &port), 0);
    uint32_t mtu = 128u << port.active_mtu;
    if (endpoint->is_parent) {
        struct ibv_ah_attr path = path_to(&endpoint->remote);
        struct ibv_ah *ah = ibv_create_ah(endpoint->pd, &path);
        CHECK(ah != NULL);
        struct ibv_sge sge;
        struct ibv_send_wr *bad = NULL, wr = request(endpoint, &sge, IBV_WR_SEND, 0, mtu + 1);
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = endpoint->remote.qp_num;
        wr.wr.ud.remote_qkey = 0x11111111;
        EQUAL(ibv_post_send(endpoint->qp, &wr, &bad), EINVAL);
        wr.opcode = IBV_WR_RDMA_WRITE;
        sge.length = 8;
        EQUAL(ibv_post_send(endpoint->qp, &wr, &bad), EINVAL);
        barrier(endpoint);
        fill(endpoint->buffer, mtu, 33);
        sge.length = mtu;
        wr.opcode = IBV_WR_SEND;
        /* The first has another Q_Key, and is dropped silently. */
        for (int i = 0; i < 2; i++) {
            wr.wr.ud.remote_qkey = i == 0 ? 0x22222222 : 0x11111111;
            post(endpoint, &wr);
            expect(endpoint->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        }
        EQUAL(ibv_destroy_ah(ah), 0);
    } else {
        post_recv(endpoint, 4, 0, mtu + 40);
        barrier(endpoint);
        struct ibv_wc wc = expect(endpoint->recv_cq, 4, IBV_WC_SUCCESS);
        EQUAL(wc.byte_len, mtu + 40);
        EQUAL(wc.src_qp, endpoint->remote.qp_num);
        CHECK(is_filled(endpoint->buffer + 40, mtu, 33));
        struct ibv_wc none;
        EQUAL(ibv_poll_cq(endpoint->recv_cq, 1, &none), 0);
    }
    barrier(endpoint);
}

/* Runs a part on a QP of its own. */
static void part(struct endpoint *endpoint, const char *name, enum ibv_qp_type type, int with_srq,
                 void (*run)(struct endpoint *))
{
    make_qp(endpoint, type, with_srq);
    connect_qp(endpoint);
    run(endpoint);
    destroy_qp(endpoint);
    if (endpoint->is_parent) {
        printf("passed: %s\n", name);
        fflush(stdout);
    }
}

static void any_event(struct endpoint *endpoint) { completion_event(endpoint, 0); }
static void solicited_event(struct endpoint *endpoint) { completion_event(endpoint, 1); }
static void refused_write(struct endpoint *endpoint) { refused(endpoint, 0); }
static void refused_read(struct endpoint *endpoint) { refused(endpoint, 1); }

static void run_all(struct endpoint *endpoint)
{
    open_endpoint(endpoint);
    part(endpoint, "RC SEND", IBV_QPT_RC, 0, sends);
    part(endpoint, "RC WRITE, READ, atomics", IBV_QPT_RC, 0, one_sided);
    part(endpoint, "unsignalled requests", IBV_QPT_RC, 0, unsignalled);
    part(endpoint, "completion events", IBV_QPT_RC, 0, any_event);
    part(endpoint, "solicited events", IBV_QPT_RC, 0, solicited_event);
    part(endpoint, "RC SEND into an SRQ", IBV_QPT_RC, 1, sends);
    part(endpoint, "SRQ limit", IBV_QPT_RC, 1, shared_receives);
    part(endpoint, "WRITE with a wrong key", IBV_QPT_RC, 0, refused_write);
    part(endpoint, "READ beyond a region", IBV_QPT_RC, 0, refused_read);
    part(endpoint, "receive too short", IBV_QPT_RC, 0, too_short);
    part(endpoint, "wrong local key", IBV_QPT_RC, 0, local_protection);
    part(endpoint, "requests refused at once", IBV_QPT_RC, 0, refused_at_once);
    part(endpoint, "UC", IBV_QPT_UC, 0, unreliable);
    part(endpoint, "UD", IBV_QPT_UD, 0, datagrams);
    close_endpoint(endpoint);
}

int main(void)
{
    int link[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, link) == 0);
    /* Before any verb: each process opens the device for itself. */
    pid_t child = fork();
    CHECK(child >= 0);
    struct endpoint endpoint = {.is_parent = child != 0, .socket = link[child != 0]};
    close(link[child == 0]);
    if (child == 0) {
        role = "child";
    }
    run_all(&endpoint);
    if (child != 0) {
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        printf("all passed\n");
    }
    return 0;
}
