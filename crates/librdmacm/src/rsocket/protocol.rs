//! The messages of rdma-core's protocol between rsockets: immediate data and their operations.

/// The version, first byte of the connection data.
pub const VERSION: u8 = 1;
/// Entries of the target SGL, in which the peer announces free space in its receive buffer.
pub const SGL_ENTRIES: u32 = 2;
/// Bytes of an entry: address, key, length.
pub const SGE_BYTES: usize = 16;

/// The operation is in the upper 3 bits of the immediate data. This one is a message with data.
pub const OP_DATA: u32 = 0;
/// A WRITE without immediate data. Only our work request ids carry it.
pub const OP_WRITE: u32 = 2;
/// Credits, and perhaps an entry of the target SGL.
pub const OP_SGL: u32 = 4;
/// An entry of the table of mappings.
pub const OP_IOMAP: u32 = 6;
/// A control message.
pub const OP_CONTROL: u32 = 7;
/// Control message: the connection ends.
pub const DISCONNECT: u32 = 0;
/// Control message: the sender sends no more data.
pub const SHUTDOWN: u32 = 2;

/// Immediate data of an operation.
pub const fn message(op: u32, data: u32) -> u32 {
    op << 29 | data
}
