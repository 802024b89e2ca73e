//! Memory that the kernel reads and writes while an I/O is in flight.
//!
//! A request and the I/Os that fill or send its data share a [`Buf`]. Every access claims its bytes first. Any number
//! of claims may read at the same time, or several may fill ranges that do not overlap. A conflicting claim panics
//! and never races, also between threads and between an I/O and callers further up the stack.
//!
//! ```text
//!            claim to read                         claim to fill          another one, elsewhere in the buffer
//!   reading ◀──────────────▶ free ◀──────────────────────────▶ one range ─────────────────▶ list of ranges ──▶ free, with the
//!   (a count)                        that claim is dropped                                                        last of them
//! ```
//!
//! All states except the list are one word, changed by one atomic operation. The list is used only by requests that
//! span several extents.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Alignment of a buffer in bytes, which direct I/O may demand.
pub const BUF_ALIGNMENT: u32 = 4096;

/// Aligned piece of memory.
#[repr(C, align(4096))]
struct Page([UnsafeCell<u8>; BUF_ALIGNMENT as usize]);

/// Buffer for I/O.
pub struct Buf {
    pages: Box<[Page]>,
    len: usize,
    /// Encoded [`State`].
    state: AtomicU64,
    /// Ranges that are being filled in state [`State::Several`]. The list, and the end of that state, change only
    /// under the lock.
    several: Mutex<Vec<Range<usize>>>,
}

// SAFETY: bytes are accessed only through a `Claim`. Simultaneous claims either all read, or have ranges that do not
// overlap.
#[allow(unsafe_code)]
unsafe impl Sync for Buf {}

/// Claims on a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Number of claims that read.
    Reading(u64),
    /// One claim that fills this range.
    Filling(usize, usize),
    /// Several claims that fill; the list has their ranges.
    Several,
}

impl State {
    const FREE: u64 = State::Reading(0).pack();

    /// Bits of the number of reading claims, or of either end of the range.
    const BITS: u32 = 31;
    const MASK: u64 = (1 << Self::BITS) - 1;

    #[inline]
    const fn pack(self) -> u64 {
        match self {
            State::Reading(claims) => claims,
            State::Filling(start, end) => {
                1 << 62 | (start as u64) << Self::BITS | end as u64 & Self::MASK
            }
            State::Several => 2 << 62,
        }
    }

    #[inline]
    const fn unpack(word: u64) -> Self {
        match word >> 62 {
            0 => State::Reading(word),
            1 => {
                let start = word >> Self::BITS & Self::MASK;
                State::Filling(start as usize, (word & Self::MASK) as usize)
            }
            _ => State::Several,
        }
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} B)", self.len)
    }
}

impl Buf {
    /// Creates a buffer of `len` zeroes.
    pub fn new(len: usize) -> Arc<Self> {
        assert!(len as u64 <= State::MASK, "a buffer is below 2 GiB");
        let page = || Page([const { UnsafeCell::new(0) }; BUF_ALIGNMENT as usize]);
        let pages = std::iter::repeat_with(page).take(len.div_ceil(BUF_ALIGNMENT as usize));
        Arc::new(Self {
            pages: pages.collect(),
            len,
            state: AtomicU64::new(State::FREE),
            several: Mutex::default(),
        })
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Calls `look` with a range. Panics while another claim fills the buffer.
    #[inline]
    pub fn with<R>(&self, range: Range<usize>, look: impl FnOnce(&[u8]) -> R) -> R {
        look(&self.reading(range))
    }

    /// Claims a range for reading. Panics while another claim fills the buffer.
    #[inline]
    pub fn reading(&self, range: Range<usize>) -> Reading<'_> {
        Reading(Claim::to_read(self, range))
    }

    /// Calls `change` with a range. Panics while another claim reads the buffer or fills a part of the range.
    #[inline]
    pub fn fill<R>(&self, range: Range<usize>, change: impl FnOnce(&mut [u8]) -> R) -> R {
        change(&mut Claim::to_fill(self, range))
    }

    /// Claims a range for an I/O that reads it. Panics while another claim fills the buffer.
    #[inline]
    pub fn source(self: &Arc<Self>, range: Range<usize>) -> Source {
        Source(Claim::to_read(self.clone(), range))
    }

    /// Claims a range for an I/O that fills it. Panics while another claim reads the buffer or fills a part of the
    /// range.
    #[inline]
    pub fn target(self: &Arc<Self>, range: Range<usize>) -> Target {
        Target(Claim::to_fill(self.clone(), range))
    }

    #[inline]
    fn begin_reading(&self) {
        let mut word = self.state.load(Ordering::Relaxed);
        loop {
            let State::Reading(claims) = State::unpack(word) else {
                panic!("a buffer is looked at when nothing fills it");
            };
            let next = State::Reading(claims + 1).pack();
            match self.change(word, next, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    #[inline]
    fn end_reading(&self) {
        self.state.fetch_sub(1, Ordering::Release);
    }

    #[inline]
    fn begin_filling(&self, range: &Range<usize>) {
        let word = State::Filling(range.start, range.end).pack();
        if self.change(State::FREE, word, Ordering::Acquire).is_err() {
            self.begin_filling_too(range);
        }
    }

    #[inline]
    fn end_filling(&self, range: &Range<usize>) {
        let word = State::Filling(range.start, range.end).pack();
        if self.change(word, State::FREE, Ordering::Release).is_err() {
            self.end_filling_one(range);
        }
    }

    /// Begins to fill a range while other claims exist.
    #[cold]
    fn begin_filling_too(&self, range: &Range<usize>) {
        let mut several = self.several.lock().unwrap_or_else(PoisonError::into_inner);
        let mut word = self.state.load(Ordering::Acquire);
        loop {
            let other = match State::unpack(word) {
                State::Reading(0) => None,
                State::Reading(_) => panic!("a buffer is filled when nothing reads it"),
                State::Filling(start, end) => Some(start..end),
                State::Several => {
                    let overlaps = several.iter().any(|other| overlap(other, range));
                    assert!(!overlaps, "a range is filled by one at a time");
                    return several.push(range.clone());
                }
            };
            let next = match &other {
                None => State::Filling(range.start, range.end),
                Some(_) => State::Several,
            };
            let overlaps = other.as_ref().is_some_and(|other| overlap(other, range));
            assert!(!overlaps, "a range is filled by one at a time");
            match self.change(word, next.pack(), Ordering::AcqRel) {
                // The owner of the other range looks for it in the list, and waits for the lock.
                Ok(_) => return several.extend(other.into_iter().flat_map(|o| [o, range.clone()])),
                Err(now) => word = now,
            }
        }
    }

    /// Ends a claim to fill while other such claims exist or existed.
    #[cold]
    fn end_filling_one(&self, range: &Range<usize>) {
        let mut several = self.several.lock().unwrap_or_else(PoisonError::into_inner);
        let own = several.iter().position(|r| r == range);
        several.swap_remove(own.expect("what is given back was claimed"));
        if several.is_empty() {
            self.state.store(State::FREE, Ordering::Release);
        }
    }

    #[inline]
    fn change(&self, from: u64, to: u64, order: Ordering) -> Result<u64, u64> {
        let failed = Ordering::Acquire;
        self.state.compare_exchange(from, to, order, failed)
    }
}

/// Returns true if two ranges cannot be filled at the same time. Empty ranges lie between bytes.
fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one == other || (one.start < other.end && other.start < one.end)
}

/// Right to read or to fill a range, until it is dropped.
#[derive(Debug)]
struct Claim<B: Deref<Target = Buf>, const FILLS: bool> {
    buf: B,
    range: Range<usize>,
}

impl<B: Deref<Target = Buf>> Claim<B, false> {
    #[inline]
    fn to_read(buf: B, range: Range<usize>) -> Self {
        inside(&buf, &range);
        buf.begin_reading();
        Self { buf, range }
    }
}

impl<B: Deref<Target = Buf>> Claim<B, true> {
    #[inline]
    fn to_fill(buf: B, range: Range<usize>) -> Self {
        inside(&buf, &range);
        buf.begin_filling(&range);
        Self { buf, range }
    }
}

#[inline]
fn inside(buf: &Buf, range: &Range<usize>) {
    let inside = range.start <= range.end && range.end <= buf.len();
    assert!(inside, "a claim is inside its buffer");
}

impl<B: Deref<Target = Buf>, const FILLS: bool> Claim<B, FILLS> {
    /// Returns the first byte. The pointer is valid while the claim exists, and may be written only if the claim
    /// fills.
    #[inline]
    fn start(&self) -> *mut u8 {
        let first: *const UnsafeCell<u8> = self.buf.pages.as_ptr().cast();
        UnsafeCell::raw_get(first.wrapping_add(self.range.start))
    }
}

impl<B: Deref<Target = Buf>, const FILLS: bool> Deref for Claim<B, FILLS> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are inside the buffer, which lives as long as the claim. They do not change: other claims
        // also read, or fill other ranges, and a change through this claim needs `&mut`.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.start(), self.range.len())
        }
    }
}

impl<B: Deref<Target = Buf>> DerefMut for Claim<B, true> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`. No other claim includes any of these bytes, and the cells allow changes of their
        // content.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts_mut(self.start(), self.range.len())
        }
    }
}

impl<B: Deref<Target = Buf>, const FILLS: bool> Drop for Claim<B, FILLS> {
    #[inline]
    fn drop(&mut self) {
        match FILLS {
            true => self.buf.end_filling(&self.range),
            false => self.buf.end_reading(),
        }
    }
}

/// Claimed part of a buffer for reading.
#[derive(Debug)]
pub struct Reading<'a>(Claim<&'a Buf, false>);

impl Deref for Reading<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Claimed part of a buffer that an I/O reads.
#[derive(Debug)]
pub struct Source(Claim<Arc<Buf>, false>);

impl Source {
    /// Returns the start for the kernel; valid while `self` exists.
    #[inline]
    pub(super) fn start(&self) -> *const u8 {
        self.0.start()
    }
}

impl Deref for Source {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Claimed part of a buffer that an I/O fills.
#[derive(Debug)]
pub struct Target(Claim<Arc<Buf>, true>);

impl Target {
    /// Returns the start for the kernel, which may write there while `self` exists and is not used otherwise.
    #[inline]
    pub(super) fn start(&mut self) -> *mut u8 {
        self.0.start()
    }
}

impl Deref for Target {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Target {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Sizes of pooled buffers in bytes; larger ones are allocated and freed as needed.
const CLASSES: [usize; 4] = [8 << 10, 68 << 10, 260 << 10, 1028 << 10];

/// Bytes of free buffers kept per class. Bounds idle memory of a worker.
const KEEP_BYTES: usize = 8 << 20;

/// Free buffers of one worker.
#[derive(Debug, Default)]
pub struct Pool {
    free: [Vec<Arc<Buf>>; CLASSES.len()],
}

impl Pool {
    /// Returns a buffer of at least `len` bytes with undefined content: unfilled parts must not be sent.
    pub fn take(&mut self, len: usize) -> Arc<Buf> {
        match CLASSES.iter().position(|c| len <= *c) {
            Some(class) => self.free[class]
                .pop()
                .unwrap_or_else(|| Buf::new(CLASSES[class])),
            None => Buf::new(len),
        }
    }

    /// Returns a buffer to the pool. A buffer that is still shared is not reused.
    pub fn give(&mut self, buf: Arc<Buf>) {
        let class = CLASSES.iter().position(|c| buf.len() == *c);
        let Some(class) = class.filter(|_| Arc::strong_count(&buf) == 1) else {
            return;
        };
        if self.free[class].len() < KEEP_BYTES / CLASSES[class] {
            self.free[class].push(buf);
        }
    }
}

#[cfg(test)]
mod tests;
