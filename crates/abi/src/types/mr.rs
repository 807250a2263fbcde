//! Memory regions and windows.

use super::{ibv_context, ibv_pd};
use core::ffi::{c_uint, c_void};

layout! {
    /// A memory region.
    #[derive(Clone, Copy, Debug)]
    struct ibv_mr: 48 {
        0 context: *mut ibv_context, "The device it belongs to.";
        8 pd: *mut ibv_pd, "The domain it belongs to.";
        16 addr: *mut c_void, "Start of the memory.";
        24 length: usize, "Length, in bytes.";
        32 handle: u32, "The kernel's number for it.";
        36 lkey: u32, "Key for local use.";
        40 rkey: u32, "Key for use by peers.";
    }

    /// A memory window.
    #[derive(Clone, Copy, Debug)]
    struct ibv_mw: 32 {
        0 context: *mut ibv_context, "The device it belongs to.";
        8 pd: *mut ibv_pd, "The domain it belongs to.";
        16 rkey: u32, "Key for use by peers.";
        20 handle: u32, "The kernel's number for it.";
        24 r#type: u32, "An `ibv_mw_type`.";
    }

    /// The binding of a window.
    #[derive(Clone, Copy, Debug)]
    struct ibv_mw_bind_info: 32 {
        0 mr: *mut ibv_mr, "The region behind the window.";
        8 addr: u64, "Start of the window.";
        16 length: u64, "Length, in bytes; 0 closes a window of type 1.";
        24 mw_access_flags: c_uint, "Bits of `ibv_access_flags`.";
    }

    /// A request to bind a window of type 1.
    #[derive(Clone, Copy, Debug)]
    struct ibv_mw_bind: 48 {
        0 wr_id: u64, "Comes back in the completion.";
        8 send_flags: c_uint, "Bits of `ibv_send_flags`.";
        16 bind_info: ibv_mw_bind_info, "What to bind it to.";
    }
}

opaque! {
    ibv_dm, "Memory of a device, seen only behind a pointer.";
    ibv_alloc_dm_attr, "How to allocate memory of a device, seen only behind a pointer.";
    ibv_dmah, "A DMA handle, seen only behind a pointer.";
    ibv_dmah_init_attr, "How to make a DMA handle, seen only behind a pointer.";
    ibv_mr_init_attr, "How to make a memory region, seen only behind a pointer.";
}
