//! An LRU queue into which pages can be put at 20 places.
//!
//! ```text
//!   ticket[page] ──▶ pages[ticket], segment[ticket]      log of insertions and hits; a hit takes a new ticket
//!
//!   queues:  0 ▏t t t ▏ 1 ▏t t x t ▏ …  ▏ 19 ▏t x t t ▏  tickets in the queue's order, x: given up for a newer one
//! ```
//!
//! One logical queue, cut at multiples of 5 % of the pages that are cached *now* (not of the capacity: a stream of
//! insertions at 20 % would otherwise evict from a cache that is four fifths empty). The order of pages alone decides
//! what is evicted, and a cut matters only when something is put in there. So a cut is brought to its place only then,
//! by handing over tickets at the ends of queues: each is popped, marked and pushed in order of memory, and the
//! page's own word stays as it is. Hits never move a cut. Over time no more tickets are handed over than if all cuts
//! were moved at every access, since no cut is brought to its place at another one's expense.
//!
//! Not a stack algorithm: a larger cache need not have all that a smaller one has, and miss-ratio curves from reuse distances
//! are wrong for it. Miniature simulation works (`Sampling`).

use std::cmp::Ordering;
use std::collections::VecDeque;

use crate::huge::zeroes;
use crate::policy::{BATCH, Outcome, Policy, check_capacity};
use crate::position::{Position, SEGMENTS};
use crate::switches::{Ageing, OnHit};

/// Memory of the log over the capacity.
const SLACK: usize = 2;
const ROOM_MIN: usize = 1024;
/// The lowest segment from which pages are brought down: above the lowest place of insertion, 20 %.
pub(crate) const AGED_FROM: usize = 4;
/// Segment of a ticket that was given up.
const DEAD: u8 = u8::MAX;

/// The queue. As a policy of its own it is LRU; [`Policy::access_at`] is what it is for.
#[derive(Debug, Clone)]
pub struct SegmentedLru {
    /// By page; 0 if it is not cached.
    ticket: Vec<u32>,
    /// By ticket.
    pages: Vec<u32>,
    /// By ticket: the queue that it is in.
    segment: Vec<u8>,
    /// Tickets; the front is the side of eviction.
    queues: [VecDeque<u32>; SEGMENTS],
    live: [u32; SEGMENTS],
    count: u32,
    capacity: u32,
    room: usize,
    ageing: Ageing,
    on_hit: OnHit,
    /// First tickets of the slice under way and of the one before.
    slices: [u32; 2],
}

impl SegmentedLru {
    /// An empty cache of `capacity` pages out of `0..universe`, exact.
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

    /// What happens at the end of a slice.
    #[must_use]
    pub fn ageing(mut self, ageing: Ageing) -> Self {
        self.ageing = ageing;
        self
    }

    /// Where pages go that are hit.
    #[must_use]
    pub fn on_hit(mut self, on_hit: OnHit) -> Self {
        self.on_hit = on_hit;
        self
    }

    /// Pages from the one that is evicted next to the most recently used one. For tests; it takes as long as it sounds.
    pub fn in_order(&self) -> Vec<u32> {
        let tickets = self.queues.iter().flatten().map(|t| *t as usize);
        tickets
            .filter(|t| self.segment[*t] != DEAD)
            .map(|t| self.pages[t])
            .collect()
    }

    /// Ends a slice, and demotes pages that were neither put in nor hit during it and the one before: up to a
    /// quarter of each segment above 20 %, from its lower end, to the upper end of the lowest segment.
    ///
    /// Without this, pages above every place of insertion stay for good once nobody hits anything above them: insertions
    /// push down only what is below. Below 20 % every insertion pushes, so nothing needs help there. A quarter of
    /// each, so that a slice without load does not turn the queue over, and no segment waits for those below it.
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

    /// Pages below cut `cut`, the upper end of that segment, if `count` are cached.
    #[inline]
    fn target(&self, cut: usize, count: u32) -> u32 {
        ((cut as u64 + 1) * u64::from(count) / SEGMENTS as u64) as u32
    }

    /// Brings a cut to where `target` pages are below it.
    #[inline]
    fn bring(&mut self, cut: usize, target: u32) {
        // All 20 are looked at, since that is faster than a loop of unknown length.
        let live = self.live.iter().enumerate();
        let below: u32 = live.map(|(i, n)| if i <= cut { *n } else { 0 }).sum();
        match below.cmp(&target) {
            Ordering::Less => self.sink(cut, target - below),
            Ordering::Equal => {}
            Ordering::Greater => self.rise(cut, below - target),
        }
    }

    /// Hands `count` pages from above a cut to the segment below it.
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

    /// Hands `count` pages from below a cut to the segment above it.
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

    /// The lowest live ticket of a queue.
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

    /// A new ticket for a page, at the upper end of a queue.
    #[inline]
    fn issue(&mut self, page: u32, queue: usize) {
        let ticket = self.pages.len() as u32;
        self.pages.push(page);
        self.segment.push(DEAD);
        self.ticket[page as usize] = ticket;
        self.put(ticket, queue);
    }

    /// Gives the ticket of a cached page up.
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

    /// Squeezes tickets that were given up out of the log and the queues. The log stays in the order of time.
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
                // Before the page goes: whether it was below the cut decides where the cut is afterwards.
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
