/*
 * The source address is tentative: duplicate address detection has not finished. Resolving takes
 * long then, but a non-blocking caller must not wait: the result is an event, and a non-blocking
 * socket reports EINPROGRESS.
 *
 *     resolve_tentative_address SOURCE DESTINATION
 *
 * Both are IPv6 addresses. The source stays tentative for longer than the program runs.
 */
#include "endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

enum { PORT = 7471, LIMIT_MS = 60000 };

static struct sockaddr_in6 at(const char *ip, uint16_t port)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    CHECK(inet_pton(AF_INET6, ip, &at.sin6_addr) == 1);
    return at;
}

static int is_readable(int fd, int timeout_ms)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    return poll(&entry, 1, timeout_ms);
}

static struct rdma_cm_id *resolve(struct rdma_event_channel *channel, struct sockaddr_in6 *from,
                                  struct sockaddr_in6 *to)
{
    struct rdma_cm_id *id;
    EQUAL(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    EQUAL(rdma_resolve_addr(id, (struct sockaddr *)from, (struct sockaddr *)to, 10000), 0);
    return id;
}

int main(int count, char **words)
{
    CHECK(count == 3);
    struct sockaddr_in6 from = at(words[1], 0), to = at(words[2], PORT);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    CHECK(channel != NULL);

    struct rdma_cm_id *id = resolve(channel, &from, &to);
    EQUAL(is_readable(channel->fd, 0), 0);
    /* A second rdma_resolve_addr fails meanwhile, and there is no route yet. */
    EQUAL(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 10000), -1);
    EQUAL(errno, EINVAL);
    EQUAL(rdma_resolve_route(id, 10000), -1);
    /* An id may be destroyed while its address is being resolved. */
    EQUAL(rdma_destroy_id(resolve(channel, &from, &to)), 0);

    int socket = rsocket(AF_INET6, SOCK_STREAM, 0);
    CHECK(socket >= 0);
    EQUAL(rbind(socket, (struct sockaddr *)&from, sizeof from), 0);
    EQUAL(rfcntl(socket, F_SETFL, O_NONBLOCK), 0);
    EQUAL(rconnect(socket, (struct sockaddr *)&to, sizeof to), -1);
    EQUAL(errno, EINPROGRESS);
    EQUAL(is_readable(channel->fd, 0), 0);

    struct pollfd entry = {.fd = socket, .events = POLLOUT};
    EQUAL(rpoll(&entry, 1, LIMIT_MS), 1);
    CHECK(entry.revents & POLLERR);
    EQUAL(rclose(socket), 0);

    EQUAL(is_readable(channel->fd, LIMIT_MS), 1);
    struct rdma_cm_event *event;
    EQUAL(rdma_get_cm_event(channel, &event), 0);
    EQUAL(event->event, RDMA_CM_EVENT_ADDR_ERROR);
    EQUAL(event->status, -EADDRNOTAVAIL);
    CHECK(event->id == id);
    EQUAL(rdma_ack_cm_event(event), 0);
    EQUAL(is_readable(channel->fd, 0), 0);
    EQUAL(rdma_destroy_id(id), 0);
    rdma_destroy_event_channel(channel);
    puts("all passed");
    return 0;
}
