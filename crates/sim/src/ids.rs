//! Names of the objects of a simulation.

/// Bits of a queue pair number that count the queue pairs of a node; the upper ones are the node.
pub(crate) const QP_BITS: u32 = 14;

/// A queue pair of a simulation. After it is destroyed, its place gets another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QpId {
    pub(crate) node: usize,
    pub(crate) index: usize,
    pub(crate) generation: u32,
}

/// A switch: the leaf switches come first, then the spine switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Switch(pub(crate) usize);

/// A part that packets of several flows share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The bus of an adapter.
    Bus(usize),
    /// The link of an adapter to the fabric.
    Up(usize),
    /// A link of a switch, by its index.
    Down(usize),
}
