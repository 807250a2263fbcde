//! Receive buffers in memory regions, and how they go back to the queue.

use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{Access, Context, Mr, RecvRequest, Sge};

use super::options::{Recvq, RegionsBy, Return};
use crate::common::completions::failed;
use crate::common::links::Links;
use crate::common::local_end::memory;
use crate::common::params::Common;

/// Alignment of a buffer: a cache line.
const LINE: usize = 64;

/// All receive buffers of an end.
pub(crate) struct Buffers {
    regions: Vec<Mr>,
    /// The region of each buffer, and where in it.
    places: Vec<(usize, usize)>,
    size: usize,
}

/// Which region each buffer is in, and which place of it.
pub(crate) fn shared_out(buffers: usize, regions: usize, by: RegionsBy) -> Vec<(usize, usize)> {
    let mut filled = vec![0; regions];
    let place = |i: usize| {
        let region = match by {
            RegionsBy::Block => i * regions / buffers,
            RegionsBy::Turn => i % regions,
        };
        filled[region] += 1;
        (region, filled[region] - 1)
    };
    (0..buffers).map(place).collect()
}

/// Regions that a point asks for, of so many buffers.
pub(crate) fn regions(own: &Recvq, buffers: usize) -> usize {
    match own.regions as usize {
        0 => buffers,
        regions => regions.min(buffers),
    }
}

/// Buffers in use.
pub(crate) fn in_use(common: &Common, own: &Recvq) -> usize {
    (common.rx_depth - own.missing.min(common.rx_depth)) as usize
}

/// Bytes from one buffer to the next.
pub(crate) fn stride(common: &Common) -> usize {
    (common.size_bytes as usize).next_multiple_of(LINE)
}

impl Buffers {
    /// One piece of memory, registered in parts.
    pub fn new<R: Rank>(
        rank: &R,
        context: &Context,
        links: &Links,
        common: &Common,
        own: &Recvq,
    ) -> Result<Self, Stopped> {
        let count = in_use(common, own);
        let stride = stride(common);
        let buffer = memory(rank, context, common, (count * stride).max(LINE))?;
        let mut places = shared_out(count, regions(own, count), own.regions_by);
        let mut lengths = vec![0; regions(own, count)];
        places.iter().for_each(|(region, _)| lengths[*region] += stride);
        let mut start = 0;
        let mut made = Vec::with_capacity(lengths.len());
        for bytes in lengths {
            let region = links.pd.register_part(&buffer, start, bytes, Access::LOCAL_WRITE);
            made.push(region.map_err(failed)?);
            start += bytes;
        }
        places.iter_mut().for_each(|(_, place)| *place *= stride);
        Ok(Self { regions: made, places, size: common.size_bytes as usize })
    }

    /// The memory of each buffer.
    pub fn sges(&self) -> Vec<[Sge<'_>; 1]> {
        let sge = |(region, start): &(usize, usize)| {
            let region: &Mr = &self.regions[*region];
            [region.sge(*start, self.size)]
        };
        self.places.iter().map(sge).collect()
    }

    /// A receive for each buffer, numbered.
    pub fn requests<'s, 'm>(&self, sges: &'s [[Sge<'m>; 1]]) -> Vec<RecvRequest<'s, 'm>> {
        let request = |(i, sges): (usize, &'s [Sge<'m>; 1])| RecvRequest::new(sges).wr_id(i as u64);
        sges.iter().enumerate().map(request).collect()
    }
}

/// Posts used receives again, in the order in which they were used.
pub(crate) struct Refill<'a> {
    requests: &'a [RecvRequest<'a, 'a>],
    /// Those that are used, to be posted as a list.
    used: Vec<RecvRequest<'a, 'a>>,
    at_once: usize,
}

impl<'a> Refill<'a> {
    /// Fills the queue.
    pub fn new(
        links: &Links,
        requests: &'a [RecvRequest<'a, 'a>],
        return_at: Return,
    ) -> Result<Self, Stopped> {
        let at_once = return_at.count(requests.len());
        let mut refill = Self { requests, used: requests.to_vec(), at_once };
        refill.post(links)?;
        Ok(refill)
    }

    /// A receive was used.
    #[inline]
    pub fn used(&mut self, wr_id: u64) {
        if let Some(request) = self.requests.get(wr_id as usize) {
            self.used.push(*request);
        }
    }

    /// Posts them again where there are as many as the policy wants.
    #[inline]
    pub fn post_when_due(&mut self, links: &Links) -> Result<(), Stopped> {
        if self.used.len() >= self.at_once { self.post(links) } else { Ok(()) }
    }

    fn post(&mut self, links: &Links) -> Result<(), Stopped> {
        let posted = match &links.srq {
            Some(srq) => srq.post_recv(&self.used),
            None => links.qps[0].post_recv(&self.used),
        };
        self.used.clear();
        posted.map_err(|e| links.diagnose(failed(e)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Return;
    use super::*;

    #[test]
    fn buffers_are_shared_out_evenly() {
        for by in [RegionsBy::Block, RegionsBy::Turn] {
            for (buffers, regions) in [(1, 1), (32, 1), (32, 2), (32, 5), (32, 32), (7, 3)] {
                let places = shared_out(buffers, regions, by);
                let mut counts = vec![0; regions];
                for (region, place) in &places {
                    assert_eq!(*place, counts[*region], "places count up");
                    counts[*region] += 1;
                }
                let (least, most) = (counts.iter().min(), counts.iter().max());
                assert!(most.unwrap() - least.unwrap() <= 1, "{by} {buffers} in {regions}");
            }
        }
        let of = |by| shared_out(4, 2, by).iter().map(|p| p.0).collect::<Vec<_>>();
        assert_eq!(
            (of(RegionsBy::Block), of(RegionsBy::Turn)),
            (vec![0, 0, 1, 1], vec![0, 1, 0, 1])
        );
    }

    #[test]
    fn a_policy_says_how_many_go_back_at_once() {
        for (policy, buffers, count) in [
            (Return::Every(1), 32, 1),
            (Return::Every(8), 32, 8),
            (Return::Every(99), 32, 32),
            (Return::Half, 32, 16),
            (Return::Half, 1, 1),
            (Return::Half, 3, 2),
            (Return::All, 32, 32),
        ] {
            assert_eq!(policy.count(buffers), count, "{policy:?} of {buffers}");
        }
    }
}
