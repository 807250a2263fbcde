//! Publish and subscribe over TCP and Unix stream sockets, for several protocols: what `zeromq` and
//! `nanomsg` have in common.
//!
//! - `wire`: what a protocol has to offer, as a state machine that does no I/O.
//! - `endpoint`: addresses such as `tcp://*:12000`.
//! - `peers`: the connections: they are accepted or made, and made again when they are lost.
//! - `publish`, `subscribe`: the writing half of a node, and the reading one.
//! - `node`: the node that has them.
//!
//! All of it runs in the thread of the path: there is no other thread, lock or queue between the
//! path and the kernel.

mod endpoint;
mod node;
mod peers;
mod publish;
mod subscribe;
pub mod wire;

pub use endpoint::Endpoint;
pub use node::PubSub;
#[cfg(test)]
pub use publish::PEER_BYTES_MAX;
