/*
 * Several threads use one rsocket. A thread sleeps in rrecv, rpoll or raccept while another thread
 * closes the socket, or polls the same completion queue and takes the completions of the first one.
 * The sleeping thread must wake up in both cases. A thread in rconnect must not block the others.
 */
#include "endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <stdatomic.h>
#include <sys/select.h>

enum { CLOSINGS = 120, TURNS = 3000, CONNECTIONS = 6 };

static struct sockaddr_in server = {.sin_family = AF_INET};

static void *connect_to_server(void *socket)
{
    EQUAL(rconnect(*(int *)socket, (struct sockaddr *)&server, sizeof server), 0);
    return NULL;
}

/* Connects two sockets of this process. */
static void make_pair(int listener, int *accepted, int *connected)
{
    pthread_t thread;
    CHECK((*connected = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK(pthread_create(&thread, NULL, connect_to_server, connected) == 0);
    CHECK((*accepted = raccept(listener, NULL, NULL)) >= 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* ---- Numbers ---- */

/*
 * librspreload opens a descriptor for the program, and then the socket. Meanwhile another thread
 * may close a lower descriptor. The socket's number must be above the program's descriptor anyway:
 * see OWN_LOWEST in crates/librdmacm/src/channel.rs.
 */
static void number_is_above_the_programs(int listener)
{
    int lower = open("/dev/null", O_RDONLY), own = open("/dev/null", O_RDONLY), accepted;
    int mss = 0, connected = -1;
    socklen_t length = sizeof mss;
    CHECK(lower >= 0 && own > lower);
    close(lower);
    make_pair(listener, &accepted, &connected);
    CHECK(accepted > own && accepted < FD_SETSIZE);
    CHECK(connected > own && connected < FD_SETSIZE);
    /* The largest MTU of a port; for iperf3, which asks for it. */
    EQUAL(rgetsockopt(connected, IPPROTO_TCP, TCP_MAXSEG, &mss, &length), 0);
    EQUAL(mss, 4096);
    EQUAL(rclose(connected), 0);
    EQUAL(rclose(accepted), 0);
    close(own);
}

/* ---- Closing ---- */

static atomic_int is_up;

static void *sleep_in_recv(void *socket)
{
    char byte;
    is_up = 1;
    CHECK(rrecv(*(int *)socket, &byte, 1, 0) <= 0);
    return NULL;
}

static void *sleep_in_poll(void *socket)
{
    struct pollfd poll = {.fd = *(int *)socket, .events = POLLIN};
    is_up = 1;
    EQUAL(rpoll(&poll, 1, -1), 1);
    CHECK(poll.revents != 0);
    return NULL;
}

static void close_while_receiving(int listener, int round)
{
    int here, there;
    pthread_t sleeper;
    make_pair(listener, &here, &there);
    void *(*run)(void *) = round % 3 == 0 ? sleep_in_poll : sleep_in_recv;
    is_up = 0;
    CHECK(pthread_create(&sleeper, NULL, run, &here) == 0);
    while (!is_up) {
        usleep(100);
    }
    usleep(300 * (round % 5));
    if (round % 2 == 0) {
        EQUAL(rclose(there), 0); /* Both sides close. */
    }
    EQUAL(rclose(here), 0);
    CHECK(pthread_join(sleeper, NULL) == 0);
    CHECK(rclose(here) == -1 && errno == EBADF);
    if (round % 2 != 0) {
        EQUAL(rclose(there), 0);
    }
}

static void *sleep_in_accept(void *socket)
{
    is_up = 1;
    CHECK(raccept(*(int *)socket, NULL, NULL) == -1);
    return NULL;
}

static int new_listener(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(inet_pton(AF_INET, "127.0.0.1", &any.sin_addr) == 1);
    EQUAL(rbind(listener, (struct sockaddr *)&any, sizeof any), 0);
    EQUAL(rlisten(listener, 8), 0);
    return listener;
}

static void close_while_accepting(int round)
{
    int listener = new_listener();
    pthread_t sleepers[2];
    for (int i = 0; i < 2; i++) {
        is_up = 0;
        CHECK(pthread_create(&sleepers[i], NULL, sleep_in_accept, &listener) == 0);
        while (!is_up) {
            usleep(100);
        }
    }
    usleep(300 * (round % 5));
    EQUAL(rclose(listener), 0);
    CHECK(pthread_join(sleepers[0], NULL) == 0);
    CHECK(pthread_join(sleepers[1], NULL) == 0);
}

/* ---- Connecting ---- */

static void *connect_and_be_closed(void *socket)
{
    is_up = 1;
    EQUAL(rconnect(*(int *)socket, (struct sockaddr *)&server, sizeof server), -1);
    EQUAL(errno, EBADF);
    return NULL;
}

/* No thread accepts, so rconnect waits for minutes. The request stays in the backlog. */
static void use_while_connecting(int round)
{
    int here = rsocket(AF_INET, SOCK_STREAM, 0), kind = 0;
    struct sockaddr_in there;
    socklen_t length = sizeof kind, room = sizeof there;
    struct pollfd poll = {.fd = here, .events = POLLOUT};
    pthread_t thread;
    is_up = 0;
    CHECK(pthread_create(&thread, NULL, connect_and_be_closed, &here) == 0);
    while (!is_up) {
        usleep(100);
    }
    usleep(20000 * (round % 3)); /* Before the thread sleeps, and while it does. */
    EQUAL(rgetsockopt(here, SOL_SOCKET, SO_TYPE, &kind, &length), 0);
    EQUAL(kind, SOCK_STREAM);
    EQUAL(rgetpeername(here, (struct sockaddr *)&there, &room), 0);
    EQUAL(rpoll(&poll, 1, 20), 0);
    EQUAL(rfcntl(here, F_GETFL, 0), 0);
    EQUAL(rshutdown(here, SHUT_RDWR), 0);
    EQUAL(rclose(here), 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* ---- Polling beside a reader ---- */

static atomic_int is_over;

static void *answer(void *socket)
{
    char byte = 0;
    while (rrecv(*(int *)socket, &byte, 1, 0) == 1) {
        EQUAL(rsend(*(int *)socket, &byte, 1, 0), 1);
    }
    return NULL;
}

/* Polls for an event that never comes, and handles completions meanwhile. */
static void *poll_in_vain(void *socket)
{
    while (!is_over) {
        struct pollfd poll = {.fd = *(int *)socket, .events = POLLPRI};
        CHECK(rpoll(&poll, 1, 500) >= 0);
    }
    return NULL;
}

static void poll_while_receiving(int listener)
{
    int here, there;
    pthread_t reader, pollers[2];
    make_pair(listener, &here, &there);
    CHECK(pthread_create(&reader, NULL, answer, &here) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&pollers[i], NULL, poll_in_vain, &here) == 0);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        char sent = (char)turn, got = 0;
        alarm(60); /* Kills the process if the reader does not wake up. */
        EQUAL(rsend(there, &sent, 1, 0), 1);
        EQUAL(rrecv(there, &got, 1, 0), 1);
        EQUAL(got, sent);
        usleep(100); /* Long enough for spinning threads to sleep. */
    }
    is_over = 1;
    EQUAL(rclose(there), 0);
    CHECK(pthread_join(reader, NULL) == 0);
    CHECK(pthread_join(pollers[0], NULL) == 0);
    CHECK(pthread_join(pollers[1], NULL) == 0);
    EQUAL(rclose(here), 0);
}

int main(int argc, char **argv)
{
    int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof server;
    CHECK(inet_pton(AF_INET, "127.0.0.1", &server.sin_addr) == 1);
    EQUAL(rbind(listener, (struct sockaddr *)&server, sizeof server), 0);
    EQUAL(rlisten(listener, 8), 0);
    EQUAL(rgetsockname(listener, (struct sockaddr *)&server, &length), 0);
    number_is_above_the_programs(listener);
    for (int round = 0; round < CLOSINGS && !(argc > 1 && argv[1][0] == 'w'); round++) {
        alarm(60); /* Kills the process if a thread does not wake up. */
        close_while_receiving(listener, round);
        close_while_accepting(round);
    }
    poll_while_receiving(listener);
    for (int round = 0; round < CONNECTIONS; round++) {
        alarm(60); /* Kills the process if a call waits for rconnect. */
        use_while_connecting(round);
    }
    EQUAL(rclose(listener), 0);
    printf("all passed\n");
    return 0;
}
