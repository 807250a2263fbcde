//! Protection, thread and XRC domains, address handles, routes.

use super::{ibv_context, ibv_gid};
use core::ffi::{c_int, c_void};

layout! {
    /// A protection domain.
    #[derive(Clone, Copy, Debug)]
    struct ibv_pd: 16 {
        0 context: *mut ibv_context, "The device it belongs to.";
        8 handle: u32, "The kernel's number for it.";
    }

    /// A thread domain.
    #[derive(Clone, Copy, Debug)]
    struct ibv_td: 8 {
        0 context: *mut ibv_context, "The device it belongs to.";
    }

    /// Attributes of a new thread domain.
    #[derive(Clone, Copy, Debug)]
    struct ibv_td_init_attr: 4 {
        0 comp_mask: u32, "Must be 0.";
    }

    /// Attributes of a new protection domain with a thread domain or an allocator.
    #[derive(Clone, Copy, Debug)]
    struct ibv_parent_domain_init_attr: 48 {
        0 pd: *mut ibv_pd, "The protection domain proper.";
        8 td: *mut ibv_td, "A thread domain, or null.";
        16 comp_mask: u32, "Bits of `ibv_parent_domain_init_attr_mask`.";
        24 alloc: op!((
            pd: *mut ibv_pd, pd_context: *mut c_void, size: usize, alignment: usize,
            resource_type: u64
        ) -> *mut c_void), "Allocates memory for the provider.";
        32 free: op!((
            pd: *mut ibv_pd, pd_context: *mut c_void, ptr: *mut c_void, resource_type: u64
        )), "Frees it.";
        40 pd_context: *mut c_void, "What the two above are called with.";
    }

    /// An XRC domain.
    #[derive(Clone, Copy, Debug)]
    struct ibv_xrcd: 8 {
        0 context: *mut ibv_context, "The device it belongs to.";
    }

    /// Attributes of a new XRC domain.
    #[derive(Clone, Copy, Debug)]
    struct ibv_xrcd_init_attr: 12 {
        0 comp_mask: u32, "Bits of `ibv_xrcd_init_attr_mask`.";
        4 fd: c_int, "The file that stands for the domain, or -1.";
        8 oflags: c_int, "`O_CREAT`, `O_EXCL`.";
    }

    /// The global part of an address: the fields of the GRH.
    #[derive(Clone, Copy)]
    struct ibv_global_route: 24 {
        0 dgid: ibv_gid, "Destination.";
        16 flow_label: u32, "Flow label, 20 bits, host byte order.";
        20 sgid_index: u8, "Source, as an index of the GID table.";
        21 hop_limit: u8, "Hop limit.";
        22 traffic_class: u8, "Traffic class.";
    }

    /// The global route header as it arrives before a datagram's payload (IBA 8.3).
    #[derive(Clone, Copy)]
    struct ibv_grh: 40 {
        0 version_tclass_flow: u32, "Version, traffic class, flow label; network byte order.";
        4 paylen: u16, "Length of what follows, network byte order.";
        6 next_hdr: u8, "Next header.";
        7 hop_limit: u8, "Hop limit.";
        8 sgid: ibv_gid, "Source.";
        24 dgid: ibv_gid, "Destination.";
    }

    /// An address.
    #[derive(Clone, Copy)]
    struct ibv_ah_attr: 32 {
        0 grh: ibv_global_route, "The global part, valid if `is_global`.";
        24 dlid: u16, "Destination's local identifier.";
        26 sl: u8, "Service level.";
        27 src_path_bits: u8, "Path bits of the source.";
        28 static_rate: u8, "An `ibv_rate` that is not to be exceeded.";
        29 is_global: u8, "Whether there is a GRH.";
        30 port_num: u8, "The local port, from 1.";
    }

    /// An address handle.
    #[derive(Clone, Copy, Debug)]
    struct ibv_ah: 24 {
        0 context: *mut ibv_context, "The device it belongs to.";
        8 pd: *mut ibv_pd, "The domain it belongs to.";
        16 handle: u32, "The kernel's number for it.";
    }
}
