/*
 * Loads libibverbs by dlopen, as NCCL does. Looks up each symbol with the version that such
 * programs ask for, then lists the devices through these symbols, and closes the library while a
 * device is open and has pages of the program.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const struct {
    const char *name;
    const char *version;
} symbols[] = {
    {"ibv_get_device_list", "IBVERBS_1.1"},
    {"ibv_free_device_list", "IBVERBS_1.1"},
    {"ibv_get_device_name", "IBVERBS_1.1"},
    {"ibv_open_device", "IBVERBS_1.1"},
    {"ibv_close_device", "IBVERBS_1.1"},
    {"ibv_get_async_event", "IBVERBS_1.1"},
    {"ibv_ack_async_event", "IBVERBS_1.1"},
    {"ibv_query_device", "IBVERBS_1.1"},
    {"ibv_query_port", "IBVERBS_1.1"},
    {"ibv_query_gid", "IBVERBS_1.1"},
    {"ibv_query_qp", "IBVERBS_1.1"},
    {"ibv_alloc_pd", "IBVERBS_1.1"},
    {"ibv_dealloc_pd", "IBVERBS_1.1"},
    {"ibv_reg_mr", "IBVERBS_1.1"},
    {"ibv_dereg_mr", "IBVERBS_1.1"},
    {"ibv_create_cq", "IBVERBS_1.1"},
    {"ibv_destroy_cq", "IBVERBS_1.1"},
    {"ibv_create_qp", "IBVERBS_1.1"},
    {"ibv_modify_qp", "IBVERBS_1.1"},
    {"ibv_destroy_qp", "IBVERBS_1.1"},
    {"ibv_fork_init", "IBVERBS_1.1"},
    {"ibv_event_type_str", "IBVERBS_1.1"},
    {"ibv_wc_status_str", "IBVERBS_1.1"},
    {"ibv_create_comp_channel", "IBVERBS_1.0"},
    {"ibv_destroy_comp_channel", "IBVERBS_1.0"},
    {"ibv_reg_mr_iova2", "IBVERBS_1.8"},
    {"ibv_query_ece", "IBVERBS_1.10"},
    {"ibv_set_ece", "IBVERBS_1.10"},
    {"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},
};

enum { BYTES = 64 << 10 };

/* Opens a device, and has it fetch the pages of new memory. Returns the memory, or NULL. */
static void *paged_memory(void *library, struct ibv_device *device)
{
    struct ibv_context *(*open)(struct ibv_device *) = NULL;
    struct ibv_pd *(*alloc)(struct ibv_context *) = NULL;
    struct ibv_mr *(*reg)(struct ibv_pd *, void *, size_t, int) = NULL;
    *(void **)&open = dlvsym(library, "ibv_open_device", "IBVERBS_1.1");
    *(void **)&alloc = dlvsym(library, "ibv_alloc_pd", "IBVERBS_1.1");
    *(void **)&reg = dlvsym(library, "ibv_reg_mr", "IBVERBS_1.1");
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_context *context = open(device);
    struct ibv_pd *pd = context != NULL ? alloc(context) : NULL;
    if (memory == MAP_FAILED || pd == NULL) {
        return NULL;
    }
    struct ibv_mr *mr = reg(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    struct ibv_sge all = {(uintptr_t)memory, BYTES, mr != NULL ? mr->lkey : 0};
    int error = ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH,
                              &all, 1);
    return error == 0 ? memory : NULL;
}

int main(int argc, char **argv)
{
    /* The argument may be libibverbs.so, the link-time name, which may belong to the system. */
    void *library = dlopen(argc > 1 ? argv[1] : "libibverbs.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int missing = 0;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        if (dlvsym(library, symbols[i].name, symbols[i].version) == NULL) {
            fprintf(stderr, "missing: %s@%s\n", symbols[i].name, symbols[i].version);
            missing++;
        }
    }
    if (dlvsym(library, "ibv_open_device", "IBVERBS_1.9") != NULL) {
        fprintf(stderr, "ibv_open_device has a version that Debian's does not have\n");
        missing++;
    }
    if (missing != 0) {
        return 1;
    }
    struct ibv_device **(*list)(int *) = NULL;
    const char *(*name)(struct ibv_device *) = NULL;
    void (*free_list)(struct ibv_device **) = NULL;
    *(void **)&list = dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1");
    *(void **)&name = dlvsym(library, "ibv_get_device_name", "IBVERBS_1.1");
    *(void **)&free_list = dlvsym(library, "ibv_free_device_list", "IBVERBS_1.1");
    int count = 0;
    struct ibv_device **devices = list(&count);
    if (devices == NULL || count != 2) {
        fprintf(stderr, "%d devices\n", count);
        return 1;
    }
    for (int i = 0; i < count; i++) {
        printf("%s\n", name(devices[i]));
    }
    void *memory = paged_memory(library, devices[0]);
    free_list(devices);
    /* A program may close the library while the library's threads still run. */
    if (memory == NULL || dlclose(library) != 0) {
        fprintf(stderr, "no memory that is paged on demand, or the library stays open\n");
        return 1;
    }
    /* One of them is told of this. */
    return munmap(memory, BYTES) == 0 ? 0 : 1;
}
