//! Memory that the kernel reads and writes while an I/O is in flight.
//!
//! A [`Buf`] is shared by the request that it belongs to and by the I/Os that fill or send it. While any I/O may write to
//! it, nobody may look at it: `busy` counts them, and access panics instead of racing with the kernel.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes for I/O.
pub struct Buf {
    bytes: Box<[UnsafeCell<u8>]>,
    /// I/Os in flight that write to it.
    filling: AtomicU32,
    /// I/Os in flight that read from it.
    draining: AtomicU32,
}

// SAFETY: bytes are only reached through `with` and `fill`, which refuse while an I/O that conflicts is in flight, and
// through the pointers that I/O in flight holds. A buffer belongs to one worker; helper threads of the fallback only touch
// it through I/O that is counted.
#[allow(unsafe_code)]
unsafe impl Sync for Buf {}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} B)", self.bytes.len())
    }
}

impl Buf {
    /// `len` bytes of zeroes.
    pub fn new(len: usize) -> Arc<Self> {
        let bytes = std::iter::repeat_with(|| UnsafeCell::new(0)).take(len);
        Arc::new(Self {
            bytes: bytes.collect(),
            filling: AtomicU32::new(0),
            draining: AtomicU32::new(0),
        })
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Looks at a range. Panics while an I/O fills the buffer.
    pub fn with<R>(&self, range: std::ops::Range<usize>, look: impl FnOnce(&[u8]) -> R) -> R {
        let filling = self.filling.load(Ordering::Acquire);
        assert_eq!(filling, 0, "a buffer is looked at when no I/O fills it");
        let cells = &self.bytes[range];
        // SAFETY: no I/O writes to it (checked), and no other safe code has a reference: `with` and `fill` hand theirs
        // out for the time of a call, on the one thread that owns the buffer.
        #[allow(unsafe_code)]
        let bytes = unsafe { std::slice::from_raw_parts(cells.as_ptr().cast::<u8>(), cells.len()) };
        look(bytes)
    }

    /// A range to look at for a while; nothing may fill or change the buffer meanwhile.
    pub fn reading(&self, range: std::ops::Range<usize>) -> Reading<'_> {
        let filling = self.filling.load(Ordering::Acquire);
        assert_eq!(filling, 0, "a buffer is looked at when no I/O fills it");
        self.draining.fetch_add(1, Ordering::AcqRel);
        let cells = &self.bytes[range];
        // SAFETY: as in `with`; `fill` and I/O that fills refuse while it is counted as draining.
        #[allow(unsafe_code)]
        let bytes = unsafe { std::slice::from_raw_parts(cells.as_ptr().cast::<u8>(), cells.len()) };
        Reading { buf: self, bytes }
    }

    /// Changes a range. Panics while any I/O is in flight on the buffer.
    pub fn fill<R>(&self, range: std::ops::Range<usize>, change: impl FnOnce(&mut [u8]) -> R) -> R {
        let filling = self.filling.load(Ordering::Acquire);
        let draining = self.draining.load(Ordering::Acquire);
        assert_eq!(
            filling + draining,
            0,
            "a buffer is changed when no I/O is in flight on it"
        );
        let cells = &self.bytes[range];
        // SAFETY: as in `with`; and the cells allow changing what they hold.
        #[allow(unsafe_code)]
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), cells.len())
        };
        change(bytes)
    }

    /// As [`Buf::fill`], on behalf of one of several I/Os of a request that fill disjoint ranges at the same time.
    pub fn fill_part<R>(
        &self,
        range: std::ops::Range<usize>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let draining = self.draining.load(Ordering::Acquire);
        assert_eq!(draining, 0, "a buffer is filled when nothing reads it");
        let cells = &self.bytes[range];
        // SAFETY: as in `fill`; other I/O in flight on the buffer is of other parts of the same request, whose ranges do
        // not overlap this one, and the request looks at the buffer when all of them are done.
        #[allow(unsafe_code)]
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), cells.len())
        };
        change(bytes)
    }

    /// An I/O that fills a range begins; for the kernel.
    pub(super) fn begin_filling(&self, from: usize, len: usize) -> *mut u8 {
        assert!(
            from + len <= self.bytes.len(),
            "an I/O stays inside its buffer"
        );
        let draining = self.draining.load(Ordering::Acquire);
        assert_eq!(draining, 0, "a buffer is filled when nothing reads it");
        self.filling.fetch_add(1, Ordering::AcqRel);
        UnsafeCell::raw_get(self.bytes[from..].as_ptr())
    }

    pub(super) fn end_filling(&self) {
        self.filling.fetch_sub(1, Ordering::AcqRel);
    }

    /// An I/O that reads a range begins; for the kernel.
    pub(super) fn begin_draining(&self, from: usize, len: usize) -> *const u8 {
        assert!(
            from + len <= self.bytes.len(),
            "an I/O stays inside its buffer"
        );
        self.draining.fetch_add(1, Ordering::AcqRel);
        UnsafeCell::raw_get(self.bytes[from..].as_ptr())
    }

    pub(super) fn end_draining(&self) {
        self.draining.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A part of a buffer that is being looked at.
#[derive(Debug)]
pub struct Reading<'a> {
    buf: &'a Buf,
    bytes: &'a [u8],
}

impl std::ops::Deref for Reading<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.buf.end_draining();
    }
}

/// Sizes of pooled buffers; larger ones are made and freed as needed.
const CLASSES: [usize; 4] = [8 << 10, 68 << 10, 260 << 10, 1028 << 10];

/// Bytes of free buffers kept per class. Bounds idle memory of a worker.
const KEEP_BYTES: usize = 8 << 20;

/// Free buffers of one worker.
#[derive(Debug, Default)]
pub struct Pool {
    free: [Vec<Arc<Buf>>; CLASSES.len()],
}

impl Pool {
    /// A buffer of at least `len` bytes, with anything in it: what is not filled must not be sent.
    pub fn take(&mut self, len: usize) -> Arc<Buf> {
        match CLASSES.iter().position(|c| len <= *c) {
            Some(class) => self.free[class]
                .pop()
                .unwrap_or_else(|| Buf::new(CLASSES[class])),
            None => Buf::new(len),
        }
    }

    /// Gives a buffer back. One that somebody else still holds is not reused.
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
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "when no I/O fills it")]
    fn looking_at_a_buffer_that_is_being_filled_is_refused() {
        let buf = Buf::new(16);
        let _ = buf.begin_filling(0, 16);
        buf.with(0..1, |b| b[0]);
    }

    #[test]
    fn the_pool_reuses_only_what_nobody_holds() {
        let mut pool = Pool::default();
        let a = pool.take(4096);
        let held = a.clone();
        pool.give(a);
        let b = pool.take(4096);
        assert!(!Arc::ptr_eq(&held, &b));
        let at = Arc::as_ptr(&b);
        pool.give(b);
        assert_eq!(Arc::as_ptr(&pool.take(100)), at);
        assert!(pool.take(5 << 20).len() >= 5 << 20);
    }
}
