//! Rings that another process of the user damages while they are in use. Every request completes,
//! well or with an error, in the time that the attributes of its queue pair set.

mod support;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rdmalab_engine::backend::SendWr;
use rdmalab_engine::vocab::*;
use rdmalab_random::Random;
use rdmalab_ring::spsc::{Geometry, SLOT_BYTES};
use rdmalab_testing::seeds_times;
use support::node::*;
use support::storm::*;
use support::*;

/// Bytes of a ring before its slots.
const CONTROL_BYTES: u64 = 4096;
/// Where a ring has the positions that its consumer has published, and the marks of closed ends.
const CONTROL_WORDS: [u64; 4] = [128, 192, 256, 320];

#[test]
fn child_process_entry() {
    play(&[("side", side), ("flooder", flooder), ("drain", drain), ("alone", alone)]);
}

/// The ways to damage a ring. Each test case names one.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// The sequence numbers of all slots.
    Sequence,
    /// Every slot becomes zero, as if no message had ever been written.
    ZeroSlots,
    /// The consumer's positions and the marks of closed ends: one of them, any value.
    ControlWord,
    /// The position of the consumed slots, by a little.
    ConsumedSlots,
    /// The position of the released data, by a little.
    ReleasedData,
    /// A byte of each word that says what a message is and where its payload lies.
    Bodies,
    /// All of these words become zero.
    ZeroBodies,
    /// Single bytes anywhere before the data.
    RandomBytes,
    /// Everything.
    RandomRegion,
}

const WAYS: [Damage; 9] = [
    Damage::Sequence,
    Damage::ZeroSlots,
    Damage::ControlWord,
    Damage::ConsumedSlots,
    Damage::ReleasedData,
    Damage::Bodies,
    Damage::ZeroBodies,
    Damage::RandomBytes,
    Damage::RandomRegion,
];

/// The rings that process `pid` has mapped, except the one to itself.
fn rings_of(pid: i32) -> Vec<File> {
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the descriptors of our child");
    fds.flatten()
        .map(|fd| fd.path())
        .filter(|path| {
            let target = std::fs::read_link(path).unwrap_or_default();
            target.to_string_lossy().starts_with("/memfd:rdmalab-ring")
        })
        .map(|path| OpenOptions::new().read(true).write(true).open(path).expect("a ring"))
        .collect()
}

fn add(ring: &File, at: u64, change: u64) {
    let mut word = [0; 8];
    ring.read_exact_at(&mut word, at).expect("a control word");
    let changed = u64::from_le_bytes(word).wrapping_add(change);
    ring.write_all_at(&changed.to_le_bytes(), at).expect("a control word");
}

fn damage(ring: &File, way: Damage, random: &mut Random) {
    let slots = u64::from(Geometry::DEFAULT.slots());
    let slot_at = |slot: u64| CONTROL_BYTES + slot * SLOT_BYTES as u64;
    let put = |at: u64, bytes: &[u8]| ring.write_all_at(bytes, at).expect("a ring");
    match way {
        Damage::Sequence => (0..slots).for_each(|slot| put(slot_at(slot), &[0xa5; 4])),
        Damage::ZeroSlots => put(slot_at(0), &vec![0; slots as usize * SLOT_BYTES]),
        Damage::ControlWord => {
            let at = CONTROL_WORDS[random.below(4) as usize];
            put(at, &random.next_u64().to_le_bytes());
        }
        Damage::ConsumedSlots => add(ring, CONTROL_WORDS[0], random.below(4096)),
        Damage::ReleasedData => add(ring, CONTROL_WORDS[1], random.below(2 << 20)),
        Damage::Bodies => {
            for slot in 0..slots {
                (1..8).for_each(|word| put(slot_at(slot) + 8 * word, &[random.next_u64() as u8]));
            }
        }
        Damage::ZeroBodies => (0..slots).for_each(|slot| put(slot_at(slot) + 8, &[0; 56])),
        Damage::RandomBytes => {
            for _ in 0..1 + random.below(2000) {
                put(random.below(slot_at(slots)), &[random.next_u64() as u8]);
            }
        }
        Damage::RandomRegion => {
            let region: Vec<u8> = (0..slot_at(slots)).map(|_| random.next_u64() as u8).collect();
            put(0, &region);
        }
    }
}

/// Gives up after about 100 ms without an answer.
fn impatient(qp_type: QpType) -> Setup {
    Setup { timeout: 12, retry_cnt: 5, ..Setup::new(qp_type) }
}

/// Communicates until the test says that the ring is damaged. Then it posts no more; what is
/// outstanding completes.
fn side(mut topology: Topology) {
    let node = Node::open(0);
    let mem = node.mem(ROOM, Kind::Heap);
    let endpoint = node.endpoint(&impatient(QpType::Rc));
    let link = topology.link(1 - topology.index);
    endpoint.connect_over(&link);
    link.put(&[mem.addr(), mem.rkey as u64]);
    let words = link.get();
    let seed = topology.args[0] + topology.index as u64;
    let mut storm = Storm::new(endpoint, mem.clone(), (words[0], words[1] as u32), seed);
    topology.parent.put(&[]);
    while !topology.parent.ready(0) {
        for _ in 0..200 {
            storm.step();
        }
    }
    topology.parent.get();
    // Some requests more, which meet the damage, if the connection is still good.
    storm.step();
    until("every request completes", || {
        storm.answer();
        storm.sends == 0
    });
    topology.parent.put(&[]);
    until("the other side has finished", || {
        storm.answer();
        topology.parent.ready(0)
    });
}

fn damage_traffic(seed: u64, way: Damage) {
    let mut random = Random::new(seed);
    let args: &[u64] = &[seed];
    let env = [("RDMALAB_LANE", if (seed / 9).is_multiple_of(2) { "on" } else { "off" })];
    let roles: &[(&str, &[u64])] = &[("side", args), ("side", args)];
    let mut processes = Processes::start_plan(&Plan { roles, links: 1, env: &env });
    (0..2).for_each(|index| drop(processes.link(index).get()));
    std::thread::sleep(Duration::from_micros(random.below(20_000)));
    let rings = rings_of(processes.pid(random.below(2) as usize));
    assert!(rings.len() >= 2, "one ring in each direction");
    rings.iter().for_each(|ring| damage(ring, way, &mut random));
    (0..2).for_each(|index| processes.link(index).put(&[]));
    (0..2).for_each(|index| drop(processes.link(index).get()));
    (0..2).for_each(|index| processes.link(index).put(&[]));
    (0..2).for_each(|index| processes.expect_end(index));
}

#[test]
fn requests_over_a_damaged_ring_complete() {
    for seed in seeds_times(1, 36) {
        let way = WAYS[seed as usize % WAYS.len()];
        eprintln!("seed {seed}: {way:?}");
        damage_traffic(seed, way);
    }
}

/// Sends messages without answers until the test says that the ring is damaged, and some more.
fn flood(endpoint: &Endpoint, to: Address, mem: &Mem, topology: &Topology) {
    topology.parent.put(&[]);
    let sges = [mem.sge(0, 4096)];
    let is_datagram = endpoint.setup.qp_type == QpType::Ud;
    let (mut outstanding, mut left) = (0, 5000);
    until("every message completes", || {
        let goes_on = !topology.parent.ready(0);
        left -= u32::from(!goes_on && left > 0);
        while outstanding < SENDS && (goes_on || left > 0) {
            let ud = is_datagram.then(|| ud(to));
            endpoint.send(SendWr { ud, ..wr(WrOpcode::Send, &sges) });
            outstanding += 1;
        }
        outstanding -= poll(&endpoint.send_cq, 8).len();
        left == 0 && outstanding == 0
    });
}

/// The setup that the test asks for: of an unreliable connection, or of datagrams.
fn without_answers(topology: &Topology) -> Setup {
    impatient(if topology.args[0] == 0 { QpType::Uc } else { QpType::Ud })
}

fn flooder(mut topology: Topology) {
    let (node, link) = (Node::open(0), topology.link(1));
    let mem = node.mem(4096, Kind::Heap);
    let endpoint = node.endpoint(&without_answers(&topology));
    let to = endpoint.connect_over(&link);
    flood(&endpoint, to, &mem, &topology);
    link.sync();
}

/// Floods a queue pair of its own process.
fn alone(topology: Topology) {
    let node = Node::open(0);
    let mem = node.mem(4096, Kind::Heap);
    let setup = without_answers(&topology);
    let (one, other) = (node.endpoint(&setup), node.endpoint(&setup));
    one.connect(other.address());
    other.connect(one.address());
    flood(&one, other.address(), &mem, &topology);
}

fn drain(mut topology: Topology) {
    let (node, link) = (Node::open(0), topology.link(0));
    let endpoint = node.endpoint(&without_answers(&topology));
    endpoint.connect_over(&link);
    topology.parent.put(&[]);
    link.sync();
}

#[test]
fn messages_without_answers_complete_over_a_damaged_ring() {
    for seed in seeds_times(1, 18) {
        let way = WAYS[seed as usize % WAYS.len()];
        let service: &[u64] = &[seed / 9 % 2];
        eprintln!("seed {seed}: {way:?}, {}", ["UC", "UD"][service[0] as usize]);
        let mut random = Random::new(seed);
        let roles: &[&[(&str, &[u64])]] =
            &[&[("flooder", service), ("drain", service)], &[("alone", service)]];
        for roles in roles {
            let mut processes = Processes::start(roles);
            (0..roles.len()).for_each(|index| drop(processes.link(index).get()));
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
            let rings = rings_of(processes.pid(0));
            assert!(rings.len() >= roles.len(), "the ring to itself, and one in each direction");
            rings.iter().for_each(|ring| damage(ring, way, &mut random));
            processes.link(0).put(&[]);
            (0..roles.len()).for_each(|index| processes.expect_end(index));
        }
    }
}
