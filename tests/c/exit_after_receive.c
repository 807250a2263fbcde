/*
 * Two processes play ping-pong. The child exits right after it polled the last receive completion:
 * it does not reply and does not destroy its QP. An adapter acknowledges a message before the
 * receiver sees its completion, so the parent's last send must succeed.
 */
#include "endpoint.h"

enum { ROUNDS = 8 };

static void send_one(struct endpoint *ep)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(ep, &sge, IBV_WR_SEND, 0, 8);
    post(ep, &wr);
    expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS);
}

int main(void)
{
    int link[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, link) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    struct endpoint ep = {.is_parent = child != 0, .socket = link[child != 0]};
    role = child != 0 ? "parent" : "child";
    open_endpoint(&ep);
    make_qp(&ep, IBV_QPT_RC, 0);
    for (int i = 0; i < ROUNDS; i++) {
        post_recv(&ep, i, 64 * i, 64);
    }
    connect_qp(&ep);
    for (int i = 0; i < ROUNDS; i++) {
        if (child != 0) {
            send_one(&ep);
        }
        if (child != 0 && i == ROUNDS - 1) {
            break;
        }
        expect(ep.recv_cq, i, IBV_WC_SUCCESS);
        if (child == 0 && i == ROUNDS - 1) {
            _exit(0);
        }
        if (child == 0) {
            send_one(&ep);
        }
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    EQUAL(status, 0);
    printf("all passed\n");
    return 0;
}
