/*
 * Conformance of two devices to each other: `conform_wire PORT` receives and `conform_wire PORT
 * IPV4-ADDRESS` sends. Each end prints what its device did, and judges nothing. See conformance.h.
 */
#include "conformance.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/time.h>

enum { LONG = 64, SHORT = 16, PSN_BEHIND = 3, LINK_S = 40 };

static int link_fd;
static int sends;

/* The end of a connection, of which the peer program has the other. */
static void open_end(struct endpoint *ep, enum ibv_qp_type type)
{
    memset(ep, 0, sizeof *ep);
    ep->socket = link_fd;
    ep->is_parent = sends;
    open_endpoint(ep);
    make_qp(ep, type, 0);
}

static void ud_too_long(void)
{
    struct endpoint ep;
    open_end(&ep, IBV_QPT_UD);
    post_recv(&ep, 1, 0, GRH_BYTES + LONG - 1);
    connect_qp(&ep);
    if (sends) {
        send_to(&ep, &ep.remote, LONG);
        send_to(&ep, &ep.remote, SHORT);
    } else {
        outcome("wire-ud-too-long", "", "%s", received(&ep, GRH_BYTES + SHORT));
    }
    destroy_qp(&ep);
}

/* Also a SEND of another service, and with the PSN that the receiver expects. */
static void misdirected(const char *name, enum ibv_qp_type type, enum ibv_qp_type receiver)
{
    struct endpoint ep, other;
    open_end(&ep, receiver);
    post_recv(&ep, 1, 0, 4096);
    post_recv(&ep, 2, 4096, 4096);
    connect_qp(&ep);
    if (sends) {
        open_with_psn(&other, type, ep.local.psn);
        other.remote = ep.remote;
        other.retries = FEW;
        connect_to_remote(&other);
        send_to(&other, &ep.remote, LONG);
        send_to(&ep, &ep.remote, SHORT);
    } else {
        outcome(name, "", "%s", received(&ep, SHORT));
    }
    destroy_qp(&ep);
}

static void ud_to_rc(void) { misdirected("wire-ud-send-to-rc", IBV_QPT_UD, IBV_QPT_RC); }
static void uc_to_rc(void) { misdirected("wire-uc-send-to-rc", IBV_QPT_UC, IBV_QPT_RC); }
static void rc_to_uc(void) { misdirected("wire-rc-send-to-uc", IBV_QPT_RC, IBV_QPT_UC); }

static void read_behind(const char *name, uint32_t wrong_key_bits)
{
    struct endpoint ep;
    struct ibv_sge sge;
    open_end(&ep, IBV_QPT_RC);
    fill(ep.buffer, LONG, sends ? 1 : 2);
    post_recv(&ep, 1, 0, 4096);
    connect_qp(&ep);
    if (sends) {
        uint32_t psn = ep.local.psn;
        ep.retries = FEW;
        reconnect(&ep, psn - PSN_BEHIND);
        struct ibv_send_wr wr = request(&ep, &sge, IBV_WR_RDMA_READ, 0, LONG);
        wr.wr.rdma.rkey ^= wrong_key_bits;
        outcome(part_of(name, "requester"), "", "%s", execute(&ep, &wr));
        ep.retries = 0;
        reconnect(&ep, psn);
        post_recv(&ep, 1, 0, 4096);
        send_to(&ep, &ep.remote, SHORT);
    } else {
        outcome(part_of(name, "responder"), "", "%s", received(&ep, SHORT));
        send_to(&ep, &ep.remote, SHORT);
    }
    if (sends) {
        outcome(part_of(name, "reverse"), "", "%s", received(&ep, SHORT));
    }
    destroy_qp(&ep);
}

static void good_read_behind(void) { read_behind("wire-read-behind", 0); }
static void bad_read_behind(void) { read_behind("wire-bad-read-behind", WRONG); }

static void header(const char *name, const char *gid)
{
    struct endpoint ep;
    setenv("RDMALAB_TEST_GID", gid, 1);
    open_end(&ep, IBV_QPT_UD);
    post_recv(&ep, 1, HEADER_AT, HEADER_BYTES);
    connect_qp(&ep);
    if (sends) {
        send_with_header(&ep);
    } else {
        header_received(&ep, name, "");
    }
    destroy_qp(&ep);
}

static void header_of_ipv4(void) { header("wire-ipv4", "1"); }
static void header_of_ipv6(void) { header("wire-ipv6", "2"); }

/* ---- The link between the programs ---- */

static int accepted(uint16_t port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
    int yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
    CHECK(bind(listener, (struct sockaddr *)&here, sizeof here) == 0);
    CHECK(listen(listener, 1) == 0);
    alarm(LINK_S);
    int found = accept(listener, NULL, NULL);
    alarm(0);
    CHECK(found >= 0);
    return found;
}

static int connected(uint16_t port, const char *address)
{
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(port)};
    CHECK(inet_pton(AF_INET, address, &there.sin_addr) == 1);
    for (int i = 0; i < LINK_S * 10; i++) {
        int found = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(found, (struct sockaddr *)&there, sizeof there) == 0) {
            return found;
        }
        close(found);
        usleep(100000);
    }
    CHECK(!"the other end listens");
    return -1;
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"wire-ud-too-long", ud_too_long},   {"wire-ud-send-to-rc", ud_to_rc},
        {"wire-uc-send-to-rc", uc_to_rc},    {"wire-rc-send-to-uc", rc_to_uc},
        {"wire-read-behind", good_read_behind}, {"wire-bad-read-behind", bad_read_behind},
        {"wire-ipv4", header_of_ipv4},       {"wire-ipv6", header_of_ipv6},
    };
    struct timeval limit = {.tv_sec = LINK_S};
    CHECK(argc > 1);
    setenv("RDMALAB_TEST_GID", "1", 1);
    setenv("RDMALAB_LANE", "off", 1); /* On one host too the READ shall be a packet. */
    observes = 1;
    sends = argc > 2;
    uint16_t port = (uint16_t)atoi(argv[1]);
    link_fd = sends ? connected(port, argv[2]) : accepted(port);
    CHECK(setsockopt(link_fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    return run_cases(0, NULL, cases, sizeof cases / sizeof *cases);
}
