/*
 * A library with a handler of its own, as some profilers and runtimes are: it sets the handler when
 * it is loaded. With the variable KEEPS_HANDLER it does not restore the former one when it is
 * unloaded.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096UL

static struct sigaction former;

/* The number of faults that the handler took. */
int library_calls;

static void grant(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    library_calls++;
    mprotect((void *)((unsigned long)info->si_addr & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
}

__attribute__((constructor)) static void begin(void)
{
    struct sigaction new = { .sa_sigaction = grant, .sa_flags = SA_SIGINFO };
    sigaction(SIGSEGV, &new, &former);
}

__attribute__((destructor)) static void end(void)
{
    if (!getenv("KEEPS_HANDLER"))
        sigaction(SIGSEGV, &former, NULL);
}
