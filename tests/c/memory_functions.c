/*
 * Uses the C library's functions for memory as programs do, and prints what it finds. The output
 * must be the same with and without librdmalab-memory.so.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define BIG (1UL << 20)

extern char **environ;

/* More than any machine has. The compiler must not see the number. */
static volatile size_t too_much = SIZE_MAX / 2;

static int failures;

static void check(int holds, const char *what)
{
    if (!holds) {
        failures++;
        printf("FAILED: %s\n", what);
    }
}

static int is_zero(const void *at, size_t bytes)
{
    const char *c = at;
    return bytes == 0 || (c[0] == 0 && !memcmp(c, c + 1, bytes - 1));
}

static int is_all(const void *at, int byte, size_t bytes)
{
    const char *c = at;
    return c[0] == (char)byte && !memcmp(c, c + 1, bytes - 1);
}

static sigjmp_buf back;

static void jump(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

/* Whether a load faults. */
static int faults(const volatile char *at)
{
    struct sigaction new = { .sa_handler = jump, .sa_flags = SA_NODEFER }, old[2];
    sigaction(SIGSEGV, &new, &old[0]);
    sigaction(SIGBUS, &new, &old[1]);
    volatile int fault = 1;
    if (!sigsetjmp(back, 1)) {
        (void)*at;
        fault = 0;
    }
    sigaction(SIGSEGV, &old[0], NULL);
    sigaction(SIGBUS, &old[1], NULL);
    return fault;
}

static void allocate(void)
{
    size_t sizes[] = { 1, 1000, 65535, 65536, 65537, 200000, BIG, 33 * BIG };
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t bytes = sizes[i];
        char *one = malloc(bytes), *two = calloc(1, bytes), *three = NULL;
        check(one && two, "malloc, calloc");
        check(is_zero(two, bytes), "calloc gives zeroes");
        memset(one, 1, bytes);
        memset(two, 2, bytes);
        check(malloc_usable_size(one) >= bytes, "usable size");
        one = realloc(one, bytes * 3);
        check(one && is_all(one, 1, bytes), "realloc keeps, longer");
        memset(one, 3, bytes * 3);
        one = realloc(one, bytes / 2 + 1);
        check(one && is_all(one, 3, bytes / 2 + 1), "realloc keeps, shorter");
        check(is_all(two, 2, bytes), "others are not touched");
        for (size_t align = 8; align <= 4 * BIG; align *= 8) {
            check(!posix_memalign((void **)&three, align, bytes), "posix_memalign");
            check((uintptr_t)three % align == 0, "aligned");
            memset(three, 4, bytes);
            free(three);
            three = align >= 16 ? memalign(align, bytes) : NULL;
            check(align < 16 || (three && (uintptr_t)three % align == 0), "memalign");
            free(three);
        }
        three = valloc(bytes);
        check((uintptr_t)three % PAGE == 0, "valloc");
        free(three);
        free(two);
        two = calloc(1, bytes);
        check(is_zero(two, bytes), "calloc gives zeroes again");
        free(two);
        free(one);
    }
    void *none;
    check(posix_memalign(&none, 3, BIG) == EINVAL, "an alignment of 3");
    errno = 0;
    check(!calloc(too_much, 4) && errno == ENOMEM, "calloc beyond all memory");
    errno = 0;
    check(!malloc(too_much) && errno == ENOMEM, "malloc beyond all memory");
    errno = 0;
    check(!reallocarray(NULL, too_much, 4) && errno == ENOMEM, "reallocarray");
    free(NULL);
    char *text = malloc(BIG);
    errno = 77;
    free(text);
    check(errno == 77, "free keeps errno");
    printf("allocated\n");
}

static char *map(size_t bytes, int flags)
{
    flags |= MAP_PRIVATE | MAP_ANONYMOUS;
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    check(at != MAP_FAILED, "mmap");
    return at;
}

static void mappings(void)
{
    char *at = map(BIG, 0);
    check(is_zero(at, BIG), "a mapping is zero");
    memset(at, 5, BIG);
    check(!madvise(at + 4 * PAGE, 4 * PAGE, MADV_DONTNEED), "madvise");
    check(is_zero(at + 4 * PAGE, 4 * PAGE), "MADV_DONTNEED gives zeroes");
    check(is_all(at, 5, 4 * PAGE) && is_all(at + 8 * PAGE, 5, BIG - 8 * PAGE), "and only there");
    check(!mprotect(at, PAGE, PROT_NONE) && faults(at), "mprotect");
    check(!mprotect(at, PAGE, PROT_READ | PROT_WRITE) && *at == 5, "mprotect gives access again");
    check(!munmap(at + 16 * PAGE, 16 * PAGE), "munmap of a part");
    check(faults(at + 16 * PAGE) && faults(at + 31 * PAGE), "the part is gone");
    check(at[15 * PAGE] == 5 && at[32 * PAGE] == 5, "the rest stays");
    check(!munmap(at + 16 * PAGE, 16 * PAGE), "munmap of nothing");
    char *fixed = mmap(at + 64 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    check(fixed == at + 64 * PAGE && is_zero(fixed, 4 * PAGE), "MAP_FIXED over a part");
    memset(fixed, 6, 4 * PAGE);
    check(at[63 * PAGE] == 5 && at[68 * PAGE] == 5, "beside MAP_FIXED");
    check(!munmap(at, BIG) && faults(at) && faults(fixed), "munmap of the rest");
    check(munmap(at + 1, PAGE) == -1 && errno == EINVAL, "munmap of half pages");

    at = map(BIG, MAP_POPULATE);
    memset(at, 7, BIG);
    at = mremap(at, BIG, 3 * BIG, MREMAP_MAYMOVE);
    check(at != MAP_FAILED && is_all(at, 7, BIG) && is_zero(at + BIG, 2 * BIG), "mremap, longer");
    at = mremap(at, 3 * BIG, BIG / 2, 0);
    check(at != MAP_FAILED && is_all(at, 7, BIG / 2) && faults(at + BIG / 2), "mremap, shorter");
    char *to = map(BIG, 0);
    at = mremap(at, BIG / 2, BIG, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    check(at == to && is_all(at, 7, BIG / 2), "mremap to a place");
    check(is_zero(at + BIG / 2, BIG / 2), "zeroes behind it");
    check(!munmap(at, BIG), "munmap");
    at = map(BIG, MAP_NORESERVE);
    check(is_zero(at, BIG), "a new mapping is zero");
    munmap(at, BIG);
    printf("mapped\n");
}

static char *map_at(char *at, size_t bytes, int flags, int fd)
{
    flags |= MAP_PRIVATE | (fd < 0 ? MAP_ANONYMOUS : 0);
    return mmap(at, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
}

static int child_sees(const char *at, int byte, size_t bytes)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(is_all(at, byte, bytes) ? 3 : 4);
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status) == 3;
}

/* Maps over parts of a mapping, with success and without. */
static void mappings_over_mappings(void)
{
    char *at = map(BIG, 0);
    memset(at, 5, BIG);
    check(map_at(at, PAGE, MAP_FIXED_NOREPLACE, -1) == MAP_FAILED && errno == EEXIST,
          "MAP_FIXED_NOREPLACE over a mapping");
    check(map_at(at, PAGE, MAP_FIXED, 9999) == MAP_FAILED && errno == EBADF, "a wrong descriptor");
    check(is_all(at, 5, BIG) && child_sees(at, 5, BIG), "failures change nothing");

    check(map_at(at + 4 * PAGE, 4 * PAGE, MAP_FIXED, -1) == at + 4 * PAGE, "MAP_FIXED");
    memset(at + 4 * PAGE, 6, 4 * PAGE);
    check(child_sees(at + 4 * PAGE, 6, 4 * PAGE), "a child has it");
    check(!madvise(at, 8 * PAGE, MADV_DONTNEED) && is_zero(at, 8 * PAGE), "zeroes, both kinds");
    memset(at, 7, 8 * PAGE);
    check(!madvise(at + 16 * PAGE, PAGE, MADV_FREE), "MADV_FREE");

    char small[] = "/proc/self/exe";
    FILE *file = fopen(small, "r");
    char *mapped = map_at(at + 32 * PAGE, PAGE, MAP_FIXED, fileno(file));
    fclose(file);
    check(mapped == at + 32 * PAGE && !memcmp(mapped + 1, "ELF", 3), "a file over a part");
    check(at[31 * PAGE] == 5 && at[33 * PAGE] == 5, "beside the file");

    char *other = map_at(NULL, PAGE, MAP_STACK, -1);
    memset(other, 8, PAGE);
    char *moved = mremap(other, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + 64 * PAGE);
    check(moved == at + 64 * PAGE && is_all(moved, 8, PAGE), "mremap over a part");
    check(child_sees(moved, 8, PAGE), "a child has that, too");

    check(!munmap(at, BIG) && faults(at) && faults(moved), "munmap of all of it");
    check(map_at(at, 2 * PAGE, MAP_FIXED, -1) == at && is_zero(at, 2 * PAGE), "at the same place");
    memset(at, 9, 2 * PAGE);
    char *blocks[64];
    for (int i = 0; i < 64; i++)
        blocks[i] = memset(malloc(100000), 1, 100000);
    check(is_all(at, 9, 2 * PAGE), "nobody else gets the place");
    for (int i = 0; i < 64; i++)
        free(blocks[i]);
    check(!munmap(at, 2 * PAGE) && faults(at), "and it can be unmapped");
    printf("mapped over\n");
}

/* Locked memory is given back, and is zero for the next owner, in a child as well. */
static void locked(void)
{
    char *at = map(16 * PAGE, 0);
    memset(at, 1, 16 * PAGE);
    check(!mlock(at, 16 * PAGE) && !munmap(at, 16 * PAGE), "mlock");
    at = map(16 * PAGE, 0);
    check(is_zero(at, 16 * PAGE), "zeroes after locked memory");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        memset(at, 2, 16 * PAGE);
        mlock(at, 16 * PAGE);
        munmap(at, 16 * PAGE);
        at = map(16 * PAGE, 0);
        _exit(is_zero(at, 16 * PAGE) ? 3 : 4);
    }
    int status;
    waitpid(child, &status, 0);
    check(WEXITSTATUS(status) == 3, "zeroes in a child");
    munmap(at, 16 * PAGE);
    printf("locked\n");
}

static char *kept;
static int kept_is_good;

static void use_memory(void)
{
    char *own = malloc(200000);
    memset(own, 1, 200000);
    free(own);
    kept_is_good += is_all(kept, 4, BIG);
}

static volatile sig_atomic_t alarms;

static void touch_kept(int signal)
{
    (void)signal;
    kept[7] = 4;
    alarms++;
}

/* Handlers of fork and of signals use the memory, while it is copied. */
static void handlers_of_fork(void)
{
    kept = memset(malloc(BIG), 4, BIG);
    pthread_atfork(use_memory, use_memory, use_memory);
    signal(SIGUSR1, touch_kept);
    for (int round = 0; round < 20; round++) {
        fflush(stdout);
        raise(SIGUSR1);
        pid_t child = fork();
        if (child == 0) {
            while (alarms < round + 2)
                usleep(100); /* The parent's signal may have come while the memory was copied. */
            _exit(kept_is_good == 2 + 2 * round ? 3 : 4);
        }
        kill(child, SIGUSR1);
        int status;
        waitpid(child, &status, 0);
        check(WIFEXITED(status) && WEXITSTATUS(status) == 3, "a child with a signal");
    }
    check(kept_is_good == 40 && alarms == 20, "handlers find the memory");
    printf("handlers\n");
}

/* A program that closes descriptors which it did not open does not lose its files by that. */
static void closes_all(void)
{
    char *at = memset(malloc(BIG), 1, BIG), *other = memset(malloc(BIG), 2, BIG);
    for (int fd = 3; fd < 70000; fd++)
        close(fd);
    static char text[64 * PAGE];
    memset(text, 'x', sizeof text);
    FILE *first = tmpfile();
    int files[300], count = 0, limit = 0;
    /* Up to the highest number that a process may use. */
    struct rlimit numbers;
    getrlimit(RLIMIT_NOFILE, &numbers);
    limit = numbers.rlim_cur > 70000 ? 70000 : (int)numbers.rlim_cur;
    for (int fd = limit - 100; fd < limit; fd++)
        files[count++] = dup2(fileno(first), fd);
    check(write(fileno(first), text, sizeof text) == (ssize_t)sizeof text, "a file");
    free(at);
    check(is_all(other, 2, BIG), "memory stays");
    at = calloc(1, BIG);
    check(is_zero(at, BIG), "calloc without the file");
    char found[PAGE];
    for (size_t i = 0; i < sizeof text / PAGE; i++)
        check(pread(fileno(first), found, PAGE, i * PAGE) > 0 && is_all(found, 'x', PAGE),
              "the file keeps its content");
    for (int i = 0; i < count; i++)
        close(files[i]);
    free(at);
    free(other);
    printf("closed all\n");
}

/* How many pages of a range a child by fork does not have. */
static int missing_in_child(const char *at, int pages)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int missing = 0;
        for (int i = 0; i < pages; i++)
            missing += faults(at + i * PAGE);
        _exit(missing);
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

/* A child by fork does not get what the program keeps from it. */
static void withheld(void)
{
    char *at = map(16 * PAGE, 0), *heap = memalign(PAGE, BIG);
    memset(at, 5, 16 * PAGE);
    memset(heap, 6, BIG);
    check(missing_in_child(at, 16) == 0, "a child has all pages");
    check(!madvise(at + 4 * PAGE, 3 * PAGE, MADV_DONTFORK), "MADV_DONTFORK");
    check(!madvise(heap, 2 * PAGE, MADV_DONTFORK), "MADV_DONTFORK of the heap");
    check(missing_in_child(at, 16) == 3 && missing_in_child(at + 4 * PAGE, 3) == 3,
          "a child does not have these pages");
    check(missing_in_child(heap, 16) == 2, "nor those of the heap");
    check(is_all(at, 5, 16 * PAGE), "the parent has them");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        /* The child can unmap them, map there, and withhold pages itself. */
        int good = !munmap(at + 4 * PAGE, PAGE);
        char *fixed = mmap(at + 5 * PAGE, PAGE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        good = good && fixed == at + 5 * PAGE && is_zero(fixed, PAGE) && at[3 * PAGE] == 5;
        good = good && !madvise(at, 2 * PAGE, MADV_DONTFORK) && missing_in_child(at, 8) == 4;
        _exit(good ? 3 : 4);
    }
    int status;
    waitpid(child, &status, 0);
    check(WEXITSTATUS(status) == 3, "a child uses the place");
    check(!madvise(at + 5 * PAGE, PAGE, MADV_DOFORK), "MADV_DOFORK");
    check(missing_in_child(at, 16) == 2 && child_sees(at + 5 * PAGE, 5, PAGE), "and gets it again");
    check(map_at(at + 4 * PAGE, PAGE, MAP_FIXED, -1) == at + 4 * PAGE, "MAP_FIXED");
    check(missing_in_child(at, 16) == 1, "a new mapping is not withheld");
    check(!madvise(at + 4 * PAGE, PAGE, MADV_DONTFORK) && missing_in_child(at, 16) == 2,
          "a mapping over a part can be withheld");
    munmap(at, 16 * PAGE);
    check(!madvise(heap, 2 * PAGE, MADV_DOFORK), "MADV_DOFORK of the heap");
    free(heap);
    printf("withheld\n");
}

/* A child by vfork shares the memory. */
static int vfork_child(const char *at)
{
    pid_t child = vfork();
    if (child == 0)
        _exit(at[5]);
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

/* What a child by fork changes is its own, and so is what its parent changes. */
static void forks(void)
{
    char *heap = malloc(BIG), *mapping = map(4 * BIG, 0), *hole = map(BIG, 0);
    memset(heap, 1, BIG);
    memset(mapping + BIG, 2, BIG);
    munmap(hole + BIG / 2, PAGE);
    for (int round = 0; round < 10; round++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            usleep(20000);
            int holds = is_all(heap, 1, BIG) && is_all(mapping + BIG, 2, BIG) &&
                        is_zero(mapping, BIG) && is_zero(mapping + 2 * BIG, 2 * BIG) &&
                        is_zero(hole, BIG / 2) && faults(hole + BIG / 2);
            memset(heap, 8, BIG);
            free(heap);
            heap = calloc(1, BIG);
            holds = holds && is_zero(heap, BIG);
            munmap(mapping, 4 * BIG);
            mapping = map(BIG, 0);
            memset(mapping, 9, BIG);
            pid_t grandchild = fork();
            if (grandchild == 0)
                _exit(is_all(mapping, 9, BIG) ? 4 : 5);
            int status;
            waitpid(grandchild, &status, 0);
            _exit(holds && WEXITSTATUS(status) == 4 ? 3 : 6);
        }
        memset(heap, 7, BIG);
        memset(mapping + BIG, 7, BIG);
        int status;
        waitpid(child, &status, 0);
        check(WEXITSTATUS(status) == 3, "the child's memory");
        check(is_all(heap, 7, BIG) && is_all(mapping + BIG, 7, BIG), "the parent's memory");
        memset(heap, 1, BIG);
        memset(mapping + BIG, 2, BIG);
    }
    check(vfork_child(heap) == 1, "a child by vfork");
    pid_t child;
    int status;
    char *arguments[] = { "memory_functions", "child", NULL };
    check(!posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ), "posix_spawn");
    waitpid(child, &status, 0);
    check(WEXITSTATUS(status) == 9, "a child by posix_spawn");
    check(system("exit 5") >> 8 == 5, "system");
    free(heap);
    munmap(mapping, 4 * BIG);
    printf("forked\n");
}

static void *churn(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed;
    char *held[16] = { 0 };
    size_t lengths[16] = { 0 };
    for (int round = 0; round < 4000; round++) {
        int slot = rand_r(&state) % 16;
        if (held[slot]) {
            if (!is_all(held[slot], slot + 1, lengths[slot]))
                return "memory changed";
            free(held[slot]);
        }
        lengths[slot] = 1 + rand_r(&state) % 300000;
        held[slot] = round % 3 ? malloc(lengths[slot]) : calloc(1, lengths[slot]);
        if (!held[slot] || (round % 3 == 0 && !is_zero(held[slot], lengths[slot])))
            return "no zeroes";
        memset(held[slot], slot + 1, lengths[slot]);
    }
    for (int slot = 0; slot < 16; slot++)
        free(held[slot]);
    return NULL;
}

static void threads(void)
{
    pthread_t made[4];
    for (uintptr_t i = 0; i < 4; i++)
        pthread_create(&made[i], NULL, churn, (void *)(i + 1));
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        if (child == 0) {
            char *own = calloc(1, BIG);
            _exit(is_zero(own, BIG) ? 3 : 4);
        }
        int status;
        waitpid(child, &status, 0);
        check(WEXITSTATUS(status) == 3, "a child of a process with threads");
    }
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(made[i], &wrong);
        check(!wrong, wrong ? wrong : "");
    }
    printf("threads ended\n");
}

/* Freed memory goes back to the system. */
static void gives_back(void)
{
    for (int round = 0; round < 200; round++) {
        char *at = malloc(64 * BIG);
        memset(at, 1, 64 * BIG);
        free(at);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    check(usage.ru_maxrss < 300 * 1024, "memory is given back");
    printf("given back\n");
}

int main(int count, char **arguments)
{
    if (count > 1 && !strcmp(arguments[1], "child"))
        return malloc(BIG) ? 9 : 8;
    if (count > 1 && !strcmp(arguments[1], "much"))
        return map(2048 * BIG, 0) ? 0 : 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    allocate();
    mappings();
    mappings_over_mappings();
    locked();
    forks();
    withheld();
    threads();
    gives_back();
    handlers_of_fork();
    closes_all();
    printf(failures ? "failed\n" : "all passed\n");
    return failures != 0;
}
