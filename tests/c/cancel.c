/*
 * Threads that wait for events are cancelled, as rping cancels its own: the wait ends, and what
 * they waited for works as before.
 */
#include "user.h"

#include <pthread.h>

enum { ROUNDS = 20 };

static int cleaned;

static void clean(void *end)
{
    (void)end;
    cleaned++;
}

static void *wait_for_completions(void *pointer)
{
    struct end *end = pointer;
    pthread_cleanup_push(clean, end);
    for (;;) {
        struct ibv_cq *cq;
        void *context;
        CHECK(ibv_get_cq_event(end->channel, &cq, &context) == 0);
        ibv_ack_cq_events(cq, 1);
        CHECK(ibv_req_notify_cq(cq, 0) == 0);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

static void *wait_for_events(void *pointer)
{
    struct end *end = pointer;
    pthread_cleanup_push(clean, end);
    struct ibv_async_event event;
    CHECK(ibv_get_async_event(end->context, &event) == 0);
    pthread_cleanup_pop(0);
    return NULL;
}

/* Cancels a thread that waits, at different moments of its wait. */
static void cancel(struct end *end, void *(*run)(void *), unsigned wait_us)
{
    pthread_t thread;
    void *result;
    int before = cleaned;
    CHECK(pthread_create(&thread, NULL, run, end) == 0);
    usleep(wait_us);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
    EQUAL(cleaned, before + 1);
}

static void one_message(struct end *end, uint64_t number)
{
    if (end->is_parent) {
        meet(end);
        struct ibv_sge sge;
        struct ibv_send_wr wr = request(end, &sge, IBV_WR_SEND, 0, 8);
        post(end, &wr);
        expect(end->send_cq, wr.wr_id, IBV_WC_SUCCESS);
        return;
    }
    struct ibv_cq *cq;
    void *context;
    post_recv(end, number, 0, 64);
    CHECK(ibv_req_notify_cq(end->recv_cq, 0) == 0);
    meet(end);
    CHECK(ibv_get_cq_event(end->channel, &cq, &context) == 0);
    CHECK(cq == end->recv_cq);
    ibv_ack_cq_events(cq, 1);
    expect(end->recv_cq, number, IBV_WC_SUCCESS);
}

int main(void)
{
    int link[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, link) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    struct end end = {.is_parent = child != 0, .link = link[child != 0]};
    who = child != 0 ? "parent" : "child";
    open_end(&end);
    make_qp(&end, IBV_QPT_RC, 0);
    connect_qp(&end);
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (!end.is_parent) {
            cancel(&end, wait_for_completions, 300 * i);
            cancel(&end, wait_for_events, 300 * i);
        }
        one_message(&end, i);
    }
    meet(&end);
    destroy_qp(&end);
    close_end(&end);
    if (child != 0) {
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        EQUAL(status, 0);
        printf("all passed\n");
    }
    return 0;
}
