/*
 * Loads libibverbs by dlopen, as NCCL does. Looks up each symbol with the version that such
 * programs ask for, then lists the devices through these symbols.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

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
    free_list(devices);
    /* A program may close the library while the library's threads still run. */
    return dlclose(library) == 0 ? 0 : 1;
}
