//! The numbers, one file for each family of objects.

mod cm;
mod completion;
mod device;
mod memory;
mod newer;
mod qp;
mod work;

pub use cm::*;
pub use completion::*;
pub use device::*;
pub use memory::*;
pub use newer::*;
pub use qp::*;
pub use work::*;

/// The constants that rdma-core 44 has, for the comparison with the C header.
pub const ALL_CONSTANTS: &[&[(&str, i64)]] = &[
    COMPLETION_CONSTANTS,
    CM_CONSTANTS,
    DEVICE_CONSTANTS,
    MEMORY_CONSTANTS,
    QP_CONSTANTS,
    WORK_CONSTANTS,
];
