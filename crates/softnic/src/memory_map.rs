//! The memory map of this process, and what changed in it between two looks.
//!
//! `/proc/self/maps` shows what `munmap`, `mremap`, `mprotect` and most calls of `mmap` change, but
//! neither `madvise` nor a mapping that is replaced by one of the same kind.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Bits of an entry of `/proc/self/pagemap`: the page is in memory or in swap.
const IS_THERE: u64 = 3 << 62;

/// A range of addresses with one kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    kind: Kind,
}

/// What decides whether a range is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    /// As `rw-p`.
    rights: [u8; 4],
    inode: u64,
    /// Position in the file less the address; 0 without a file.
    delta: u64,
}

/// The mappings of this process by address; empty if they cannot be read.
pub(crate) fn mappings() -> Vec<Mapping> {
    let text = std::fs::read("/proc/self/maps").unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(parse).collect()
}

/// Reads a line as `7f00-8f00 rw-p 00000000 00:01 42    /path`.
fn parse(line: &[u8]) -> Option<Mapping> {
    // A path need not be UTF-8, and is not needed.
    let end = line.iter().take(100).position(|byte| *byte == b'/').unwrap_or(line.len());
    let mut words = std::str::from_utf8(&line[..end]).ok()?.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let rights = words.next()?.as_bytes().try_into().ok()?;
    let position = hex(words.next()?)?;
    let inode = words.nth(1)?.parse().ok()?;
    let delta = if inode == 0 { 0 } else { position.wrapping_sub(start) };
    Some(Mapping { start, end, kind: Kind { rights, inode, delta } })
}

/// The mapping that has an address.
pub(crate) fn at(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    let next = mappings.partition_point(|mapping| mapping.end <= address);
    mappings.get(next).filter(|mapping| mapping.start <= address)
}

/// Takes a range out of a list.
pub(crate) fn subtract(mappings: &mut Vec<Mapping>, start: u64, end: u64) {
    let cut = |mapping: &Mapping| {
        let before = Mapping { end: mapping.end.min(start), ..*mapping };
        let after = Mapping { start: mapping.start.max(end), ..*mapping };
        [before, after].into_iter().filter(|rest| rest.start < rest.end)
    };
    *mappings = mappings.iter().flat_map(cut).collect();
}

/// Adds a mapping to a list, in place of what the list has there.
pub(crate) fn insert(mappings: &mut Vec<Mapping>, mapping: Mapping) {
    subtract(mappings, mapping.start, mapping.end);
    let place = mappings.partition_point(|other| other.end <= mapping.start);
    mappings.insert(place, mapping);
}

/// The ranges, as begin and end, that were mapped before and are not mapped in the same way now.
/// And what is mapped now where something was mapped before.
pub(crate) fn compare(before: &[Mapping], now: &[Mapping]) -> (Vec<(u64, u64)>, Vec<Mapping>) {
    let (mut changed, mut still) = (Vec::new(), Vec::new());
    for old in before {
        let first = now.partition_point(|new| new.end <= old.start);
        let mut from = old.start;
        for new in now[first..].iter().take_while(|new| new.start < old.end) {
            let (start, end) = (new.start.max(old.start), new.end.min(old.end));
            still.push(Mapping { start, end, kind: new.kind });
            if new.kind == old.kind {
                if start > from {
                    changed.push((from, start));
                }
                from = end;
            }
        }
        if from < old.end {
            changed.push((from, old.end));
        }
    }
    (changed, still)
}

/// The page numbers, of those given, that the processor's page table has, or had before they were
/// swapped out.
pub(crate) fn mapped_pages(numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    let file = File::open("/proc/self/pagemap");
    numbers.filter(move |number| {
        let mut entry = [0; 8];
        let read = file.as_ref().map(|file| file.read_exact_at(&mut entry, number * 8));
        matches!(read, Ok(Ok(()))) && u64::from_ne_bytes(entry) & IS_THERE != 0
    })
}

#[cfg(test)]
mod tests {
    use rdmalab_engine::odp::PAGE_BYTES;

    use super::*;

    fn parsed(text: &str) -> Vec<Mapping> {
        text.lines().filter_map(|line| parse(line.as_bytes())).collect()
    }

    #[test]
    fn a_change_is_what_was_mapped_in_another_way() {
        let before = parsed(
            "1000-9000 rw-p 00000000 00:00 0\n\
             9000-b000 rw-s 00002000 00:01 7                          /a b\n\
             c000-d000 r--p 00000000 00:00 0       [heap]\n",
        );
        assert_eq!(before.len(), 3);
        assert_eq!(compare(&before, &before), (Vec::new(), before.clone()));
        // Split without a change, grown, another position in the file, and other rights.
        let now = parsed(
            "0000-4000 rw-p 00000000 00:00 0\n\
             4000-5000 r--p 00000000 00:00 0\n\
             6000-9000 rw-p 00000000 00:00 0\n\
             9000-a000 rw-s 00002000 00:01 7     /a b\n\
             a000-b000 rw-s 00004000 00:01 7     /a b\n\
             c000-f000 rw-p 00000000 00:00 0     [heap]\n",
        );
        let (changed, still) = compare(&before, &now);
        assert_eq!(changed, [(0x4000, 0x6000), (0xa000, 0xb000), (0xc000, 0xd000)]);
        assert_eq!(compare(&still, &now), (Vec::new(), still.clone()));
        assert_eq!(still.iter().map(|it| it.end - it.start).sum::<u64>(), 0x7000 + 0x2000 + 0x1000);
        assert_eq!(at(&now, 0x5fff), None);
        assert_eq!(at(&now, 0x4fff).map(|found| found.start), Some(0x4000));
    }

    #[test]
    fn a_list_stays_in_order_without_overlaps() {
        let mut list = parsed("1000-9000 rw-p 0 00:00 0\n");
        subtract(&mut list, 0x3000, 0x4000);
        insert(&mut list, parsed("2000-5000 r--p 0 00:00 0").remove(0));
        insert(&mut list, parsed("a000-b000 r--p 0 00:00 0").remove(0));
        let ranges: Vec<_> = list.iter().map(|it| (it.start, it.end)).collect();
        assert_eq!(
            ranges,
            [(0x1000, 0x2000), (0x2000, 0x5000), (0x5000, 0x9000), (0xa000, 0xb000)]
        );
    }

    #[test]
    fn this_process_has_this_memory() {
        let content = Box::new([1u8; 8192]);
        let address = content.as_ptr() as u64;
        assert!(at(&mappings(), address).is_some());
        let number = address / PAGE_BYTES;
        // The page at address 0 is never mapped.
        assert_eq!(mapped_pages([0, number].into_iter()).collect::<Vec<_>>(), [number]);
    }
}
