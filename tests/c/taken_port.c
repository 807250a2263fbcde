/*
 * Binding and listening to a port that another id has, in this process or in another one. The
 * errors are those of cma_check_port and rdma_listen in the kernel's drivers/infiniband/core/cma.c.
 */
#include "endpoint.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

static struct rdma_event_channel *channel;

static const char *const v4 = "127.0.0.1", *const v4_any = "0.0.0.0", *const v6_any = "::";

static void set(struct rdma_cm_id *id, int option, int value, int error)
{
    int result = rdma_set_option(id, RDMA_OPTION_ID, option, &value, sizeof value);
    EQUAL(result == 0 ? 0 : errno, error);
}

static struct rdma_cm_id *make_id(int reuses)
{
    struct rdma_cm_id *id;
    EQUAL(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    if (reuses) {
        set(id, RDMA_OPTION_ID_REUSEADDR, 1, 0);
    }
    return id;
}

static void bind_to(struct rdma_cm_id *id, const char *ip, uint16_t port, int error)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at = {.v4 = {.sin_family = AF_INET, .sin_port = port}};
    if (inet_pton(AF_INET, ip, &at.v4.sin_addr) != 1) {
        memset(&at, 0, sizeof at);
        at.v6.sin6_family = AF_INET6;
        at.v6.sin6_port = port;
        EQUAL(inet_pton(AF_INET6, ip, &at.v6.sin6_addr), 1);
    }
    EQUAL(rdma_bind_addr(id, &at.any) == 0 ? 0 : errno, error);
}

static struct rdma_cm_id *bound(const char *ip, uint16_t port, int reuses)
{
    struct rdma_cm_id *id = make_id(reuses);
    bind_to(id, ip, port, 0);
    return id;
}

/* Another id may not bind to the address. */
static void expect_error(const char *ip, uint16_t port, int reuses, int error)
{
    struct rdma_cm_id *id = make_id(reuses);
    bind_to(id, ip, port, error);
    EQUAL(rdma_destroy_id(id), 0);
}

static void listen_on(struct rdma_cm_id *id, int error)
{
    EQUAL(rdma_listen(id, 1) == 0 ? 0 : errno, error);
}

static void test_addresses(void)
{
    struct rdma_cm_id *id = bound(v4, 0, 0);
    uint16_t port = rdma_get_src_port(id);
    expect_error(v4, port, 0, EADDRINUSE);
    expect_error(v4, port, 1, EADDRINUSE); /* Both ids have to share. */
    expect_error(v4_any, port, 0, EADDRNOTAVAIL);
    expect_error(v6_any, port, 0, EADDRNOTAVAIL);
    struct rdma_cm_id *other = bound("127.0.0.2", port, 0);
    listen_on(id, 0);
    listen_on(other, 0);
    EQUAL(rdma_destroy_id(other), 0);
    EQUAL(rdma_destroy_id(id), 0);

    id = bound(v4_any, 0, 0);
    port = rdma_get_src_port(id);
    expect_error(v4, port, 0, EADDRNOTAVAIL);
    expect_error(v4_any, port, 0, EADDRNOTAVAIL);
    expect_error(v6_any, port, 0, EADDRNOTAVAIL);
    other = make_id(0);
    set(other, RDMA_OPTION_ID_AFONLY, 1, 0);
    bind_to(other, v6_any, port, 0);
    listen_on(id, 0);
    listen_on(other, 0);
    EQUAL(rdma_destroy_id(other), 0);
    EQUAL(rdma_destroy_id(id), 0);
}

/* Two ids that share a port may both be bound, but none may listen. */
static void test_sharing(const char *ip, int error)
{
    struct rdma_cm_id *id = bound(ip, 0, 1);
    uint16_t port = rdma_get_src_port(id);
    expect_error(ip, port, 0, error);
    struct rdma_cm_id *other = bound(ip, port, 1);
    listen_on(id, error);
    EQUAL(rdma_destroy_id(other), 0);
    listen_on(id, 0);
    /* A listener does not share any more. */
    expect_error(ip, port, 1, error);
    set(id, RDMA_OPTION_ID_REUSEADDR, 1, EINVAL);
    EQUAL(rdma_destroy_id(id), 0);
    EQUAL(rdma_destroy_id(bound(ip, port, 0)), 0);
}

/* The child has two ports, and the parent tries to bind to them. */
static void test_processes(int in, pid_t child)
{
    uint16_t ports[2];
    EQUAL(read(in, ports, sizeof ports), sizeof ports);
    expect_error(v4, ports[0], 0, EADDRINUSE);
    expect_error(v4_any, ports[0], 0, EADDRNOTAVAIL);
    expect_error(v4, ports[1], 0, EADDRNOTAVAIL);
    expect_error(v4_any, ports[1], 0, EADDRNOTAVAIL);
    expect_error(v6_any, ports[1], 0, EADDRNOTAVAIL);
    kill(child, SIGKILL);
    EQUAL(waitpid(child, NULL, 0), child);
    EQUAL(rdma_destroy_id(bound(v4_any, ports[1], 0)), 0);
}

static void keep_ports(int out)
{
    CHECK((channel = rdma_create_event_channel()) != NULL);
    struct rdma_cm_id *one = bound(v4, 0, 0), *any = bound(v4_any, 0, 0);
    uint16_t ports[2] = {rdma_get_src_port(one), rdma_get_src_port(any)};
    EQUAL(write(out, ports, sizeof ports), sizeof ports);
    sleep(60);
    exit(1);
}

int main(void)
{
    int ends[2];
    EQUAL(pipe(ends), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        role = "child";
        keep_ports(ends[1]);
    }
    close(ends[1]);
    CHECK((channel = rdma_create_event_channel()) != NULL);
    test_processes(ends[0], child);
    test_addresses();
    test_sharing(v4, EADDRINUSE);
    test_sharing(v4_any, EADDRNOTAVAIL);
    rdma_destroy_event_channel(channel);
    printf("all passed\n");
    return 0;
}
