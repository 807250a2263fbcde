/*
 * Each GID of a RoCE port belongs to a network interface: the loopback one, if none was named. The
 * GIDs of an InfiniBand port belong to none. Both functions that read the table agree.
 */
#include "endpoint.h"

#include <net/if.h>

enum { GIDS_MAX = 64 };

int main(void)
{
    struct ibv_gid_entry table[GIDS_MAX], entry;
    struct ibv_port_attr port;
    struct endpoint ep = {0};
    open_endpoint(&ep);
    EQUAL(ibv_query_port(ep.context, 1, &port), 0);
    int is_ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
    unsigned expected = is_ethernet ? if_nametoindex("lo") : 0;
    EQUAL(ibv_query_gid_table(ep.context, table, GIDS_MAX, 0), port.gid_tbl_len);
    for (int i = 0; i < port.gid_tbl_len; i++) {
        EQUAL(ibv_query_gid_ex(ep.context, 1, i, &entry, 0), 0);
        EQUAL(memcmp(&entry, &table[i], sizeof entry), 0);
        EQUAL(entry.gid_index, i);
        EQUAL(entry.ndev_ifindex, expected);
        EQUAL(entry.gid_type, is_ethernet ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB);
    }
    printf("all passed\n");
    return 0;
}
