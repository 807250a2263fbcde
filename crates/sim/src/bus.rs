//! The host bus: what an adapter reads from memory and writes to it.

use crate::parameters::Parameters;
use crate::time::{Ps, Rate};

/// When data was moved: its first packet, and its last one. What follows may begin with the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// The first packet is there.
    pub first: Ps,
    /// The last packet is there.
    pub last: Ps,
}

impl Span {
    /// All at one time.
    pub(crate) fn at(time: Ps) -> Span {
        Span { first: time, last: time }
    }

    /// Data that comes during this span and passes a stage that is free from `free` on, and takes
    /// `first` for the first packet and `all` for all of them. Returns the span after the stage.
    pub(crate) fn through(self, free: Ps, first: Ps, all: Ps) -> Span {
        let begin = self.first.max(free);
        // The last packet is not there before it came in, and then takes the time of a packet.
        Span { first: begin + first, last: (begin + all).max(self.last + first) }
    }

    /// The same, later.
    pub(crate) fn after(self, delay: Ps) -> Span {
        Span { first: self.first + delay, last: self.last + delay }
    }
}

/// The bus between memory and one adapter.
#[derive(Debug, Default)]
pub(crate) struct Bus {
    read_ns: Ps,
    write_ns: Ps,
    rate: Rate,
    is_half_duplex: bool,
    mtu: u64,
    read_free: Ps,
    write_free: Ps,
    /// When each place for a read that is under way is free; empty: there is always one.
    places: Vec<Ps>,
    /// The place of the next read.
    next: usize,
}

impl Bus {
    pub(crate) fn new(parameters: &Parameters) -> Bus {
        Bus {
            read_ns: parameters.bus_read_ns,
            write_ns: parameters.bus_write_ns,
            rate: parameters.bus_mb_per_s,
            is_half_duplex: parameters.bus_half_duplex == 1,
            mtu: parameters.mtu_bytes.into(),
            read_free: Ps::ZERO,
            write_free: Ps::ZERO,
            places: vec![Ps::ZERO; parameters.bus_reads as usize],
            next: 0,
        }
    }

    /// Reads bytes, from `now` on: when they are in the adapter, and the place of the read.
    pub(crate) fn read(&mut self, now: Ps, bytes: u64) -> (Span, usize) {
        let place = self.next;
        self.next = (place + 1) % self.places.len().max(1);
        let free = self.places.get(place).copied().unwrap_or(Ps::ZERO);
        (self.read_more(now.max(free), bytes, place), place)
    }

    /// Reads more bytes for the read that has a place already.
    pub(crate) fn read_more(&mut self, now: Ps, bytes: u64, place: usize) -> Span {
        let (first, all) = (self.rate.time(bytes.min(self.mtu)), self.rate.time(bytes));
        let span = Span::at(now).through(self.read_free, first, all);
        self.read_free = span.last;
        if self.is_half_duplex {
            self.write_free = self.write_free.max(span.last);
        }
        let read = span.after(self.read_ns);
        if let Some(free) = self.places.get_mut(place) {
            *free = read.last;
        }
        read
    }

    /// When no more than `bytes` wait to be read.
    pub(crate) fn read_backlog_end(&self, bytes: u64) -> Ps {
        self.read_free - self.rate.time(bytes)
    }

    /// How long before the end of a read the bytes leave memory: half of the round trip.
    pub(crate) fn answer_time(&self) -> Ps {
        Ps(self.read_ns.0 / 2)
    }

    /// Writes bytes that come during `span`: when the last of them is in memory. Writes keep their
    /// order.
    pub(crate) fn write(&mut self, span: Span, bytes: u64) -> Ps {
        let (first, all) = (self.rate.time(bytes.min(self.mtu)), self.rate.time(bytes));
        let written = span.through(self.write_free, first, all);
        self.write_free = written.last;
        if self.is_half_duplex {
            self.read_free = self.read_free.max(written.last);
        }
        written.last + self.write_ns
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

    #[test]
    fn a_read_takes_its_round_trip_and_its_bytes() {
        let (span, _) = bus(0).read(NOW, 4096);
        let expected = [1000 + 300 + 1024, 1000 + 300 + 4096].map(Ps::from_whole_ns);
        assert_eq!([span.first, span.last], expected);
    }

    #[test]
    fn a_second_read_waits_for_the_bytes_only() {
        let mut bus = bus(0);
        bus.read(NOW, 1000);
        assert_eq!(bus.read(NOW, 1000).0.last, Ps::from_whole_ns(1000 + 2000 + 300));
    }

    #[test]
    fn a_read_waits_for_a_place() {
        let mut bus = bus(0);
        bus.places = vec![Ps::ZERO; 2];
        let ends = [0, 1, 2, 3].map(|_| bus.read(NOW, 10).0.last.whole_ns());
        // Two at a time, each of 300 ns and 10 bytes; the bytes come one after the other.
        assert_eq!(ends, [1310, 1320, 1620, 1630]);
    }

    #[test]
    fn more_bytes_of_a_read_keep_its_place() {
        let mut bus = bus(0);
        bus.places = vec![Ps::ZERO];
        let (_, place) = bus.read(NOW, 1000);
        assert_eq!(bus.read_more(NOW, 500, place).last.whole_ns(), 1000 + 1500 + 300);
        assert_eq!(bus.read(NOW, 100).0.last.whole_ns(), 2800 + 100 + 300);
    }

    #[test]
    fn only_a_half_duplex_bus_makes_a_write_wait_for_a_read() {
        for (half_duplex, wait) in [(0, 0), (1, 1000)] {
            let mut bus = bus(half_duplex);
            bus.read(NOW, 1000);
            let done = bus.write(Span::at(NOW), 500);
            assert_eq!(done, Ps::from_whole_ns(1000 + wait + 500 + 100), "{half_duplex}");
        }
    }

    #[test]
    fn a_write_ends_after_its_last_packet_came() {
        let came = Span { first: NOW, last: Ps::from_whole_ns(9000) };
        assert_eq!(bus(0).write(came, 4096), Ps::from_whole_ns(9000 + 1024 + 100));
        let came = Span { first: NOW, last: Ps::from_whole_ns(2000) };
        assert_eq!(bus(0).write(came, 4096), Ps::from_whole_ns(1000 + 4096 + 100));
    }
}
