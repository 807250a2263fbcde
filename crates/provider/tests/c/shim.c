/*
 * The exported functions that program.c needs, each calling through a table that the test hands
 * over. The compiler checks each against its prototype in the system's header.
 */
#include <infiniband/verbs.h>

#undef ibv_query_port
#undef ibv_reg_mr

static void *const *table;

void rdmalab_test_set_table(void *const *functions)
{
    table = functions;
}

/* FORWARD(slot, result, name, (parameters), (arguments)) */
#define FORWARD(slot, result, name, parameters, arguments)                     \
    result name parameters                                                 \
    {                                                                      \
        return ((result(*) parameters)table[slot])arguments;           \
    }

FORWARD(0, struct ibv_device **, ibv_get_device_list, (int *n), (n))
FORWARD(1, void, ibv_free_device_list, (struct ibv_device **list), (list))
FORWARD(2, const char *, ibv_get_device_name, (struct ibv_device *device), (device))
FORWARD(3, __be64, ibv_get_device_guid, (struct ibv_device *device), (device))
FORWARD(4, struct ibv_context *, ibv_open_device, (struct ibv_device *device), (device))
FORWARD(5, int, ibv_close_device, (struct ibv_context *context), (context))
FORWARD(6, int, ibv_query_device,
    (struct ibv_context *context, struct ibv_device_attr *attr), (context, attr))
FORWARD(7, int, ibv_query_port,
    (struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr),
    (context, port, attr))
FORWARD(8, struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *context), (context))
FORWARD(9, int, ibv_dealloc_pd, (struct ibv_pd *pd), (pd))
FORWARD(10, struct ibv_mr *, ibv_reg_mr,
    (struct ibv_pd *pd, void *addr, size_t length, int access), (pd, addr, length, access))
FORWARD(11, struct ibv_mr *, ibv_reg_mr_iova2,
    (struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access),
    (pd, addr, length, iova, access))
FORWARD(12, int, ibv_dereg_mr, (struct ibv_mr *mr), (mr))
FORWARD(13, struct ibv_comp_channel *, ibv_create_comp_channel,
    (struct ibv_context *context), (context))
FORWARD(14, int, ibv_destroy_comp_channel, (struct ibv_comp_channel *channel), (channel))
FORWARD(15, int, ibv_get_cq_event,
    (struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context),
    (channel, cq, context))
FORWARD(16, void, ibv_ack_cq_events, (struct ibv_cq *cq, unsigned int n), (cq, n))
FORWARD(17, int, ibv_destroy_cq, (struct ibv_cq *cq), (cq))
FORWARD(18, struct ibv_qp *, ibv_create_qp,
    (struct ibv_pd *pd, struct ibv_qp_init_attr *attr), (pd, attr))
FORWARD(19, int, ibv_modify_qp,
    (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask), (qp, attr, mask))
FORWARD(20, int, ibv_destroy_qp, (struct ibv_qp *qp), (qp))
FORWARD(21, struct ibv_qp_ex *, ibv_qp_to_qp_ex, (struct ibv_qp *qp), (qp))
FORWARD(22, int, _ibv_query_gid_ex,
    (struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
     uint32_t flags, size_t size),
    (context, port, index, entry, flags, size))
FORWARD(23, const char *, ibv_wc_status_str, (enum ibv_wc_status status), (status))
