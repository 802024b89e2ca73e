//! LRU queue with 20 insertion positions.
//!
//! ```text
//!   ticket[page] ──▶ pages[ticket], segment[ticket]      log of insertions and hits; a hit takes a new ticket
//!
//!   queues:  0 ▏t t t ▏ 1 ▏t t x t ▏ …  ▏ 19 ▏t x t t ▏  tickets in the queue's order, x: replaced by a newer one
//! ```
//!
//! One logical queue is cut at multiples of 5 % of the pages that are cached *now*. With multiples of the capacity, a
//! stream of insertions at 20 % would evict from a cache that is four fifths empty. Evictions depend only on the order
//! of pages, and the exact place of a cut matters only for an insertion at that cut. So a cut is moved to its place
//! only then, by passing tickets between the ends of adjacent queues: each ticket is popped, marked and pushed in order
//! of memory, and the word of the page does not change. Hits never move a cut. Over time no more tickets are passed
//! than if all cuts moved at every access, because moving one cut does not displace another.
//!
//! This is not a stack algorithm: a larger cache need not have all pages of a smaller one. Miss-ratio curves from reuse
//! distances are wrong for it; miniature simulation works (`Sampling`).

use std::cmp::Ordering;
use std::collections::VecDeque;

use crate::huge::zeroes;
use crate::policy::{BATCH, Outcome, Policy, check_capacity};
use crate::position::{Position, SEGMENTS};
use crate::switches::{Ageing, OnHit};

/// Size of the log relative to the capacity.
const SLACK: usize = 2;
const ROOM_MIN: usize = 1024;
/// Lowest segment from which pages are demoted: above the lowest insertion position, 20 %.
const AGED_FROM: usize = 4;
/// Segment of a ticket that was replaced.
const DEAD: u8 = u8::MAX;

/// Segmented queue. By itself it is LRU; its purpose is [`Policy::access_at`].
#[derive(Debug, Clone)]
pub struct SegmentedLru {
    /// By page: its ticket; 0 if it is not cached.
    ticket: Vec<u32>,
    /// Page of each ticket.
    pages: Vec<u32>,
    /// Queue of each ticket.
    segment: Vec<u8>,
    /// Tickets of each queue; pages are evicted at the front.
    queues: [VecDeque<u32>; SEGMENTS],
    live: [u32; SEGMENTS],
    count: u32,
    capacity: u32,
    room: usize,
    ageing: Ageing,
    on_hit: OnHit,
    /// First tickets of the present slice and of the previous one.
    slices: [u32; 2],
}

impl SegmentedLru {
    /// Creates an empty, exact cache of `capacity` pages out of `0..universe`.
    pub fn new(capacity: u32, universe: u32) -> Self {
        check_capacity(capacity);
        let room = (capacity.min(universe) as usize * SLACK).max(ROOM_MIN);
        let (mut pages, mut segment) = (Vec::with_capacity(room), Vec::with_capacity(room));
        pages.push(u32::MAX);
        segment.push(DEAD);
        Self {
            ticket: zeroes(universe as usize),
            pages,
            segment,
            queues: std::array::from_fn(|_| VecDeque::new()),
            live: [0; SEGMENTS],
            count: 0,
            capacity,
            room,
            ageing: Ageing::Never,
            on_hit: OnHit::Top,
            slices: [1, 1],
        }
    }

    /// Sets the demotion at the end of a slice.
    #[must_use]
    pub fn ageing(mut self, ageing: Ageing) -> Self {
        self.ageing = ageing;
        self
    }

    /// Sets the position of a page after a hit.
    #[must_use]
    pub fn on_hit(mut self, on_hit: OnHit) -> Self {
        self.on_hit = on_hit;
        self
    }

    /// Returns all pages, from the next one to be evicted to the most recently used one. Slow; for tests.
    pub fn in_order(&self) -> Vec<u32> {
        let tickets = self.queues.iter().flatten().map(|t| *t as usize);
        tickets
            .filter(|t| self.segment[*t] != DEAD)
            .map(|t| self.pages[t])
            .collect()
    }

    /// Ends a slice, and demotes pages that were neither inserted nor hit during it and the previous one: up to a
    /// quarter of each segment above 20 %, from its lower end, to the upper end of the lowest segment.
    ///
    /// Without this, pages above all insertion positions stay for ever if no page above them is hit, because insertions
    /// push down only the pages below. Below 20 % every insertion pushes, so no demotion is needed. The limit of a
    /// quarter keeps a slice without load from turning the queue over, and no segment waits for those below it.
    fn age_out(&mut self) {
        let cold_before = self.slices[1];
        self.slices = [self.pages.len() as u32, self.slices[0]];
        for cut in 0..SEGMENTS - 1 {
            self.bring(cut, self.target(cut, self.count));
        }
        for from in AGED_FROM..SEGMENTS {
            for _ in 0..self.live[from].div_ceil(4) {
                let Some(ticket) = self.front(from).filter(|t| *t < cold_before) else {
                    break;
                };
                self.queues[from].pop_front();
                self.live[from] -= 1;
                self.put(ticket, 0);
            }
        }
    }

    /// Returns the number of pages below cut `cut`, the upper end of that segment, if `count` pages are cached.
    #[inline]
    fn target(&self, cut: usize, count: u32) -> u32 {
        ((cut as u64 + 1) * u64::from(count) / SEGMENTS as u64) as u32
    }

    /// Moves a cut so that `target` pages are below it.
    #[inline]
    fn bring(&mut self, cut: usize, target: u32) {
        // A sum over all 20 is faster than a loop of unknown length.
        let live = self.live.iter().enumerate();
        let below: u32 = live.map(|(i, n)| if i <= cut { *n } else { 0 }).sum();
        match below.cmp(&target) {
            Ordering::Less => self.sink(cut, target - below),
            Ordering::Equal => {}
            Ordering::Greater => self.rise(cut, below - target),
        }
    }

    /// Moves `count` pages from above a cut to the segment below it.
    fn sink(&mut self, cut: usize, mut count: u32) {
        let mut from = cut + 1;
        while count > 0 {
            if self.live[from] == 0 {
                from += 1;
                continue;
            }
            let ticket = self.queues[from].pop_front().expect("it has live tickets");
            let segment = &mut self.segment[ticket as usize];
            if *segment == DEAD {
                continue;
            }
            *segment = cut as u8;
            self.queues[cut].push_back(ticket);
            self.live[from] -= 1;
            self.live[cut] += 1;
            count -= 1;
        }
    }

    /// Moves `count` pages from below a cut to the segment above it.
    fn rise(&mut self, cut: usize, mut count: u32) {
        let mut from = cut;
        while count > 0 {
            if self.live[from] == 0 {
                from -= 1;
                continue;
            }
            let ticket = self.queues[from].pop_back().expect("it has live tickets");
            let segment = &mut self.segment[ticket as usize];
            if *segment == DEAD {
                continue;
            }
            *segment = cut as u8 + 1;
            self.queues[cut + 1].push_front(ticket);
            self.live[from] -= 1;
            self.live[cut + 1] += 1;
            count -= 1;
        }
    }

    /// Returns the lowest live ticket of a queue.
    #[inline]
    fn front(&mut self, queue: usize) -> Option<u32> {
        if self.live[queue] == 0 {
            return None;
        }
        loop {
            let ticket = *self.queues[queue].front().expect("it has live tickets");
            if self.segment[ticket as usize] != DEAD {
                return Some(ticket);
            }
            self.queues[queue].pop_front();
        }
    }

    #[inline]
    fn put(&mut self, ticket: u32, queue: usize) {
        self.segment[ticket as usize] = queue as u8;
        self.queues[queue].push_back(ticket);
        self.live[queue] += 1;
    }

    /// Issues a new ticket for a page, at the upper end of a queue.
    #[inline]
    fn issue(&mut self, page: u32, queue: usize) {
        let ticket = self.pages.len() as u32;
        self.pages.push(page);
        self.segment.push(DEAD);
        self.ticket[page as usize] = ticket;
        self.put(ticket, queue);
    }

    /// Invalidates the ticket of a cached page.
    #[inline]
    fn give_up(&mut self, ticket: u32) {
        let segment = &mut self.segment[ticket as usize];
        self.live[usize::from(*segment)] -= 1;
        *segment = DEAD;
    }

    #[inline]
    fn evict(&mut self) -> Option<u32> {
        let lowest = (0..SEGMENTS).find(|q| self.live[*q] > 0)?;
        let ticket = self.front(lowest)?;
        self.queues[lowest].pop_front();
        self.give_up(ticket);
        self.count -= 1;
        let page = self.pages[ticket as usize];
        self.ticket[page as usize] = 0;
        Some(page)
    }

    /// Removes invalid tickets from the log and the queues. The log stays in order of time.
    #[cold]
    #[inline(never)]
    fn squeeze(&mut self) {
        let len = self.pages.len();
        let mut renumbered = vec![0u32; len];
        let mut to = 1;
        for (slot, old) in renumbered.iter_mut().enumerate().skip(1) {
            *old = to as u32;
            let (page, segment) = (self.pages[slot], self.segment[slot]);
            if segment == DEAD {
                continue;
            }
            self.pages[to] = page;
            self.ticket[page as usize] = to as u32;
            to += 1;
        }
        for (queue, live) in self.queues.iter_mut().zip(self.live) {
            queue.retain(|t| self.segment[*t as usize] != DEAD);
            for ticket in queue.iter_mut() {
                *ticket = renumbered[*ticket as usize];
            }
            debug_assert_eq!(queue.len(), live as usize);
            queue.shrink_to(2 * queue.len());
        }
        let mut at = 1;
        for slot in 1..len {
            let segment = self.segment[slot];
            self.segment[at] = segment;
            at += usize::from(segment != DEAD);
        }
        for start in &mut self.slices {
            *start = renumbered
                .get(*start as usize)
                .copied()
                .unwrap_or(to as u32);
        }
        self.pages.truncate(to);
        self.segment.truncate(to);
    }
}

impl Policy for SegmentedLru {
    #[inline]
    fn access(&mut self, page: u32) -> Outcome {
        self.access_at(page, Position::TOP)
    }

    #[inline]
    fn access_at(&mut self, page: u32, position: Position) -> Outcome {
        if self.pages.len() >= self.room {
            self.squeeze();
        }
        let queue = position.segment();
        let ticket = self.ticket[page as usize];
        if ticket != 0 {
            if self.on_hit == OnHit::Again && queue < SEGMENTS - 1 {
                // Before the page is removed: the place of the cut depends on whether the page was below it.
                self.bring(queue, self.target(queue, self.count));
                self.give_up(ticket);
                self.issue(page, queue);
            } else {
                self.give_up(ticket);
                self.issue(page, SEGMENTS - 1);
            }
            return Outcome::Hit;
        }
        let mut target = self.target(queue, self.count);
        let evicted = if self.count == self.capacity {
            target = target.saturating_sub(1);
            self.evict()
        } else {
            None
        };
        if queue < SEGMENTS - 1 {
            self.bring(queue, target);
        }
        self.issue(page, queue);
        self.count += 1;
        Outcome::Miss { evicted }
    }

    #[inline]
    fn places_hits(&self) -> bool {
        self.on_hit == OnHit::Again
    }

    fn remove(&mut self, page: u32) -> bool {
        let ticket = std::mem::take(&mut self.ticket[page as usize]);
        if ticket == 0 {
            return false;
        }
        self.give_up(ticket);
        self.count -= 1;
        true
    }

    #[inline]
    fn contains(&self, page: u32) -> bool {
        self.ticket[page as usize] != 0
    }

    fn len(&self) -> u32 {
        self.count
    }

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn memory_bytes(&self) -> usize {
        let queues: usize = self.queues.iter().map(VecDeque::capacity).sum();
        (self.ticket.capacity() + self.pages.capacity() + queues) * size_of::<u32>()
            + self.segment.capacity()
    }

    fn slice_ended(&mut self) {
        match self.ageing {
            Ageing::Never => self.slices = [self.pages.len() as u32, self.slices[0]],
            Ageing::TwoSlices => self.age_out(),
        }
    }

    #[inline]
    fn warm(&self, page: u32) -> u32 {
        let ticket = self.ticket[page as usize];
        ticket ^ u32::from(self.segment[ticket as usize])
    }

    #[inline]
    fn warm_victims(&self) -> u32 {
        let Some(lowest) = (0..SEGMENTS).find(|q| self.live[*q] > 0) else {
            return 0;
        };
        let next = self.queues[lowest].iter().take(BATCH);
        next.fold(0, |sum, t| {
            sum ^ self.ticket[self.pages[*t as usize] as usize]
        })
    }
}
