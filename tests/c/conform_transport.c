/*
 * Conformance: what a QP accepts by opcode and PSN, and the routing header of datagrams. See
 * conformance.h.
 */
#include "conformance.h"

enum { BYTES = 64, MARKER = 16, PSN_BEHIND = 3 };

/*
 * A SEND from a QP of another service type, with the PSN that the receiver expects, then one from
 * the receiver's peer (IBA vol. 1, 9.6.1.3: the opcode is of the QP's service).
 */
static void misdirected(const char *name, enum ibv_qp_type sender, enum ibv_qp_type receiver)
{
    struct pair pair;
    struct endpoint other;
    open_pair(&pair, receiver, 0);
    open_with_psn(&other, sender, pair.a.local.psn);
    other.remote = pair.b.local;
    other.retries = FEW;
    connect_to_remote(&other);
    uint32_t header_bytes = receiver == IBV_QPT_UD ? GRH_BYTES : 0;
    post_recv(&pair.b, 1, 0, 4096);
    post_recv(&pair.b, 2, 4096, 4096);
    const char *status = send_to(&other, &pair.b.local, BYTES);
    outcome(part_of(name, "sender"),
            sender == IBV_QPT_RC ? "transport retry counter exceeded" : "success", "%s", status);
    send_to(&pair.a, &pair.b.local, MARKER);
    outcome(name, "no completion, next message received", "%s",
            received(&pair.b, header_bytes + MARKER));
}

static void ud_to_rc(void) { misdirected("ud-send-to-rc", IBV_QPT_UD, IBV_QPT_RC); }
static void uc_to_rc(void) { misdirected("uc-send-to-rc", IBV_QPT_UC, IBV_QPT_RC); }
static void ud_to_uc(void) { misdirected("ud-send-to-uc", IBV_QPT_UD, IBV_QPT_UC); }
static void rc_to_uc(void) { misdirected("rc-send-to-uc", IBV_QPT_RC, IBV_QPT_UC); }
static void uc_to_ud(void) { misdirected("uc-send-to-ud", IBV_QPT_UC, IBV_QPT_UD); }
static void rc_to_ud(void) { misdirected("rc-send-to-ud", IBV_QPT_RC, IBV_QPT_UD); }

/*
 * The same from the very QP to which the receiver is connected, so that nothing but the service is
 * wrong. A message of another connection shows when the first one has been handled.
 */
static void from_peer(const char *name, enum ibv_qp_type sender, enum ibv_qp_type receiver)
{
    struct pair later;
    struct endpoint from, to;
    struct ibv_wc wc;
    open_with_psn(&from, sender, 1);
    open_with_psn(&to, receiver, 1);
    open_pair(&later, IBV_QPT_RC, 0);
    from.remote = to.local;
    to.remote = from.local;
    from.retries = FEW;
    connect_to_remote(&from);
    connect_to_remote(&to);
    post_recv(&to, 1, 0, 4096);
    post_recv(&later.b, 1, 0, 4096);
    send_to(&from, &to.local, BYTES);
    send_to(&later.a, &later.b.local, MARKER);
    CHECK(next(later.b.recv_cq, &wc) == 1);
    state_after(&to); /* Takes a while, so that slower devices complete too. */
    outcome(name, "no completion", "%s",
            ibv_poll_cq(to.recv_cq, 1, &wc) == 0 ? "no completion"
                                                 : ibv_wc_status_str(wc.status));
}

static void ud_peer_of_rc(void) { from_peer("ud-peer-of-rc", IBV_QPT_UD, IBV_QPT_RC); }
static void uc_peer_of_rc(void) { from_peer("uc-peer-of-rc", IBV_QPT_UC, IBV_QPT_RC); }
static void ud_peer_of_uc(void) { from_peer("ud-peer-of-uc", IBV_QPT_UD, IBV_QPT_UC); }
static void rc_peer_of_uc(void) { from_peer("rc-peer-of-uc", IBV_QPT_RC, IBV_QPT_UC); }

/*
 * A READ that the responder takes for a duplicate, but never executed (IBA vol. 1, 9.7.5.1.3). With
 * a wrong key too it must not end the connection: anybody can send an old PSN.
 */
static void read_behind(const char *name, uint32_t wrong_key_bits)
{
    struct pair pair;
    struct ibv_sge sge;
    /* By the lane of the soft device a READ has no PSN. */
    setenv("RDMALAB_LANE", "off", 1);
    open_pair(&pair, IBV_QPT_RC, 0);
    uint32_t psn = pair.a.local.psn;
    pair.a.retries = FEW;
    reconnect(&pair.a, psn - PSN_BEHIND);
    struct ibv_send_wr wr = request(&pair.a, &sge, IBV_WR_RDMA_READ, 0, BYTES);
    wr.wr.rdma.rkey ^= wrong_key_bits;
    fill(pair.b.buffer, BYTES, 1);
    const char *status = execute(&pair.a, &wr);
    outcome(part_of(name, "requester"), "transport retry counter exceeded, nothing read", "%s, %s",
            status, is_filled(pair.a.buffer, BYTES, 1) ? "data read" : "nothing read");
    /* The responder's QP still serves its peer, in both directions. */
    pair.a.retries = 0;
    reconnect(&pair.a, psn);
    post_recv(&pair.b, 1, 0, BYTES);
    post_recv(&pair.a, 1, 0, BYTES);
    send_to(&pair.a, &pair.b.local, MARKER);
    outcome(part_of(name, "responder"), "no completion, next message received", "%s",
            received(&pair.b, MARKER));
    send_to(&pair.b, &pair.a.local, MARKER);
    outcome(part_of(name, "reverse"), "no completion, next message received", "%s",
            received(&pair.a, MARKER));
}

static void good_read_behind(void) { read_behind("read-behind", 0); }
static void bad_read_behind(void) { read_behind("bad-read-behind", WRONG); }

/* 7 means without end for RNR NAKs, but not here (IBA vol. 1, 9.7.5.1.3 and 9.7.5.2.8). */
static void seven_retries(void)
{
    struct pair pair;
    open_pair(&pair, IBV_QPT_RC, 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    EQUAL(ibv_modify_qp(pair.b.qp, &attr, IBV_QP_STATE), 0);
    outcome("retry-cnt-7", "transport retry counter exceeded", "%s",
            send_to(&pair.a, &pair.b.local, BYTES));
}

/* ---- The routing header of a datagram (IBA vol. 1, 8.3 and 11.2.2.1; RoCEv2 annex A17) ---- */

static void header_of_ipv6(void)
{
    struct pair pair;
    open_pair(&pair, IBV_QPT_UD, 0);
    post_recv(&pair.b, 1, HEADER_AT, HEADER_BYTES);
    send_with_header(&pair.a);
    header_received(&pair.b, "ud-grh", "of IPv6");
}

/* An adapter has IPv4's header between addresses of IPv4, in the last 20 of the 40 bytes. */
static void header_of_ipv4(void)
{
    struct pair pair;
    setenv("RDMALAB_TEST_GID", "1", 1);
    setenv("RDMALAB_PERSONALITY", "ethernet", 1);
    open_pair(&pair, IBV_QPT_UD, 0);
    CHECK(is_ethernet(&pair.b));
    post_recv(&pair.b, 1, HEADER_AT, HEADER_BYTES);
    send_with_header(&pair.a);
    header_received(&pair.b, "ud-ipv4", "of IPv6");
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"ud-send-to-rc", ud_to_rc},   {"uc-send-to-rc", uc_to_rc},
        {"ud-send-to-uc", ud_to_uc},   {"rc-send-to-uc", rc_to_uc},
        {"uc-send-to-ud", uc_to_ud},   {"rc-send-to-ud", rc_to_ud},
        {"ud-peer-of-rc", ud_peer_of_rc}, {"uc-peer-of-rc", uc_peer_of_rc},
        {"ud-peer-of-uc", ud_peer_of_uc}, {"rc-peer-of-uc", rc_peer_of_uc},
        {"read-behind", good_read_behind}, {"bad-read-behind", bad_read_behind},
        {"retry-cnt-7", seven_retries},
        {"ud-grh", header_of_ipv6},    {"ud-ipv4", header_of_ipv4},
    };
    return run_cases(argc, argv, cases, sizeof cases / sizeof *cases);
}
