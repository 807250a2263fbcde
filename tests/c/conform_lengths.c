/*
 * Conformance: messages longer than the receive, longer than the MTU, and atomics of other sizes
 * than 8 bytes. See conformance.h.
 */
#include "conformance.h"

enum { LONG = 64, SHORT = 16 };

/* A message that is too long for the first receive, then one that is not. */
static void too_long(struct pair *pair, uint32_t header_bytes)
{
    post_recv(&pair->b, 1, 0, header_bytes + LONG - 1);
    post_recv(&pair->b, 2, 4096, header_bytes + LONG - 1);
    send_to(&pair->a, &pair->b.local, LONG);
    send_to(&pair->a, &pair->b.local, SHORT);
}

/* IBA vol. 1, 9.9.6.3, class D: the receive stays posted. */
static void ud(void)
{
    struct pair pair;
    open_pair(&pair, IBV_QPT_UD, 0);
    too_long(&pair, GRH_BYTES);
    outcome("ud-too-long", "no completion, next message received", "%s",
            received(&pair.b, GRH_BYTES + SHORT));
    outcome("ud-too-long-qp", "RTS", "%s", state_after(&pair.b));
}

/* Class E: a receive that was taken from an SRQ does not return there. */
static void ud_srq(void)
{
    struct pair pair;
    open_pair(&pair, IBV_QPT_UD, 1);
    too_long(&pair, GRH_BYTES);
    outcome("ud-srq-too-long", "local length error, next message received", "%s",
            received(&pair.b, GRH_BYTES + SHORT));
    outcome("ud-srq-too-long-qp", "RTS", "%s", state_after(&pair.b));
}

static void uc(void)
{
    struct pair pair;
    open_pair(&pair, IBV_QPT_UC, 0);
    too_long(&pair, 0);
    outcome("uc-too-long", "no completion, next message received", "%s",
            received(&pair.b, SHORT));
    outcome("uc-too-long-qp", "RTS", "%s", state_after(&pair.b));
}

static void uc_srq(void)
{
    struct pair pair;
    open_pair(&pair, IBV_QPT_UC, 1);
    too_long(&pair, 0);
    outcome("uc-srq-too-long", "local length error, next message received", "%s",
            received(&pair.b, SHORT));
    outcome("uc-srq-too-long-qp", "RTS", "%s", state_after(&pair.b));
}

/* Class C: NAK invalid request, and both QPs are in ERR. */
static void rc(void)
{
    struct pair pair;
    open_pair(&pair, IBV_QPT_RC, 0);
    post_recv(&pair.b, 1, 0, LONG - 1);
    const char *status = send_to(&pair.a, &pair.b.local, LONG);
    outcome("rc-too-long-requester", "remote invalid request error", "%s", status);
    outcome("rc-too-long-receive", "local length error", "%s", next_status(pair.b.recv_cq));
    outcome("rc-too-long-qp", "ERR", "%s", state_after(&pair.b));
}

/* IBA vol. 1, 11.6.2: a datagram is one packet. */
static void above_mtu(void)
{
    struct pair pair;
    struct ibv_port_attr port;
    open_pair(&pair, IBV_QPT_UD, 0);
    EQUAL(ibv_query_port(pair.a.context, 1, &port), 0);
    uint32_t mtu = 128u << port.active_mtu;
    post_recv(&pair.b, 1, 0, GRH_BYTES + mtu + 1);
    const char *status = send_to(&pair.a, &pair.b.local, mtu + 1);
    outcome("ud-above-mtu", "local length error", "%s", status);
}

/* IBA vol. 1, 9.4.5: the answer to an atomic has 8 bytes. */
static void atomic(const char *name, uint32_t bytes)
{
    struct pair pair;
    struct ibv_sge sge;
    uint64_t target = 7, after;
    open_pair(&pair, IBV_QPT_RC, 0);
    memcpy(pair.b.buffer, &target, sizeof target);
    struct ibv_send_wr wr = request(&pair.a, &sge, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, bytes);
    wr.wr.atomic.compare_add = 5;
    const char *status = execute(&pair.a, &wr);
    memcpy(&after, pair.b.buffer, sizeof after);
    outcome(name, "local length error, target untouched", "%s, target %s", status,
            after == target ? "untouched" : "changed");
}

static void atomic_of_4(void) { atomic("atomic-of-4-bytes", 4); }
static void atomic_of_16(void) { atomic("atomic-of-16-bytes", 16); }

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"ud-too-long", ud},          {"ud-srq-too-long", ud_srq},
        {"uc-too-long", uc},          {"uc-srq-too-long", uc_srq},
        {"rc-too-long", rc},          {"ud-above-mtu", above_mtu},
        {"atomic-of-4-bytes", atomic_of_4}, {"atomic-of-16-bytes", atomic_of_16},
    };
    return run_cases(argc, argv, cases, sizeof cases / sizeof *cases);
}
