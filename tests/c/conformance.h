/*
 * Shared by the conformance programs: cases that print what a device does, and what they need of
 * verbs.
 *
 * A program prints one line for each observation, `CASE: OUTCOME`. With --observe it only prints.
 * Otherwise it compares each outcome with the one that the rule requires, and its last line is
 * `all passed` if they are equal. Each case runs in a process of its own, which has both ends of
 * the connection on one device, so that a case that breaks off or hangs spoils no other.
 *
 * Silence is never waited for: a message that must be dropped is followed by one that arrives.
 */
#ifndef RDMALAB_CONFORMANCE_H
#define RDMALAB_CONFORMANCE_H

#include "endpoint.h"

enum {
    GRH_BYTES = 40, /* Before each datagram (IBA vol. 1, 11.4.1.2). */
    WRONG = 0x5a5a00, /* These bits make a key wrong, not in the 8 that are the program's. */
    FEW = 2,        /* Retries of a request that gets no answer. */
    HEADER_AT = 4096, HEADER_BYTES = GRH_BYTES + 64, /* The receive for `header_received`. */
};

struct test_case {
    const char *name;
    void (*run)(void);
};

/* Two endpoints in this process: `a` sends and `b` receives. */
struct pair {
    struct endpoint a;
    struct endpoint b;
};

/* Whether outcomes are printed and not compared. */
extern int observes;

/* Runs the cases; the value is the exit status of the program. */
int run_cases(int argc, char **argv, const struct test_case *cases, size_t count);
/* Prints what happened. `rule` is the outcome that is required. */
__attribute__((format(printf, 3, 4))) void outcome(const char *name, const char *rule,
                                                   const char *format, ...);

/* `NAME-PART`, until the next call. */
const char *part_of(const char *name, const char *part);

/* Opens both ends and connects their QPs; the receiver has an SRQ if `with_srq`. */
void open_pair(struct pair *pair, enum ibv_qp_type type, int with_srq);
/* Opens an endpoint whose QP is in INIT and counts its PSNs from `psn`. */
void open_with_psn(struct endpoint *ep, enum ibv_qp_type type, uint32_t psn);
/* Connects again from RESET, counting PSNs from `psn`. */
void reconnect(struct endpoint *ep, uint32_t psn);
/* The link layer of the port is Ethernet. */
int is_ethernet(struct endpoint *ep);

/* The next completion; 0 if there is none for some seconds. */
int next(struct ibv_cq *cq, struct ibv_wc *wc);
/* The status of the next completion in words. */
const char *next_status(struct ibv_cq *cq);
/* Of a request that was posted with this result: its completion's status, or why it was refused. */
const char *result(struct endpoint *ep, int error);
/* Posts the request: its completion's status in words, or why it was refused. */
const char *execute(struct endpoint *ep, struct ibv_send_wr *wr);
/* Executes a SEND of `bytes` bytes over the connection, or as a datagram to `to`. */
const char *send_to(struct endpoint *ep, const struct address *to, uint32_t bytes);
/* Sends a datagram to `remote`, with a traffic class, a flow label and a hop limit of its own. */
void send_with_header(struct endpoint *ep);
/*
 * Receives it, and prints the form of the header as `NAME-header`, which has to be `form`, and
 * whether the fields arrived as `NAME-traffic-class`, `NAME-flow-label` and `NAME-hop-limit`.
 */
void header_received(struct endpoint *ep, const char *name, const char *form);
/*
 * What the receiver completes after a message that must be dropped and one of `bytes` bytes: the
 * first receive, which is request 1, has to take the latter.
 */
const char *received(struct endpoint *ep, uint32_t bytes);
/* The state of the QP in letters, once it leaves RTS or some time has passed. */
const char *state_after(struct endpoint *ep);

#endif
