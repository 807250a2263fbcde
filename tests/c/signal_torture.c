/*
 * Handlers for SIGSEGV and SIGBUS where processes begin and end: libraries that bring handlers,
 * handlers that fork, programs that are executed, and crashes. Each line of the output is a fact
 * that must be the same with and without the soft device.
 *
 * Arguments: the path of signal_library.c as a shared library, and `device` to register memory with
 * a device first.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unmapped_copy.h"

#define PAGE 4096UL
#define SELF "/proc/self/exe"

extern char **environ;

static char *page; /* without access, until a handler grants it */
static const char *library;
static sigjmp_buf back;
static volatile sig_atomic_t calls;

static void check(int holds, const char *what)
{
    if (!holds) {
        printf("%s: errno %d\n", what, errno);
        fflush(stdout);
        _exit(1);
    }
}

static void set(int signal, void *handler, int flags)
{
    struct sigaction new = { .sa_flags = flags };
    new.sa_sigaction = handler;
    check(!sigaction(signal, &new, NULL), "sigaction");
}

static void *handler_of(int signal)
{
    struct sigaction now;
    check(!sigaction(signal, NULL, &now), "sigaction");
    return (void *)now.sa_sigaction;
}

static void deny(void)
{
    check(!mprotect(page, PAGE, PROT_NONE), "mprotect");
}

static void fault(void)
{
    *(volatile char *)page = 1;
}

static void grant(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    (void)context;
    calls++;
    mprotect(page, PAGE, PROT_READ | PROT_WRITE);
}

static void print_end(const char *what, int status)
{
    if (WIFSIGNALED(status))
        printf("%s: killed by signal %d\n", what, WTERMSIG(status));
    else
        printf("%s: exit status %d\n", what, WEXITSTATUS(status));
}

/* Runs a part in a child; returns how it ended. */
static int in_child(void (*part)(void))
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
    return status;
}

/* The handler of a library that is unloaded is gone, as is the library's code. */
static void fault_after_unloading(void)
{
    setenv("KEEPS_HANDLER", "1", 1);
    void *opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    check(opened != NULL, "dlopen");
    dlclose(opened);
    deny();
    fault();
}

static void libraries(void)
{
    for (int round = 0; round < 3; round++) {
        set(SIGSEGV, grant, SA_SIGINFO);
        calls = 0;
        void *opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
        check(opened != NULL, "dlopen");
        int *its_calls = dlsym(opened, "library_calls");
        deny();
        fault();
        printf("with the library: %d calls of its handler, %d of the program's, query: %d\n",
               *its_calls, (int)calls, handler_of(SIGSEGV) != (void *)grant);
        check(!dlclose(opened), "dlclose");
        check(!dlopen(library, RTLD_NOW | RTLD_NOLOAD), "the library stays");
        deny();
        fault();
        printf("without it: %d calls of the program's handler, query: %d\n", (int)calls,
               handler_of(SIGSEGV) == (void *)grant);
    }
    print_end("a handler whose code is gone", in_child(fault_after_unloading));
}

/* Is called for a fault, forks, and lets both processes fault and go on. */
static void fork_in_handler(int signal, siginfo_t *info, void *context)
{
    (void)context;
    calls++;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        set(SIGBUS, SIG_IGN, 0);
        raise(SIGBUS);
        mprotect(page, PAGE, PROT_READ | PROT_WRITE);
        return;
    }
    int status;
    waitpid(child, &status, 0);
    printf("  in a handler for signal %d at the page: %d, ", signal, info->si_addr == page);
    print_end("a child", status);
    mprotect(page, PAGE, PROT_READ | PROT_WRITE);
}

/* As above; the child leaves the handler by a jump. */
static void fork_and_jump(int signal)
{
    (void)signal;
    calls++;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        siglongjmp(back, 1);
    int status;
    waitpid(child, &status, 0);
    print_end("  a child that jumps", status);
    mprotect(page, PAGE, PROT_READ | PROT_WRITE);
}

static void forks_in_handlers(void)
{
    for (int nested = 0; nested < 2; nested++) {
        pid_t first = getpid();
        calls = 0;
        set(SIGBUS, SIG_DFL, 0);
        set(SIGSEGV, fork_in_handler, SA_SIGINFO | (nested ? SA_NODEFER : 0));
        deny();
        fault();
        if (getpid() != first) {
            /* The child has returned from the handler, and its own handlers hold. */
            int good = handler_of(SIGBUS) == (void *)SIG_IGN &&
                       handler_of(SIGSEGV) == (void *)fork_in_handler;
            set(SIGSEGV, grant, SA_SIGINFO);
            deny();
            fault();
            _exit(good && calls == 2 ? 3 : 4);
        }
        printf("the parent's handlers: %d %d\n", handler_of(SIGBUS) == (void *)SIG_DFL,
               handler_of(SIGSEGV) == (void *)fork_in_handler);
    }
    set(SIGSEGV, fork_and_jump, 0);
    deny();
    pid_t first = getpid();
    if (!sigsetjmp(back, 1))
        fault();
    if (getpid() != first) {
        set(SIGSEGV, grant, SA_SIGINFO);
        fault();
        _exit(*page == 1 ? 5 : 6);
    }
}

static const char *name_of(void *handler)
{
    return handler == (void *)SIG_IGN ? "ignored" : handler ? "handled" : "default";
}

/* What a program finds that another one has executed. */
static int show_inherited(int count, char **arguments)
{
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    const char *mark = getenv("MARK");
    printf("  SIGSEGV %s, SIGBUS %s, masked %d, %d arguments to %s, MARK=%s\n",
           name_of(handler_of(SIGSEGV)), name_of(handler_of(SIGBUS)),
           sigismember(&mask, SIGSEGV), count, arguments[count - 1], mark ? mark : "");
    return 0;
}

#define WORDS "torture", "inherited", "2", "3", "4", "5", "6", "last"
#define WAYS 9

/* Executes this program. */
static void execute(int way)
{
    static char *words[] = { WORDS, NULL };
    char *variables[64], *none[] = { NULL };
    int count = 0;
    /* The library must be in the new program, too. */
    for (char **one = environ; *one && count < 62; one++)
        if (!strncmp(*one, "LD_", 3) || !strncmp(*one, "RDMALAB_", 8))
            variables[count++] = *one;
    variables[count++] = "MARK=1";
    variables[count] = NULL;
    int fd = open(SELF, O_RDONLY);
    switch (way) {
    case 0: execv(SELF, words); break;
    case 1: execvp(SELF, words); break;
    case 2: execve(SELF, words, variables); break;
    case 3: execvpe(SELF, words, variables); break;
    case 4: fexecve(fd, words, variables); break;
    case 5: execl(SELF, WORDS, (char *)NULL); break;
    case 6: execlp(SELF, WORDS, (char *)NULL); break;
    case 7: execle(SELF, WORDS, (char *)NULL, variables); break;
    case 8: execve(SELF, words, none); break;
    }
    _exit(9);
}

static int way;

static void execute_in_handler(int signal)
{
    (void)signal;
    execute(way);
}

static void fault_and_execute(void)
{
    set(SIGSEGV, execute_in_handler, 0);
    deny();
    fault();
}

static void execute_now(void)
{
    execute(way);
}

#define SPAWNS 5

/* Makes a child that executes this program; returns how it ended. */
static int spawn(int way)
{
    static char *words[] = { WORDS, NULL }, own[512], command[600], line[200];
    pid_t child = 0;
    int status = -1, failure = 0;
    sigset_t set;
    posix_spawnattr_t attributes;
    check(readlink(SELF, own, sizeof own - 1) > 0, "readlink");
    snprintf(command, sizeof command, "'%s' inherited command", own);
    fflush(stdout);
    posix_spawnattr_init(&attributes);
    switch (way) {
    case 0: failure = posix_spawn(&child, own, NULL, NULL, words, environ); break;
    case 1: failure = posix_spawnp(&child, own, NULL, NULL, words, environ); break;
    case 2:
        sigemptyset(&set);
        sigaddset(&set, SIGSEGV);
        posix_spawnattr_setsigdefault(&attributes, &set);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
        failure = posix_spawn(&child, own, NULL, &attributes, words, environ);
        break;
    case 3: return system(command);
    case 4: {
        FILE *output = popen(command, "r");
        check(output != NULL, "popen");
        while (fgets(line, sizeof line, output))
            fputs(line, stdout);
        return pclose(output);
    }
    }
    check(!failure && waitpid(child, &status, 0) == child, "a child");
    return status;
}

static void spawn_nothing(void)
{
    char *words[] = { "nothing", NULL };
    pid_t child;
    errno = 0;
    int failure = posix_spawn(&child, "/nowhere/nothing", NULL, NULL, words, environ);
    printf("not spawned: %d, errno %d, SIGSEGV %s, ", failure, errno,
           name_of(handler_of(SIGSEGV)));
    errno = 0;
    FILE *file = popen("true", "no such mode");
    printf("not opened: %d, errno %d, ", file == NULL, errno);
    print_end("a command that fails", system("exit 7"));
    /* They are still ignored, or handled. */
    raise(SIGSEGV);
    raise(SIGBUS);
}

static volatile int makes_children;
static volatile int device_faults;

/* The device meets faults of its own, which must not end the process. */
static void *copy_in_vain(void *nothing)
{
    do {
        device_faults |= copy_from_unmapped_memory() ? 2 : 1;
    } while (makes_children);
    return nothing;
}

/* Two threads make children while another one lets the device copy. */
static void *spawn_often(void *nothing)
{
    static char *words[] = { "true", NULL };
    for (int i = 0; i < 50; i++) {
        pid_t child;
        int status;
        check(!posix_spawnp(&child, "true", NULL, NULL, words, environ), "posix_spawnp");
        check(waitpid(child, &status, 0) == child && status == 0, "true");
    }
    return nothing;
}

static void spawn_while_copying(int with_device)
{
    pthread_t copies, other;
    set(SIGSEGV, SIG_IGN, 0);
    makes_children = 1;
    if (with_device)
        check(!pthread_create(&copies, NULL, copy_in_vain, NULL), "a thread");
    check(!pthread_create(&other, NULL, spawn_often, NULL), "a thread");
    spawn_often(NULL);
    pthread_join(other, NULL);
    makes_children = 0;
    if (with_device)
        pthread_join(copies, NULL);
    printf("after many children: SIGSEGV %s\n", name_of(handler_of(SIGSEGV)));
    set(SIGSEGV, SIG_DFL, 0);
}

static void fail_to_execute(void)
{
    char *words[] = { "nothing", NULL };
    errno = 0;
    int status = execl("/nowhere/nothing", "nothing", (char *)NULL);
    printf("  a failure: %d, errno %d, ", status, errno);
    errno = 0;
    status = execve("/nowhere/nothing", words, environ);
    printf("%d, errno %d, SIGSEGV %s\n", status, errno, name_of(handler_of(SIGSEGV)));
    /* It is still ignored. */
    raise(SIGSEGV);
    raise(SIGBUS);
}

static void executions(void)
{
    void *all[] = { SIG_IGN, grant, SIG_DFL };
    for (int i = 0; i < 3; i++) {
        set(SIGSEGV, all[i], SA_SIGINFO);
        set(SIGBUS, all[(i + 1) % 3], SA_SIGINFO);
        printf("SIGSEGV is %s:\n", name_of(all[i]));
        for (way = 0; way < WAYS; way++)
            print_end("  executed", in_child(execute_now));
        fflush(stdout);
        pid_t child = vfork();
        if (child == 0) {
            execl(SELF, "torture", "inherited", "vfork", (char *)NULL);
            _exit(9);
        }
        int status;
        waitpid(child, &status, 0);
        printf("after vfork: SIGSEGV %s\n", name_of(handler_of(SIGSEGV)));
        for (int way = 0; way < SPAWNS; way++)
            print_end("  spawned", spawn(way));
        print_end("spawns that fail", in_child(spawn_nothing));
    }
    set(SIGSEGV, SIG_IGN, 0);
    set(SIGBUS, SIG_IGN, 0);
    print_end("a program that does not exist", in_child(fail_to_execute));
    way = 0;
    print_end("executed in a handler", in_child(fault_and_execute));
}

static void show_fault(int signal, siginfo_t *info, void *context)
{
    (void)context;
    int is_fault = info->si_code > 0;
    printf("  signal %d code %d, %s\n", signal, info->si_code,
           is_fault ? (info->si_addr == page ? "at the page" : "elsewhere")
                    : (info->si_pid == getpid() ? "by itself" : "by another"));
    siglongjmp(back, 1);
}

static void load(void)
{
    (void)*(volatile char *)page;
}

static void send_by_kill(void)
{
    kill(getpid(), SIGSEGV);
}

static void send_by_raise(void)
{
    raise(SIGBUS);
}

static void send_with_value(void)
{
    union sigval value = { .sival_int = 7 };
    sigqueue(getpid(), SIGSEGV, value);
}

static void show_faults(void (*part)(void), const char *what)
{
    printf("%s:\n", what);
    if (!sigsetjmp(back, 1))
        part();
}

/* The code and the address that handlers see. */
static void kinds_of_faults(void)
{
    set(SIGSEGV, show_fault, SA_SIGINFO);
    set(SIGBUS, show_fault, SA_SIGINFO);
    char *first = page;
    deny();
    show_faults(load, "without access");
    check(!mprotect(page, PAGE, PROT_READ), "mprotect");
    show_faults(fault, "read only");
    FILE *file = tmpfile();
    page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fileno(file), 0);
    check(page != MAP_FAILED, "mmap");
    show_faults(load, "behind the end of a file");
    munmap(page, PAGE);
    show_faults(load, "unmapped");
    page = NULL;
    show_faults(load, "null");
    page = (char *)0x8000000000000000;
    show_faults(load, "no address");
    page = first;
    show_faults(send_by_kill, "kill");
    show_faults(send_by_raise, "raise");
    show_faults(send_with_value, "sigqueue");
    fclose(file);
}

/* Whether each child that crashes leaves a core dump. The directory is empty afterwards. */
static void crashes(void)
{
    static void (*const parts[])(void) = { fault, send_by_kill, send_by_raise, abort };
    char directory[] = "/tmp/signal-torture-XXXXXX";
    struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
    int pattern = open("/proc/sys/kernel/core_pattern", O_RDONLY);
    char first = '|';
    check(read(pattern, &first, 1) == 1 && mkdtemp(directory) && !chdir(directory), "a directory");
    close(pattern);
    if (setrlimit(RLIMIT_CORE, &limit)) {
        getrlimit(RLIMIT_CORE, &limit);
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_CORE, &limit);
    }
    if (first == '|' || first == '/' || limit.rlim_cur == 0)
        fprintf(stderr, "no core dumps here: core_pattern begins with %c, the limit is %llu\n",
                first, (unsigned long long)limit.rlim_cur);
    set(SIGSEGV, SIG_DFL, 0);
    set(SIGBUS, SIG_DFL, 0);
    deny();
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        int status = in_child(parts[i]), cores = 0;
        DIR *found = opendir(".");
        for (struct dirent *entry; (entry = readdir(found));)
            if (entry->d_name[0] != '.')
                cores += !unlink(entry->d_name);
        closedir(found);
        print_end("a crash", status);
        printf("  core dump %d, files %d\n", WIFSIGNALED(status) && WCOREDUMP(status), cores);
    }
    check(!chdir("/") && !rmdir(directory), "the directory is empty");
}

int main(int count, char **arguments)
{
    if (count > 1 && !strcmp(arguments[1], "inherited"))
        return show_inherited(count, arguments);
    check(count > 1, "no library was named");
    library = arguments[1];
    page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(page != MAP_FAILED, "mmap");
    if (count > 2 && register_page())
        return 1;
    libraries();
    forks_in_handlers();
    executions();
    spawn_while_copying(count > 2);
    if (count > 2 && device_faults != 1)
        return 1;
    kinds_of_faults();
    crashes();
    if (count > 2 && copy_from_unmapped_memory()) {
        fprintf(stderr, "a copy of the device\n");
        return 1;
    }
    printf("all passed\n");
    return 0;
}
