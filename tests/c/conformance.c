/*
 * Runs cases, each in a process of its own, and prints their outcomes.
 */
#include "conformance.h"

#include <stdarg.h>
#include <time.h>

enum {
    PATIENCE_MS = 5000, /* For a completion that has to come; the device may be emulated. */
    SETTLED_MS = 300,   /* For a QP that goes to ERR after its completion. */
    CASE_S = 60,
    DIFFERS = 100, /* The exit status of a case that printed another outcome than the rule's. */
};

int observes;
static int differs;

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

void outcome(const char *name, const char *rule, const char *format, ...)
{
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    printf("%s: %s\n", name, text);
    if (!observes && strcmp(text, rule) != 0) {
        fprintf(stderr, "%s: the rule requires: %s\n", name, rule);
        differs = DIFFERS;
    }
}

const char *part_of(const char *name, const char *part)
{
    static char both[80];
    snprintf(both, sizeof both, "%s-%s", name, part);
    return both;
}

int run_cases(int argc, char **argv, const struct test_case *cases, size_t count)
{
    observes |= argc > 1 && strcmp(argv[1], "--observe") == 0;
    int failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < count; i++) {
        /* Before any verb: each process opens the device for itself. */
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            role = cases[i].name;
            alarm(CASE_S);
            cases[i].run();
            exit(differs);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        failed |= status != 0;
        if (WIFSIGNALED(status)) {
            printf("%s: ended by signal %d\n", cases[i].name, WTERMSIG(status));
        } else if (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != DIFFERS) {
            printf("%s: broke off\n", cases[i].name);
        }
    }
    if (!observes && !failed) {
        printf("all passed\n");
    }
    return observes ? 0 : failed;
}

/* ---- Endpoints ---- */

void open_pair(struct pair *pair, enum ibv_qp_type type, int with_srq)
{
    memset(pair, 0, sizeof *pair);
    open_endpoint(&pair->a);
    open_endpoint(&pair->b);
    make_qp(&pair->a, type, 0);
    make_qp(&pair->b, type, with_srq);
    pair->a.remote = pair->b.local;
    pair->b.remote = pair->a.local;
    connect_to_remote(&pair->a);
    connect_to_remote(&pair->b);
}

void open_with_psn(struct endpoint *ep, enum ibv_qp_type type, uint32_t psn)
{
    memset(ep, 0, sizeof *ep);
    open_endpoint(ep);
    make_qp(ep, type, 0);
    ep->local.psn = psn;
}

void reconnect(struct endpoint *ep, uint32_t psn)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    EQUAL(ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE), 0);
    initialise_qp(ep);
    ep->local.psn = psn & 0xffffff;
    connect_to_remote(ep);
}

int is_ethernet(struct endpoint *ep)
{
    struct ibv_port_attr port;
    EQUAL(ibv_query_port(ep->context, 1, &port), 0);
    return port.link_layer == IBV_LINK_LAYER_ETHERNET;
}

/* ---- Requests and completions ---- */

int next(struct ibv_cq *cq, struct ibv_wc *wc)
{
    long long until = now_ms() + PATIENCE_MS;
    int count;
    while ((count = ibv_poll_cq(cq, 1, wc)) == 0 && now_ms() < until) {
        usleep(100);
    }
    CHECK(count >= 0);
    return count;
}

const char *next_status(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    return next(cq, &wc) ? ibv_wc_status_str(wc.status) : "no completion";
}

const char *result(struct endpoint *ep, int error)
{
    static char refused[80];
    if (error == 0) {
        return next_status(ep->send_cq);
    }
    snprintf(refused, sizeof refused, "refused when posted (%s)", strerror(error));
    return refused;
}

const char *execute(struct endpoint *ep, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad = NULL;
    return result(ep, ibv_post_send(ep->qp, wr, &bad));
}

const char *send_to(struct endpoint *ep, const struct address *to, uint32_t bytes)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(ep, &sge, IBV_WR_SEND, 0, bytes);
    if (ep->qp->qp_type != IBV_QPT_UD) {
        return execute(ep, &wr);
    }
    struct ibv_ah_attr path = path_to(to);
    CHECK((wr.wr.ud.ah = ibv_create_ah(ep->pd, &path)) != NULL);
    wr.wr.ud.remote_qpn = to->qp_num;
    wr.wr.ud.remote_qkey = QKEY;
    const char *status = execute(ep, &wr);
    EQUAL(ibv_destroy_ah(wr.wr.ud.ah), 0);
    return status;
}

const char *received(struct endpoint *ep, uint32_t bytes)
{
    struct ibv_wc wc, later;
    static char text[160];
    if (!next(ep->recv_cq, &wc)) {
        return "no completion, next message lost";
    }
    if (wc.status == IBV_WC_SUCCESS && wc.byte_len == bytes) {
        return wc.wr_id == 1 ? "no completion, next message received"
                             : "no completion, the receive is lost";
    }
    int arrives = next(ep->recv_cq, &later) && later.status == IBV_WC_SUCCESS;
    snprintf(text, sizeof text, "%s, next message %s",
             wc.status == IBV_WC_SUCCESS ? "received" : ibv_wc_status_str(wc.status),
             arrives ? "received" : "lost");
    return text;
}

/* ---- The routing header of a datagram ---- */

enum { CLASS = 0x68, LABEL = 0xabcde, HOPS = 37 };

void send_with_header(struct endpoint *ep)
{
    struct ibv_sge sge;
    struct ibv_ah_attr path = path_to(&ep->remote);
    path.is_global = 1;
    path.grh.dgid = ep->remote.gid;
    path.grh.traffic_class = CLASS;
    path.grh.flow_label = LABEL;
    path.grh.hop_limit = HOPS;
    struct ibv_send_wr wr = request(ep, &sge, IBV_WR_SEND, 0, HEADER_BYTES - GRH_BYTES);
    CHECK((wr.wr.ud.ah = ibv_create_ah(ep->pd, &path)) != NULL);
    wr.wr.ud.remote_qpn = ep->remote.qp_num;
    wr.wr.ud.remote_qkey = QKEY;
    CHECK(strcmp(execute(ep, &wr), ibv_wc_status_str(IBV_WC_SUCCESS)) == 0);
}

static void field(const char *name, const char *of, uint32_t value, uint32_t sent)
{
    outcome(part_of(name, of), "as sent", "%s", value == sent ? "as sent" : "not as sent");
}

void header_received(struct endpoint *ep, const char *name, const char *form)
{
    struct ibv_wc wc;
    uint32_t first;
    const uint8_t *header = ep->buffer + HEADER_AT;
    CHECK(next(ep->recv_cq, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(wc.wc_flags & IBV_WC_GRH);
    memcpy(&first, header, sizeof first);
    first = be32toh(first);
    int is_ipv6 = first >> 28 == 6, is_ipv4 = !is_ipv6 && header[20] == 0x45;
    outcome(part_of(name, "header"), form, "%s",
            is_ipv6 ? "of IPv6" : is_ipv4 ? "of IPv4" : "unknown");
    field(name, "traffic-class", is_ipv6 ? first >> 20 & 0xff : header[21], CLASS);
    if (is_ipv6) { /* IPv4 has no flow label. */
        field(name, "flow-label", first & 0xfffff, LABEL);
    }
    field(name, "hop-limit", is_ipv6 ? header[7] : header[28], HOPS);
}

const char *state_after(struct endpoint *ep)
{
    static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    long long until = now_ms() + SETTLED_MS;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    do {
        EQUAL(ibv_query_qp(ep->qp, &attr, IBV_QP_STATE, &init), 0);
        usleep(1000);
    } while (attr.qp_state == IBV_QPS_RTS && now_ms() < until);
    return attr.qp_state < sizeof names / sizeof *names ? names[attr.qp_state] : "unknown";
}
