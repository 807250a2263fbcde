/*
 * Events of different connections come in the order of the messages that cause them: a client
 * establishes one connection before it asks for the next, so its server gets ESTABLISHED of the
 * first before CONNECT_REQUEST of the second. The connections go to two ports in turn.
 *
 * Without arguments, the server is a child process. `event_order PORT` is a server, and
 * `event_order ADDRESS PORT` its client on another host.
 */
#include "endpoint.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

enum { CONNECTIONS = 200, PORTS = 2, RESOLVE_MS = 10000, LIMIT_SECONDS = 60 };

static struct rdma_event_channel *channel;
static uint32_t qp_num = 100;

/* The queue pair numbers are invented: nothing is sent. */
static struct rdma_conn_param param(void)
{
    return (struct rdma_conn_param){.qp_num = qp_num++, .retry_count = 7, .rnr_retry_count = 7};
}

static enum rdma_cm_event_type next(struct rdma_cm_id **id)
{
    struct rdma_cm_event *event;
    EQUAL(rdma_get_cm_event(channel, &event), 0);
    EQUAL(event->status, 0);
    enum rdma_cm_event_type type = event->event;
    *id = event->id;
    EQUAL(rdma_ack_cm_event(event), 0);
    return type;
}

static void expect_event(enum rdma_cm_event_type wanted, struct rdma_cm_id *on)
{
    struct rdma_cm_id *id;
    EQUAL(next(&id), wanted);
    CHECK(id == on);
}

/* Listens on one port; 0 is any free one. */
static uint16_t listen_on(uint16_t port)
{
    struct rdma_cm_id *id;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
    EQUAL(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    EQUAL(rdma_bind_addr(id, (struct sockaddr *)&here), 0);
    EQUAL(rdma_listen(id, CONNECTIONS), 0);
    return ntohs(rdma_get_src_port(id));
}

/* Accepts all connections; returns how many requests came before the last one was established. */
static int serve(void)
{
    int requests = 0, established = 0, overtaken = 0;
    while (established < CONNECTIONS) {
        struct rdma_cm_id *id;
        switch (next(&id)) {
        case RDMA_CM_EVENT_CONNECT_REQUEST: {
            struct rdma_conn_param with = param();
            overtaken += established != requests++;
            EQUAL(rdma_accept(id, &with), 0);
            break;
        }
        case RDMA_CM_EVENT_ESTABLISHED:
            established++;
            break;
        default:
            CHECK(!"no other event comes before all are connected");
        }
    }
    return overtaken;
}

static void connect_all(const char *to, const uint16_t *ports)
{
    static struct rdma_cm_id *ids[CONNECTIONS];
    struct sockaddr_in there = {.sin_family = AF_INET};
    EQUAL(inet_pton(AF_INET, to, &there.sin_addr), 1);
    for (int i = 0; i < CONNECTIONS; i++) {
        there.sin_port = htons(ports[i % PORTS]);
        EQUAL(rdma_create_id(channel, &ids[i], NULL, RDMA_PS_TCP), 0);
        EQUAL(rdma_resolve_addr(ids[i], NULL, (struct sockaddr *)&there, RESOLVE_MS), 0);
        expect_event(RDMA_CM_EVENT_ADDR_RESOLVED, ids[i]);
        EQUAL(rdma_resolve_route(ids[i], RESOLVE_MS), 0);
        expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED, ids[i]);
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        struct rdma_conn_param with = param();
        EQUAL(rdma_connect(ids[i], &with), 0);
        expect_event(RDMA_CM_EVENT_CONNECT_RESPONSE, ids[i]);
        EQUAL(rdma_establish(ids[i]), 0);
    }
    /* The server disconnects when it exits. */
    struct rdma_cm_id *id;
    EQUAL(next(&id), RDMA_CM_EVENT_DISCONNECTED);
}

static void open_channel(void)
{
    alarm(LIMIT_SECONDS); /* Kills the process if no event comes. */
    CHECK((channel = rdma_create_event_channel()) != NULL);
}

static int test_processes(void)
{
    int ends[2];
    EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid_t server = fork();
    CHECK(server >= 0);
    uint16_t ports[PORTS];
    if (server == 0) {
        role = "server";
        close(ends[0]);
        open_channel();
        for (int i = 0; i < PORTS; i++) {
            ports[i] = listen_on(0);
        }
        CHECK(write(ends[1], ports, sizeof ports) == sizeof ports);
        EQUAL(serve(), 0);
        exit(0);
    }
    role = "client";
    close(ends[1]);
    CHECK(read(ends[0], ports, sizeof ports) == sizeof ports);
    open_channel();
    connect_all("127.0.0.1", ports);
    int status;
    CHECK(waitpid(server, &status, 0) == server);
    return status;
}

int main(int count, char **arguments)
{
    uint16_t ports[PORTS];
    for (int i = 0; i < PORTS && count > 1; i++) {
        ports[i] = atoi(arguments[count - 1]) + i;
    }
    if (count == 1) {
        EQUAL(test_processes(), 0);
    } else if (count == 2) {
        role = "server";
        open_channel();
        for (int i = 0; i < PORTS; i++) {
            listen_on(ports[i]);
        }
        EQUAL(serve(), 0);
    } else {
        role = "client";
        open_channel();
        connect_all(arguments[1], ports);
    }
    printf("all passed\n");
    return 0;
}
