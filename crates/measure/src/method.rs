//! How a way of sending is measured, by what comes out of it and not by the name of an experiment.

/// A kind of measurement. An experiment says which one it is, and whoever needs such numbers asks
/// for the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Round trips one after the other, which measure times.
    RoundTrips,
    /// Messages sent as fast as possible, which measure rates.
    Flood,
    /// Round trips over a receive queue of a chosen kind, which is refilled in a chosen way.
    ReceiveQueue,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::RoundTrips, Self::Flood, Self::ReceiveQueue];
}
