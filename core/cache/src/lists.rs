//! Several queues over one universe of pages, without links.
//!
//! ```text
//!   place[page] = flags │ queue │ position        4 bytes a page number
//!                                    │
//!   queue:   . . 7 3 x 9 x 4 2 8 . . .            append-only; x: stale, its page was moved or dropped
//!                ▲ tail          ▲ head
//! ```
//!
//! An entry counts only if the place of its page points back to it. So a page is moved by appending it elsewhere, and
//! the old entry becomes stale. That takes one random access per operation; a doubly linked list takes four. Stale
//! entries are skipped at the tail, and removed when the head reaches the end of the queue's memory. That memory is at
//! most [`SLACK`] times the largest number of entries.
//!
//! Not for queues with insertions elsewhere than at the head: see `SegmentedLru`.

use crate::huge;

/// Memory of a queue relative to its largest number of pages. A larger value makes squeezes rarer.
const SLACK: usize = 2;

/// Minimum number of entries in the memory of a queue.
const ROOM_MIN: usize = 64;

const POSITION_BITS: u32 = 27;
const POSITION: u32 = (1 << POSITION_BITS) - 1;
const QUEUE: u32 = 7 << POSITION_BITS;
const FLAGS_SHIFT: u32 = 30;
/// Queue and position of a page that is in no queue.
const NOWHERE: u32 = QUEUE | POSITION;

/// Up to seven queues; a page is in at most one. Two flag bits stay with each page.
#[derive(Debug, Clone)]
pub(crate) struct Lists<const N: usize> {
    place: Vec<u32>,
    queues: [Queue; N],
}

#[derive(Debug, Clone, Default)]
struct Queue {
    entries: Vec<u32>,
    tail: usize,
    /// Index between tail and head: the hand, for policies that have one.
    hand: usize,
    live: u32,
    /// Number of entries that fit in the memory.
    room: usize,
}

impl<const N: usize> Lists<N> {
    /// Creates empty queues for pages `0..universe`.
    pub fn new(universe: u32) -> Self {
        assert!(N < 7);
        let mut place = huge::with_capacity(universe as usize);
        place.resize(universe as usize, NOWHERE);
        Self {
            place,
            queues: std::array::from_fn(|_| Queue::default()),
        }
    }

    /// Returns the queue of a page.
    #[inline]
    pub fn find(&self, page: u32) -> Option<usize> {
        let queue = (self.place[page as usize] & QUEUE) >> POSITION_BITS;
        (queue < 7).then_some(queue as usize)
    }

    /// Returns the number of pages in a queue.
    #[inline]
    pub fn len(&self, queue: usize) -> u32 {
        self.queues[queue].live
    }

    /// Returns the page's two flag bits. A page that leaves all queues keeps them.
    #[inline]
    pub fn flags(&self, page: u32) -> u32 {
        self.place[page as usize] >> FLAGS_SHIFT
    }

    /// Sets the page's two flag bits.
    #[inline]
    pub fn set_flags(&mut self, page: u32, flags: u32) {
        debug_assert!(flags < 4);
        let place = &mut self.place[page as usize];
        *place = *place & !(3 << FLAGS_SHIFT) | flags << FLAGS_SHIFT;
    }

    /// Moves a page to the head of a queue.
    #[inline]
    pub fn push(&mut self, queue: usize, page: u32) {
        let old = self.place[page as usize];
        let from = (old & QUEUE) >> POSITION_BITS;
        if from < 7 {
            self.queues[from as usize].live -= 1;
        }
        if self.queues[queue].entries.len() >= self.queues[queue].room {
            // If the page is in this queue, its old entry must not survive the squeeze as live.
            self.place[page as usize] = old | NOWHERE;
            self.squeeze(queue);
        }
        let q = &mut self.queues[queue];
        let position = q.entries.len() as u32;
        q.entries.push(page);
        q.live += 1;
        self.place[page as usize] =
            old & (3 << FLAGS_SHIFT) | (queue as u32) << POSITION_BITS | position;
    }

    /// Removes a page from its queue; returns true if it was in one.
    #[inline]
    pub fn unlink(&mut self, page: u32) -> bool {
        let place = &mut self.place[page as usize];
        let from = (*place & QUEUE) >> POSITION_BITS;
        if from == 7 {
            return false;
        }
        *place |= NOWHERE;
        self.queues[from as usize].live -= 1;
        true
    }

    /// Returns the page at the tail of a queue.
    #[inline]
    pub fn oldest(&mut self, queue: usize) -> Option<u32> {
        let q = &mut self.queues[queue];
        if q.live == 0 {
            return None;
        }
        loop {
            let page = q.entries[q.tail];
            if self.place[page as usize] & NOWHERE == here(queue, q.tail) {
                return Some(page);
            }
            q.tail += 1;
        }
    }

    /// Removes and returns the page at the tail of a queue.
    #[inline]
    pub fn pop(&mut self, queue: usize) -> Option<u32> {
        let page = self.oldest(queue)?;
        self.queues[queue].tail += 1;
        self.queues[queue].live -= 1;
        self.place[page as usize] |= NOWHERE;
        Some(page)
    }

    /// Returns the page at the hand of a queue or the next one above it. Past the head, the hand restarts at the tail.
    #[inline]
    pub fn at_hand(&mut self, queue: usize) -> Option<u32> {
        let q = &mut self.queues[queue];
        if q.live == 0 {
            return None;
        }
        q.hand = q.hand.max(q.tail);
        loop {
            if q.hand >= q.entries.len() {
                q.hand = q.tail;
            }
            let page = q.entries[q.hand];
            if self.place[page as usize] & NOWHERE == here(queue, q.hand) {
                return Some(page);
            }
            // No live entry lies between tail and hand, so stale entries here need no second visit.
            q.tail += usize::from(q.tail == q.hand);
            q.hand += 1;
        }
    }

    /// Moves the hand of a queue past its present page.
    #[inline]
    pub fn advance_hand(&mut self, queue: usize) {
        self.queues[queue].hand += 1;
    }

    /// Moves the hand of a queue to the first page at or above its place, or to the tail if there is none. Pages
    /// that are pushed later are above the hand, unless the queue was empty.
    #[inline]
    pub fn settle_hand(&mut self, queue: usize) {
        let q = &mut self.queues[queue];
        while let Some(page) = q.entries.get(q.hand) {
            if self.place[*page as usize] & NOWHERE == here(queue, q.hand) {
                return;
            }
            q.hand += 1;
        }
        q.hand = q.tail;
    }

    /// Loads the place of a page.
    #[inline]
    pub fn warm(&self, page: u32) -> u32 {
        self.place[page as usize]
    }

    /// Loads the places of the next pages at the tail of a queue.
    #[inline]
    pub fn warm_tail(&self, queue: usize, pages: usize) -> u32 {
        let q = &self.queues[queue];
        self.warm_from(q, q.tail, pages)
    }

    /// Loads the places of the next pages at the hand of a queue.
    #[inline]
    pub fn warm_hand(&self, queue: usize, pages: usize) -> u32 {
        let q = &self.queues[queue];
        self.warm_from(q, q.hand, pages)
    }

    #[inline]
    fn warm_from(&self, q: &Queue, from: usize, pages: usize) -> u32 {
        let from = from.min(q.entries.len());
        let to = (from + pages).min(q.entries.len());
        let next = &q.entries[from..to];
        next.iter()
            .fold(0, |sum, page| sum ^ self.place[*page as usize])
    }

    /// Returns the pages of a queue from tail to head.
    #[cfg(test)]
    pub fn in_order(&self, queue: usize) -> Vec<u32> {
        let q = &self.queues[queue];
        let entries = q.entries.iter().enumerate().skip(q.tail);
        entries
            .filter(|(at, page)| self.place[**page as usize] & NOWHERE == here(queue, *at))
            .map(|(_, page)| *page)
            .collect()
    }

    /// Returns the bytes of all tables.
    pub fn memory_bytes(&self) -> usize {
        let queues = self.queues.iter().map(|q| q.entries.capacity());
        (self.place.capacity() + queues.sum::<usize>()) * size_of::<u32>()
    }

    /// Makes room at the head: removes stale entries, and doubles the memory if that frees too little.
    #[cold]
    #[inline(never)]
    fn squeeze(&mut self, queue: usize) {
        let q = &mut self.queues[queue];
        let (tail, hand) = (q.tail, q.hand.clamp(q.tail, q.entries.len()));
        let mut to = 0;
        let mut hand_to = 0;
        for at in tail..q.entries.len() {
            if at == hand {
                hand_to = to;
            }
            let page = q.entries[at];
            let place = self.place[page as usize];
            let live = place & NOWHERE == here(queue, at);
            // Without a branch, because stale entries are unpredictable.
            let moved = place & !NOWHERE | here(queue, to);
            self.place[page as usize] = if live { moved } else { place };
            q.entries[to] = page;
            to += usize::from(live);
        }
        debug_assert_eq!(to, q.live as usize);
        q.hand = if hand >= q.entries.len() { to } else { hand_to };
        q.tail = 0;
        q.entries.truncate(to);
        let room = room_for(to);
        if room > q.room {
            q.room = room;
            q.entries.reserve_exact(room - to);
        }
        assert!(to < q.room, "a queue of {to} pages has no positions left");
    }
}

/// Returns the number of entries to allocate for `live` pages in a queue; at most the number of positions.
fn room_for(live: usize) -> usize {
    let room = (live * SLACK).max(ROOM_MIN).next_multiple_of(ROOM_MIN);
    room.min(POSITION as usize)
}

#[inline]
fn here(queue: usize, position: usize) -> u32 {
    (queue as u32) << POSITION_BITS | position as u32
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn queues_match_deques() {
        for seed in 0..20 {
            let mut rng = algo::Rng::new(seed, 0);
            let universe = 200;
            let mut lists = Lists::<3>::new(universe);
            let mut naive: [VecDeque<u32>; 3] = Default::default();
            for _ in 0..5000 {
                let (page, queue) = (rng.below(u64::from(universe)) as u32, rng.below(3) as usize);
                match rng.below(4) {
                    0 | 1 => {
                        naive.iter_mut().for_each(|q| q.retain(|p| *p != page));
                        naive[queue].push_back(page);
                        lists.push(queue, page);
                        lists.set_flags(page, page & 3);
                    }
                    2 => assert_eq!(lists.pop(queue), naive[queue].pop_front()),
                    _ => {
                        let was = naive.iter().any(|q| q.contains(&page));
                        naive.iter_mut().for_each(|q| q.retain(|p| *p != page));
                        assert_eq!(lists.unlink(page), was);
                    }
                }
                assert_eq!(
                    lists.find(page),
                    naive.iter().position(|q| q.contains(&page))
                );
            }
            for (queue, pages) in naive.iter().enumerate() {
                assert!(lists.in_order(queue).iter().eq(pages));
                assert!(pages.iter().all(|p| lists.flags(*p) == p & 3));
            }
        }
    }

    /// The largest cache has its full slack, and policies that remember more pages stay within the positions.
    #[test]
    fn list_room_is_bounded_by_the_position_range() {
        let most = crate::CAPACITY_PAGES_MAX as usize;
        assert_eq!(room_for(most), SLACK * most);
        assert!(room_for(most) <= POSITION as usize);
        for live in [1 << 26, 3 << 25] {
            assert_eq!(room_for(live), POSITION as usize, "{live}");
        }
    }

    /// Memory follows the present content of the queues, not their traffic.
    #[test]
    fn memory_is_bounded_by_the_queue_contents() {
        let mut lists = Lists::<2>::new(1000);
        for i in 0..100_000u32 {
            lists.push((i & 1) as usize, i % 1000);
        }
        assert!(lists.memory_bytes() <= 4000 + 2 * 4 * (2 * 1000 + ROOM_MIN));
    }
}
