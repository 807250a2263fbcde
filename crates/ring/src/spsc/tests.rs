//! Tests of the ring within one process; `tests/processes.rs` has those between two.

use super::*;
use crate::sync::Words;

/// Memory and both ends of a new ring.
fn ring(words: &Words, slots: u32, data_bytes: u64) -> (Producer, Consumer) {
    let geometry = Geometry::new(slots, data_bytes).unwrap();
    let len = geometry.region_bytes();
    // SAFETY: zeroed words of the right size, one end of each kind, and the caller keeps the words.
    unsafe {
        format(words.base(), len, geometry).unwrap();
        (Producer::attach(words.base(), len).unwrap(), Consumer::attach(words.base(), len).unwrap())
    }
}

#[cfg(not(loom))]
mod real {
    use super::*;
    use crate::spsc::layout::GEOMETRY_AT;
    use crate::sync::word;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn words_for(slots: u32, data_bytes: u64) -> Words {
        Words::new(Geometry::new(slots, data_bytes).unwrap().region_bytes())
    }

    fn body(number: u64) -> [u64; BODY_WORDS] {
        std::array::from_fn(|index| number.wrapping_mul(index as u64 + 3))
    }

    /// Number of pages of `bytes` bytes from `start` that have memory.
    fn resident(start: *mut u8, bytes: usize) -> usize {
        let mut pages = vec![0_u8; bytes.div_ceil(crate::sync::page_bytes())];
        // SAFETY: `start` is mapped, and there is a byte for each page.
        let status = unsafe { libc::mincore(start.cast(), bytes, pages.as_mut_ptr()) };
        assert_eq!(status, 0, "mincore");
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    #[test]
    fn data_gets_pages_before_messages_reach_them() {
        let geometry = Geometry::new(64, 1 << 20).unwrap();
        let segment =
            crate::seg::Segment::create(c"ring-test", geometry.region_bytes(), 0).unwrap();
        let data = segment.ptr().wrapping_add(geometry.data_at());
        // SAFETY: a fresh segment, which outlives its only producer.
        let mut producer = unsafe {
            format(segment.ptr(), segment.len(), geometry).unwrap();
            Producer::attach(segment.ptr(), segment.len()).unwrap()
        };
        let page = crate::sync::page_bytes();
        assert_eq!(resident(data, 1 << 20), 0, "no page before the first message");
        producer.reserve_data(100).unwrap();
        let at_first = resident(data, 1 << 20);
        if at_first == 0 {
            return; // a kernel before 5.14
        }
        assert_eq!(at_first, POPULATED_BYTES as usize / page);
        // Memory follows use: as many pages at a time, and each only once.
        for _ in 0..(POPULATED_BYTES / 128) {
            producer.reserve_data(100).unwrap();
        }
        assert_eq!(resident(data, 1 << 20), 2 * at_first);
    }

    #[test]
    fn messages_arrive_in_order_and_whole_over_many_laps() {
        let words = words_for(4, 128);
        let (mut producer, mut consumer) = ring(&words, 4, 128);
        for lap in 0..1000_u64 {
            for number in lap * 3..lap * 3 + 3 {
                producer.push(number as u32, &body(number)).unwrap();
            }
            for number in lap * 3..lap * 3 + 3 {
                let slot = consumer.peek().unwrap();
                assert_eq!(slot, Slot { head: number as u32, body: body(number) });
                consumer.advance();
            }
            assert!(consumer.is_empty() && consumer.peek().is_none());
        }
        assert_eq!((producer.position(), consumer.position()), (3000, 3000));
        assert_eq!(producer.consumed(), 3000);
    }

    #[test]
    fn a_full_ring_refuses_and_recovers() {
        let words = words_for(8, 128);
        let (mut producer, mut consumer) = ring(&words, 8, 128);
        for number in 0..8 {
            assert!(producer.can_push(1));
            producer.push(number, &[0; 7]).unwrap();
        }
        assert_eq!(producer.push(8, &[0; 7]), Err(Full));
        assert!(!producer.can_push(1) && producer.can_push(0));
        assert_eq!(consumer.peek().unwrap().head, 0);
        consumer.advance();
        consumer.publish();
        assert!(producer.can_push(1) && !producer.can_push(2) && !producer.can_push(9));
        producer.push(8, &[0; 7]).unwrap();
        assert_eq!(producer.push(9, &[0; 7]), Err(Full));
        assert_eq!(producer.consumed(), 1);
    }

    #[test]
    fn sequence_numbers_survive_the_wrap_of_32_bits() {
        let words = words_for(2, 128);
        let (mut producer, mut consumer) = ring(&words, 2, 128);
        let start = u64::from(u32::MAX) - 2;
        producer.head = start;
        producer.limit = start + 2;
        consumer.position = start;
        consumer.published.set(start);
        for number in 0..6 {
            assert!(consumer.peek().is_none());
            producer.push(number, &[0; 7]).unwrap();
            assert_eq!(consumer.peek().unwrap().head, number);
            consumer.advance();
            consumer.publish();
        }
    }

    #[test]
    fn reservations_are_contiguous_aligned_and_bounded() {
        let words = words_for(8, 1024);
        let (mut producer, mut consumer) = ring(&words, 8, 1024);
        let base = producer.shape.data;
        assert_eq!(producer.geometry().max_reservation(), 512);
        assert_eq!(producer.reserve_data(513), None);
        let first = producer.reserve_data(500).unwrap();
        assert_eq!((first.pos, first.ptr), (0, base));
        let second = producer.reserve_data(130).unwrap();
        assert_eq!(second.pos, 512);
        assert_eq!(producer.data_free(), 1024 - 512 - 192);
        assert_eq!(producer.reserve_data(400), None, "320 bytes are left before the end");
        assert!(consumer.release_data(first.pos + 500));
        consumer.publish();
        let third = producer.reserve_data(400).unwrap();
        assert_eq!((third.pos, third.ptr), (1024, base), "the tail was skipped");
        assert_eq!(producer.data_free(), 1024 + 512 - 1024 - 448);
        producer.cancel_data(third);
        let fourth = producer.reserve_data(1).unwrap();
        assert_eq!(fourth.pos, 1024);
    }

    #[test]
    fn the_consumer_believes_no_position_outside_the_window() {
        let words = words_for(8, 1024);
        let (mut producer, mut consumer) = ring(&words, 8, 1024);
        let base = producer.shape.data.cast_const();
        assert_eq!(consumer.data(0, 1024), Some(base));
        for (pos, len) in [(0, 1025), (1, 1024), (1024, 1), (u64::MAX, 1), (0, usize::MAX)] {
            assert_eq!(consumer.data(pos, len), None, "{pos} {len}");
        }
        let data = producer.reserve_data(100).unwrap();
        assert!(consumer.release_data(data.pos + 100));
        assert_eq!(consumer.data(64, 1), None, "released");
        assert_eq!(consumer.data(1100, 10), Some(base.wrapping_add(76)));
        assert_eq!(consumer.data(1150, 10), None, "beyond the window");
        assert!(!consumer.release_data(64), "backwards");
        assert!(!consumer.release_data(128 + 1025), "too far");
        assert!(!consumer.release_data(u64::MAX));
        assert!(consumer.release_data(128 + 1024));
    }

    #[test]
    fn closing_is_seen_by_the_other_end() {
        let words = words_for(8, 128);
        let (producer, consumer) = ring(&words, 8, 128);
        assert!(!producer.peer_closed() && !consumer.peer_closed());
        producer.set_closed();
        assert!(!producer.peer_closed() && consumer.peer_closed());
        consumer.set_closed();
        assert!(producer.peer_closed());
    }

    #[test]
    fn each_end_notices_the_damage_that_would_stop_it() {
        let damaged = |damage: &dyn Fn(&Words)| {
            let words = words_for(4, 1024);
            let (mut producer, mut consumer) = ring(&words, 4, 1024);
            for number in 0..6 {
                producer.reserve_data(100).unwrap();
                producer.push(number, &body(0)).unwrap();
                if number < 3 {
                    assert!(consumer.peek().is_some());
                    assert!(consumer.release_data(128 * (u64::from(number) + 1)));
                    consumer.advance();
                    consumer.publish();
                }
            }
            assert!(producer.is_intact() && consumer.is_intact());
            damage(&words);
            (!producer.is_intact(), !consumer.is_intact())
        };
        let set = |words: &Words, at, value| {
            // SAFETY: a word of the control page or of the slots.
            unsafe { word(words.base(), at) }.store(value, Ordering::Relaxed)
        };
        let control = 4096;
        let slot = |position: usize| control + position % 4 * SLOT_BYTES;
        // The consumer waits for position 3, and finds what the slot never held.
        assert_eq!(damaged(&|words| set(words, slot(3), 9)), (true, true));
        // The slot looks as if it was not written. Only the producer knows that it was.
        assert_eq!(damaged(&|words| set(words, slot(3), 0)), (true, false));
        // The same for a later message.
        assert_eq!(damaged(&|words| set(words, slot(5), 0)), (true, false));
        // Positions that the consumer cannot have reached, and one that is behind the known one.
        for at in [CONSUMED_SLOTS_AT, CONSUMED_DATA_AT] {
            assert_eq!(damaged(&|words| set(words, at, 7 * 128)), (true, false));
            assert_eq!(damaged(&|words| set(words, at, u64::MAX)), (true, false));
        }
        assert_eq!(damaged(&|words| set(words, CONSUMER_CLOSED_AT, 1)), (true, false));
        // A possible position beyond the consumer's true one lets the producer overwrite messages.
        let words = words_for(4, 1024);
        let (mut producer, consumer) = ring(&words, 4, 1024);
        (0..4).for_each(|number| producer.push(number, &body(0)).unwrap());
        set(&words, CONSUMED_SLOTS_AT, 2);
        producer.push(4, &body(0)).unwrap();
        assert!(producer.is_intact() && !consumer.is_intact());
        consumer.set_closed();
        assert!(!producer.is_intact());
    }

    #[test]
    fn bad_regions_and_headers_are_refused() {
        let geometry = Geometry::new(8, 1024).unwrap();
        let len = geometry.region_bytes();
        let words = words_for(8, 1024);
        let attach = |len: usize| {
            // SAFETY: the words are mapped for `len` bytes at most.
            unsafe { Consumer::attach(words.base(), len) }.map(|_| ()).unwrap_err()
        };
        assert_eq!(attach(len), AttachError::NotARing);
        // SAFETY: refused before anything is written, or within the words.
        unsafe {
            let short = format(words.base(), len - 1, geometry);
            assert_eq!(short, Err(AttachError::BadRegion));
            let skewed = format(words.base().add(8), len, geometry);
            assert_eq!(skewed, Err(AttachError::BadRegion));
            format(words.base(), len, geometry).unwrap();
        }
        assert_eq!(attach(len - 1), AttachError::BadRegion);
        assert_eq!(attach(100), AttachError::BadRegion);
        // SAFETY: header words of the region.
        let header = |at| unsafe { word(words.base(), at) };
        header(GEOMETRY_AT).store(1 << 32 | 1 << 20, Ordering::Relaxed);
        assert_eq!(attach(len), AttachError::BadRegion, "more slots than memory");
        header(GEOMETRY_AT).store(1 << 32 | 9, Ordering::Relaxed);
        assert_eq!(attach(len), AttachError::BadGeometry);
        header(GEOMETRY_AT).store(2 << 32 | 8, Ordering::Relaxed);
        assert_eq!(attach(len), AttachError::Version { found: 2, expected: 1 });
        for (slots, data) in [(0, 1024), (1, 1024), (3, 1024), (8, 64), (8, 1000), (1 << 25, 128)] {
            assert_eq!(Geometry::new(slots, data), Err(AttachError::BadGeometry));
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push { head: u32, len: usize },
        Pop,
        Publish,
        Cancel { len: usize },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            5 => (any::<u32>(), 0..300_usize).prop_map(|(head, len)| Step::Push { head, len }),
            4 => Just(Step::Pop),
            1 => Just(Step::Publish),
            1 => (0..300_usize).prop_map(|len| Step::Cancel { len }),
        ];
        proptest::collection::vec(step, 1..200)
    }

    struct Sent {
        head: u32,
        pos: u64,
        len: usize,
        fill: u8,
    }

    fn push(producer: &mut Producer, head: u32, len: usize, fill: u8) -> Option<Sent> {
        if !producer.can_push(1) {
            return None;
        }
        let data = producer.reserve_data(len)?;
        // SAFETY: `len` bytes are reserved there, and this is the only thread.
        unsafe { data.ptr.write_bytes(fill, len) };
        let words = [data.pos, len as u64, 0, 0, 0, 0, u64::from(fill)];
        producer.push(head, &words).expect("can_push said so");
        Some(Sent { head, pos: data.pos, len, fill })
    }

    fn pop(consumer: &mut Consumer, sent: Option<Sent>) {
        let Some(sent) = sent else {
            assert_eq!(consumer.peek(), None);
            assert!(consumer.is_empty());
            return;
        };
        let slot = consumer.peek().unwrap();
        assert_eq!(slot.head, sent.head);
        let fill = u64::from(sent.fill);
        assert_eq!(slot.body, [sent.pos, sent.len as u64, 0, 0, 0, 0, fill]);
        let data = consumer.data(sent.pos, sent.len).unwrap();
        for index in 0..sent.len {
            // SAFETY: `len` bytes are there, and this is the only thread.
            assert_eq!(unsafe { data.add(index).read() }, sent.fill, "byte {index}");
        }
        assert!(consumer.release_data(sent.pos + sent.len as u64));
        consumer.advance();
    }

    proptest! {
        /// The ring is a queue: what goes in comes out, and it refuses only when it is full.
        #[test]
        fn behaves_as_a_queue(
            steps in steps(),
            slots in prop_oneof![Just(2_u32), Just(8), Just(64)],
        ) {
            let words = words_for(slots, 1024);
            let (mut producer, mut consumer) = ring(&words, slots, 1024);
            let mut queue: VecDeque<Sent> = VecDeque::new();
            for (number, step) in steps.into_iter().enumerate() {
                let fill = number as u8;
                match step {
                    Step::Push { head, len } => match push(&mut producer, head, len, fill) {
                        Some(sent) => queue.push_back(sent),
                        None => {
                            // With all positions published, only a full ring may refuse.
                            consumer.publish();
                            if let Some(sent) = push(&mut producer, head, len, fill) {
                                queue.push_back(sent);
                            } else {
                                prop_assert!(!queue.is_empty(), "an empty ring refused {len}");
                            }
                        }
                    },
                    Step::Pop => pop(&mut consumer, queue.pop_front()),
                    Step::Publish => {
                        consumer.publish();
                        prop_assert_eq!(producer.consumed(), consumer.position());
                    }
                    Step::Cancel { len } => {
                        if let Some(data) = producer.reserve_data(len) {
                            producer.cancel_data(data);
                        }
                    }
                }
                prop_assert!(queue.len() <= slots as usize);
                prop_assert!(producer.consumed() <= consumer.position());
                prop_assert!(producer.is_intact() && consumer.is_intact(), "no damage");
            }
            while let Some(sent) = queue.pop_front() {
                pop(&mut consumer, Some(sent));
            }
            pop(&mut consumer, None);
        }

        /// Whatever the shared memory holds, no end panics, and none computes an address outside
        /// the data area.
        #[test]
        fn garbage_in_memory_moves_no_address_out_of_the_region(
            garbage in proptest::collection::vec((0..(4096 + 512) / 8_usize, any::<u64>()), 0..40),
            claims in proptest::collection::vec((any::<u64>(), any::<usize>()), 1..20),
        ) {
            let words = words_for(8, 1024);
            let (mut producer, mut consumer) = ring(&words, 8, 1024);
            let area = producer.shape.data.addr()..producer.shape.data.addr() + 1024;
            for (index, value) in garbage {
                // SAFETY: a word of the control page or the slots.
                unsafe { word(words.base(), index * 8) }.store(value, Ordering::Relaxed);
                let _ = producer.push(1, &[value; 7]);
                prop_assert!(producer.consumed() <= producer.position());
                prop_assert!(producer.data_free() <= 1024);
                if let Some(data) = producer.reserve_data(value as usize % 600) {
                    let end = data.ptr.addr() + value as usize % 600;
                    prop_assert!(area.contains(&data.ptr.addr()) && end <= area.end);
                }
                if let Some(slot) = consumer.peek() {
                    for (pos, len) in claims.iter().copied().chain([(slot.body[0], 64)]) {
                        if let Some(data) = consumer.data(pos, len) {
                            prop_assert!(area.contains(&data.addr()));
                            prop_assert!(len <= area.end - data.addr());
                        }
                        consumer.release_data(pos);
                    }
                    consumer.advance();
                }
            }
        }
    }
}

#[cfg(loom)]
mod loom_model {
    use super::*;
    use crate::sync::word;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// Stands for the two reservations that a data area of 128 bytes has room for. Loom reports it
    /// when one is written while it may still be read.
    struct Data([UnsafeCell<u64>; 2]);

    // SAFETY: the cells are what the ring protects, and loom reports a race on them.
    unsafe impl Sync for Data {}
    // SAFETY: as above.
    unsafe impl Send for Data {}

    impl Data {
        fn at(&self, pos: u64) -> &UnsafeCell<u64> {
            &self.0[(pos / 64 % 2) as usize]
        }
    }

    /// Three messages with data, with room for two reservations. The consumer sees whole messages
    /// in order, with their data, which is not overwritten before it is released.
    fn three_messages(slots: u32) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let words = Arc::new(Words::new(Geometry::new(slots, 128).unwrap().region_bytes()));
            let area = Arc::new(Data([UnsafeCell::new(0), UnsafeCell::new(0)]));
            let (mut producer, mut consumer) = ring(&words, slots, 128);
            let pushing = {
                let (words, area) = (words.clone(), area.clone());
                thread::spawn(move || {
                    for number in 1..=3_u32 {
                        let data = loop {
                            if producer.can_push(1)
                                && let Some(data) = producer.reserve_data(64)
                            {
                                break data;
                            }
                            thread::yield_now();
                        };
                        // SAFETY: loom checks that nobody else is at it.
                        area.at(data.pos).with_mut(|cell| unsafe { *cell = number.into() });
                        producer.push(number, &[data.pos; 7]).unwrap();
                    }
                    drop(words);
                })
            };
            for number in 1..=3_u32 {
                let slot = loop {
                    if let Some(slot) = consumer.peek() {
                        break slot;
                    }
                    thread::yield_now();
                };
                assert_eq!((slot.head, slot.body[0]), (number, u64::from(number - 1) * 64));
                assert!(consumer.data(slot.body[0], 64).is_some());
                // SAFETY: loom checks that nobody writes it.
                let value = area.at(slot.body[0]).with(|cell| unsafe { *cell });
                assert_eq!(value, u64::from(number));
                assert!(consumer.release_data(slot.body[0] + 64));
                consumer.advance();
            }
            assert!(consumer.is_empty());
            pushing.join().unwrap();
        });
    }

    /// The slots wrap, so the producer waits for the slot cursor.
    #[test]
    fn loom_messages_are_whole_and_in_order() {
        three_messages(2);
    }

    /// Only the data wraps, so the producer waits for the data cursor alone.
    #[test]
    fn loom_data_is_not_overwritten_before_its_release() {
        three_messages(4);
    }

    /// A sender that finds its slot consumed sees what the consumer did before.
    #[test]
    fn loom_consumed_means_done() {
        loom::model(|| {
            let words = Arc::new(Words::new(Geometry::new(2, 128).unwrap().region_bytes() + 8));
            let (mut producer, mut consumer) = ring(&words, 2, 128);
            let behind = Geometry::new(2, 128).unwrap().region_bytes();
            producer.push(1, &[0; 7]).unwrap();
            let reading = {
                let words = words.clone();
                thread::spawn(move || {
                    assert_eq!(consumer.peek().unwrap().head, 1);
                    // SAFETY: the word behind the ring.
                    unsafe { word(words.base(), behind) }.store(1, Ordering::Relaxed);
                    consumer.advance();
                    consumer.publish();
                })
            };
            if producer.consumed() == 1 {
                // SAFETY: the word behind the ring.
                let done = unsafe { word(words.base(), behind) }.load(Ordering::Relaxed);
                assert_eq!(done, 1);
            }
            reading.join().unwrap();
        });
    }
}
