/*
 * Cancels threads that wait for completion events or asynchronous events, as rping does. The wait
 * must end, and the channel and the queues must work afterwards.
 */
#include "endpoint.h"

#include <pthread.h>

enum { ROUNDS = 20 };

static int cleaned;

static void clean(void *ep)
{
    (void)ep;
    cleaned++;
}

static void *wait_for_completions(void *pointer)
{
    struct endpoint *ep = pointer;
    pthread_cleanup_push(clean, ep);
    for (;;) {
        struct ibv_cq *cq;
        void *context;
        CHECK(ibv_get_cq_event(ep->channel, &cq, &context) == 0);
        ibv_ack_cq_events(cq, 1);
        CHECK(ibv_req_notify_cq(cq, 0) == 0);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

static void *wait_for_events(void *pointer)
{
    struct endpoint *ep = pointer;
    pthread_cleanup_push(clean, ep);
    struct ibv_async_event event;
    CHECK(ibv_get_async_event(ep->context, &event) == 0);
    pthread_cleanup_pop(0);
    return NULL;
}

/* Starts a thread that waits, and cancels it `wait_us` microseconds later. */
static void cancel(struct endpoint *ep, void *(*run)(void *), unsigned wait_us)
{
    pthread_t thread;
    void *result;
    int before = cleaned;
    CHECK(pthread_create(&thread, NULL, run, ep) == 0);
    usleep(wait_us);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
    EQUAL(cleaned, before + 1);
}

static void one_message(struct endpoint *ep, uint64_t number)
{
    if (ep->is_parent) {
        barrier(ep);
        struct ibv_sge sge;
        struct ibv_send_wr wr = request(ep, &sge, IBV_WR_SEND, 0, 8);
        post(ep, &wr);
        expect(ep->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        return;
    }
    struct ibv_cq *cq;
    void *context;
    post_recv(ep, number, 0, 64);
    CHECK(ibv_req_notify_cq(ep->recv_cq, 0) == 0);
    barrier(ep);
    CHECK(ibv_get_cq_event(ep->channel, &cq, &context) == 0);
    CHECK(cq == ep->recv_cq);
    ibv_ack_cq_events(cq, 1);
    expect(ep->recv_cq, number, IBV_WC_SUCCESS);
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
    connect_qp(&ep);
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (!ep.is_parent) {
            cancel(&ep, wait_for_completions, 300 * i);
            cancel(&ep, wait_for_events, 300 * i);
        }
        one_message(&ep, i);
    }
    barrier(&ep);
    destroy_qp(&ep);
    close_endpoint(&ep);
    if (child != 0) {
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        EQUAL(status, 0);
        printf("all passed\n");
    }
    return 0;
}
