//! Packets in short form: what differs from an earlier packet of their flow.
//!
//! A thread that captures puts a packet into its queue as a [`Template`]'s name and the bytes that
//! the packet does not share with it: less to compute, and less memory to write. The thread that
//! writes the file makes blocks of them ([`super::Assembler`]). It learns of a template by the
//! [`Definition`], which it gets together with the first packets in short form.

use rdmalab_wire::headers::Bth;
use rdmalab_wire::icrc::Icrc;
use rdmalab_wire::packet::ICRC_BYTES;

use super::checksums::{self, Below, V4_BYTES, V6_BYTES};
use super::{CUT_BYTES, DATA_AT, KEPT_AT, PLAIN_END, STAMP_AT, TOTAL_AT, word};
use crate::address::FRAME_HEADER_BYTES;

/// Bit in the first word of a packet in short form. Types of blocks are smaller numbers.
pub(super) const SHORT_FORM: u32 = 1 << 31;
/// Bit in this word: the frame is cut to [`CUT_BYTES`].
const CUT: u32 = 1 << 30;
/// The other bits of this word: the low bits of the template's tag.
const TAG: u32 = CUT - 1;
/// Bytes before the tail: this word, the last word of the BTH, the time.
const FORM_BYTES: usize = 16;
/// Bytes that may be written to a tail's place, however short the tail is.
pub const TAIL_ROOM: usize = 64;
/// Bytes of the BTH that all packets of a template have in common.
const COMMON_BYTES: usize = Bth::BYTES - 4;
/// At least the block up to these bytes, in pieces of 16 bytes.
const START_BYTES: usize = (DATA_AT + FRAME_HEADER_BYTES + COMMON_BYTES).next_multiple_of(16);
/// A key that no caller uses.
pub(super) const NO_KEY: u64 = u64::MAX;
/// Templates of a queue at a time: four for each of 4096 busy connections. More of them displace
/// the oldest.
pub(super) const TEMPLATES: usize = 16_384;
/// Definitions that wait for the writer of the file at a time. Meanwhile no more are learnt.
pub(super) const FRESH: usize = 4096;
// The place of a tag follows from its low bits.
const _: () = assert!((TAG as usize + 1).is_multiple_of(TEMPLATES));

/// Whose packets are in short form: packets that have all in common but the time, the BTH's last
/// word, and the *tail*, which is the bytes between the BTH and the pad.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// What the caller knows the packets by.
    key: u64,
    /// Counts the templates of a queue. Its low bits name the template in the queue.
    tag: u64,
}

impl Template {
    /// No packet, and no caller's key.
    pub(super) const NONE: Template = Template { key: NO_KEY, tag: 0 };

    /// Whether this is the template of packets with this key.
    #[inline(always)]
    pub(super) fn is_of(&self, key: u64) -> bool {
        self.key == key
    }
}

/// A packet in short form.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Its first word.
    first: u32,
    tail_bytes: usize,
    /// All bytes, a multiple of 4.
    bytes: usize,
    /// Bytes that must be free where it is written.
    room_bytes: usize,
}

impl Form {
    const fn new(first: u32, tail_bytes: usize) -> Form {
        let bytes = FORM_BYTES + tail_bytes.next_multiple_of(4);
        let least = FORM_BYTES + TAIL_ROOM;
        let room_bytes = if bytes < least { least } else { bytes };
        Form { first, tail_bytes, bytes, room_bytes }
    }

    /// Bytes of the tail that are kept.
    #[inline(always)]
    pub fn tail_bytes(&self) -> usize {
        self.tail_bytes
    }

    /// The length of the packet in short form.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes all but the tail to the start of `out` and returns the tail's place, of [`TAIL_ROOM`]
    /// bytes at least. `psn` is the BTH's last word. `None` if there is no room.
    #[inline(always)]
    pub fn write<'a>(
        &self,
        out: &'a mut [u8],
        (at_ns, psn): (u64, [u8; 4]),
    ) -> Option<&'a mut [u8]> {
        if out.len() < self.room_bytes {
            return None;
        }
        let (form, place) = out.split_first_chunk_mut::<FORM_BYTES>()?;
        form[..4].copy_from_slice(&self.first.to_ne_bytes());
        form[4..8].copy_from_slice(&psn);
        form[8..].copy_from_slice(&at_ns.to_ne_bytes());
        Some(place)
    }
}

/// The forms of a template's packets.
#[derive(Clone, Copy, Debug)]
pub struct Forms {
    tag: u64,
    /// Of a whole packet.
    pub whole: Form,
    /// Of a packet whose frame is cut to [`CUT_BYTES`], if that makes it shorter.
    pub cut: Option<Form>,
}

/// The templates that packets of a queue may refer to.
#[derive(Debug)]
pub struct Templates {
    known: Vec<Forms>,
    last: u64,
    /// Those that the writer of the file does not know yet.
    fresh: Vec<Definition>,
}

impl Default for Templates {
    fn default() -> Templates {
        let none = Forms { tag: 0, whole: Form::new(0, 0), cut: None };
        Templates { known: vec![none], last: 0, fresh: Vec::new() }
    }
}

#[inline(always)]
fn place_of(tag: u64) -> usize {
    tag as usize % TEMPLATES
}

impl Templates {
    /// The forms of a template's packets, unless another template displaced it.
    #[inline(always)]
    pub fn forms(&self, template: &Template) -> Option<&Forms> {
        self.known.get(place_of(template.tag)).filter(|forms| forms.tag == template.tag)
    }

    /// Makes a template of a packet whose block [`super::packet()`] wrote, with a tail of
    /// `tail_bytes` behind the BTH, which lies behind headers of `below_bytes`. A block that is cut
    /// or has options besides the direction makes none, and none is made while too many are new.
    pub(super) fn learn(
        &mut self,
        key: u64,
        block: &[u8],
        (below_bytes, tail_bytes): (usize, usize),
    ) -> Option<Template> {
        if self.fresh.len() == FRESH {
            return None;
        }
        let tag = self.last + 1;
        let name = tag as u32 & TAG;
        let definition = Definition::of(name, block, below_bytes, tail_bytes)?;
        let cut = Form::new(SHORT_FORM | CUT | name, definition.cut_tail_bytes());
        let forms = Forms {
            tag,
            whole: Form::new(SHORT_FORM | name, tail_bytes),
            cut: (definition.frame_bytes > CUT_BYTES).then_some(cut),
        };
        self.last = tag;
        match self.known.get_mut(place_of(tag)) {
            Some(place) => *place = forms,
            None => self.known.push(forms),
        }
        self.fresh.push(definition);
        Some(Template { key, tag })
    }

    /// As if so many templates had been learnt.
    #[cfg(test)]
    pub(super) fn after(last: u64) -> Templates {
        let known = vec![Templates::default().known[0]; TEMPLATES];
        Templates { known, last, fresh: Vec::new() }
    }

    /// The definitions since the last call, for [`super::Assembler::assemble`].
    pub fn take_fresh(&mut self) -> Vec<Definition> {
        std::mem::take(&mut self.fresh)
    }
}

/// What the packets of a template have in common.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The low bits of the template's tag.
    name: u32,
    start: [u8; START_BYTES],
    end: [u8; PLAIN_END],
    /// Bytes from the BTH's last word to the invariant CRC.
    covered_bytes: usize,
    tail_bytes: usize,
    frame_bytes: usize,
    block_bytes: usize,
    /// The checksums after all bytes before the BTH's last word.
    icrc: Icrc,
    sum: u64,
    /// Offset in the block of UDP's checksum, if the packets have one.
    checksum_at: Option<usize>,
}

impl Definition {
    fn of(name: u32, block: &[u8], below_bytes: usize, tail_bytes: usize) -> Option<Definition> {
        let packet_bytes = (Bth::BYTES + tail_bytes).next_multiple_of(4) + ICRC_BYTES;
        let frame_bytes = below_bytes + packet_bytes;
        let block_bytes = DATA_AT + frame_bytes.next_multiple_of(4) + PLAIN_END;
        let is_whole =
            block.len() == block_bytes && word(block, KEPT_AT) == Some(frame_bytes as u32);
        let frame = block.get(DATA_AT..DATA_AT + frame_bytes).filter(|_| is_whole)?;
        let common = frame.get(below_bytes..)?.first_chunk::<COMMON_BYTES>()?;
        let Below { mut icrc, sum, is_v6 } = Below::of(frame)?;
        let mut masked = *common;
        masked[4] = 0xff;
        icrc.update(&masked);
        let mut start = [0; START_BYTES];
        for (to, from) in start.iter_mut().zip(block) {
            *to = *from;
        }
        checksums::mark_finished(&mut start);
        Some(Definition {
            name,
            start,
            end: *block.last_chunk()?,
            covered_bytes: packet_bytes - COMMON_BYTES - ICRC_BYTES,
            tail_bytes,
            frame_bytes,
            block_bytes,
            icrc,
            sum: sum + checksums::sum(common),
            checksum_at: is_v6.then_some(DATA_AT + checksums::CHECKSUM_AT),
        })
    }

    /// Bytes of the tail in a frame that is cut.
    fn cut_tail_bytes(&self) -> usize {
        let below_bytes = if self.checksum_at.is_some() { V6_BYTES } else { V4_BYTES };
        self.tail_bytes.min(CUT_BYTES - below_bytes - Bth::BYTES)
    }

    /// Writes the block of a packet in short form to the start of `out`, which has room for any
    /// block. Returns the length of the block and of the short form. `None` if it is not whole.
    #[inline]
    fn expand(&self, form: &[u8], out: &mut [u8]) -> Option<(usize, usize)> {
        match self.checksum_at {
            None => self.expand_at::<{ DATA_AT + V4_BYTES + COMMON_BYTES }>(form, out),
            Some(_) => self.expand_at::<{ DATA_AT + V6_BYTES + COMMON_BYTES }>(form, out),
        }
    }

    /// [`Definition::expand`] with the offset of the BTH's last word as a constant.
    #[inline(always)]
    fn expand_at<const PSN_AT: usize>(
        &self,
        form: &[u8],
        out: &mut [u8],
    ) -> Option<(usize, usize)> {
        let (head, tail) = form.split_first_chunk::<FORM_BYTES>()?;
        let [a, b, c, d, p, q, r, s, time @ ..] = *head;
        let start: &mut [u8; START_BYTES] = out.first_chunk_mut()?;
        *start = self.start;
        start[STAMP_AT..STAMP_AT + 8].copy_from_slice(&super::stamp(u64::from_ne_bytes(time)));
        start[PSN_AT..PSN_AT + 4].copy_from_slice(&[p, q, r, s]);
        let is_cut = u32::from_ne_bytes([a, b, c, d]) & CUT != 0;
        let tail_bytes = if is_cut { self.cut_tail_bytes() } else { self.tail_bytes };
        let (place, end) = out.get_mut(PSN_AT + 4..)?.split_at_mut_checked(tail_bytes)?;
        place.copy_from_slice(tail.get(..tail_bytes)?);
        // Pad and ICRC are shorter than the block's end, which is written next.
        *end.first_chunk_mut()? = [0; PLAIN_END];
        let block_bytes = match is_cut {
            true => self.end_cut(out, PSN_AT + 4 + tail_bytes)?,
            false => {
                self.end_whole::<PSN_AT>(out.get_mut(..self.block_bytes)?)?;
                self.block_bytes
            }
        };
        Some((block_bytes, FORM_BYTES + tail_bytes.next_multiple_of(4)))
    }

    /// Writes the end of a block and the checksums of its frame.
    #[inline(always)]
    fn end_whole<const PSN_AT: usize>(&self, block: &mut [u8]) -> Option<()> {
        *block.last_chunk_mut()? = self.end;
        let (start, rest) = block.split_at_mut_checked(PSN_AT)?;
        let (covered, trailer) = rest.split_at_mut_checked(self.covered_bytes)?;
        let mut icrc = self.icrc.clone();
        icrc.update(covered);
        let icrc = icrc.finish();
        *trailer.first_chunk_mut()? = icrc.to_le_bytes();
        if let Some(at) = self.checksum_at {
            // The CRC is little-endian in the frame.
            let sum = self.sum + checksums::sum(covered) + u64::from(icrc.to_le());
            *start.get_mut(at..)?.first_chunk_mut()? = checksums::folded(sum);
        }
        Some(())
    }

    /// The end of a block whose frame is cut.
    fn end_cut(&self, out: &mut [u8], tail_end: usize) -> Option<usize> {
        let block_bytes = DATA_AT + CUT_BYTES + PLAIN_END;
        let block = out.get_mut(..block_bytes)?;
        block.get_mut(tail_end..)?.fill(0);
        let [total, kept] = [block_bytes, CUT_BYTES].map(|bytes| (bytes as u32).to_ne_bytes());
        block[TOTAL_AT..TOTAL_AT + 4].copy_from_slice(&total);
        block[KEPT_AT..KEPT_AT + 4].copy_from_slice(&kept);
        *block.last_chunk_mut()? = self.end;
        *block.last_chunk_mut()? = total;
        Some(block_bytes)
    }
}

/// The definitions that the writer of a file knows.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    known: Vec<Option<Definition>>,
}

impl Definitions {
    /// [`Definition::expand`] with the packet's definition, which is known or comes next in
    /// `fresh`.
    #[inline]
    pub(super) fn expand(
        &mut self,
        form: &[u8],
        out: &mut [u8],
        fresh: &mut impl Iterator<Item = Definition>,
    ) -> Option<(usize, usize)> {
        let name = word(form, 0)? & TAG;
        loop {
            match self.known.get(place_of(name.into())) {
                Some(Some(known)) if known.name == name => return known.expand(form, out),
                _ => self.add(fresh.next()?),
            }
        }
    }

    /// Adds a definition, in place of an older one.
    #[cold]
    pub(super) fn add(&mut self, definition: Definition) {
        let place = place_of(definition.name.into());
        if self.known.len() <= place {
            self.known.resize(place + 1, None);
        }
        self.known[place] = Some(definition);
    }
}
