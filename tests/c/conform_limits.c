/*
 * Conformance: a device makes as many objects as it says, and no more. See conformance.h.
 */
#include "conformance.h"

enum {
    /* What the kernel and the case itself have of a device's objects. */
    OTHERS = 64,
    /* A device that only observes may take a system call for each. */
    MOST_OBSERVED = 40000,
};

typedef void *(*make)(struct endpoint *);

static void *pd(struct endpoint *ep) { return ibv_alloc_pd(ep->context); }
static void *cq(struct endpoint *ep) { return ibv_create_cq(ep->context, 1, NULL, NULL, 0); }

static void *srq(struct endpoint *ep)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 1, .max_sge = 1}};
    return ibv_create_srq(ep->pd, &attr);
}

static void *ah(struct endpoint *ep)
{
    struct ibv_ah_attr path = path_to(&ep->local);
    return ibv_create_ah(ep->pd, &path);
}

/* The process ends with the case, and its objects with it. */
static void limit(const char *name, int most, struct endpoint *ep, make object)
{
    int count = 0;
    if (observes && most > MOST_OBSERVED) {
        outcome(name, "", "not tried");
        return;
    }
    while (count <= most && object(ep) != NULL) {
        count++;
    }
    if (count > most) {
        outcome(name, "holds: Cannot allocate memory", "exceeded");
    } else if (count < most - OTHERS) {
        outcome(name, "holds: Cannot allocate memory", "%d of %d: %s", count, most,
                strerror(errno));
    } else {
        outcome(name, "holds: Cannot allocate memory", "holds: %s", strerror(errno));
    }
}

static int opened(struct endpoint *ep, size_t offset)
{
    struct ibv_device_attr attr;
    int most;
    open_with_psn(ep, IBV_QPT_UD, 0);
    EQUAL(ibv_query_device(ep->context, &attr), 0);
    memcpy(&most, (const char *)&attr + offset, sizeof most);
    CHECK(most > 0);
    return most;
}

#define LIMIT(of, object)                                                                   \
    static void of(void)                                                                    \
    {                                                                                       \
        struct endpoint ep;                                                                 \
        int most = opened(&ep, offsetof(struct ibv_device_attr, of));                       \
        limit(#of, most, &ep, object);                                                      \
    }

LIMIT(max_pd, pd)
LIMIT(max_cq, cq)
LIMIT(max_srq, srq)
LIMIT(max_ah, ah)

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"max_pd", max_pd}, {"max_cq", max_cq}, {"max_srq", max_srq}, {"max_ah", max_ah}};
    return run_cases(argc, argv, cases, sizeof cases / sizeof *cases);
}
