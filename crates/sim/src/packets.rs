//! Packets on their way.

use rdmalab_driver::Request;
use rdmalab_engine::mr::KeyEntry;
use rdmalab_engine::train::{Train, TrainKind};
use rdmalab_wire::ids::{Gid, PathMtu};
use rdmalab_wire::opcode::Transport;
use serde::{Deserialize, Serialize};

use crate::booking::Flow;
use crate::device;
use crate::ids::{QpId, Switch};
use crate::span::Span;
use crate::time::Ps;
use crate::way::Way;

/// Where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// To a node.
    Node(usize),
    /// To every node with a member of this group.
    Group(Gid),
    /// Nowhere: no node has this address.
    Nowhere,
}

/// Bytes of payload that adapters sent to one adapter each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// Bytes that left an adapter.
    pub sent: u64,
    /// Bytes that arrived at another one, whether it accepted them or not.
    pub arrived: u64,
    /// Bytes that were lost on the way: by a fault rule, or because nobody has their address.
    pub lost: u64,
}

/// Consecutive packets of one message, on their way.
#[derive(Clone, Debug)]
pub(crate) struct Packets {
    pub(crate) train: Train,
    pub(crate) payload: Vec<u8>,
    /// The queue pair that sends them.
    pub(crate) from: QpId,
    pub(crate) transport: Transport,
    /// The path MTU of that queue pair.
    pub(crate) mtu: PathMtu,
    pub(crate) to: To,
    /// The switch that they have reached.
    pub(crate) at: Switch,
    /// Where they are sent to; packets that are lost on their way go nowhere.
    pub(crate) destination: Gid,
    /// When the first and the last packet are where they are.
    pub(crate) span: Span,
    /// How their payload is read from memory.
    pub(crate) source: Source,
    /// The number of that read, if it is one over the bus.
    pub(crate) read: Option<u64>,
    /// How many writes have to be in memory before it.
    pub(crate) after_writes: u64,
    /// They begin a turn of their queue pair at the engines.
    pub(crate) begins_turn: bool,
    /// Their payload is part of the WQE.
    pub(crate) is_inline: bool,
    /// Which they are among the requests or the responses of their queue pair.
    pub(crate) number: u64,
    /// What they have passed, and what they follow.
    pub(crate) way: Way,
}

/// The last packets of a request of an unreliable transport, which leave.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) qp: QpId,
    pub(crate) request: Request,
    pub(crate) train: Train,
    /// When they have left, as far as it is known now.
    pub(crate) span: Span,
    /// What that depends on.
    pub(crate) way: Way,
}

/// Where the payload of packets is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// In memory or in the WQE, as the send request describes it.
    Request(Request),
    /// In memory, for the answer to a READ. `None`: a response without payload.
    Response(Option<(u64, KeyEntry)>),
}

impl To {
    /// The GID of the destination.
    pub(crate) fn gid(self) -> Gid {
        match self {
            To::Node(node) => device::gid_of(node),
            To::Group(group) => group,
            To::Nowhere => Gid::default(),
        }
    }
}

impl Packets {
    /// How many packets travel.
    pub(crate) fn count(&self) -> u64 {
        match self.train.kind {
            TrainKind::ReadRequest => 1,
            _ => self.train.packets.max(1).into(),
        }
    }

    /// Whether they answer requests.
    pub(crate) fn is_response(&self) -> bool {
        self.train.kind.is_response()
    }

    /// Makes `span` what is known now.
    pub(crate) fn look(&mut self) {
        self.way.look(&mut self.span);
    }

    /// They have passed a link at `sent`, and are at its end after the propagation.
    pub(crate) fn go_on(&mut self, sent: Span, propagation: Ps) {
        self.span = sent.after(propagation);
        self.way.takes(propagation);
    }

    /// The flow of their queue pair.
    pub(crate) fn flow(&self) -> Flow {
        match self.is_response() {
            true => Flow::Responses(self.from),
            false => Flow::Requests(self.from),
        }
    }
}
