/*
 * What a program with handlers for SIGSEGV and SIGBUS sees: each line of the output is a fact that
 * must be the same with and without the soft device. With the argument `device` the program first
 * registers memory with a device, and at the end it lets the device copy from unmapped memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "unmapped_copy.h"

#define PAGE 4096
#define RESTORER 0x04000000

extern char **environ;

static char *page; /* without access, until a handler grants it */
static sigjmp_buf back;
static volatile sig_atomic_t calls;

static void *new_page(int protection)
{
    void *at = mmap(NULL, PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return at;
}

static const char *name_of(void *handler);

/* Old interfaces, which programs still use, and an old action in the place of the new one. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Wrestrict"

/* Prints the action that the program sees. */
static void show(const char *what, int signal)
{
    struct sigaction now;
    if (sigaction(signal, NULL, &now)) {
        printf("%s: errno %d\n", what, errno);
        return;
    }
    printf("%s: %s flags %#x mask", what, name_of((void *)now.sa_sigaction),
           now.sa_flags & ~RESTORER);
    for (int other = 1; other < 32; other++)
        if (sigismember(&now.sa_mask, other) == 1)
            printf(" %d", other);
    printf("\n");
}

static void set(int signal, void *handler, int flags, int masked)
{
    struct sigaction new = { .sa_flags = flags };
    new.sa_sigaction = handler;
    sigemptyset(&new.sa_mask);
    if (masked)
        sigaddset(&new.sa_mask, masked);
    if (sigaction(signal, &new, NULL))
        printf("sigaction: errno %d\n", errno);
}

static void grant(int signal, siginfo_t *info, void *context)
{
    sigset_t mask;
    stack_t stack;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    sigaltstack(NULL, &stack);
    printf("  handler: signal %d code %d at the page: %d, masks itself %d, USR1 %d, "
           "alternate stack %d, context %d\n",
           signal, info->si_code, info->si_addr == page, sigismember(&mask, signal),
           sigismember(&mask, SIGUSR1), !!(stack.ss_flags & SS_ONSTACK), context != NULL);
    mprotect(page, PAGE, PROT_READ | PROT_WRITE);
}

static void count_and_jump(int signal)
{
    (void)signal;
    calls++;
    siglongjmp(back, 1);
}

static void count_only(int signal)
{
    (void)signal;
    calls++;
}

static void count_unseen(int signal)
{
    count_only(signal);
}

static const char *name_of(void *handler)
{
    if (handler == (void *)SIG_DFL)
        return "default";
    if (handler == (void *)SIG_IGN)
        return "ignored";
    if (handler == (void *)grant)
        return "grant";
    if (handler == (void *)count_and_jump)
        return "count_and_jump";
    if (handler == (void *)count_only)
        return "count_only";
    if (handler == (void *)SIG_HOLD)
        return "held";
    return "somebody else's";
}

static void fault(void)
{
    *(volatile char *)page = 1;
}

/* Runs a part in a child and prints how it ended. */
static void in_child(const char *what, void (*part)(void))
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        part();
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("%s: killed by signal %d\n", what, WTERMSIG(status));
    else
        printf("%s: exit status %d\n", what, WEXITSTATUS(status));
}

static void jump_often(void)
{
    for (volatile int round = 0; round < 1000; round++)
        if (!sigsetjmp(back, 1))
            fault();
    printf("  1000 jumps out of the handler: %d calls\n", (int)calls);
}

static void fault_twice(void)
{
    for (volatile int round = 0; round < 2; round++) {
        printf("  fault\n");
        fflush(stdout);
        if (!sigsetjmp(back, 1))
            fault();
        show("  after it", SIGSEGV);
        fflush(stdout);
    }
}

static void send_itself(void)
{
    raise(SIGSEGV);
    kill(getpid(), SIGBUS);
    printf("  sent signals: %d calls\n", (int)calls);
}

static void flags_and_masks(void)
{
    static const int flags[] = {
        SA_SIGINFO, SA_SIGINFO | SA_NODEFER, SA_SIGINFO | SA_ONSTACK,
        SA_SIGINFO | SA_ONSTACK | SA_RESTART, SA_SIGINFO | SA_RESETHAND,
        SA_SIGINFO | SA_NOCLDSTOP | 0x20000000,
    };
    for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) {
        set(SIGSEGV, grant, flags[i], i % 2 ? SIGUSR1 : 0);
        show("set", SIGSEGV);
        mprotect(page, PAGE, PROT_NONE);
        fault();
        show("after the fault", SIGSEGV);
    }
    struct sigaction both = { .sa_handler = count_only };
    sigfillset(&both.sa_mask);
    sigaction(SIGBUS, &both, &both);
    printf("old action in the place of the new one: %s\n", name_of((void *)both.sa_sigaction));
    show("all masked", SIGBUS);
    printf("invalid signal: %d\n", sigaction(SIGKILL, &both, NULL));
}

static void relatives(void)
{
    printf("signal: %s\n", name_of((void *)signal(SIGSEGV, count_and_jump)));
    show("signal", SIGSEGV);
    siginterrupt(SIGSEGV, 1);
    show("siginterrupt 1", SIGSEGV);
    printf("signal: %s\n", name_of((void *)signal(SIGSEGV, count_only)));
    show("signal again", SIGSEGV);
    siginterrupt(SIGSEGV, 0);
    show("siginterrupt 0", SIGSEGV);
    printf("sysv_signal: %s\n", name_of((void *)sysv_signal(SIGSEGV, count_and_jump)));
    show("sysv_signal", SIGSEGV);
    printf("signal with SIG_ERR: %d\n", signal(SIGSEGV, SIG_ERR) == SIG_ERR);
    printf("sigset: %s\n", name_of((void *)sigset(SIGBUS, count_only)));
    show("sigset", SIGBUS);
    printf("hold: %s\n", name_of((void *)sigset(SIGBUS, SIG_HOLD)));
    printf("sigset: %s\n", name_of((void *)sigset(SIGBUS, count_only)));
    printf("sigignore: %d\n", sigignore(SIGBUS));
    show("sigignore", SIGBUS);
}

static void vfork_child(void)
{
    set(SIGSEGV, count_and_jump, 0, 0);
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        set(SIGSEGV, count_only, SA_RESTART, 0);
        struct sigaction now;
        sigaction(SIGSEGV, NULL, &now);
        _exit(now.sa_handler == count_only ? 3 : 4);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child of vfork: exit status %d\n", WEXITSTATUS(status));
    show("parent of vfork", SIGSEGV);
    child = vfork();
    if (child == 0) {
        struct sigaction now;
        sigaction(SIGSEGV, NULL, &now);
        _exit(now.sa_handler == count_and_jump ? 5 : 6);
    }
    waitpid(child, &status, 0);
    printf("query in a child of vfork: exit status %d\n", WEXITSTATUS(status));
    child = vfork();
    if (child == 0) {
        struct sigaction action = { .sa_handler = count_only };
        sigaction(SIGSEGV, &action, &action);
        _exit(action.sa_handler == count_and_jump ? 7 : 8);
    }
    waitpid(child, &status, 0);
    printf("former handler in a child of vfork: exit status %d\n", WEXITSTATUS(status));
}

/* Starts this program again, which prints what it inherits. */
static void spawn(const char *what)
{
    char *arguments[] = { "signal_handlers", "inherited", NULL };
    pid_t child;
    int status;
    printf("%s:\n", what);
    fflush(stdout);
    if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ)) {
        printf("posix_spawn: errno %d\n", errno);
        return;
    }
    waitpid(child, &status, 0);
}

#define SHARED_PAGES 64
static char *shared[SHARED_PAGES];

/* A distributed shared memory: the handler brings the page. */
static void bring(int signal, siginfo_t *info, void *context)
{
    char *at = (char *)((unsigned long)info->si_addr & ~(PAGE - 1UL));
    (void)signal;
    (void)context;
    mprotect(at, PAGE, PROT_READ | PROT_WRITE);
    __atomic_fetch_add(at, 1, __ATOMIC_RELAXED);
}

static void *touch_all(void *unused)
{
    for (int i = 0; i < SHARED_PAGES; i++)
        __atomic_fetch_add(shared[i] + 1, 1, __ATOMIC_RELAXED);
    return unused;
}

static void shared_memory(void)
{
    pthread_t threads[4];
    int touched = 0, faults = 0;
    for (int i = 0; i < SHARED_PAGES; i++)
        shared[i] = new_page(PROT_NONE);
    set(SIGSEGV, bring, SA_SIGINFO, 0);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, touch_all, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SHARED_PAGES; i++) {
        touched += shared[i][1];
        faults += shared[i][0] >= 1;
    }
    printf("shared memory: %d touches, %d pages brought\n", touched, faults);
}

static void *change_often(void *unused)
{
    for (int round = 0; round < 2000; round++)
        set(SIGBUS, round % 2 ? (void *)count_only : (void *)SIG_IGN, 0, 0);
    return unused;
}

static void many_threads(void)
{
    pthread_t threads[4];
    set(SIGBUS, count_only, 0, 0);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, change_often, NULL);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            set(SIGBUS, count_only, 0, 0);
            raise(SIGBUS);
            _exit(calls ? 7 : 8);
        }
        int status;
        waitpid(child, &status, 0);
        if (WEXITSTATUS(status) != 7)
            printf("child of a process with threads: exit status %d\n",
                   WEXITSTATUS(status));
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    show("after the threads", SIGBUS);
}

/* The kernel passes the context also to a handler that did not ask for it. */
static void take_unasked(int signal, siginfo_t *info, void *context)
{
    (void)info;
    printf("unasked: signal %d, context %d\n", signal, context != NULL);
    mprotect(page, PAGE, PROT_READ | PROT_WRITE);
}

static void unasked_context(void)
{
    mprotect(page, PAGE, PROT_NONE);
    set(SIGSEGV, take_unasked, 0, 0);
    fault();
}

static volatile int is_registered;

/* Finds each handler that it sets, while another thread registers its first memory. */
static void *change_and_query(void *unused)
{
    struct sigaction found;
    void *former = (void *)SIG_DFL;
    for (int round = 0; round < 2000 || !is_registered; round++) {
        struct sigaction new = { .sa_handler = round % 2 ? count_only : SIG_IGN };
        sigaction(SIGBUS, &new, &found);
        if ((void *)found.sa_handler != former)
            printf("round %d: a handler that nobody set\n", round);
        former = (void *)new.sa_handler;
    }
    set(SIGBUS, SIG_DFL, 0, 0);
    return unused;
}

/* The handler that the kernel has. */
static void *kernels_handler(int signal)
{
    unsigned long action[4] = { 0 };
    syscall(SYS_rt_sigaction, signal, NULL, action, 8);
    return (void *)action[0];
}

/* The device stays in front of a handler that it can see, and its faults stay its own. */
static int device_in_front(void)
{
    int expected = getenv("SIGNALS_NOT_PRELOADED") == NULL;
    set(SIGSEGV, count_only, SA_RESTART, 0);
    set(SIGBUS, count_only, 0, 0);
    if (register_page())
        return 0;
    return (kernels_handler(SIGSEGV) != (void *)count_only) == expected &&
           (kernels_handler(SIGBUS) != (void *)count_only) == expected;
}

/* A handler that was set by a system call stays alone. It gets none of the device's faults. */
static int unseen_handler(void)
{
    unsigned long action[4];
    syscall(SYS_rt_sigaction, SIGSEGV, NULL, action, 8);
    action[0] = (unsigned long)count_unseen;
    syscall(SYS_rt_sigaction, SIGSEGV, action, NULL, 8);
    calls = 0;
    return register_page() == 0 && kernels_handler(SIGSEGV) == (void *)count_unseen &&
           copy_from_unmapped_memory() == 0 && calls == 0;
}

int main(int count, char **arguments)
{
    int with_device = count > 1 && !strcmp(arguments[1], "device");
    stack_t stack = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
    if (count > 1 && !strcmp(arguments[1], "inherited")) {
        show("  SIGSEGV", SIGSEGV);
        show("  SIGBUS", SIGBUS);
        return 0;
    }
    page = new_page(PROT_NONE);
    sigaltstack(&stack, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, change_and_query, NULL);
    if (with_device && register_page()) {
        perror("no device");
        return 1;
    }
    is_registered = 1;
    pthread_join(thread, NULL);
    if (with_device && register_page())
        return 1;
    show("SIGSEGV at first", SIGSEGV);
    show("SIGBUS at first", SIGBUS);
    in_child("a fault without a handler", fault);
    in_child("a sent signal without a handler", send_itself);
    flags_and_masks();
    mprotect(page, PAGE, PROT_NONE);
    set(SIGSEGV, count_and_jump, 0, 0);
    in_child("jumps", jump_often);
    set(SIGSEGV, count_and_jump, SA_RESETHAND | SA_NODEFER, 0);
    in_child("a handler for one call", fault_twice);
    set(SIGSEGV, count_only, 0, 0);
    set(SIGBUS, count_only, 0, 0);
    in_child("sent signals with a handler", send_itself);
    set(SIGSEGV, SIG_IGN, 0, 0);
    set(SIGBUS, SIG_IGN, 0, 0);
    in_child("ignored signals that were sent", send_itself);
    in_child("an ignored fault", fault);
    relatives();
    set(SIGSEGV, count_only, 0, 0);
    set(SIGBUS, count_only, 0, 0);
    spawn("handlers, inherited");
    vfork_child();
    unasked_context();
    shared_memory();
    many_threads();
    if (with_device && !device_in_front()) {
        fprintf(stderr, "the wrong handler is in front\n");
        return 1;
    }
    calls = 0;
    if (with_device && (copy_from_unmapped_memory() || calls)) {
        fprintf(stderr, "%d calls of the handler\n", (int)calls);
        return 1;
    }
    if (with_device && !unseen_handler()) {
        fprintf(stderr, "the handler that was set by a system call: %d calls\n", (int)calls);
        return 1;
    }
    printf("all passed\n");
    return 0;
}
