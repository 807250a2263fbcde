//! Safe verbs over any [`VerbsTable`]: the system's libibverbs, the soft device, the simulator. An
//! experiment is written once against this crate.
//!
//! ```no_run
//! use rdmalab_verbs::{Access, Library, QpType, Qp, SendRequest};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let devices = Library::system()?.devices()?;
//!     let device = devices.first().ok_or("no device")?;
//!     let context = device.open()?;
//!     let pd = context.alloc_pd()?;
//!     let cq = context.create_cq(64, None)?;
//!     let buffer = context.alloc_buffer(4096)?;
//!     let mr = pd.register(&buffer, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//!     let qp = Qp::builder(QpType::Rc, &cq, &cq).max_send_wr(16).build(&pd)?;
//!     // ... exchange endpoints, to_init, to_rtr, to_rts ...
//!     qp.post_send(&[SendRequest::send(&[mr.sge(0, 32)]).wr_id(1).signaled()])?;
//!     Ok(())
//! }
//! ```
//!
//! **Lifetimes.** Every handle is cheap to clone and keeps alive the objects that it needs: a queue
//! pair its domain and completion queues, a region its domain and its memory, all of them the open
//! device. So objects are destroyed in the order that verbs demand, in whatever order they drop.
//!
//! **Memory.** Memory that peers or the adapter may write at any time is never seen as `&[u8]`:
//! [`Buffer`] gives atomics and copies. A request names memory by a region's key, which the adapter
//! checks, so a request that outlives its region fails and accesses nothing. Only inline data is
//! read by address, and only while the post call borrows it.
//!
//! **Cost.** Posting and polling allocate nothing and are as direct as in C: one call through the
//! context's table. [`SendBatch`] and [`RecvBatch`] hold requests that are made once and posted
//! often.

mod address;
mod attr;
mod buffer;
mod cm;
mod completion;
mod context;
mod cq;
mod domain;
mod endpoint;
mod error;
mod event;
mod flags;
mod library;
mod list;
#[cfg(test)]
mod mock;
mod object;
mod path;
mod qp;
mod recv;
mod send;
mod srq;
mod status;
#[cfg(test)]
mod tests;

pub use address::{AddressHandle, Grh, UD_GRH_BYTES};
pub use attr::{DeviceAttr, GidEntry, GidType, LinkLayer, Mtu, PortAttr, PortState};
pub use buffer::{Backing, Buffer};
pub use cm::{
    CmAddress, CmChannel, CmEvent, CmEventKind, CmGroup, CmId, CmKey, ConnParam, ConnectionManager,
    UDP_QKEY,
};
pub use completion::{Wc, WcOpcode};
pub use context::{Context, Device};
pub use cq::{CompletionChannel, Cq, CqEvent};
pub use domain::{Mr, Pd, RemoteBuffer, Sge};
pub use endpoint::{EndpointParseError, QpEndpoint};
pub use error::{PostError, VerbsError};
pub use event::AsyncEvent;
pub use flags::{Access, QpState, QpType};
pub use library::{Instance, Kind, Library, ListDevices, SoftHooks, WaitAsyncEvent, WaitEvent};
pub use path::Path;
pub use qp::{MULTICAST_QPN, Qp, QpBuilder, QpCap, ReadyToReceive, ReadyToSend};
pub use rdmalab_abi::{CmLoan, CmTable, LoadError, MadPort, VerbsTable};
pub use recv::{RecvBatch, RecvRequest};
pub use send::{SendBatch, SendRequest};
pub use srq::Srq;
pub use status::WcStatus;
