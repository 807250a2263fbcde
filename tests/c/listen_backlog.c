/*
 * A listener at one address of this host is asked at another one, more often than its backlog has
 * places: every request is refused, and holds no place afterwards.
 */
#include "endpoint.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <time.h>

enum {
    BACKLOG = 3,
    KEPT_MS = 150,  /* A request to who is bound is kept for 200 ms. */
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

/* The next event; its id is the answer, its status must be this one. */
static struct rdma_cm_id *next(struct rdma_event_channel *from, enum rdma_cm_event_type kind,
                               int status)
{
    struct rdma_cm_event *event;
    alarm(60); /* Ends the process if this hangs. */
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

/* Queue pairs have numbers only: nothing is sent. */
static struct rdma_conn_param param(void)
{
    return (struct rdma_conn_param){.qp_num = qp_num++, .retry_count = 7, .rnr_retry_count = 7};
}

static struct rdma_cm_id *ask(enum rdma_port_space space, const char *ip, uint16_t port)
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

static void refused(enum rdma_port_space space, const char *ip, uint16_t port)
{
    struct rdma_cm_id *id = ask(space, ip, port);
    if (space == RDMA_PS_TCP) {
        next(channel, RDMA_CM_EVENT_REJECTED, 8); /* There is no such service. */
    } else {
        next(channel, RDMA_CM_EVENT_UNREACHABLE, 2);
    }
    EQUAL(rdma_destroy_id(id), 0);
}

static void accepted(enum rdma_port_space space, const char *ip, uint16_t port)
{
    struct rdma_cm_id *id = ask(space, ip, port);
    struct rdma_cm_id *asked = next(requests, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    struct rdma_conn_param with = param();
    EQUAL(rdma_accept(asked, &with), 0);
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
    EQUAL(rdma_destroy_id(asked), 0);
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
        refused(space, "127.0.0.2", port);
    }
    for (int i = 0; i < 2 * BACKLOG; i++) {
        accepted(space, "127.0.0.1", port);
        accepted(space, "::ffff:127.0.0.1", port);
    }
    EQUAL(rdma_destroy_id(id), 0);
}

static long now_ms(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Whether it listened in time after it was asked: on a busy machine it may not come to it, and then
 * nothing remains of both. */
static int ask_before_listening(enum rdma_port_space space, struct rdma_cm_id **early,
                                struct rdma_cm_id **id)
{
    union at here = at("127.0.0.1", 0);
    EQUAL(rdma_create_id(requests, id, NULL, space), 0);
    EQUAL(rdma_bind_addr(*id, &here.any), 0);
    uint16_t port = rdma_get_src_port(*id);
    long asked_ms = now_ms();
    *early = ask(space, "127.0.0.1", port);
    usleep(20000);
    EQUAL(rdma_listen(*id, BACKLOG), 0);
    if (now_ms() - asked_ms < KEPT_MS) {
        return 1;
    }
    EQUAL(rdma_destroy_id(*early), 0);
    EQUAL(rdma_destroy_id(*id), 0);
    return 0;
}

/* Who asks between rdma_bind_addr and rdma_listen is heard; who asks where nobody comes to listen
 * is refused. */
static void bind_before_listening(enum rdma_port_space space)
{
    struct rdma_cm_id *id, *early;
    union at here = at("127.0.0.1", 0);
    int attempts = 1;
    while (!ask_before_listening(space, &early, &id)) {
        CHECK(attempts++ < ATTEMPTS);
    }
    struct rdma_cm_id *asked = next(requests, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    EQUAL(rdma_destroy_id(asked), 0);
    next(channel, space == RDMA_PS_TCP ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_UNREACHABLE,
         space == RDMA_PS_TCP ? 28 : 2);
    EQUAL(rdma_destroy_id(early), 0);
    EQUAL(rdma_destroy_id(id), 0);

    EQUAL(rdma_create_id(requests, &id, NULL, space), 0);
    EQUAL(rdma_bind_addr(id, &here.any), 0);
    early = ask(space, "127.0.0.1", rdma_get_src_port(id));
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
    bind_before_listening(RDMA_PS_TCP);
    bind_before_listening(RDMA_PS_UDP);
    rdma_destroy_event_channel(channel);
    rdma_destroy_event_channel(requests);
    printf("all passed\n");
    return 0;
}
