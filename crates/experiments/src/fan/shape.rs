//! The repetitions of a fan, their sizes, and where messages lie.

use rdmalab_verbs::UD_GRH_BYTES;

use super::options::{Fan, Sizes};
use crate::common::params::{Common, Transport};

/// Alignment of a message: a cache line.
const LINE: usize = 64;
/// Marks of repetitions; above them are those that say that a part is over.
const MARKS: u64 = 250;
/// The length of a message that only says something.
pub(crate) const NOTE_BYTES: u64 = 1;

/// The byte by which a repetition's messages are known: their last one. Never 0.
pub(crate) const fn mark(repetition: u64) -> u8 {
    (repetition % MARKS) as u8 + 1
}

/// The byte that says that a part is over: another one than the part before has.
pub(crate) const fn done(part: usize) -> u8 {
    254 + (part % 2) as u8
}

/// The repetition that a mark belongs to, where `expected` or a later one is expected; `None` where
/// it is an old one, or none.
pub(crate) fn repetition_of(found: u8, expected: u64) -> Option<u64> {
    if found == 0 || u64::from(found) > MARKS {
        return None;
    }
    let ahead = (u64::from(found) + MARKS - u64::from(mark(expected))) % MARKS;
    (ahead < MARKS / 2).then_some(expected + ahead)
}

/// The sizes that a point goes through.
pub(crate) fn sizes(common: &Common, own: &Fan) -> Vec<u64> {
    let most = common.size_bytes;
    match own.sizes {
        Sizes::Alone => vec![most],
        Sizes::Series | Sizes::Random => {
            let mut sizes: Vec<u64> = (0..63).map(|i| 1 << i).take_while(|s| *s < most).collect();
            sizes.push(most);
            sizes
        }
    }
}

/// Repetitions of each part: warm-up, then runs.
pub(crate) fn parts(common: &Common, own: &Fan) -> Vec<u64> {
    let run = common.messages.saturating_mul(sizes(common, own).len() as u64);
    let warm_up = (common.warm_up > 0).then_some(common.warm_up);
    warm_up.into_iter().chain((0..common.runs).map(|_| run)).collect()
}

/// Repetitions of a point, warm-up included.
pub(crate) fn repetitions(common: &Common, own: &Fan) -> u64 {
    parts(common, own).iter().fold(0, |sum, part| sum.saturating_add(*part))
}

/// The size of each repetition, which each rank computes by itself.
pub(crate) struct Schedule {
    sizes: Vec<u64>,
    order: Sizes,
    messages: u64,
    warm_up: u64,
    seed: u64,
}

impl Schedule {
    pub fn of(common: &Common, own: &Fan) -> Self {
        Self {
            sizes: sizes(common, own),
            order: own.sizes,
            messages: common.messages,
            warm_up: common.warm_up,
            seed: common.seed,
        }
    }

    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// The index of the size of a repetition, counted from the first of all parts.
    pub fn index(&self, repetition: u64) -> usize {
        let count = self.sizes.len() as u64;
        let index = match (self.order, repetition.checked_sub(self.warm_up)) {
            (Sizes::Alone, _) => 0,
            (Sizes::Series, None) => repetition % count,
            (Sizes::Series, Some(i)) => i / self.messages % count,
            (Sizes::Random, _) => rdmalab_random::nth(self.seed, repetition) % count,
        };
        index as usize
    }

    pub fn size(&self, repetition: u64) -> u64 {
        self.sizes[self.index(repetition)]
    }
}

/// Where messages lie in the memory of a rank. A message ends where its place ends, whatever its
/// length, so that its mark is looked for in one byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    stride: usize,
    grh: usize,
    places: usize,
}

impl Shape {
    /// For so many places of incoming messages.
    pub fn of(common: &Common, places: usize) -> Self {
        let grh = if common.transport == Transport::Ud { UD_GRH_BYTES } else { 0 };
        let stride = (common.size_bytes as usize + grh).next_multiple_of(LINE);
        Self { stride, grh, places }
    }

    pub fn bytes(&self) -> usize {
        (self.places + 2) * self.stride
    }

    /// Where an outgoing message of that length begins.
    pub fn out_at(&self, bytes: u64) -> usize {
        self.stride - bytes as usize
    }

    /// The last byte of what goes out.
    pub fn out_mark(&self) -> usize {
        self.stride - 1
    }

    /// Where an outgoing note begins, beside the message that others READ meanwhile.
    pub fn note_at(&self) -> usize {
        2 * self.stride - NOTE_BYTES as usize
    }

    fn in_start(&self, place: usize) -> usize {
        (2 + place) * self.stride
    }

    /// Where a message of that length that is written to a place begins.
    pub fn written_at(&self, place: usize, bytes: u64) -> usize {
        self.in_start(place) + self.stride - bytes as usize
    }

    /// The last byte of what is written to a place.
    pub fn written_mark(&self, place: usize) -> usize {
        self.in_start(place) + self.stride - 1
    }

    /// Where a receive begins.
    pub fn recv_at(&self, place: usize) -> usize {
        self.in_start(place)
    }

    /// Bytes of a receive.
    pub fn recv_bytes(&self) -> usize {
        self.stride
    }

    /// The last byte of what was received: `byte_len` counts the GRH in.
    pub fn received_mark(&self, place: usize, byte_len: u32) -> usize {
        let end = (byte_len as usize).clamp(self.grh + 1, self.stride);
        self.in_start(place) + end - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    fn options(sizes: Sizes, size_bytes: u64) -> (Common, Fan) {
        let common = Common { size_bytes, messages: 10, warm_up: 7, runs: 2, ..Fan::COMMON };
        (common, Fan { sizes, ..Fan::OWN })
    }

    fn sizes_of(order: Sizes, size_bytes: u64) -> Vec<u64> {
        let (common, own) = options(order, size_bytes);
        sizes(&common, &own)
    }

    fn parts_of(order: Sizes, size_bytes: u64) -> Vec<u64> {
        let (common, own) = options(order, size_bytes);
        parts(&common, &own)
    }

    fn course_of(order: Sizes, size_bytes: u64) -> Schedule {
        let (common, own) = options(order, size_bytes);
        Schedule::of(&common, &own)
    }

    #[test]
    fn marks_tell_this_repetition_from_others() {
        for expected in [0, 1, 249, 250, 251, 1000] {
            for ahead in [0, 1, 100, 124] {
                let found = mark(expected + ahead);
                assert_eq!(repetition_of(found, expected), Some(expected + ahead));
            }
        }
        assert_eq!(repetition_of(mark(999), 1000), None, "an old one");
        assert_eq!((repetition_of(0, 5), repetition_of(done(0), 5)), (None, None));
        assert!(done(0) != done(1) && u64::from(done(0)) > MARKS);
    }

    #[test]
    fn sizes_double_and_each_has_its_share() {
        assert_eq!(sizes_of(Sizes::Alone, 100), [100]);
        assert_eq!(sizes_of(Sizes::Series, 8), [1, 2, 4, 8]);
        assert_eq!(sizes_of(Sizes::Series, 9), [1, 2, 4, 8, 9]);
        assert_eq!(sizes_of(Sizes::Random, 1), [1]);
        assert_eq!(parts_of(Sizes::Series, 8), [7, 40, 40]);
        let schedule = course_of(Sizes::Series, 8);
        let run: Vec<u64> = (7..47).map(|i| schedule.size(i)).collect();
        assert_eq!((run[0], run[9], run[10], run[39]), (1, 1, 2, 8));
        assert_eq!(schedule.size(47), 1, "the next run begins anew");
        let schedule = course_of(Sizes::Random, 8);
        for size in [1, 2, 4, 8] {
            let times = (0..4000).filter(|i| schedule.size(*i) == size).count();
            assert!((850..1150).contains(&times), "{size}: {times} of 4000");
        }
    }

    #[test]
    fn places_do_not_overlap_and_marks_lie_at_their_ends() {
        for transport in [Transport::Rc, Transport::Ud] {
            for size in [1, 8, 63, 64, 65, 4096] {
                let common = Common { transport, ..options(Sizes::Alone, size).0 };
                let shape = Shape::of(&common, 3);
                assert_eq!(shape.out_at(size) + size as usize, shape.out_mark() + 1);
                assert!(shape.out_mark() < shape.note_at());
                assert!(shape.note_at() < shape.recv_at(0));
                assert!(shape.written_at(1, size) >= shape.recv_at(1));
                assert_eq!(shape.written_mark(1) + 1, shape.recv_at(2));
                assert_eq!(shape.recv_at(2) + shape.recv_bytes(), shape.bytes());
                let grh = if transport == Transport::Ud { 40 } else { 0 };
                let mark = shape.received_mark(0, grh + size as u32);
                assert_eq!(mark, shape.recv_at(0) + grh as usize + size as usize - 1);
            }
        }
    }
}
