//! A buddy allocator of page numbers. It allocates no memory itself: its tables lie where the
//! caller says, so that it works inside `malloc`.

/// No page.
const NONE: u32 = u32::MAX;
/// Tag of the first page of a free block, with the order in the low bits.
const FREE: u8 = 0x40;
/// Tag of the first page of a used block, likewise.
const USED: u8 = 0x80;
/// Tag of a used block that a function of `malloc`'s family has given out.
const HEAP: u8 = 0x20;
/// The order in a tag.
const ORDER: u8 = 0x1f;
/// Orders: blocks of 2^0 to 2^31 pages.
const ORDERS: usize = 32;

/// What is known of a page. Zero for all pages that begin no block.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Page {
    /// The next free block of this order. Of a used block: how many of its pages are live.
    next: u32,
    /// The previous free block of this order.
    previous: u32,
    tag: u8,
    /// Whether the page is in use; what for is the caller's matter.
    pub(crate) state: u8,
    /// Whether a child by `fork` does not get the page (`MADV_DONTFORK`).
    pub(crate) is_withheld: bool,
}

/// The allocator.
pub(crate) struct Buddy {
    /// One entry for each page; a power of two, of zeroes at first.
    pub(crate) pages: &'static mut [Page],
    /// The first free block of each order.
    free: [u32; ORDERS],
}

impl Buddy {
    /// All pages are free.
    pub(crate) fn new(pages: &'static mut [Page]) -> Buddy {
        let order = pages.len().trailing_zeros();
        debug_assert!(pages.len().is_power_of_two() && (order as usize) < ORDERS);
        let mut buddy = Buddy { pages, free: [NONE; ORDERS] };
        buddy.push(0, order as u8);
        buddy
    }

    fn push(&mut self, block: u32, order: u8) {
        let next = self.free[order as usize];
        let page = &mut self.pages[block as usize];
        (page.next, page.previous, page.tag) = (next, NONE, FREE | order);
        if next != NONE {
            self.pages[next as usize].previous = block;
        }
        self.free[order as usize] = block;
    }

    fn unlink(&mut self, block: u32, order: u8) {
        let Page { next, previous, .. } = self.pages[block as usize];
        match previous {
            NONE => self.free[order as usize] = next,
            _ => self.pages[previous as usize].next = next,
        }
        if next != NONE {
            self.pages[next as usize].previous = previous;
        }
        self.pages[block as usize].tag = 0;
    }

    /// Takes a block of at least `pages` pages, at a multiple of its own size and of `align` pages
    /// (a power of two). `pages` of it are live.
    pub(crate) fn take(&mut self, pages: usize, align: usize) -> Option<usize> {
        let order = pages.max(align).checked_next_power_of_two()?.trailing_zeros() as u8;
        let found = (order..ORDERS as u8).find(|larger| self.free[*larger as usize] != NONE)?;
        let block = self.free[found as usize];
        self.unlink(block, found);
        for smaller in (order..found).rev() {
            self.push(block + (1 << smaller), smaller);
        }
        let page = &mut self.pages[block as usize];
        (page.tag, page.next) = (USED | order, pages as u32);
        Some(block as usize)
    }

    /// Gives a used block back, and joins it with its free neighbours.
    pub(crate) fn give_back(&mut self, block: usize) {
        let (mut block, mut order) = (block as u32, self.pages[block].tag & ORDER);
        self.pages[block as usize].tag = 0;
        while (1_usize << order) < self.pages.len() {
            let neighbour = block ^ 1 << order;
            if self.pages[neighbour as usize].tag != FREE | order {
                break;
            }
            self.unlink(neighbour, order);
            block &= neighbour;
            order += 1;
        }
        self.push(block, order);
    }

    /// Takes one free page as a block of its own. `false` if it is in a used block.
    pub(crate) fn claim(&mut self, page: usize) -> bool {
        let found = (0..ORDERS as u8)
            .map(|order| (page >> order << order, order))
            .take_while(|(_, order)| 1_usize << order <= self.pages.len())
            .find(|(block, order)| self.pages[*block].tag == FREE | order);
        let Some((block, order)) = found else { return false };
        self.unlink(block as u32, order);
        for smaller in (0..order).rev() {
            // The half that does not contain the page stays free.
            let half = page >> smaller ^ 1;
            self.push((half << smaller) as u32, smaller);
        }
        let page = &mut self.pages[page];
        (page.tag, page.next) = (USED, 0);
        true
    }

    /// Marks a used block as given out by `malloc` or a relative.
    pub(crate) fn mark_heap(&mut self, block: usize) {
        self.pages[block].tag |= HEAP;
    }

    /// Whether a block that is so marked begins at a page.
    pub(crate) fn is_heap(&self, page: usize) -> bool {
        self.pages[page].tag & (USED | HEAP) == USED | HEAP
    }

    /// Whether a used block begins at a page.
    pub(crate) fn is_used(&self, page: usize) -> bool {
        self.pages[page].tag & USED != 0
    }

    /// The used block that contains a page.
    pub(crate) fn block_of(&self, page: usize) -> Option<usize> {
        (0..ORDERS as u8)
            .map(|order| (page >> order << order, order))
            .take_while(|(_, order)| 1_usize << order <= self.pages.len())
            .find(|(block, order)| self.pages[*block].tag & !HEAP == USED | order)
            .map(|(block, _)| block)
    }

    /// The number of pages of a used block.
    pub(crate) fn capacity(&self, block: usize) -> usize {
        1 << (self.pages[block].tag & ORDER)
    }

    /// The number of live pages of a used block.
    pub(crate) fn live(&mut self, block: usize) -> &mut u32 {
        &mut self.pages[block].next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buddy(pages: usize) -> Buddy {
        let zero = Page { next: 0, previous: 0, tag: 0, state: 0, is_withheld: false };
        Buddy::new(Vec::leak(vec![zero; pages]))
    }

    #[test]
    fn blocks_are_aligned_and_join_again() {
        let mut buddy = buddy(64);
        let one = buddy.take(1, 1).unwrap();
        let many = buddy.take(9, 1).unwrap();
        let aligned = buddy.take(1, 8).unwrap();
        assert!(many.is_multiple_of(16) && aligned.is_multiple_of(8));
        assert_eq!((buddy.capacity(many), *buddy.live(many)), (16, 9));
        assert_eq!(buddy.block_of(many + 15), Some(many));
        assert_eq!(buddy.take(64, 1), None);
        [many, one, aligned].into_iter().for_each(|block| buddy.give_back(block));
        assert_eq!(buddy.take(64, 1), Some(0));
    }

    #[test]
    fn a_claimed_page_is_given_to_nobody_else() {
        let mut buddy = buddy(64);
        assert!(buddy.claim(37) && !buddy.claim(37));
        assert_eq!((buddy.block_of(37), buddy.capacity(37)), (Some(37), 1));
        let rest: Vec<usize> = std::iter::from_fn(|| buddy.take(1, 1)).collect();
        assert!(rest.len() == 63 && !rest.contains(&37));
        rest.into_iter().chain([37]).for_each(|block| buddy.give_back(block));
        assert_eq!(buddy.take(64, 1), Some(0));
    }

    #[test]
    fn blocks_never_overlap() {
        let (mut buddy, mut held, mut seed) = (buddy(1024), Vec::<(usize, usize)>::new(), 1_u64);
        let mut draw = |end: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            (seed >> 33) % end
        };
        for _ in 0..20_000 {
            let pages = 1 + draw(40) as usize;
            match buddy.take(pages, 1 << draw(4)) {
                Some(block) if draw(3) > 0 => {
                    let is_apart = |(other, count): &(usize, usize)| {
                        block + pages <= *other || other + count <= block
                    };
                    assert!(held.iter().all(is_apart) && block + pages <= 1024);
                    assert_eq!(buddy.block_of(block + pages - 1), Some(block));
                    held.push((block, pages));
                }
                Some(block) => buddy.give_back(block),
                None => {
                    let (block, _) = held.swap_remove(draw(held.len() as u64) as usize);
                    buddy.give_back(block);
                }
            }
        }
        held.into_iter().for_each(|(block, _)| buddy.give_back(block));
        assert_eq!(buddy.take(1024, 1), Some(0));
    }
}
