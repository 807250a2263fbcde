//! The host bus: what an adapter reads from memory and writes to it.

use crate::booking::{Booking, Coming, Flow, Work};
use crate::parameters::Parameters;
use crate::shared::Shared;
use crate::span::Span;
use crate::time::{Ps, Rate};
use crate::way::Due;

/// The bus between memory and one adapter.
#[derive(Debug, Default)]
pub(crate) struct Bus {
    read_ns: Ps,
    write_ns: Ps,
    rate: Rate,
    is_half_duplex: bool,
    mtu: u64,
    reads: Shared,
    writes: Shared,
    /// When each place for a read that is under way is free; empty: there is always one.
    places: Vec<Due>,
    /// The place of the next read.
    next: usize,
}

/// A read of the bus.
#[derive(Debug)]
pub(crate) struct Read {
    /// When the bytes are in the adapter.
    pub span: Span,
    /// The place that the read takes.
    pub place: usize,
    /// When its bytes have passed the bus.
    pub booking: Option<Booking>,
}

impl Bus {
    pub(crate) fn new(parameters: &Parameters) -> Bus {
        Bus {
            read_ns: parameters.bus_read_ns,
            write_ns: parameters.bus_write_ns,
            rate: parameters.bus_mb_per_s,
            is_half_duplex: parameters.bus_half_duplex == 1,
            mtu: parameters.mtu_bytes.into(),
            places: vec![Due::default(); parameters.bus_reads as usize],
            ..Bus::default()
        }
    }

    /// Reads bytes, from `now` on. A read that waits for a place leaves the bus to others
    /// meanwhile.
    pub(crate) fn read(&mut self, now: Ps, bytes: u64, flow: Flow) -> Read {
        let place = self.next;
        self.next = (place + 1) % self.places.len().max(1);
        let due = self.places.get(place).cloned().unwrap_or_default();
        let free = due.at();
        let source = due.booking().filter(|_| free > now);
        let coming = Coming { now, span: Span::at(now.max(free)), source, order: flow, flow };
        self.read_at(&coming, bytes, place)
    }

    /// Reads more bytes for the read that has a place already.
    pub(crate) fn read_more(&mut self, now: Ps, bytes: u64, flow: Flow, place: usize) -> Read {
        let coming = Coming { now, span: Span::at(now), source: None, order: flow, flow };
        self.read_at(&coming, bytes, place)
    }

    fn read_at(&mut self, coming: &Coming<'_>, bytes: u64, place: usize) -> Read {
        let (passed, booking) = self.reads.pass_from(coming, self.work(bytes));
        let span = passed.after(self.read_ns);
        if let Some(free) = self.places.get_mut(place) {
            *free = Due::new(span.last, booking.clone());
        }
        Read { span, place, booking }
    }

    /// The time between the bus and the end of a read.
    pub(crate) fn read_time(&self) -> Ps {
        self.read_ns
    }

    /// The time of so many bytes.
    pub(crate) fn time(&self, bytes: u64) -> Ps {
        self.rate.time(bytes)
    }

    /// How long before the end of a read the bytes leave memory: half of the round trip.
    pub(crate) fn answer_time(&self) -> Ps {
        Ps(self.read_ns.0 / 2)
    }

    /// Writes bytes that come during `span`: when the last of them is in memory. Writes keep their
    /// order, and only reads can delay them.
    pub(crate) fn write(&mut self, span: Span, bytes: u64) -> Due {
        let work = self.work(bytes);
        let (passed, booking) = match self.is_half_duplex {
            true => self.reads.pass_since(span, work, Flow::Writes),
            false => (self.writes.pass_alone_since(span, work), None),
        };
        Due::new(passed.last + self.write_ns, booking)
    }

    /// When more packets have to be booked, if nobody will do so until then. Writes that have a
    /// part of the bus to themselves need no booking.
    pub(crate) fn goes_on_at(&mut self, now: Ps) -> Option<Ps> {
        self.reads.goes_on_at(now)
    }

    /// Books more packets, if that is to happen now.
    pub(crate) fn go_on(&mut self, now: Ps) {
        self.reads.go_on(now);
    }

    fn work(&self, bytes: u64) -> Work {
        let (first, all) = (self.rate.time(bytes.min(self.mtu)), self.rate.time(bytes));
        Work { first, all, packets: bytes.div_ceil(self.mtu).max(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bus(half_duplex: u32) -> Bus {
        let mut parameters = Parameters::least();
        for (name, value) in [
            ("bus_read_ns", 300.0),
            ("bus_write_ns", 100.0),
            ("bus_mb_per_s", 1000.0),
            ("bus_half_duplex", half_duplex.into()),
            ("mtu_bytes", 1024.0),
        ] {
            parameters.set(name, value).unwrap();
        }
        Bus::new(&parameters)
    }

    const NOW: Ps = Ps::from_whole_ns(1000);
    const FLOW: Flow = Flow::Node(0);

    #[test]
    fn a_read_takes_its_round_trip_and_its_bytes() {
        let span = bus(0).read(NOW, 4096, FLOW).span;
        let expected = [1000 + 300 + 1024, 1000 + 300 + 4096].map(Ps::from_whole_ns);
        assert_eq!([span.first, span.last], expected);
    }

    #[test]
    fn a_second_read_waits_for_the_bytes_only() {
        let mut bus = bus(0);
        bus.read(NOW, 1000, FLOW);
        assert_eq!(bus.read(NOW, 1000, FLOW).span.last, Ps::from_whole_ns(1000 + 2000 + 300));
    }

    #[test]
    fn a_read_waits_for_a_place() {
        let mut bus = bus(0);
        bus.places = vec![Due::default(); 2];
        let ends = [0, 1, 2, 3].map(|_| bus.read(NOW, 10, FLOW).span.last.whole_ns());
        // Two at a time, each of 300 ns and 10 bytes; the bytes come one after the other.
        assert_eq!(ends, [1310, 1320, 1620, 1630]);
    }

    #[test]
    fn a_read_that_waits_for_a_place_leaves_the_bus_to_writes() {
        let mut bus = bus(1);
        bus.places = vec![Due::default()];
        bus.read(NOW, 10, FLOW);
        let waits = bus.read(NOW, 10, Flow::Node(1));
        assert_eq!(waits.span.last.whole_ns(), 1310 + 10 + 300);
        let written = bus.write(Span::at(Ps::from_whole_ns(1050)), 100);
        assert_eq!(written.at().whole_ns(), 1050 + 100 + 100);
        // A write that is still there when the place is free delays the read.
        bus.write(Span::at(Ps::from_whole_ns(1300)), 100);
        assert_eq!(waits.booking.unwrap().span().last.whole_ns(), 1400 + 10);
    }

    #[test]
    fn more_bytes_of_a_read_keep_its_place() {
        let mut bus = bus(0);
        bus.places = vec![Due::default()];
        let place = bus.read(NOW, 1000, FLOW).place;
        assert_eq!(bus.read_more(NOW, 500, FLOW, place).span.last.whole_ns(), 1000 + 1500 + 300);
        assert_eq!(bus.read(NOW, 100, FLOW).span.last.whole_ns(), 2800 + 100 + 300);
    }

    #[test]
    fn only_a_half_duplex_bus_makes_a_write_wait_for_a_read() {
        for (half_duplex, wait) in [(0, 0), (1, 1000)] {
            let mut bus = bus(half_duplex);
            bus.read(NOW, 1000, FLOW);
            let done = bus.write(Span::at(NOW), 500);
            assert_eq!(done.at(), Ps::from_whole_ns(1000 + wait + 500 + 100), "{half_duplex}");
        }
    }

    #[test]
    fn a_read_that_comes_later_delays_a_write_on_a_half_duplex_bus() {
        for (half_duplex, later) in [(0, 0), (1, 1024)] {
            let mut bus = bus(half_duplex);
            let done = bus.write(Span::at(NOW), 4096);
            assert_eq!(done.at(), Ps::from_whole_ns(1000 + 4096 + 100));
            bus.read(Ps::from_whole_ns(1500), 1024, FLOW);
            assert_eq!(done.at(), Ps::from_whole_ns(1000 + 4096 + 100 + later), "{half_duplex}");
        }
    }

    #[test]
    fn a_write_ends_after_its_last_packet_came() {
        let came = Span { first: NOW, last: Ps::from_whole_ns(9000) };
        assert_eq!(bus(0).write(came, 4096).at(), Ps::from_whole_ns(9000 + 1024 + 100));
        let came = Span { first: NOW, last: Ps::from_whole_ns(2000) };
        assert_eq!(bus(0).write(came, 4096).at(), Ps::from_whole_ns(1000 + 4096 + 100));
    }
}
