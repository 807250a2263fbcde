/*
 * Shared by the C test programs: checks that print where they failed, and a connection between a
 * parent and a child process.
 *
 * A failed check prints what was expected and ends the process with status 1. The parent is one
 * endpoint and the child the other; the parent fails when the child fails.
 */
#ifndef RDMALAB_ENDPOINT_H
#define RDMALAB_ENDPOINT_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The process's role, printed in front of failures. */
extern const char *role;

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s: %s:%d: %s (errno: %s)\n", role, __FILE__, __LINE__, #condition, \
                    strerror(errno));                                                       \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

/* The two numbers must be equal. */
#define EQUAL(found, expected)                                                              \
    do {                                                                                    \
        long long found_ = (long long)(found), expected_ = (long long)(expected);           \
        if (found_ != expected_) {                                                          \
            fprintf(stderr, "%s: %s:%d: %s is %lld, not %lld\n", role, __FILE__, __LINE__,   \
                    #found, found_, expected_);                                             \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

enum { BUFFER_BYTES = 1 << 20, QKEY = 0x11111111 };

/* The address of an endpoint: its QP and its memory. Endpoints exchange these to connect. */
struct address {
    uint32_t qp_num;
    uint32_t psn;
    uint32_t rkey;
    uint16_t lid;
    union ibv_gid gid;
    uint64_t memory;
};

/* One endpoint of a connection, with its verbs objects. */
struct endpoint {
    int is_parent;
    int socket; /* Connected to the other process. */
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *send_cq;
    struct ibv_cq *recv_cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *buffer;
    struct ibv_qp_cap cap;
    uint8_t retries; /* Of a request without an answer; 0 stands for 7. */
    struct address local;
    struct address remote;
};

/*
 * Opens the device that RDMALAB_TEST_DEVICE names (soft0 without it), and registers memory, which
 * is paged on demand if RDMALAB_TEST_ON_DEMAND is set. Packets
 * carry the GID that RDMALAB_TEST_GID numbers (0 without it), where the port has no LIDs.
 */
void open_endpoint(struct endpoint *ep);
/* Fetches all pages of the memory, if it is paged on demand. */
void prefetch(struct endpoint *ep);
/* Creates the QP in INIT, with an SRQ if `with_srq`, and fills in `local`. */
void make_qp(struct endpoint *ep, enum ibv_qp_type type, int with_srq);
/* Modifies the QP from RESET to INIT; `make_qp` has done so. */
void initialise_qp(struct endpoint *ep);
/* Exchanges the addresses, and goes to RTR and RTS. */
void connect_qp(struct endpoint *ep);
/* Goes to RTR and RTS, connected to `remote`, with the PSNs of `local` and `remote`. */
void connect_to_remote(struct endpoint *ep);
/* Destroys the QP and its SRQ; both endpoints must call this. */
void destroy_qp(struct endpoint *ep);
/* Destroys all objects; each call must succeed. */
void close_endpoint(struct endpoint *ep);
/* The address vector of a peer: by LID, or by GID on a port that has no LIDs. */
struct ibv_ah_attr path_to(const struct address *to);
/* Returns when both processes have called it. */
void barrier(struct endpoint *ep);

/* Posts a receive of `length` bytes at `offset` of the buffer. */
void post_recv(struct endpoint *ep, uint64_t wr_id, uint32_t offset, uint32_t length);
/* Makes a signalled request over `length` bytes at `offset`, in the local and the remote buffer. */
struct ibv_send_wr request(struct endpoint *ep, struct ibv_sge *sge, enum ibv_wr_opcode opcode,
                           uint32_t offset, uint32_t length);
/* Posts one request, which must succeed. */
void post(struct endpoint *ep, struct ibv_send_wr *wr);
/* Waits for one completion; fails after some 30 seconds. */
struct ibv_wc wait_for(struct ibv_cq *cq);
/* Waits for one completion, which must have this status and request. */
struct ibv_wc expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status);

/* Fills with a pattern that depends on the position and the seed. */
void fill(uint8_t *bytes, size_t length, uint8_t seed);
/* Whether the bytes are those that `fill` writes. */
int is_filled(const uint8_t *bytes, size_t length, uint8_t seed);

#endif
