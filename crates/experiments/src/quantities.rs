//! What a point measures, known before it does.

use rdmalab_measure::Quantity::{self, *};

use crate::point::{Experiment, Point};

impl Point {
    /// All that it may measure, as one that was measured shows. What may be missing of it, is so
    /// because of the run: messages that were lost, clocks that could not be compared, a receive
    /// queue without a pattern.
    #[must_use]
    pub fn quantities(&self) -> Vec<Quantity> {
        let mut all = match self.experiment {
            Experiment::Oneway => vec![OneWay, Rate],
            Experiment::Ping => vec![RoundTrip],
            Experiment::Blast => vec![MessageTime, Rate, Bandwidth],
            Experiment::Overhead => vec![CallCost, PostCost, CompletionTime],
            Experiment::Mr => vec![CallCost],
            Experiment::Connect => vec![SetupTime, CallCost, Rate],
            Experiment::Timeout => vec![CompletionTime, Timeout],
            Experiment::Recvq => vec![RoundTrip, Period, PeakHeight],
            Experiment::Rpc => vec![RoundTrip, Rate, Bandwidth],
            Experiment::Fan => vec![RoundTrip, CompletionTime, MessageTime, Fairness],
        };
        all.extend(self.optional());
        all.push(CpuShare);
        all
    }

    /// What depends on its options.
    fn optional(&self) -> impl Iterator<Item = Quantity> {
        let (experiment, is_paced) = (self.experiment, self.rate_per_s > 0);
        let is = move |one: Experiment, also: bool| experiment == one && also;
        let each = [
            (is(Experiment::Oneway, self.stamps.send), OneWayFromCopy),
            (is(Experiment::Oneway, self.stamps.comp), CompletionTime),
            (is(Experiment::Oneway, self.stamps.post), PostCost),
            (is(Experiment::Ping, !self.op.reads()), HalfRoundTrip),
            (is(Experiment::Ping, is_paced), Rate),
            // Where nobody but the sender notices a message, until it is done.
            (is(Experiment::Blast, is_paced), OneWay),
            (is(Experiment::Blast, is_paced), CompletionTime),
        ];
        each.into_iter().filter_map(|(is_it, quantity)| is_it.then_some(quantity))
    }
}
