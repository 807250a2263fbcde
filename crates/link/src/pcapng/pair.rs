//! Decides which packets get a [`Template`].

use std::cell::Cell;

use super::template::{NO_KEY, Template, Templates};

/// What a packet adds to the count of its key. A packet with another key takes 1 from it, so that
/// two or three keys that alternate are learnt too, but rare ones are not.
const SAME: u32 = 3;
/// The count that a template needs: that of four packets.
const NEEDED: u32 = 4 * SAME;
/// Each template doubles the count that the next one needs, up to this one. So few are made if
/// more keys alternate than there are templates.
const NEEDED_MAX: u32 = 4096 * SAME;

/// Two templates for packets with different keys, and the key that may get the next one.
#[derive(Debug)]
pub struct TemplatePair {
    known: [Cell<Template>; 2],
    next: Cell<Next>,
}

#[derive(Clone, Copy, Debug)]
struct Next {
    key: u64,
    count: u32,
    needed: u32,
    /// Which template it displaces.
    place: usize,
}

impl TemplatePair {
    /// No template.
    pub const fn new() -> TemplatePair {
        let next = Next { key: NO_KEY, count: 0, needed: NEEDED, place: 0 };
        TemplatePair { known: [const { Cell::new(Template::NONE) }; 2], next: Cell::new(next) }
    }

    /// The template of packets with this key.
    #[inline(always)]
    pub fn of(&self, key: u64) -> Option<Template> {
        let [one, other] = [self.known[0].get(), self.known[1].get()];
        if one.is_of(key) {
            return Some(one);
        }
        Some(other).filter(|other| other.is_of(key))
    }

    /// Counts a packet that was queued whole. Returns whether to learn it ([`Self::learn`]).
    pub fn wants(&self, key: u64, templates: &Templates) -> bool {
        // It has a template, but also an option, or there was no room.
        if self.of(key).is_some_and(|known| templates.forms(&known).is_some()) {
            return false;
        }
        let mut next = self.next.get();
        if next.count == 0 {
            next.key = key;
        }
        next.count = match next.key == key {
            true => next.count.saturating_add(SAME),
            false => next.count - 1,
        };
        self.next.set(next);
        next.key == key && next.count >= next.needed
    }

    /// Makes a template of a packet. It displaces one with the same key, which the queue does not
    /// know any more, or else the older one.
    pub fn learn(
        &self,
        key: u64,
        block: &[u8],
        lengths: (usize, usize),
        templates: &mut Templates,
    ) {
        let Some(template) = templates.learn(key, block, lengths) else { return };
        let Next { needed, place, .. } = self.next.get();
        let same = self.known.iter().position(|known| known.get().is_of(key));
        let place = same.unwrap_or(place);
        self.known[place].set(template);
        let needed = (2 * needed).min(NEEDED_MAX);
        self.next.set(Next { key: NO_KEY, count: 0, needed, place: 1 - place });
    }

    /// Forgets the templates, but not how many were learnt.
    pub fn forget(&self) {
        let next = self.next.get();
        self.next.set(Next { key: NO_KEY, count: 0, ..next });
        self.known.iter().for_each(|known| known.set(Template::NONE));
    }
}

impl Default for TemplatePair {
    fn default() -> TemplatePair {
        TemplatePair::new()
    }
}
