//! Devices, ports, GIDs, and the capabilities of devices.

use core::ffi::{c_char, c_int, c_uint, c_void};

/// Length of the name fields of [`ibv_device`], in bytes, with the final zero.
pub const IBV_SYSFS_NAME_MAX: usize = 64;
/// Length of the path fields of [`ibv_device`], in bytes, with the final zero.
pub const IBV_SYSFS_PATH_MAX: usize = 256;
/// Bytes to allocate, zeroed, for an [`ibv_device`], at least.
///
/// The direct-verbs libraries of vendors read a pointer directly after the public structure to
/// check whether a device is theirs. There must be memory there, and the pointer must not match.
pub const IBV_DEVICE_ALLOCATION: usize = 1024;

layout! {
    /// A global identifier: 16 bytes, in network order.
    #[derive(Clone, Copy)]
    union ibv_gid: 16 {
        0 raw: [u8; 16], "The bytes.";
        0 global: ibv_gid_global, "As prefix and interface.";
    }

    /// The two halves of a GID.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct ibv_gid_global: 16 {
        0 subnet_prefix: u64, "Network byte order.";
        8 interface_id: u64, "Network byte order.";
    }

    /// An entry of a port's GID table, with its type and network interface.
    #[derive(Clone, Copy)]
    struct ibv_gid_entry: 32 {
        0 gid: ibv_gid, "The identifier.";
        16 gid_index: u32, "Its place in the table.";
        20 port_num: u32, "The port, from 1.";
        24 gid_type: u32, "An `ibv_gid_type`.";
        28 ndev_ifindex: u32, "The network interface behind it; 0 means none.";
    }

    /// A device as listed. The provider allocates more than this, see
    /// [`IBV_DEVICE_ALLOCATION`].
    #[derive(Clone, Copy, Debug)]
    struct ibv_device: 664 {
        0 _ops: [*mut c_void; 2], "Obsolete, null.";
        16 node_type: i32, "An `ibv_node_type`.";
        20 transport_type: i32, "An `ibv_transport_type`.";
        24 name: [c_char; IBV_SYSFS_NAME_MAX], "Name of the device, for example `mlx5_0`.";
        88 dev_name: [c_char; IBV_SYSFS_NAME_MAX], "Name of its node under `/dev/infiniband`.";
        152 dev_path: [c_char; IBV_SYSFS_PATH_MAX], "Path of the character device in sysfs.";
        408 ibdev_path: [c_char; IBV_SYSFS_PATH_MAX], "Path of the device in sysfs.";
    }

    /// The result of `ibv_query_device`.
    #[derive(Clone, Copy, Debug)]
    struct ibv_device_attr: 232 {
        0 fw_ver: [c_char; 64], "Version of the firmware, as text.";
        64 node_guid: u64, "GUID of the node, network byte order.";
        72 sys_image_guid: u64, "GUID of the system image, network byte order.";
        80 max_mr_size: u64, "Longest memory region, in bytes.";
        88 page_size_cap: u64, "Supported page sizes, one bit for each.";
        96 vendor_id: u32, "IEEE OUI of the vendor.";
        100 vendor_part_id: u32, "The vendor's number for the part.";
        104 hw_ver: u32, "The vendor's revision of the part.";
        108 max_qp: c_int, "Most queue pairs.";
        112 max_qp_wr: c_int, "Most work requests in one queue.";
        116 device_cap_flags: c_uint, "Bits of `ibv_device_cap_flags`.";
        120 max_sge: c_int, "Most scatter/gather entries in a request.";
        124 max_sge_rd: c_int, "Most scatter/gather entries in an RDMA READ.";
        128 max_cq: c_int, "Most completion queues.";
        132 max_cqe: c_int, "Most entries in one completion queue.";
        136 max_mr: c_int, "Most memory regions.";
        140 max_pd: c_int, "Most protection domains.";
        144 max_qp_rd_atom: c_int, "Most READs and atomics that a QP serves at once.";
        148 max_ee_rd_atom: c_int, "The same for an end-to-end context (RD).";
        152 max_res_rd_atom: c_int, "The same for the whole device.";
        156 max_qp_init_rd_atom: c_int, "Most READs and atomics that a QP may have under way.";
        160 max_ee_init_rd_atom: c_int, "The same for an end-to-end context (RD).";
        164 atomic_cap: u32, "An `ibv_atomic_cap`.";
        168 max_ee: c_int, "Most end-to-end contexts (RD).";
        172 max_rdd: c_int, "Most RD domains.";
        176 max_mw: c_int, "Most memory windows.";
        180 max_raw_ipv6_qp: c_int, "Most raw IPv6 QPs.";
        184 max_raw_ethy_qp: c_int, "Most raw Ethertype QPs.";
        188 max_mcast_grp: c_int, "Most multicast groups.";
        192 max_mcast_qp_attach: c_int, "Most QPs in one multicast group.";
        196 max_total_mcast_qp_attach: c_int, "Most attachments of QPs to groups.";
        200 max_ah: c_int, "Most address handles.";
        204 max_fmr: c_int, "Most fast memory regions.";
        208 max_map_per_fmr: c_int, "Most mappings of one fast memory region.";
        212 max_srq: c_int, "Most shared receive queues.";
        216 max_srq_wr: c_int, "Most work requests in one SRQ.";
        220 max_srq_sge: c_int, "Most scatter entries in a receive of an SRQ.";
        224 max_pkeys: u16, "Entries of the P_Key table.";
        226 local_ca_ack_delay: u8, "Delay of an ACK, as 4.096 us x 2^n.";
        227 phys_port_cnt: u8, "Number of ports.";
    }

    /// Input of `ibv_query_device_ex`.
    #[derive(Clone, Copy, Debug)]
    struct ibv_query_device_ex_input: 4 {
        0 comp_mask: u32, "Must be 0.";
    }

    /// On-demand paging: supported features.
    #[derive(Clone, Copy, Debug)]
    struct ibv_odp_caps: 24 {
        0 general_caps: u64, "Bits of `ibv_odp_general_caps`.";
        8 per_transport_caps: ibv_odp_transport_caps, "What works on which transport.";
    }

    /// On-demand paging by transport: bits of `ibv_odp_transport_cap_bits`.
    #[derive(Clone, Copy, Debug)]
    struct ibv_odp_transport_caps: 12 {
        0 rc_odp_caps: u32, "Reliable connection.";
        4 uc_odp_caps: u32, "Unreliable connection.";
        8 ud_odp_caps: u32, "Unreliable datagram.";
    }

    /// TCP segmentation offload.
    #[derive(Clone, Copy, Debug)]
    struct ibv_tso_caps: 8 {
        0 max_tso: u32, "Longest packet to cut, in bytes.";
        4 supported_qpts: u32, "One bit for each QP type.";
    }

    /// Receive-side scaling.
    #[derive(Clone, Copy, Debug)]
    struct ibv_rss_caps: 32 {
        0 supported_qpts: u32, "One bit for each QP type.";
        4 max_rwq_indirection_tables: u32, "Most tables.";
        8 max_rwq_indirection_table_size: u32, "Most entries of a table.";
        16 rx_hash_fields_mask: u64, "Fields that can be hashed.";
        24 rx_hash_function: u8, "Functions that can hash.";
    }

    /// Rate limits of raw packets.
    #[derive(Clone, Copy, Debug)]
    struct ibv_packet_pacing_caps: 12 {
        0 qp_rate_limit_min: u32, "Slowest, in kbit/s.";
        4 qp_rate_limit_max: u32, "Fastest, in kbit/s.";
        8 supported_qpts: u32, "One bit for each QP type.";
    }

    /// Tag matching.
    #[derive(Clone, Copy, Debug)]
    struct ibv_tm_caps: 20 {
        0 max_rndv_hdr_size: u32, "Longest rendezvous header, in bytes.";
        4 max_num_tags: u32, "Most tagged buffers in one list.";
        8 flags: u32, "Bits of `ibv_tm_cap_flags`.";
        12 max_ops: u32, "Most list operations under way.";
        16 max_sge: u32, "Most entries of a tagged buffer.";
    }

    /// Moderation of completion events.
    #[derive(Clone, Copy, Debug)]
    struct ibv_cq_moderation_caps: 4 {
        0 max_cq_count: u16, "Most completions for one event.";
        2 max_cq_period: u16, "Longest wait before an event, in microseconds.";
    }

    /// Sizes of PCI atomics, as bits of `ibv_pci_atomic_op_size`.
    #[derive(Clone, Copy, Debug)]
    struct ibv_pci_atomic_caps: 6 {
        0 fetch_add: u16, "Fetch and add.";
        2 swap: u16, "Swap.";
        4 compare_swap: u16, "Compare and swap.";
    }

    /// The result of `ibv_query_device_ex`.
    #[derive(Clone, Copy, Debug)]
    struct ibv_device_attr_ex: 400 {
        0 orig_attr: ibv_device_attr, "What `ibv_query_device` answers.";
        232 comp_mask: u32, "Reserved.";
        240 odp_caps: ibv_odp_caps, "On-demand paging.";
        264 completion_timestamp_mask: u64, "Valid bits of a completion's time stamp.";
        272 hca_core_clock: u64, "Frequency of the adapter's clock, in kHz.";
        280 device_cap_flags_ex: u64, "`device_cap_flags`, and bits beyond the 32nd.";
        288 tso_caps: ibv_tso_caps, "TCP segmentation offload.";
        296 rss_caps: ibv_rss_caps, "Receive-side scaling.";
        328 max_wq_type_rq: u32, "Most receive work queues.";
        332 packet_pacing_caps: ibv_packet_pacing_caps, "Rate limits.";
        344 raw_packet_caps: u32, "Bits of `ibv_raw_packet_caps`.";
        348 tm_caps: ibv_tm_caps, "Tag matching.";
        368 cq_mod_caps: ibv_cq_moderation_caps, "Moderation of events.";
        376 max_dm_size: u64, "Memory of the device for programs, in bytes.";
        384 pci_atomic_caps: ibv_pci_atomic_caps, "Atomics towards PCI.";
        392 xrc_odp_caps: u32, "On-demand paging for XRC.";
        396 phys_port_cnt_ex: u32, "Number of ports, where 255 is not enough.";
    }

    /// The result of `ibv_query_port`. The last field is newer than rdma-core 44.
    #[derive(Clone, Copy, Debug)]
    struct ibv_port_attr: 56 {
        0 state: u32, "An `ibv_port_state`.";
        4 max_mtu: u32, "An `ibv_mtu`.";
        8 active_mtu: u32, "An `ibv_mtu`.";
        12 gid_tbl_len: c_int, "Entries of the GID table.";
        16 port_cap_flags: u32, "Bits of `ibv_port_cap_flags`.";
        20 max_msg_sz: u32, "Longest message, in bytes.";
        24 bad_pkey_cntr: u32, "Packets with a wrong P_Key.";
        28 qkey_viol_cntr: u32, "Packets with a wrong Q_Key.";
        32 pkey_tbl_len: u16, "Entries of the P_Key table.";
        34 lid: u16, "Base local identifier.";
        36 sm_lid: u16, "Local identifier of the subnet manager.";
        38 lmc: u8, "Low bits of the LID that select a path.";
        39 max_vl_num: u8, "Most virtual lanes, as a code.";
        40 sm_sl: u8, "Service level of the subnet manager.";
        41 subnet_timeout: u8, "Propagation delay of the subnet, as 4.096 us x 2^n.";
        42 init_type_reply: u8, "How the subnet manager initialised the port.";
        43 active_width: u8, "Width of the link: 1 is 1x, 2 is 4x, 4 is 8x, 8 is 12x.";
        44 active_speed: u8, "Speed of a lane, as a code.";
        45 phys_state: u8, "Physical state, as a code.";
        46 link_layer: u8, "An `ibv_link_layer`.";
        47 flags: u8, "Bits of `ibv_port_flags`.";
        48 port_cap_flags2: u16, "Bits of `ibv_port_cap_flags2`.";
        52 active_speed_ex: u32, "Speed of a lane where `active_speed` has no room; else 0.";
    }
}
