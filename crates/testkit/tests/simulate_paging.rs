//! On-Demand Paging: what becomes of a request or response whose page is missing.

use rdmalab_engine::backend::SendWr;
use rdmalab_engine::vocab::*;
use rdmalab_testkit::sim::{At, LEFT, Pair, PairConfig, RIGHT, blank, datagram_to};
use rdmalab_wire::ids::PathMtu;

use WcStatus as W;

const PAGE: usize = 4096;

const RIGHTS: Access =
    Access(Access::LOCAL_WRITE.0 | Access::REMOTE_WRITE.0 | Access::REMOTE_READ.0);

fn paged(qp_type: QpType) -> Pair {
    let mut config = PairConfig { on_demand: true, ..PairConfig::new(qp_type) };
    // A wait of 2.56 ms, in which every page comes.
    config.attr.min_rnr_timer = 16;
    config.mtu = PathMtu::Mtu1024;
    let mut pair = Pair::new(config);
    pair.world.tracing = true;
    pair
}

/// How many trains an end sent whose description has this word.
fn sent(pair: &Pair, at: At, word: &str) -> usize {
    let from = format!("At {{ device: {}, qp: 0 }} sends", at.device);
    let is_one = |event: &&String| event.contains(&from) && event.contains(word);
    pair.world.trace.iter().filter(is_one).count()
}

#[test]
fn an_unreliable_message_that_faults_is_lost_and_the_next_one_arrives() {
    for qp_type in [QpType::Uc, QpType::Ud] {
        let mut pair = paged(qp_type);
        let buffer = pair.receive(RIGHT, 1, 2 * PAGE);
        let to = datagram_to(pair.world.qp(RIGHT).qp.qpn, 0x1111_1111);
        let ud = (qp_type == QpType::Ud).then_some(to);
        let payload = pair.buffer(LEFT, &[7; 100]);
        let send = SendWr { sges: &[payload], ud, ..blank(1, WrOpcode::Send) };
        pair.post(LEFT, send).unwrap();
        pair.world.settle();
        assert_eq!((pair.sent(LEFT), pair.received(RIGHT)), (vec![(1, W::Success)], vec![]));
        pair.post(LEFT, SendWr { wr_id: 2, ..send }).unwrap();
        pair.world.settle();
        assert_eq!(pair.received(RIGHT), [(1, W::Success)], "{qp_type:?}");
        let header = if qp_type == QpType::Ud { 40 } else { 0 };
        assert_eq!(pair.device(RIGHT).memory.read(buffer.addr + header, 100), [7; 100]);
    }
}

/// A long message asks for all its pages at once, whether it comes as a train or in packets.
#[test]
fn a_message_waits_once_for_all_its_pages() {
    for max_train_bytes in [1, u32::MAX] {
        let mut pair = paged(QpType::Rc);
        pair.world.knobs.max_train_bytes = max_train_bytes;
        let bytes: Vec<u8> = (0..16 * PAGE).map(|at| (at * 7 + at / 251) as u8).collect();
        let (addr, rkey) = pair.region(RIGHT, &vec![0; bytes.len()], RIGHTS);
        let from = pair.buffer(LEFT, &bytes);
        let write = SendWr { sges: &[from], remote_addr: addr, rkey, ..blank(1, WrOpcode::Write) };
        pair.post(LEFT, write).unwrap();
        pair.world.settle();
        assert_eq!(pair.sent(LEFT), [(1, W::Success)]);
        assert_eq!(pair.device(RIGHT).memory.read(addr, bytes.len()), &bytes[..]);
        assert_eq!(sent(&pair, RIGHT, "RnrNak"), 1, "trains of {max_train_bytes} bytes");

        let to = pair.buffer(LEFT, &vec![0; bytes.len()]);
        let read = SendWr { sges: &[to], remote_addr: addr, rkey, ..blank(2, WrOpcode::Read) };
        pair.post(LEFT, read).unwrap();
        pair.world.settle();
        assert_eq!(pair.sent(LEFT)[1], (2, W::Success));
        assert_eq!(pair.device(LEFT).memory.read(to.addr, bytes.len()), &bytes[..]);
    }
}

/// The pages of a READ were there when it was accepted, and are taken away before it is answered.
#[test]
fn the_data_of_a_read_waits_for_its_page() {
    let mut pair = paged(QpType::Rc);
    let (addr, rkey) = pair.region(RIGHT, &[5; 2 * PAGE], RIGHTS);
    let to = pair.buffer(LEFT, &[0; 2 * PAGE]);
    let read = SendWr { sges: &[to], remote_addr: addr, rkey, ..blank(1, WrOpcode::Read) };
    pair.post(LEFT, read).unwrap();
    pair.world.settle();
    pair.world.trace.clear();

    pair.post(LEFT, SendWr { wr_id: 2, ..read }).unwrap();
    while pair.world.work() {}
    pair.world.now_ns = pair.world.next_ns().unwrap();
    let request = pair.world.link.receive(pair.world.now_ns).unwrap();
    pair.world.give(RIGHT, request);
    pair.world.accept_all(RIGHT);
    let pages = &mut pair.device(RIGHT).paged.as_mut().unwrap().pages;
    pages.invalidate(addr + PAGE as u64, 1);
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(1, W::Success), (2, W::Success)]);
    assert_eq!(sent(&pair, LEFT, "ReadRequest"), 1, "nothing is repeated");
    assert!(sent(&pair, RIGHT, "ReadResponse") >= 2, "what is there is sent before");
}

#[test]
fn a_request_whose_payload_waits_fails_when_the_region_goes() {
    let mut pair = paged(QpType::Rc);
    pair.receive(RIGHT, 1, PAGE);
    let lkey = pair.lkeys[LEFT.device];
    let payload = pair.buffer(LEFT, &[7; 100]);
    pair.post(LEFT, SendWr { sges: &[payload], ..blank(1, WrOpcode::Send) }).unwrap();
    while pair.world.work() {}
    assert_eq!((pair.sent(LEFT), sent(&pair, LEFT, "Send")), (vec![], 0));
    let device = pair.device(LEFT);
    device.keys.remove(&lkey);
    device.paged.as_mut().unwrap().pages.deregister(lkey);
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(1, W::LocProtErr)]);
}

/// The release of a NAK that a RESET discarded must not let a NAK of the new connection leave.
#[test]
fn a_nak_that_a_reset_discards_releases_no_later_one() {
    const NAK_NS: u64 = 3_000_000;
    let mut pair = paged(QpType::Rc);
    pair.device(RIGHT).paged.as_mut().unwrap().nak_ns = Some(NAK_NS);
    let (addr, rkey) = pair.region(RIGHT, &[0; 3 * PAGE], RIGHTS);
    let from = pair.buffer(LEFT, &[7; 100]);
    let write = SendWr { sges: &[from], remote_addr: addr, rkey, ..blank(1, WrOpcode::Write) };
    let naks_held = |pair: &mut Pair| pair.device(RIGHT).paged.as_ref().unwrap().naks_held;

    pair.post(LEFT, write).unwrap();
    let first_ns = step_until(&mut pair, |pair| naks_held(pair) == 1);
    let reset = QpAttr { qp_state: QpState::Reset, ..QpAttr::default() };
    for at in [LEFT, RIGHT] {
        pair.world.modify(at, &reset, QpAttrMask::STATE);
    }
    for at in [LEFT, RIGHT] {
        pair.connect(at);
    }
    let elsewhere = addr + 2 * PAGE as u64;
    pair.post(LEFT, SendWr { wr_id: 2, remote_addr: elsewhere, ..write }).unwrap();
    let second_ns = step_until(&mut pair, |pair| naks_held(pair) == 2);
    assert!(second_ns < first_ns + NAK_NS, "the first one is still to be released");
    let left_ns = step_until(&mut pair, |pair| sent(pair, RIGHT, "RnrNak") == 1);
    assert_eq!(left_ns, second_ns + NAK_NS);
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(2, W::Success)]);
}

/// Lets time pass until something holds; returns when that is.
fn step_until(pair: &mut Pair, mut holds: impl FnMut(&mut Pair) -> bool) -> u64 {
    loop {
        while pair.world.work() {}
        if holds(pair) {
            return pair.world.now_ns;
        }
        pair.world.now_ns = pair.world.next_ns().expect("something is still to happen");
    }
}
