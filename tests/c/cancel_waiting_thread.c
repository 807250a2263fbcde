/*
 * Threads that wait for events are cancelled, as rping cancels its own: the wait ends, and what
 * they waited for works as before.
 */
#include "endpoint.h"

#include <pthread.h>

enum { ROUNDS = 20 };

static int cleaned;

static void clean(void *endpoint)
{
    (void)endpoint;
    cleaned++;
}

static void *wait_for_completions(void *pointer)
{
    struct endpoint *endpoint = pointer;
    pthread_cleanup_push(clean, endpoint);
    for (;;) {
        struct ibv_cq *cq;
        void *context;
        CHECK(ibv_get_cq_event(endpoint->channel, &cq, &context) == 0);
        ibv_ack_cq_events(cq, 1);
        CHECK(ibv_req_notify_cq(cq, 0) == 0);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

static void *wait_for_events(void *pointer)
{
    struct endpoint *endpoint = pointer;
    pthread_cleanup_push(clean, endpoint);
    struct ibv_async_event event;
    CHECK(ibv_get_async_event(endpoint->context, &event) == 0);
    pthread_cleanup_pop(0);
    return NULL;
}

/* Cancels a thread that waits, at different moments of its wait. */
static void cancel(struct endpoint *endpoint, void *(*run)(void *), unsigned wait_us)
{
    pthread_t thread;
    void *result;
    int before = cleaned;
    CHECK(pthread_create(&thread, NULL, run, endpoint) == 0);
    usleep(wait_us);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
    EQUAL(cleaned, before + 1);
}

static void one_message(struct endpoint *endpoint, uint64_t number)
{
    if (endpoint->is_parent) {
        barrier(endpoint);
        struct ibv_sge sge;
        struct ibv_send_wr wr = request(endpoint, &sge, IBV_WR_SEND, 0, 8);
        post(endpoint, &wr);
        expect(endpoint->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        return;
    }
    struct ibv_cq *cq;
    void *context;
    post_recv(endpoint, number, 0, 64);
    CHECK(ibv_req_notify_cq(endpoint->recv_cq, 0) == 0);
    barrier(endpoint);
    CHECK(ibv_get_cq_event(endpoint->channel, &cq, &context) == 0);
    CHECK(cq == endpoint->recv_cq);
    ibv_ack_cq_events(cq, 1);
    expect(endpoint->recv_cq, number, IBV_WC_SUCCESS);
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
    connect_qp(&endpoint);
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (!endpoint.is_parent) {
            cancel(&endpoint, wait_for_completions, 300 * i);
            cancel(&endpoint, wait_for_events, 300 * i);
        }
        one_message(&endpoint, i);
    }
    barrier(&endpoint);
    destroy_qp(&endpoint);
    close_endpoint(&endpoint);
    if (child != 0) {
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        EQUAL(status, 0);
        printf("all passed\n");
    }
    return 0;
}
