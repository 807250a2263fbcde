//! The connection manager's numbers (`<rdma/rdma_cma.h>`).

consts! {
    CM_CONSTANTS;

    /// Events of an id.
    rdma_cm_event_type: u32 {
        RDMA_CM_EVENT_ADDR_RESOLVED = 0, "The peer's address leads to a device.";
        RDMA_CM_EVENT_ADDR_ERROR = 1, "It does not.";
        RDMA_CM_EVENT_ROUTE_RESOLVED = 2, "There is a path to the peer.";
        RDMA_CM_EVENT_ROUTE_ERROR = 3, "There is none.";
        RDMA_CM_EVENT_CONNECT_REQUEST = 4, "Somebody asks a listener for a connection.";
        RDMA_CM_EVENT_CONNECT_RESPONSE = 5, "The peer accepts; the program has the queue pair.";
        RDMA_CM_EVENT_CONNECT_ERROR = 6, "Connecting failed on this side.";
        RDMA_CM_EVENT_UNREACHABLE = 7, "The peer does not answer.";
        RDMA_CM_EVENT_REJECTED = 8, "The peer refuses.";
        RDMA_CM_EVENT_ESTABLISHED = 9, "Connected.";
        RDMA_CM_EVENT_DISCONNECTED = 10, "The connection is over.";
        RDMA_CM_EVENT_DEVICE_REMOVAL = 11, "The device goes away.";
        RDMA_CM_EVENT_MULTICAST_JOIN = 12, "The group is joined.";
        RDMA_CM_EVENT_MULTICAST_ERROR = 13, "The group cannot be joined.";
        RDMA_CM_EVENT_ADDR_CHANGE = 14, "The address moved to another device.";
        RDMA_CM_EVENT_TIMEWAIT_EXIT = 15, "Nothing of the old connection is on its way any more.";
    }

    /// Port spaces: ids of one space share port numbers.
    rdma_port_space: u32 {
        RDMA_PS_IPOIB = 0x0002, "IP over InfiniBand: its Q_Key and groups.";
        RDMA_PS_TCP = 0x0106, "Connections.";
        RDMA_PS_UDP = 0x0111, "Datagrams.";
        RDMA_PS_IB = 0x013f, "Any InfiniBand service.";
    }

    /// Limits and keys of the interface.
    rdma_cm_limits: u32 {
        RDMA_MAX_RESP_RES = 0xff, "As many as the device can.";
        RDMA_MAX_INIT_DEPTH = 0xff, "As many as the device can.";
        RDMA_UDP_QKEY = 0x0123_4567, "The Q_Key of all datagram ids but those of IPoIB.";
    }

    /// Hints for resolving an address.
    rdma_addrinfo_flags: i32 {
        RAI_PASSIVE = 1, "For a listener.";
        RAI_NUMERICHOST = 2, "The name is an address.";
        RAI_NOROUTE = 4, "Without a route.";
        RAI_FAMILY = 8, "The family that is named.";
    }

    /// Which fields of `rdma_cm_join_mc_attr_ex` are valid.
    rdma_cm_join_mc_attr_mask: u32 {
        RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1, "The address.";
        RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 2, "The flags.";
        RDMA_CM_JOIN_MC_ATTR_RESERVED = 4, "The first that does not exist.";
    }

    /// How to join a multicast group.
    rdma_cm_mc_join_flags: u32 {
        RDMA_MC_JOIN_FLAG_FULLMEMBER = 0, "To send and to receive.";
        RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER = 1, "To send.";
        RDMA_MC_JOIN_FLAG_RESERVED = 2, "The first that does not exist.";
    }

    /// Levels and names of options.
    rdma_options: i32 {
        RDMA_OPTION_ID = 0, "Level: the id.";
        RDMA_OPTION_IB = 1, "Level: InfiniBand.";
        RDMA_OPTION_ID_TOS = 0, "Type of service, one byte.";
        RDMA_OPTION_ID_REUSEADDR = 1, "Whether a port may be bound again, an int.";
        RDMA_OPTION_ID_AFONLY = 2, "Whether only this address family is listened to, an int.";
        RDMA_OPTION_ID_ACK_TIMEOUT = 3, "Local ACK time-out as a code, one byte.";
        RDMA_OPTION_IB_PATH = 1, "Paths, `struct ibv_path_data[]`.";
    }
}
