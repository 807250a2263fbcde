//! Devices, ports, rates.

consts! {
    DEVICE_CONSTANTS;

    /// The protocol of a GID.
    ibv_gid_type: u32 {
        IBV_GID_TYPE_IB = 0, "InfiniBand.";
        IBV_GID_TYPE_ROCE_V1 = 1, "RoCE version 1: over Ethernet.";
        IBV_GID_TYPE_ROCE_V2 = 2, "RoCE version 2: over UDP.";
    }

    /// Types of devices.
    ibv_node_type: i32 {
        IBV_NODE_UNKNOWN = -1, "Not known.";
        IBV_NODE_CA = 1, "A channel adapter.";
        IBV_NODE_SWITCH = 2, "A switch.";
        IBV_NODE_ROUTER = 3, "A router.";
        IBV_NODE_RNIC = 4, "An iWARP adapter.";
        IBV_NODE_USNIC = 5, "A usNIC adapter.";
        IBV_NODE_USNIC_UDP = 6, "A usNIC adapter over UDP.";
        IBV_NODE_UNSPECIFIED = 7, "None of these.";
    }

    /// Transports of devices.
    ibv_transport_type: i32 {
        IBV_TRANSPORT_UNKNOWN = -1, "Not known.";
        IBV_TRANSPORT_IB = 0, "InfiniBand, also over Ethernet.";
        IBV_TRANSPORT_IWARP = 1, "iWARP.";
        IBV_TRANSPORT_USNIC = 2, "usNIC.";
        IBV_TRANSPORT_USNIC_UDP = 3, "usNIC over UDP.";
        IBV_TRANSPORT_UNSPECIFIED = 4, "None of these.";
    }

    /// Capabilities of a device.
    ibv_device_cap_flags: u32 {
        IBV_DEVICE_RESIZE_MAX_WR = 1, "Work queues can be resized.";
        IBV_DEVICE_BAD_PKEY_CNTR = 1 << 1, "Wrong P_Keys are counted.";
        IBV_DEVICE_BAD_QKEY_CNTR = 1 << 2, "Wrong Q_Keys are counted.";
        IBV_DEVICE_RAW_MULTI = 1 << 3, "Raw packets can be multicast.";
        IBV_DEVICE_AUTO_PATH_MIG = 1 << 4, "Paths can migrate.";
        IBV_DEVICE_CHANGE_PHY_PORT = 1 << 5, "A QP's port can be changed.";
        IBV_DEVICE_UD_AV_PORT_ENFORCE = 1 << 6, "The port of an address is enforced.";
        IBV_DEVICE_CURR_QP_STATE_MOD = 1 << 7, "The current state can be given.";
        IBV_DEVICE_SHUTDOWN_PORT = 1 << 8, "Ports can be shut down.";
        IBV_DEVICE_INIT_TYPE = 1 << 9, "The type of initialisation can be set.";
        IBV_DEVICE_PORT_ACTIVE_EVENT = 1 << 10, "A port tells when it comes up.";
        IBV_DEVICE_SYS_IMAGE_GUID = 1 << 11, "There is a system image GUID.";
        IBV_DEVICE_RC_RNR_NAK_GEN = 1 << 12, "RC answers with RNR NAK.";
        IBV_DEVICE_SRQ_RESIZE = 1 << 13, "SRQs can be resized.";
        IBV_DEVICE_N_NOTIFY_CQ = 1 << 14, "Events after several completions.";
        IBV_DEVICE_MEM_WINDOW = 1 << 17, "Memory windows.";
        IBV_DEVICE_UD_IP_CSUM = 1 << 18, "IP checksums for UD.";
        IBV_DEVICE_XRC = 1 << 20, "XRC.";
        IBV_DEVICE_MEM_MGT_EXTENSIONS = 1 << 21, "SEND with invalidate and its kin.";
        IBV_DEVICE_MEM_WINDOW_TYPE_2A = 1 << 23, "Windows of type 2A.";
        IBV_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24, "Windows of type 2B.";
        IBV_DEVICE_RC_IP_CSUM = 1 << 25, "IP checksums for RC.";
        IBV_DEVICE_RAW_IP_CSUM = 1 << 26, "IP checksums for raw packets.";
        IBV_DEVICE_MANAGED_FLOW_STEERING = 1 << 29, "Flow steering.";
    }

    /// The scope in which atomics are atomic.
    ibv_atomic_cap: u32 {
        IBV_ATOMIC_NONE = 0, "No atomics.";
        IBV_ATOMIC_HCA = 1, "With others through the same adapter.";
        IBV_ATOMIC_GLOB = 2, "With others and with the processors.";
    }

    /// On-demand paging in general.
    ibv_odp_general_caps: u64 {
        IBV_ODP_SUPPORT = 1 << 0, "It works.";
        IBV_ODP_SUPPORT_IMPLICIT = 1 << 1, "The whole address space can be registered.";
    }

    /// On-demand paging on one transport.
    ibv_odp_transport_cap_bits: u32 {
        IBV_ODP_SUPPORT_SEND = 1 << 0, "SEND.";
        IBV_ODP_SUPPORT_RECV = 1 << 1, "Receive.";
        IBV_ODP_SUPPORT_WRITE = 1 << 2, "WRITE.";
        IBV_ODP_SUPPORT_READ = 1 << 3, "READ.";
        IBV_ODP_SUPPORT_ATOMIC = 1 << 4, "Atomics.";
        IBV_ODP_SUPPORT_SRQ_RECV = 1 << 5, "Receive from an SRQ.";
    }

    /// Transports with tag matching.
    ibv_tm_cap_flags: u32 {
        IBV_TM_CAP_RC = 1 << 0, "On RC.";
    }

    /// Sizes of PCI atomics.
    ibv_pci_atomic_op_size: u32 {
        IBV_PCI_ATOMIC_OPERATION_4_BYTE_SIZE_SUP = 1 << 0, "4 bytes.";
        IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP = 1 << 1, "8 bytes.";
        IBV_PCI_ATOMIC_OPERATION_16_BYTE_SIZE_SUP = 1 << 2, "16 bytes.";
    }

    /// Path MTU, as a code.
    ibv_mtu: u32 {
        IBV_MTU_256 = 1, "256 bytes.";
        IBV_MTU_512 = 2, "512 bytes.";
        IBV_MTU_1024 = 3, "1024 bytes.";
        IBV_MTU_2048 = 4, "2048 bytes.";
        IBV_MTU_4096 = 5, "4096 bytes.";
    }

    /// State of a port.
    ibv_port_state: u32 {
        IBV_PORT_NOP = 0, "No change.";
        IBV_PORT_DOWN = 1, "Down.";
        IBV_PORT_INIT = 2, "Waiting for the subnet manager.";
        IBV_PORT_ARMED = 3, "Configured.";
        IBV_PORT_ACTIVE = 4, "In use.";
        IBV_PORT_ACTIVE_DEFER = 5, "In use, with the link in error recovery.";
    }

    /// Link layer of a port.
    ibv_link_layer: u8 {
        IBV_LINK_LAYER_UNSPECIFIED = 0, "Not told; taken as InfiniBand.";
        IBV_LINK_LAYER_INFINIBAND = 1, "InfiniBand.";
        IBV_LINK_LAYER_ETHERNET = 2, "Ethernet.";
    }

    /// Capabilities of a port.
    ibv_port_cap_flags: u32 {
        IBV_PORT_SM = 1 << 1, "It is the subnet manager.";
        IBV_PORT_NOTICE_SUP = 1 << 2, "Notices.";
        IBV_PORT_TRAP_SUP = 1 << 3, "Traps.";
        IBV_PORT_OPT_IPD_SUP = 1 << 4, "Optional inter-packet delays.";
        IBV_PORT_AUTO_MIGR_SUP = 1 << 5, "Path migration.";
        IBV_PORT_SL_MAP_SUP = 1 << 6, "Mapping of service levels.";
        IBV_PORT_MKEY_NVRAM = 1 << 7, "M_Key kept without power.";
        IBV_PORT_PKEY_NVRAM = 1 << 8, "P_Keys kept without power.";
        IBV_PORT_LED_INFO_SUP = 1 << 9, "LEDs.";
        IBV_PORT_SYS_IMAGE_GUID_SUP = 1 << 11, "System image GUID.";
        IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP = 1 << 12, "P_Key traps of switches.";
        IBV_PORT_EXTENDED_SPEEDS_SUP = 1 << 14, "Extended speeds.";
        IBV_PORT_CAP_MASK2_SUP = 1 << 15, "`port_cap_flags2` is valid.";
        IBV_PORT_CM_SUP = 1 << 16, "Communication management.";
        IBV_PORT_SNMP_TUNNEL_SUP = 1 << 17, "SNMP tunnelling.";
        IBV_PORT_REINIT_SUP = 1 << 18, "Reinitialisation.";
        IBV_PORT_DEVICE_MGMT_SUP = 1 << 19, "Device management.";
        IBV_PORT_VENDOR_CLASS_SUP = 1 << 20, "A class of the vendor's own.";
        IBV_PORT_DR_NOTICE_SUP = 1 << 21, "Directed-route notices.";
        IBV_PORT_CAP_MASK_NOTICE_SUP = 1 << 22, "Notices of changed capabilities.";
        IBV_PORT_BOOT_MGMT_SUP = 1 << 23, "Boot management.";
        IBV_PORT_LINK_LATENCY_SUP = 1 << 24, "Round-trip latency of the link.";
        IBV_PORT_CLIENT_REG_SUP = 1 << 25, "Client reregistration.";
        IBV_PORT_IP_BASED_GIDS = 1 << 26, "GIDs made of IP addresses.";
    }

    /// Further capabilities of a port.
    ibv_port_cap_flags2: u16 {
        IBV_PORT_SET_NODE_DESC_SUP = 1 << 0, "The description can be set.";
        IBV_PORT_INFO_EXT_SUP = 1 << 1, "Extended information.";
        IBV_PORT_VIRT_SUP = 1 << 2, "Virtualisation.";
        IBV_PORT_SWITCH_PORT_STATE_TABLE_SUP = 1 << 3, "Table of a switch's port states.";
        IBV_PORT_LINK_WIDTH_2X_SUP = 1 << 4, "Two lanes.";
        IBV_PORT_LINK_SPEED_HDR_SUP = 1 << 5, "HDR.";
        IBV_PORT_LINK_SPEED_NDR_SUP = 1 << 10, "NDR.";
    }

    /// Flags of a port.
    ibv_port_flags: u8 {
        IBV_QPF_GRH_REQUIRED = 1 << 0, "Addresses need a global route.";
    }

    /// Static rates, as codes (IBA 9.11).
    ibv_rate: u32 {
        IBV_RATE_MAX = 0, "As fast as the port.";
        IBV_RATE_2_5_GBPS = 2, "2.5 Gbit/s.";
        IBV_RATE_5_GBPS = 5, "5 Gbit/s.";
        IBV_RATE_10_GBPS = 3, "10 Gbit/s.";
        IBV_RATE_20_GBPS = 6, "20 Gbit/s.";
        IBV_RATE_30_GBPS = 4, "30 Gbit/s.";
        IBV_RATE_40_GBPS = 7, "40 Gbit/s.";
        IBV_RATE_60_GBPS = 8, "60 Gbit/s.";
        IBV_RATE_80_GBPS = 9, "80 Gbit/s.";
        IBV_RATE_120_GBPS = 10, "120 Gbit/s.";
        IBV_RATE_14_GBPS = 11, "14 Gbit/s.";
        IBV_RATE_56_GBPS = 12, "56 Gbit/s.";
        IBV_RATE_112_GBPS = 13, "112 Gbit/s.";
        IBV_RATE_168_GBPS = 14, "168 Gbit/s.";
        IBV_RATE_25_GBPS = 15, "25 Gbit/s.";
        IBV_RATE_100_GBPS = 16, "100 Gbit/s.";
        IBV_RATE_200_GBPS = 17, "200 Gbit/s.";
        IBV_RATE_300_GBPS = 18, "300 Gbit/s.";
        IBV_RATE_28_GBPS = 19, "28 Gbit/s.";
        IBV_RATE_50_GBPS = 20, "50 Gbit/s.";
        IBV_RATE_400_GBPS = 21, "400 Gbit/s.";
        IBV_RATE_600_GBPS = 22, "600 Gbit/s.";
        IBV_RATE_800_GBPS = 23, "800 Gbit/s.";
        IBV_RATE_1200_GBPS = 24, "1200 Gbit/s.";
    }

    /// Values of a device's clock to query.
    ibv_values_mask: u32 {
        IBV_VALUES_MASK_RAW_CLOCK = 1 << 0, "The clock.";
        IBV_VALUES_MASK_RESERVED = 1 << 1, "The first bit without a meaning.";
    }

    /// Whether `fork` needs preparation.
    ibv_fork_status: u32 {
        IBV_FORK_DISABLED = 0, "Not prepared for it.";
        IBV_FORK_ENABLED = 1, "Prepared for it.";
        IBV_FORK_UNNEEDED = 2, "No preparation is needed.";
    }
}

/// Raw packets can be received with their checksum (`device_cap_flags_ex`).
pub const IBV_DEVICE_RAW_SCATTER_FCS: u64 = 1 << 34;
/// Writes can be padded to the cache line (`device_cap_flags_ex`).
pub const IBV_DEVICE_PCI_WRITE_END_PADDING: u64 = 1 << 36;
