/*
 * A server that ends by exit and lets its connection be. Its peer hears of that, though a child of
 * the server keeps what it had open; but only after what the server's handlers still say.
 */
#include "endpoint.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

enum { RESOLVE_MS = 10000, BYTES = 8 };

static struct rdma_event_channel *channel;
static struct rdma_cm_id *id;
static struct ibv_mr *mr;
static uint8_t bytes[BYTES];

static struct rdma_cm_id *expect_event(int type)
{
    struct rdma_cm_event *event;
    EQUAL(rdma_get_cm_event(channel, &event), 0);
    EQUAL(event->event, type);
    struct rdma_cm_id *on = event->id;
    EQUAL(rdma_ack_cm_event(event), 0);
    return on;
}

static struct rdma_cm_id *make_id(void)
{
    struct rdma_cm_id *made;
    CHECK((channel = rdma_create_event_channel()) != NULL);
    EQUAL(rdma_create_id(channel, &made, NULL, RDMA_PS_TCP), 0);
    return made;
}

static void make_queue_pair(void)
{
    struct ibv_qp_init_attr init = {
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    EQUAL(rdma_create_qp(id, NULL, &init), 0);
    CHECK((mr = ibv_reg_mr(id->pd, bytes, BYTES, IBV_ACCESS_LOCAL_WRITE)) != NULL);
}

static struct ibv_sge everything(void)
{
    return (struct ibv_sge){.addr = (uintptr_t)bytes, .length = BYTES, .lkey = mr->lkey};
}

/* Registered before anything of RDMA was used, and so the last of the handlers. */
static void say_something(void)
{
    struct ibv_sge sge = everything();
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    EQUAL(ibv_post_send(id->qp, &wr, &bad), 0);
    expect(id->send_cq, 7, IBV_WC_SUCCESS);
}

static void serve(int listening, int until)
{
    role = "server";
    CHECK(atexit(say_something) == 0);
    struct rdma_cm_id *listener = make_id();
    /* Not one of its own: the child of a server that ended just now may still have that. */
    struct sockaddr_in any = {.sin_family = AF_INET};
    EQUAL(rdma_bind_addr(listener, (struct sockaddr *)&any), 0);
    EQUAL(rdma_listen(listener, 1), 0);
    uint16_t port = rdma_get_src_port(listener);
    CHECK(write(listening, &port, sizeof port) == sizeof port);
    id = expect_event(RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    make_queue_pair();
    EQUAL(rdma_accept(id, &param), 0);
    CHECK(expect_event(RDMA_CM_EVENT_ESTABLISHED) == id);
    pid_t keeper = fork();
    CHECK(keeper >= 0);
    if (keeper == 0) {
        char byte;
        _exit(read(until, &byte, 1) == 0 ? 0 : 1);
    }
    exit(0);
}

static void call(uint16_t port)
{
    id = make_id();
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = port};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EQUAL(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS), 0);
    expect_event(RDMA_CM_EVENT_ADDR_RESOLVED);
    EQUAL(rdma_resolve_route(id, RESOLVE_MS), 0);
    expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
    make_queue_pair();
    struct ibv_sge sge = everything();
    struct ibv_recv_wr wr = {.wr_id = 8, .sg_list = &sge, .num_sge = 1}, *bad;
    EQUAL(ibv_post_recv(id->qp, &wr, &bad), 0);
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    EQUAL(rdma_connect(id, &param), 0);
    expect_event(RDMA_CM_EVENT_ESTABLISHED);
    alarm(30); /* Ends the process if nobody tells it. */
    expect_event(RDMA_CM_EVENT_DISCONNECTED);
    alarm(0);
    struct ibv_wc wc;
    EQUAL(ibv_poll_cq(id->recv_cq, 1, &wc), 1);
    EQUAL(wc.status, IBV_WC_SUCCESS);
    EQUAL(ibv_dereg_mr(mr), 0);
    rdma_destroy_qp(id);
    EQUAL(rdma_destroy_id(id), 0);
    rdma_destroy_event_channel(channel);
}

int main(void)
{
    int listening[2], until[2];
    CHECK(pipe(listening) == 0 && pipe(until) == 0);
    pid_t server = fork();
    CHECK(server >= 0);
    if (server == 0) {
        close(until[1]);
        serve(listening[1], until[0]);
    }
    close(listening[1]);
    uint16_t port;
    CHECK(read(listening[0], &port, sizeof port) == sizeof port);
    call(port);
    int status = 0;
    CHECK(waitpid(server, &status, 0) == server);
    EQUAL(status, 0);
    puts("all passed");
    return 0;
}
