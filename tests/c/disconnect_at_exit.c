/*
 * A server calls exit without rdma_disconnect. The client must get RDMA_CM_EVENT_DISCONNECTED,
 * although a forked child of the server keeps its descriptors open. A message that the server sends
 * from an atexit handler must arrive before that event.
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

static struct ibv_sge whole_buffer(void)
{
    return (struct ibv_sge){.addr = (uintptr_t)bytes, .length = BYTES, .lkey = mr->lkey};
}

/* Registered before the first RDMA call, so this is the last atexit handler to run. */
static void send_last_message(void)
{
    struct ibv_sge sge = whole_buffer();
    struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    EQUAL(ibv_post_send(id->qp, &wr, &bad), 0);
    expect(id->send_cq, 7, IBV_WC_SUCCESS);
}

static void run_server(int listening, int until)
{
    role = "server";
    CHECK(atexit(send_last_message) == 0);
    struct rdma_cm_id *listener = make_id();
    /* Any free port: the child of an earlier server may still hold a fixed one. */
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

static void run_client(uint16_t port)
{
    id = make_id();
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = port};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EQUAL(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS), 0);
    expect_event(RDMA_CM_EVENT_ADDR_RESOLVED);
    EQUAL(rdma_resolve_route(id, RESOLVE_MS), 0);
    expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
    make_queue_pair();
    struct ibv_sge sge = whole_buffer();
    struct ibv_recv_wr wr = {.wr_id = 8, .sg_list = &sge, .num_sge = 1}, *bad;
    EQUAL(ibv_post_recv(id->qp, &wr, &bad), 0);
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    EQUAL(rdma_connect(id, &param), 0);
    expect_event(RDMA_CM_EVENT_ESTABLISHED);
    alarm(30); /* Kills the process if the event does not come. */
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
        run_server(listening[1], until[0]);
    }
    close(listening[1]);
    uint16_t port;
    CHECK(read(listening[0], &port, sizeof port) == sizeof port);
    run_client(port);
    int status = 0;
    CHECK(waitpid(server, &status, 0) == server);
    EQUAL(status, 0);
    puts("all passed");
    return 0;
}
