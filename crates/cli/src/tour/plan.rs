//! What the tour measures, in which order.

use rdmalab_verbs::QpType;
use serde::Serialize;

use crate::args::{self, TourArgs};
use crate::failure::{Outcome, usage};
use crate::protocol::Transport;

/// Sizes that are measured unless told otherwise.
const SIZES: [usize; 5] = [8, 32, 256, 4096, 65536];

/// A transport and a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// The transport.
    pub transport: Transport,
    /// Bytes of a message.
    pub bytes: usize,
}

/// The points, in the order of measurement.
pub struct Plan {
    /// In an order drawn from the seed, so that drift is not mistaken for an effect.
    pub points: Vec<Point>,
    /// What the order was drawn from.
    pub seed: u64,
    /// Sizes left out for UD.
    pub left_out: Vec<usize>,
}

impl From<args::Transport> for Transport {
    fn from(transport: args::Transport) -> Self {
        match QpType::from(transport) {
            QpType::Rc => Self::Rc,
            QpType::Uc => Self::Uc,
            QpType::Ud => Self::Ud,
        }
    }
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        })
    }
}

impl Plan {
    /// The points that the options ask for.
    ///
    /// # Errors
    /// When a size that was asked for does not fit a datagram.
    pub fn new(args: &TourArgs, mtu_bytes: usize) -> Outcome<Self> {
        let asked = !args.size.is_empty();
        let mut sizes = if asked { args.size.clone() } else { SIZES.to_vec() };
        sizes.sort_unstable();
        sizes.dedup();
        let mut points = Vec::new();
        let mut left_out = Vec::new();
        for transport in args.transport.iter().map(|t| Transport::from(*t)) {
            for &bytes in &sizes {
                let point = Point { transport, bytes };
                if points.contains(&point) {
                    continue;
                }
                if transport == Transport::Ud && bytes > mtu_bytes {
                    if asked {
                        return Err(usage(format!(
                            "--size {bytes} with --transport ud: a datagram carries at most \
                             {mtu_bytes} bytes, the path MTU of {}; choose less, or --transport \
                             rc,uc",
                            args.device
                        )));
                    }
                    left_out.push(bytes);
                    continue;
                }
                points.push(point);
            }
        }
        let seed = 1;
        shuffle(&mut points, seed);
        Ok(Self { points, seed, left_out })
    }

    /// Where a point stands in a table.
    pub fn rank(&self, point: &Point) -> (u8, usize) {
        (point.transport as u8, point.bytes)
    }
}

/// Fisher and Yates, with SplitMix64.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    for last in (1..items.len()).rev() {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        items.swap(last, ((z ^ (z >> 31)) % (last as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;

    fn plan(options: &[&str], mtu_bytes: usize) -> Outcome<Plan> {
        let cli = Cli::parse_from(std::iter::once("rdmalab").chain(options.iter().copied()));
        Plan::new(&cli.tour, mtu_bytes)
    }

    #[test]
    fn the_default_leaves_long_datagrams_out() {
        let plan = plan(&[], 4096).unwrap();
        assert_eq!((plan.points.len(), plan.left_out.as_slice()), (14, &[65536][..]));
    }

    #[test]
    fn what_was_asked_for_is_not_left_out_silently() {
        let refused = plan(&["--size", "8,64K"], 4096).err().unwrap().to_string();
        assert!(refused.contains("--size 65536") && refused.contains("4096"), "{refused}");
        let plan = plan(&["--size", "64K,8,8", "--transport", "rc,uc,rc"], 4096).unwrap();
        assert_eq!(plan.points.len(), 4);
    }
}
