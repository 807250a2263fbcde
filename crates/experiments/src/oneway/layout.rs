//! The memory of an end of `oneway`.

use super::options::Oneway;
use crate::common::layout::Layout;
use crate::common::params::{Common, Op};

/// A place for each message under way, if messages carry their number or thread.
pub(super) fn layout(common: &Common, own: &Oneway) -> Layout {
    let (tx, rx) = (common.tx_depth as usize, common.rx_depth as usize);
    let qps = common.qps as usize;
    let fit = Layout::most_places(common);
    let is_numbered = !common.op.has_imm();
    // Receives of several queue pairs may not share one either.
    let shares = if common.op.writes() { 1 } else { qps };
    let each = rx.min(fit / shares).max(1);
    let in_places = if is_numbered || own.stamps.send { each * shares } else { 1 };
    let out_places = match (is_numbered, common.op) {
        (true, Op::Write) => in_places,
        (true, _) => tx.min(fit).max(qps),
        (false, _) => 1,
    };
    let layout = Layout::new(common, out_places, in_places);
    let layout = layout.apart(in_places > 1 || common.tags_payload());
    // A WRITE that is looked for ends with its number.
    if common.op == Op::Write { layout.ending_in_a_word() } else { layout }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::params::Transport;
    use crate::common::recv_queue::steps;
    use crate::workload::Workload;

    fn of(common: &Common) -> Layout {
        layout(common, &Oneway::OWN)
    }

    #[test]
    fn places_do_not_overlap_and_numbers_are_aligned() {
        for (transport, op) in
            [(Transport::Rc, Op::Write), (Transport::Rc, Op::SendImm), (Transport::Ud, Op::Send)]
        {
            for size_bytes in [8, 9, 32, 63, 64, 65, 1000, 4096] {
                let layout = of(&Common { transport, op, size_bytes, ..Oneway::COMMON });
                let size = size_bytes as usize;
                assert!(
                    layout.credit_in_at(0) < layout.done_at()
                        && layout.done_at() < layout.credit_out_at(0)
                );
                assert!(layout.credit_out_at(1) + 8 <= layout.out_at(0));
                let last = layout.out_places - 1;
                assert!(layout.out_at(last) + size <= layout.recv_at(0));
                let last = layout.in_places - 1;
                assert!(layout.in_at(last) + size <= layout.bytes());
                assert!(
                    layout.recv_at(0) + layout.recv_bytes() <= layout.recv_at(0) + layout.stride
                );
                if op == Op::Write {
                    assert!((layout.in_at(1) + size).is_multiple_of(8));
                } else {
                    assert!(layout.in_at(0).is_multiple_of(8));
                }
            }
        }
    }

    #[test]
    fn a_queue_is_filled_in_whole_steps() {
        for rx_depth in [1, 2, 3, 4, 5, 31, 33, 100, 512, 4096, 16384] {
            for (op, size_bytes) in [(Op::SendImm, 32), (Op::Send, 32), (Op::Send, 16 << 20)] {
                let common = Common { rx_depth, op, size_bytes, ..Oneway::COMMON };
                let layout = of(&common);
                let (step, depth) = steps(&common, &layout);
                assert!(step >= 1 && depth >= step && depth % step == 0, "{rx_depth} {op}");
                assert!(
                    depth <= rx_depth as usize && depth > rx_depth as usize / 2 || size_bytes > 32
                );
                // Receives without a credit yet, or not posted again yet, leave room for at least
                // one.
                assert!((depth / 4).max(1) - 1 + step - 1 < depth, "{rx_depth} {op}");
                if layout.in_places > 1 {
                    assert!(depth <= layout.in_places);
                }
            }
        }
    }
}
