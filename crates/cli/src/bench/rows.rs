//! The rows of `bench self` and their budgets: the project's performance contract.

use rdmalab_measure::limits::datagrams::DATAGRAM_BYTES;
use rdmalab_measure::limits::{
    Handoff, Limit, Lines, Memcpy, Peers, Slots, SpinHint, Spsc, Unsupported, VmWrite,
};
use rdmalab_measure::{Clock, Quantity};

use super::programs::{Pair, Program};
use super::task::{Op, Setup, Timings, Work};
use crate::exec::paths::Memory;

const MIB: usize = 1 << 20;
/// Bytes of a small message.
const SMALL: usize = 32;
/// Batches of round trips in one run: together with [`TRIPS`], some milliseconds.
const BATCHES: u64 = 200;
/// Round trips of a batch.
const TRIPS: u64 = 50;
/// Messages in one run of a flood.
const MESSAGES: u64 = 200_000;
/// Copies in one run.
const COPIES: u64 = 256;
/// Copies in one run over a network, which is slower.
const COPIES_FAR: u64 = 48;
/// The index of the GID for the interface's IPv4 address; index 0 is the link-local one.
const IPV4_GID: u8 = 1;

/// The reference of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A cache line that moves back and forth between the same two cores.
    HandOff,
    /// `process_vm_writev` of a small message.
    SmallVmWrite,
    /// A ring of single items, each in its own cache line.
    Ring,
    /// One thread's `memcpy` of 1 MiB.
    Memcpy,
    /// `process_vm_writev` of 1 MiB.
    VmWrite,
    /// `sendto` and `recvfrom` of the same number of bytes, between the same two processes.
    Datagrams,
    /// `sendmmsg` and `recvmmsg`, between the same two processes.
    ManyDatagrams,
    /// The same work without a capture.
    Uncaptured,
    /// Other programs than ours, for ours as well.
    Programs(Pair),
}

/// Where the two ends of a row run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Testbed {
    /// Two processes of this host.
    OneHost,
    /// Two hosts: network namespaces that are connected by a network only.
    TwoHosts,
    /// Two processes of this host, both of which capture.
    Captured,
}

/// The budget for the ratio of the device to the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// An upper bound, for times.
    AtMost(f64),
    /// A lower bound, for rates.
    AtLeast(f64),
    /// No budget: the row is for comparison only.
    None,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// What is measured of the device.
    pub name: &'static str,
    /// The operation.
    op: Op,
    bytes: usize,
    /// Whether messages are in the process's own memory instead of the device's.
    private: bool,
    /// Whether the target of WRITEs polls meanwhile.
    polls: bool,
    /// `None` for round trips; for a flood, the number of requests per post.
    list: Option<u64>,
    /// The testbed.
    pub testbed: Testbed,
    /// The reference.
    pub reference: Reference,
    /// The budget.
    pub target: Target,
}

const ROUND_TRIP: Row = Row {
    name: "",
    op: Op::Send,
    bytes: SMALL,
    private: false,
    polls: false,
    list: None,
    testbed: Testbed::OneHost,
    reference: Reference::HandOff,
    target: Target::AtMost(2.5),
};

const RATE: Row =
    Row { list: Some(1), reference: Reference::Ring, target: Target::AtLeast(0.15), ..ROUND_TRIP };

const BULK: Row = Row { op: Op::Write, bytes: MIB, list: Some(1), ..ROUND_TRIP };

const FAR_TRIP: Row = Row {
    testbed: Testbed::TwoHosts,
    reference: Reference::Datagrams,
    target: Target::AtMost(1.3),
    ..ROUND_TRIP
};

const CAPTURED: Row = Row {
    testbed: Testbed::Captured,
    reference: Reference::Uncaptured,
    target: Target::AtLeast(0.5),
    ..RATE
};

/// All rows, or those of programs that users know.
pub fn all(are_programs: bool) -> Vec<Row> {
    match are_programs {
        true => programs().to_vec(),
        false => on_one_host().into_iter().chain(elsewhere()).collect(),
    }
}

/// The rows whose names contain a text, ignoring case. Rows over UDP (which need root) and with
/// captures take long: they are chosen only if no other row contains the text.
pub fn chosen(text: Option<&str>, are_programs: bool) -> Vec<Row> {
    let text = text.unwrap_or("").to_lowercase();
    let has = |row: &Row| row.name.to_lowercase().contains(&text);
    if are_programs {
        return programs().into_iter().filter(has).collect();
    }
    let rows: Vec<Row> = on_one_host().into_iter().filter(has).collect();
    if rows.is_empty() { elsewhere().filter(has).collect() } else { rows }
}

fn elsewhere() -> impl Iterator<Item = Row> {
    over_udp().into_iter().chain(captured())
}

fn over_udp() -> [Row; 3] {
    [
        Row { name: "RC SEND 32 B over UDP, RTT/2", ..FAR_TRIP },
        Row { name: "RC SEND 1 KiB over UDP, RTT/2", bytes: 1024, ..FAR_TRIP },
        Row {
            name: "RC WRITE 1 MiB over UDP",
            testbed: Testbed::TwoHosts,
            reference: Reference::ManyDatagrams,
            target: Target::AtLeast(0.5),
            ..BULK
        },
    ]
}

/// The budgets are those of a run with near cores on an idle machine.
fn programs() -> [Row; 11] {
    let row = |name, ours, beside: &'static str, bytes, target| {
        let is_rate = beside.ends_with("bw") || beside == "ucp_get";
        let quantity = if is_rate { Quantity::Rate } else { Quantity::HalfRoundTrip };
        let beside = Program::UcxOnPosix(beside);
        let reference = Reference::Programs(Pair { ours, beside, bytes, quantity });
        Row { name, bytes, reference, target, list: is_rate.then_some(1), ..ROUND_TRIP }
    };
    let stream = |name, bytes| {
        let (ours, quantity) = (Program::Perftest("ib_write_bw"), Quantity::Bandwidth);
        let pair = Pair { ours, beside: Program::TcpStream, bytes, quantity };
        let (testbed, reference) = (Testbed::TwoHosts, Reference::Programs(pair));
        Row { name, testbed, reference, target: Target::AtLeast(1.0), ..BULK }
    };
    let ucx = Program::UcxOnDevice;
    let (own, shared) = (Program::Perftest, Program::PerftestShared);
    let (at_most, at_least, none) = (Target::AtMost, Target::AtLeast, Target::None);
    [
        row("ucx_perftest tag_lat 8 B over rc_v", ucx("tag_lat"), "tag_lat", 8, at_most(1.8)),
        row("ucx_perftest tag_bw 32 B over rc_v, rate", ucx("tag_bw"), "tag_bw", 32, none),
        row("ib_send_lat 8 B", own("ib_send_lat"), "tag_lat", 8, at_most(1.0)),
        row("ib_send_bw 32 B, rate", own("ib_send_bw"), "tag_bw", 32, at_least(1.2)),
        row(
            "ib_write_lat 32 B with --memory shared",
            shared("ib_write_lat"),
            "ucp_put_lat",
            32,
            none,
        ),
        row(
            "ib_write_bw 32 B with --memory shared, rate",
            shared("ib_write_bw"),
            "ucp_put_bw",
            32,
            none,
        ),
        row(
            "ib_write_bw 1 MiB with --memory shared, rate",
            shared("ib_write_bw"),
            "ucp_put_bw",
            MIB,
            none,
        ),
        row(
            "ib_read_bw 32 B with --memory shared, rate",
            shared("ib_read_bw"),
            "ucp_get",
            32,
            none,
        ),
        row(
            "ib_read_bw 1 MiB with --memory shared, rate",
            shared("ib_read_bw"),
            "ucp_get",
            MIB,
            none,
        ),
        stream("ib_write_bw 64 KiB over UDP", 64 << 10),
        stream("ib_write_bw 1 MiB over UDP", MIB),
    ]
}

fn captured() -> [Row; 3] {
    [
        Row { name: "RC SEND 64 B, rate, captured", bytes: 64, ..CAPTURED },
        Row { name: "RC SEND 1 KiB, rate, captured", bytes: 1024, ..CAPTURED },
        Row { name: "RC SEND 4 KiB, rate, captured", bytes: 4096, ..CAPTURED },
    ]
}

fn on_one_host() -> [Row; 11] {
    let write = Row { op: Op::Write, ..ROUND_TRIP };
    let foreign = Row { private: true, ..BULK };
    [
        Row { name: "RC SEND 32 B, RTT/2", ..ROUND_TRIP },
        Row { name: "RC WRITE 32 B, memfd-backed, RTT/2, target spins on memory", ..write },
        Row {
            name: "RC WRITE 32 B, foreign heap, RTT/2, target spins on memory",
            private: true,
            reference: Reference::SmallVmWrite,
            target: Target::AtMost(1.3),
            ..write
        },
        Row { name: "RC SEND 32 B, rate, receiver reposts", ..RATE },
        Row { name: "RC SEND 32 B, rate, 16 requests a post", list: Some(16), ..RATE },
        Row { name: "RC WRITE 32 B, rate", op: Op::Write, ..RATE },
        Row {
            name: "RC WRITE 32 B, rate, 16 requests a post",
            op: Op::Write,
            list: Some(16),
            ..RATE
        },
        Row {
            name: "RC WRITE 1 MiB, memfd-backed",
            reference: Reference::Memcpy,
            target: Target::AtLeast(0.8),
            ..BULK
        },
        Row {
            name: "RC WRITE 1 MiB, foreign heap, target polls",
            polls: true,
            reference: Reference::Memcpy,
            target: Target::AtLeast(0.8),
            ..foreign
        },
        Row {
            name: "RC WRITE 1 MiB, foreign heap, target asleep, over memcpy",
            reference: Reference::Memcpy,
            target: Target::None,
            ..foreign
        },
        Row {
            name: "RC WRITE 1 MiB, foreign heap, target asleep, over process_vm_writev",
            reference: Reference::VmWrite,
            target: Target::AtLeast(0.9),
            ..foreign
        },
    ]
}

impl Row {
    /// Where the messages of our side are: in memory that peers can map, or in the process's own. A
    /// device that is not ours maps nothing.
    pub fn memory(&self, is_soft: bool) -> Memory {
        let is_shared = match self.reference {
            Reference::Programs(pair) => matches!(pair.ours, Program::PerftestShared(_)),
            _ => !self.private,
        };
        if is_soft && is_shared { Memory::Shared } else { Memory::Private }
    }

    /// The quantity of both numbers.
    pub fn quantity(&self) -> Quantity {
        match self.reference {
            Reference::HandOff | Reference::SmallVmWrite | Reference::Datagrams => {
                Quantity::HalfRoundTrip
            }
            Reference::Ring | Reference::Uncaptured => Quantity::Rate,
            Reference::Memcpy | Reference::VmWrite | Reference::ManyDatagrams => {
                Quantity::Bandwidth
            }
            Reference::Programs(pair) => pair.quantity,
        }
    }

    /// The queue pairs for this row.
    pub fn setup(&self) -> Setup {
        let gid_index = if self.testbed == Testbed::TwoHosts { IPV4_GID } else { 0 };
        Setup { bytes_max: self.bytes, private_memory: self.private, gid_index }
    }

    fn copies(&self) -> u64 {
        if self.testbed == Testbed::TwoHosts { COPIES_FAR } else { COPIES }
    }

    /// One run of the device.
    pub fn work(&self) -> Work {
        let (op, bytes) = (self.op, self.bytes);
        match self.list {
            _ if self.polls => Work::FloodToPoller { bytes, messages: COPIES },
            None => Work::RoundTrips { op, bytes, batches: BATCHES, trips: TRIPS },
            Some(list) => {
                let messages = if bytes == MIB { self.copies() } else { MESSAGES };
                Work::Flood { op, bytes, messages, list }
            }
        }
    }

    /// The work of the reference, its testbed and its name. `None` if the reference is a
    /// [`Row::limit`].
    pub fn reference_work(&self) -> Option<(Testbed, Work, String)> {
        let (gid_index, bytes) = (IPV4_GID, self.bytes);
        Some(match self.reference {
            Reference::Datagrams => {
                let work = Work::DatagramTrips { gid_index, bytes, batches: BATCHES, trips: TRIPS };
                (self.testbed, work, format!("sendto and recvfrom, {bytes} B"))
            }
            Reference::ManyDatagrams => {
                let work = Work::DatagramFlood { gid_index, bytes, messages: self.copies() };
                (self.testbed, work, format!("sendmmsg, {DATAGRAM_BYTES} B"))
            }
            Reference::Uncaptured => (Testbed::OneHost, self.work(), "not captured".to_owned()),
            _ => return None,
        })
    }

    /// The result of [`Row::reference_work`].
    pub fn reference_value(&self, found: &[Timings]) -> Option<f64> {
        let [_, answers] = found else { return None };
        match self.reference {
            Reference::ManyDatagrams => answers.message_ns.map(|ns| self.bytes as f64 * 1e9 / ns),
            _ => self.value(found),
        }
    }

    /// The device's number, in the unit of [`Row::quantity`]. For a flood, the receiver counts
    /// SENDs, and the sender counts WRITEs.
    pub fn value(&self, found: &[Timings]) -> Option<f64> {
        let [begins, answers] = found else { return None };
        let flood = match self.op {
            Op::Send => answers,
            Op::Write => begins,
        };
        match self.quantity() {
            Quantity::HalfRoundTrip => begins.half_round_trip_ns,
            Quantity::Rate => flood.message_ns.map(|ns| 1e9 / ns),
            _ => flood.message_ns.map(|ns| self.bytes as f64 * 1e9 / ns),
        }
    }

    /// The reference of the row, if it needs no workers.
    pub fn limit(
        &self,
        clock: Clock,
        cores: (usize, usize),
    ) -> Result<Box<dyn Limit>, Unsupported> {
        Ok(match self.reference {
            Reference::HandOff => {
                let hand_off =
                    |hint| Handoff::new(clock, cores, Peers::Processes, Lines::Two, hint);
                Box::new(Best { of: [hand_off(SpinHint::Bare)?, hand_off(SpinHint::Paused)?] })
            }
            Reference::SmallVmWrite => Box::new(VmWrite::call_cost(clock, cores, SMALL)?),
            Reference::Ring => Box::new(Spsc::new(clock, cores, Peers::Processes, Slots::Lines)?),
            Reference::Memcpy => Box::new(Memcpy::new(clock, MIB, 1)),
            Reference::VmWrite => Box::new(VmWrite::bandwidth(clock, cores, MIB)?),
            Reference::Datagrams
            | Reference::ManyDatagrams
            | Reference::Uncaptured
            | Reference::Programs(_) => {
                return Err(Unsupported("it needs other processes".to_owned()));
            }
        })
    }
}

/// Two variants of the same hand-off. Each run uses the faster one, which depends on the processor.
struct Best {
    of: [Handoff; 2],
}

impl Limit for Best {
    fn name(&self) -> String {
        self.of[0].name().replace(", bare", "")
    }

    fn quantity(&self) -> Quantity {
        self.of[0].quantity()
    }

    fn run(&mut self) -> Result<f64, Unsupported> {
        let [one, two] = &mut self.of;
        Ok(one.run()?.min(two.run()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_its_name_and_budgets_face_the_right_way() {
        let rows = [all(false), all(true)].concat();
        for (i, row) in rows.iter().enumerate() {
            assert!(rows[i + 1..].iter().all(|other| other.name != row.name), "{}", row.name);
            let is_rate = match row.target {
                Target::AtMost(_) => false,
                Target::AtLeast(_) => true,
                Target::None => row.quantity().more_is_better(),
            };
            assert_eq!(is_rate, row.quantity().more_is_better(), "{}", row.name);
            assert_eq!(row.list.is_none(), row.quantity() == Quantity::HalfRoundTrip);
        }
    }

    #[test]
    fn rows_that_take_long_have_to_be_named() {
        let places =
            |text| -> Vec<Testbed> { chosen(text, false).iter().map(|row| row.testbed).collect() };
        assert_eq!(places(None), [Testbed::OneHost; 11]);
        assert_eq!(places(Some("udp")), [Testbed::TwoHosts; 3]);
        assert_eq!(places(Some("Captured")), [Testbed::Captured; 3]);
        assert!(places(Some("SEND 32 B")).iter().all(|testbed| *testbed == Testbed::OneHost));
        assert_eq!(places(Some("SEND 32 B over")), [Testbed::TwoHosts]);
        assert!(places(Some("no such row")).is_empty());
        assert_eq!(chosen(None, true).len(), 11);
        let shared = |row: &Row| row.memory(true) == Memory::Shared;
        assert_eq!(chosen(None, true).iter().filter(|row| shared(row)).count(), 5);
        let foreign = chosen(Some("foreign"), false);
        assert!(!foreign.is_empty() && !foreign.iter().any(shared));
        assert!(chosen(Some("memfd"), false).iter().all(shared));
        assert_eq!(chosen(Some("IB_SEND"), true).len(), 2);
    }
}
