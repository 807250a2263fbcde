/*
 * rdma_resolve_addr asks the neighbour for its link-layer address. If no host has the address, the
 * call times out. If there is no route, it fails at once. An address of this host needs no answer.
 *
 *     resolve_timeout NO_HOST HOST NO_ROUTE UNREACHABLE OWN
 */
#include "endpoint.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

enum { PORT = 7471, SOON_MS = 300, LATER_MS = 700, LONG_MS = 30000 };

static struct sockaddr_storage at(const char *ip)
{
    struct sockaddr_storage at = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&at;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&at;
    if (strchr(ip, ':') != NULL) {
        *v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
        CHECK(inet_pton(AF_INET6, ip, &v6->sin6_addr) == 1);
    } else {
        *v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(PORT)};
        CHECK(inet_pton(AF_INET, ip, &v4->sin_addr) == 1);
    }
    return at;
}

static struct rdma_cm_id *new_id(struct rdma_event_channel *channel)
{
    struct rdma_cm_id *id;
    EQUAL(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    return id;
}

static int resolve(struct rdma_cm_id *id, const char *ip, int timeout_ms)
{
    struct sockaddr_storage to = at(ip);
    return rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, timeout_ms);
}

static void expect_event(struct rdma_event_channel *channel, struct rdma_cm_id *id, int type,
                         int status)
{
    struct rdma_cm_event *event;
    EQUAL(rdma_get_cm_event(channel, &event), 0);
    EQUAL(event->event, type);
    EQUAL(event->status, status);
    CHECK(event->id == id);
    EQUAL(rdma_ack_cm_event(event), 0);
}

/* Several ids resolve the same address, each with a time-out of its own. */
static void resolve_no_host(struct rdma_event_channel *channel, const char *no_host)
{
    struct rdma_cm_id *later = new_id(channel), *soon = new_id(channel), *gone = new_id(channel);
    EQUAL(resolve(gone, no_host, -1), 0);
    EQUAL(resolve(soon, no_host, SOON_MS), 0);
    EQUAL(resolve(later, no_host, LATER_MS), 0);
    EQUAL(rdma_destroy_id(gone), 0);
    expect_event(channel, soon, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
    expect_event(channel, later, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
    /* The id has no address now, so there is no route. The address may be resolved again. */
    EQUAL(rdma_resolve_route(soon, SOON_MS), -1);
    EQUAL(resolve(soon, no_host, 0), 0);
    expect_event(channel, soon, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
    EQUAL(rdma_destroy_id(later), 0);
    EQUAL(rdma_destroy_id(soon), 0);
}

static void resolve_host(struct rdma_event_channel *channel, const char *ip, int timeout_ms)
{
    struct rdma_cm_id *id = new_id(channel);
    EQUAL(resolve(id, ip, timeout_ms), 0);
    expect_event(channel, id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    EQUAL(rdma_resolve_route(id, timeout_ms), 0);
    expect_event(channel, id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
    EQUAL(rdma_destroy_id(id), 0);
}

static void expect_error(const char *ip, int expected)
{
    struct rdma_cm_id *id = new_id(NULL);
    EQUAL(resolve(id, ip, SOON_MS), -1);
    EQUAL(errno, expected);
    EQUAL(rdma_destroy_id(id), 0);
}

int main(int count, char **words)
{
    CHECK(count == 6);
    alarm(180); /* Kills the process if a time-out never ends. */
    struct rdma_event_channel *channel = rdma_create_event_channel();
    CHECK(channel != NULL);
    resolve_no_host(channel, words[1]);
    resolve_host(channel, words[2], LONG_MS);
    resolve_host(channel, words[5], 0);
    /* Ids without an event channel, whose calls block; and sockets. */
    expect_error(words[1], ETIMEDOUT);
    expect_error(words[3], ENETUNREACH);
    expect_error(words[4], EHOSTUNREACH);
    struct sockaddr_storage to = at(words[1]);
    int socket = rsocket(to.ss_family, SOCK_STREAM, 0);
    EQUAL(rconnect(socket, (struct sockaddr *)&to, sizeof to), -1);
    EQUAL(errno, ETIMEDOUT);
    EQUAL(rclose(socket), 0);
    rdma_destroy_event_channel(channel);
    puts("all passed");
    return 0;
}
