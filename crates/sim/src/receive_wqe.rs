//! How an adapter reads receive WQEs: in chunks of the ring, when a message took the last one that
//! it has. So every so many messages one waits for a read, which is what mordkovich2013 found.

use crate::parameters::Parameters;
use crate::time::Ps;

/// Bytes of a page, whose address the adapter translates.
const PAGE: u32 = 4096;

/// The adapter's reads of one ring of receive WQEs.
#[derive(Clone, Debug)]
pub(crate) struct WqeReader {
    /// Bytes of a WQE.
    stride: u32,
    /// WQEs of the ring.
    slots: u32,
    /// WQEs read so far.
    position: u32,
    /// Whether a read is under way.
    pub(crate) is_reading: bool,
    chunk_bytes: u32,
    chunk: Ps,
    page: Ps,
}

impl WqeReader {
    /// For the receive queue of a queue pair.
    pub(crate) fn of_queue(parameters: &Parameters, max_wr: u32, max_sge: u32) -> WqeReader {
        let stride = (16 * max_sge).max(parameters.recv_stride_bytes);
        WqeReader::new(parameters, max_wr, stride)
    }

    /// For a shared receive queue, whose WQEs have a header that links them.
    pub(crate) fn of_srq(parameters: &Parameters, max_wr: u32, max_sge: u32) -> WqeReader {
        let stride = 16 * max_sge + parameters.srq_header_bytes;
        WqeReader::new(parameters, max_wr, stride.max(parameters.srq_stride_bytes))
    }

    fn new(parameters: &Parameters, max_wr: u32, stride: u32) -> WqeReader {
        WqeReader {
            stride: stride.next_power_of_two(),
            slots: max_wr.max(1).next_power_of_two(),
            position: 0,
            is_reading: false,
            chunk_bytes: parameters.recv_chunk_bytes,
            chunk: parameters.recv_chunk_ns,
            page: parameters.recv_page_ns,
        }
    }

    /// Whether the adapter has WQEs without a read.
    pub(crate) fn is_off(&self) -> bool {
        self.chunk_bytes == 0
    }

    /// Begins to read, if `unread` WQEs are posted and not read: how many, and how long it takes.
    pub(crate) fn begin(&mut self, unread: u32) -> Option<(u32, Ps)> {
        if self.is_reading || unread == 0 {
            return None;
        }
        self.is_reading = true;
        let slot = self.position % self.slots;
        let in_chunk = (self.chunk_bytes / self.stride).max(1);
        let to_end = (in_chunk - slot % in_chunk).min(self.slots - slot);
        let begins_page = (slot * self.stride).is_multiple_of(PAGE) && self.position > 0;
        let time = self.chunk + if begins_page { self.page } else { Ps::ZERO };
        Some((to_end.min(unread), time))
    }

    /// A read has ended.
    pub(crate) fn end(&mut self, count: u32) {
        self.is_reading = false;
        self.position = self.position.wrapping_add(count);
    }

    /// The ring has another size; what was read stays read.
    pub(crate) fn resize(&mut self, max_wr: u32) {
        (self.slots, self.position) = (max_wr.max(1).next_power_of_two(), 0);
    }

    /// The queue is empty again (RESET).
    pub(crate) fn reset(&mut self) {
        (self.position, self.is_reading) = (0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Parameters {
        let mut parameters = Parameters::least();
        for (name, value) in [
            ("recv_chunk_bytes", 512.0),
            ("recv_chunk_ns", 680.0),
            ("recv_page_ns", 550.0),
            ("srq_header_bytes", 16.0),
            ("srq_stride_bytes", 32.0),
        ] {
            parameters.set(name, value).unwrap();
        }
        parameters
    }

    /// The places of the messages that wait, among `messages` of a ring that is always full.
    fn waits(mut reader: WqeReader, messages: u32, full: u32) -> Vec<(u32, f64)> {
        let (mut have, mut waits) = (0, Vec::new());
        for message in 0..messages {
            if have == 0 {
                let (count, time) = reader.begin(full).unwrap();
                reader.end(count);
                have = count;
                waits.push((message, time.ns()));
            }
            have -= 1;
        }
        waits
    }

    #[test]
    fn a_shared_queue_waits_every_16th_time_and_longer_at_its_begin() {
        let srq = WqeReader::of_srq(&parameters(), 32, 1);
        let expected = [(0, 680.0), (16, 680.0), (32, 1230.0), (48, 680.0), (64, 1230.0)];
        assert_eq!(waits(srq, 65, 32), expected);
    }

    #[test]
    fn more_pieces_make_wqes_longer_and_waits_more_frequent() {
        // Every 16th, 8th, 4th, 2nd and each receive, by the groups of max_sge of the study.
        for (max_sge, period) in [(1, 16), (2, 8), (3, 8), (4, 4), (7, 4), (8, 2), (15, 2), (16, 1)]
        {
            let srq = WqeReader::of_srq(&parameters(), 1 << 14, max_sge);
            assert_eq!(waits(srq, 64, 1 << 14)[1].0, period, "max_sge {max_sge}");
        }
        let own = WqeReader::of_queue(&parameters(), 1 << 14, 1);
        assert_eq!(waits(own, 64, 1 << 14)[1].0, 32);
    }
}
