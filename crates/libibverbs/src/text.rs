//! Names of codes. They are those of the system's library, which users know and search for.

use core::ffi::{CStr, c_char};

const UNKNOWN: &CStr = c"unknown";

const WC_STATUS: &[&CStr] = &[
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

const NODE_TYPE: &[&CStr] = &[
    UNKNOWN,
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

const PORT_STATE: &[&CStr] =
    &[c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

const EVENT_TYPE: &[&CStr] = &[
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

fn word(words: &[&'static CStr], code: usize) -> *const c_char {
    words.get(code).unwrap_or(&UNKNOWN).as_ptr()
}

/// The name of an `ibv_wc_status`, a static string.
pub fn ibv_wc_status_str(status: u32) -> *const c_char {
    word(WC_STATUS, status as usize)
}

/// The name of an `ibv_node_type`, a static string.
pub fn ibv_node_type_str(node_type: i32) -> *const c_char {
    word(NODE_TYPE, usize::try_from(node_type).unwrap_or(usize::MAX))
}

/// The name of an `ibv_port_state`, a static string.
pub fn ibv_port_state_str(state: u32) -> *const c_char {
    word(PORT_STATE, state as usize)
}

/// The name of an `ibv_event_type`, a static string.
pub fn ibv_event_type_str(event: u32) -> *const c_char {
    word(EVENT_TYPE, event as usize)
}
