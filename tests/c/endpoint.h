/*
 * What the C programs share: checks that say where they failed, and two processes that talk.
 *
 * A check prints what was expected and ends the process with status 1. The parent plays one end and
 * the child the other; when the child fails, the parent fails.
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

enum { BUFFER_BYTES = 1 << 20 };

/* What one end tells the other: where its QP and its memory are. */
struct address {
    uint32_t qp_num;
    uint32_t psn;
    uint32_t rkey;
    uint16_t lid;
    union ibv_gid gid;
    uint64_t memory;
};

/* One end of a connection, with everything that it needs. */
struct endpoint {
    int is_parent;
    int socket; /* A socket to the other endpoint. */
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
    struct address local;
    struct address remote;
};

/* Opens the device that RDMALAB_TEST_DEVICE names (soft0 without it), and registers memory. */
void open_endpoint(struct endpoint *endpoint);
/* Makes the QP, with an SRQ if asked for, and INIT; says in `here` where it is. */
void make_qp(struct endpoint *endpoint, enum ibv_qp_type type, int with_srq);
/* Exchanges the addresses, and goes to RTR and RTS. */
void connect_qp(struct endpoint *endpoint);
/* Destroys the QP and its SRQ; both ends do this at the same time. */
void destroy_qp(struct endpoint *endpoint);
/* Closes everything; each call must succeed. */
void close_endpoint(struct endpoint *endpoint);
/* The way to a peer: by LID, or by GID on a port that has no LIDs. */
struct ibv_ah_attr path_to(const struct address *to);
/* Both ends have come here. */
void barrier(struct endpoint *endpoint);

/* Posts a receive of `length` bytes at `offset` of the buffer. */
void post_recv(struct endpoint *endpoint, uint64_t wr_id, uint32_t offset, uint32_t length);
/* A signalled request over `length` bytes at `offset` of the buffer, and the same of the peer. */
struct ibv_send_wr request(struct endpoint *endpoint, struct ibv_sge *sge, enum ibv_wr_opcode opcode,
                           uint32_t offset, uint32_t length);
/* Posts one request, which must be taken. */
void post(struct endpoint *endpoint, struct ibv_send_wr *wr);
/* Waits for one completion; fails after some 30 seconds. */
struct ibv_wc wait_for(struct ibv_cq *cq);
/* Waits for one completion, which must have this status and request. */
struct ibv_wc expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status);

/* Fills with bytes that tell where they are. */
void fill(uint8_t *bytes, size_t length, uint8_t seed);
/* Whether `fill` wrote them. */
int is_filled(const uint8_t *bytes, size_t length, uint8_t seed);

#endif
