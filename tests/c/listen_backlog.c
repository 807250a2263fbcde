/*
 * Requests to a listener that is bound to another address of this host are rejected, and do not
 * take places in its backlog. A request that arrives between rdma_bind_addr and rdma_listen waits
 * for the listener.
 */
#include "endpoint.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <time.h>

enum {
    BACKLOG = 3,
    LISTEN_WITHIN_MS = 150, /* A request to a bound port waits 200 ms for rdma_listen. */
    ATTEMPTS = 20,
};

static struct rdma_event_channel *channel, *requests;
static uint32_t qp_num = 100;

static union at {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} at(const char *ip, uint16_t port)
{
    union at at = {.v4 = {.sin_family = AF_INET, .sin_port = port}};
    if (inet_pton(AF_INET, ip, &at.v4.sin_addr) != 1) {
        at = (union at){.v6 = {.sin6_family = AF_INET6, .sin6_port = port}};
        CHECK(inet_pton(AF_INET6, ip, &at.v6.sin6_addr) == 1);
    }
    return at;
}

/* Takes the next event, which must have this type and status. Returns its id. */
static struct rdma_cm_id *next(struct rdma_event_channel *from, enum rdma_cm_event_type kind,
                               int status)
{
    struct rdma_cm_event *event;
    alarm(60); /* Kills the process if no event comes. */
    EQUAL(rdma_get_cm_event(from, &event), 0);
    alarm(0);
    if (event->event != kind) {
        fprintf(stderr, "%s, not %s\n", rdma_event_str(event->event), rdma_event_str(kind));
        exit(1);
    }
    EQUAL(event->status, status);
    struct rdma_cm_id *id = event->id;
    EQUAL(rdma_ack_cm_event(event), 0);
    return id;
}

/* The queue pair numbers are invented: nothing is sent. */
static struct rdma_conn_param param(void)
{
    return (struct rdma_conn_param){.qp_num = qp_num++, .retry_count = 7, .rnr_retry_count = 7};
}

static struct rdma_cm_id *connect_to(enum rdma_port_space space, const char *ip, uint16_t port)
{
    struct rdma_cm_id *id;
    union at there = at(ip, port);
    struct rdma_conn_param with = param();
    EQUAL(rdma_create_id(channel, &id, NULL, space), 0);
    EQUAL(rdma_resolve_addr(id, NULL, &there.any, 2000), 0);
    next(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    EQUAL(rdma_resolve_route(id, 2000), 0);
    next(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
    EQUAL(rdma_connect(id, &with), 0);
    return id;
}

static void expect_rejected(enum rdma_port_space space, const char *ip, uint16_t port)
{
    struct rdma_cm_id *id = connect_to(space, ip, port);
    if (space == RDMA_PS_TCP) {
        next(channel, RDMA_CM_EVENT_REJECTED, 8); /* There is no such service. */
    } else {
        next(channel, RDMA_CM_EVENT_UNREACHABLE, 2);
    }
    EQUAL(rdma_destroy_id(id), 0);
}

static void expect_accepted(enum rdma_port_space space, const char *ip, uint16_t port)
{
    struct rdma_cm_id *id = connect_to(space, ip, port);
    struct rdma_cm_id *request = next(requests, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    struct rdma_conn_param with = param();
    EQUAL(rdma_accept(request, &with), 0);
    if (space == RDMA_PS_TCP) {
        next(channel, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
        EQUAL(rdma_establish(id), 0);
        next(requests, RDMA_CM_EVENT_ESTABLISHED, 0);
    } else {
        next(channel, RDMA_CM_EVENT_ESTABLISHED, 0);
    }
    EQUAL(rdma_destroy_id(id), 0);
    if (space == RDMA_PS_TCP) {
        next(requests, RDMA_CM_EVENT_DISCONNECTED, 0);
    }
    EQUAL(rdma_destroy_id(request), 0);
}

static void listen_at(enum rdma_port_space space, const char *ip)
{
    struct rdma_cm_id *id;
    union at here = at(ip, 0);
    EQUAL(rdma_create_id(requests, &id, NULL, space), 0);
    EQUAL(rdma_bind_addr(id, &here.any), 0);
    EQUAL(rdma_listen(id, BACKLOG), 0);
    uint16_t port = rdma_get_src_port(id);
    for (int i = 0; i < 2 * BACKLOG; i++) {
        expect_rejected(space, "127.0.0.2", port);
    }
    for (int i = 0; i < 2 * BACKLOG; i++) {
        expect_accepted(space, "127.0.0.1", port);
        expect_accepted(space, "::ffff:127.0.0.1", port);
    }
    EQUAL(rdma_destroy_id(id), 0);
}

static long now_ms(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Returns whether rdma_listen was called in time after the request. On a busy machine it may come
 * too late; then both ids are destroyed. */
static int connect_before_listening(enum rdma_port_space space, struct rdma_cm_id **early,
                                struct rdma_cm_id **id)
{
    union at here = at("127.0.0.1", 0);
    EQUAL(rdma_create_id(requests, id, NULL, space), 0);
    EQUAL(rdma_bind_addr(*id, &here.any), 0);
    uint16_t port = rdma_get_src_port(*id);
    long request_ms = now_ms();
    *early = connect_to(space, "127.0.0.1", port);
    usleep(20000);
    EQUAL(rdma_listen(*id, BACKLOG), 0);
    if (now_ms() - request_ms < LISTEN_WITHIN_MS) {
        return 1;
    }
    EQUAL(rdma_destroy_id(*early), 0);
    EQUAL(rdma_destroy_id(*id), 0);
    return 0;
}

/* A request between rdma_bind_addr and rdma_listen reaches the listener. Without rdma_listen it is
 * rejected. */
static void test_bind_before_listening(enum rdma_port_space space)
{
    struct rdma_cm_id *id, *early;
    union at here = at("127.0.0.1", 0);
    int attempts = 1;
    while (!connect_before_listening(space, &early, &id)) {
        CHECK(attempts++ < ATTEMPTS);
    }
    struct rdma_cm_id *request = next(requests, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    EQUAL(rdma_destroy_id(request), 0);
    next(channel, space == RDMA_PS_TCP ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_UNREACHABLE,
         space == RDMA_PS_TCP ? 28 : 2);
    EQUAL(rdma_destroy_id(early), 0);
    EQUAL(rdma_destroy_id(id), 0);

    EQUAL(rdma_create_id(requests, &id, NULL, space), 0);
    EQUAL(rdma_bind_addr(id, &here.any), 0);
    early = connect_to(space, "127.0.0.1", rdma_get_src_port(id));
    next(channel, space == RDMA_PS_TCP ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_UNREACHABLE,
         space == RDMA_PS_TCP ? 8 : 1);
    EQUAL(rdma_destroy_id(early), 0);
    EQUAL(rdma_destroy_id(id), 0);
}

int main(void)
{
    CHECK((channel = rdma_create_event_channel()) != NULL);
    CHECK((requests = rdma_create_event_channel()) != NULL);
    listen_at(RDMA_PS_TCP, "127.0.0.1");
    listen_at(RDMA_PS_TCP, "::ffff:127.0.0.1");
    listen_at(RDMA_PS_UDP, "127.0.0.1");
    test_bind_before_listening(RDMA_PS_TCP);
    test_bind_before_listening(RDMA_PS_UDP);
    rdma_destroy_event_channel(channel);
    rdma_destroy_event_channel(requests);
    printf("all passed\n");
    return 0;
}
