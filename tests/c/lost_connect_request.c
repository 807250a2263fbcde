/*
 * The REQ of a connection is lost after the address and the route were resolved. The connection
 * manager must send it again.
 *
 *     lost_connect_request                          server: accepts one connection, waits for its
 *                                                   disconnect
 *     lost_connect_request DESTINATION DIRECTORY    client (IPv4): creates the file "resolved" in
 *                                                   the directory, waits for the file "go", calls
 *                                                   rdma_connect, creates the file "requested"
 */
#include "endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>

enum { PORT = 7472, RESOLVE_MS = 10000 };

static struct rdma_event_channel *channel;

static struct rdma_cm_id *expect_event(int type)
{
    struct rdma_cm_event *event;
    EQUAL(rdma_get_cm_event(channel, &event), 0);
    EQUAL(event->event, type);
    struct rdma_cm_id *id = event->id;
    EQUAL(rdma_ack_cm_event(event), 0);
    return id;
}

static void make_queue_pair(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr init = {
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    EQUAL(rdma_create_qp(id, NULL, &init), 0);
}

static void destroy(struct rdma_cm_id *id)
{
    rdma_destroy_qp(id);
    EQUAL(rdma_destroy_id(id), 0);
}

static void run_server(struct rdma_cm_id *listener)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    EQUAL(rdma_bind_addr(listener, (struct sockaddr *)&any), 0);
    EQUAL(rdma_listen(listener, 1), 0);
    struct rdma_cm_id *id = expect_event(RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_conn_param param = {.retry_count = 7};
    make_queue_pair(id);
    EQUAL(rdma_accept(id, &param), 0);
    CHECK(expect_event(RDMA_CM_EVENT_ESTABLISHED) == id);
    CHECK(expect_event(RDMA_CM_EVENT_DISCONNECTED) == id);
    destroy(id);
    EQUAL(rdma_destroy_id(listener), 0);
}

static void make_file(const char *directory, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    CHECK(close(open(path, O_CREAT | O_WRONLY, 0600)) == 0);
}

static void wait_for_file(const char *directory, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    while (access(path, F_OK) != 0) {
        usleep(10000);
    }
}

static void run_client(struct rdma_cm_id *id, const char *ip, const char *directory)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    CHECK(inet_pton(AF_INET, ip, &to.sin_addr) == 1);
    EQUAL(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS), 0);
    expect_event(RDMA_CM_EVENT_ADDR_RESOLVED);
    EQUAL(rdma_resolve_route(id, RESOLVE_MS), 0);
    expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
    make_queue_pair(id);
    make_file(directory, "resolved");
    wait_for_file(directory, "go");
    struct rdma_conn_param param = {.retry_count = 7};
    EQUAL(rdma_connect(id, &param), 0);
    make_file(directory, "requested");
    expect_event(RDMA_CM_EVENT_ESTABLISHED);
    EQUAL(rdma_disconnect(id), 0);
    expect_event(RDMA_CM_EVENT_DISCONNECTED);
    destroy(id);
}

int main(int count, char **words)
{
    CHECK(count == 1 || count == 3);
    alarm(180); /* Kills the process if the request is not sent again. */
    CHECK((channel = rdma_create_event_channel()) != NULL);
    struct rdma_cm_id *id;
    EQUAL(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    if (count == 1) {
        run_server(id);
    } else {
        run_client(id, words[1], words[2]);
    }
    rdma_destroy_event_channel(channel);
    puts("all passed");
    return 0;
}
