//! Structures of the kernel's interfaces, and path records: input of the `ibv_copy_*` functions.

use super::ibv_gid;
use core::ffi::c_int;

layout! {
    /// A global route in the kernel's layout.
    #[derive(Clone, Copy, Debug)]
    struct ib_uverbs_global_route: 24 {
        0 dgid: [u8; 16], "Destination.";
        16 flow_label: u32, "Flow label, host byte order.";
        20 sgid_index: u8, "Index of the source GID.";
        21 hop_limit: u8, "Hop limit.";
        22 traffic_class: u8, "Traffic class.";
        23 reserved: u8, "Reserved.";
    }

    /// An address in the kernel's layout.
    #[derive(Clone, Copy, Debug)]
    struct ib_uverbs_ah_attr: 32 {
        0 grh: ib_uverbs_global_route, "The global part.";
        24 dlid: u16, "Destination's local identifier.";
        26 sl: u8, "Service level.";
        27 src_path_bits: u8, "Path bits of the source.";
        28 static_rate: u8, "Rate that is not to be exceeded.";
        29 is_global: u8, "Whether there is a GRH.";
        30 port_num: u8, "The local port.";
        31 reserved: u8, "Reserved.";
    }

    /// The attributes of a queue pair in the kernel's layout.
    #[derive(Clone, Copy, Debug)]
    struct ib_uverbs_qp_attr: 144 {
        0 qp_attr_mask: u32, "Which are valid.";
        4 qp_state: u32, "State to go to.";
        8 cur_qp_state: u32, "State that it is believed to be in.";
        12 path_mtu: u32, "Path MTU.";
        16 path_mig_state: u32, "Migration state.";
        20 qkey: u32, "Q_Key.";
        24 rq_psn: u32, "First PSN to receive.";
        28 sq_psn: u32, "First PSN to send.";
        32 dest_qp_num: u32, "Number of the peer.";
        36 qp_access_flags: u32, "What peers may do.";
        40 ah_attr: ib_uverbs_ah_attr, "The path.";
        72 alt_ah_attr: ib_uverbs_ah_attr, "The alternate path.";
        104 max_send_wr: u32, "Most send requests.";
        108 max_recv_wr: u32, "Most receive requests.";
        112 max_send_sge: u32, "Most pieces of a send.";
        116 max_recv_sge: u32, "Most pieces of a receive.";
        120 max_inline_data: u32, "Most inline bytes.";
        124 pkey_index: u16, "Index of the P_Key.";
        126 alt_pkey_index: u16, "Index of the alternate path's P_Key.";
        128 en_sqd_async_notify: u8, "Whether to tell when drained.";
        129 sq_draining: u8, "Whether it is draining.";
        130 max_rd_atomic: u8, "READs and atomics as initiator.";
        131 max_dest_rd_atomic: u8, "READs and atomics as target.";
        132 min_rnr_timer: u8, "RNR timer, as a code.";
        133 port_num: u8, "The port.";
        134 timeout: u8, "Local ACK time-out, as a code.";
        135 retry_cnt: u8, "Retries.";
        136 rnr_retry: u8, "Retries after RNR.";
        137 alt_port_num: u8, "Port of the alternate path.";
        138 alt_timeout: u8, "Time-out of the alternate path.";
        139 reserved: [u8; 5], "Reserved.";
    }

    /// A path record in the kernel's layout.
    #[derive(Clone, Copy, Debug)]
    struct ib_user_path_rec: 64 {
        0 dgid: [u8; 16], "Destination.";
        16 sgid: [u8; 16], "Source.";
        32 dlid: u16, "Destination's LID, network byte order.";
        34 slid: u16, "Source's LID, network byte order.";
        36 raw_traffic: u32, "Whether raw traffic may pass.";
        40 flow_label: u32, "Flow label, network byte order.";
        44 reversible: u32, "Whether the path works backwards.";
        48 mtu: u32, "Path MTU, as a code.";
        52 pkey: u16, "P_Key, network byte order.";
        54 hop_limit: u8, "Hop limit.";
        55 traffic_class: u8, "Traffic class.";
        56 numb_path: u8, "Number of paths asked for.";
        57 sl: u8, "Service level.";
        58 mtu_selector: u8, "How `mtu` is meant.";
        59 rate_selector: u8, "How `rate` is meant.";
        60 rate: u8, "Rate, as a code.";
        61 packet_life_time_selector: u8, "How `packet_life_time` is meant.";
        62 packet_life_time: u8, "As 4.096 us x 2^n.";
        63 preference: u8, "Preference among paths.";
    }

    /// A path record in the layout for programs.
    #[derive(Clone, Copy)]
    struct ibv_sa_path_rec: 64 {
        0 dgid: ibv_gid, "Destination.";
        16 sgid: ibv_gid, "Source.";
        32 dlid: u16, "Destination's LID, network byte order.";
        34 slid: u16, "Source's LID, network byte order.";
        36 raw_traffic: c_int, "Whether raw traffic may pass.";
        40 flow_label: u32, "Flow label, network byte order.";
        44 hop_limit: u8, "Hop limit.";
        45 traffic_class: u8, "Traffic class.";
        48 reversible: c_int, "Whether the path works backwards.";
        52 numb_path: u8, "Number of paths asked for.";
        54 pkey: u16, "P_Key, network byte order.";
        56 sl: u8, "Service level.";
        57 mtu_selector: u8, "How `mtu` is meant.";
        58 mtu: u8, "Path MTU, as a code.";
        59 rate_selector: u8, "How `rate` is meant.";
        60 rate: u8, "Rate, as a code.";
        61 packet_life_time_selector: u8, "How `packet_life_time` is meant.";
        62 packet_life_time: u8, "As 4.096 us x 2^n.";
        63 preference: u8, "Preference among paths.";
    }
}
