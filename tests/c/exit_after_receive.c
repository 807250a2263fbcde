/*
 * A receiver that answers at once for a while, takes a last message, and leaves without a word: no
 * answer, no destroyed QP. An adapter has acknowledged that message before the receiver saw it, so
 * the sender's request succeeds.
 */
#include "endpoint.h"

enum { ROUNDS = 8 };

static void send_one(struct endpoint *endpoint)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(endpoint, &sge, IBV_WR_SEND, 0, 8);
    post(endpoint, &wr);
    expect(endpoint->send_cq, wr.wr_id, IBV_WC_SUCCESS);
}

int main(void)
{
    int link[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, link) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    struct endpoint endpoint = {.is_parent = child != 0, .socket = link[child != 0]};
    role = child != 0 ? "parent" : "child";
    open_endpoint(&endpoint);
    make_qp(&endpoint, IBV_QPT_RC, 0);
    for (int i = 0; i < ROUNDS; i++) {
        post_recv(&endpoint, i, 64 * i, 64);
    }
    connect_qp(&endpoint);
    for (int i = 0; i < ROUNDS; i++) {
        if (child != 0) {
            send_one(&endpoint);
        }
        if (child != 0 && i == ROUNDS - 1) {
            break;
        }
        expect(endpoint.recv_cq, i, IBV_WC_SUCCESS);
        if (child == 0 && i == ROUNDS - 1) {
            _exit(0);
        }
        if (child == 0) {
            send_one(&endpoint);
        }
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    EQUAL(status, 0);
    printf("all passed\n");
    return 0;
}
