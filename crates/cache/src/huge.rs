//! Tables that are looked into at random, on large pages where the system has them on request: the only `unsafe` of this crate.
//!
//! What is looked up in tables of a hundred megabytes waits for memory, and before that for where the memory is: with pages of 4 KiB the processor knows
//! few of them. Whoever touches one first waits until its 2 MiB are cleared: of tables there are some dozens, once. For the bytes of cached pages it is not asked.

use rustix::mm::{Advice, madvise};

/// Smaller tables are as they come: the processor knows where they are.
const LEAST: usize = 4 << 20;

/// The system takes whole pages, which are of no more than this.
const PAGE: usize = 64 << 10;

/// A table of so many zeroes.
pub(crate) fn zeroes(len: usize) -> Vec<u32> {
    let mut table = vec![0; len];
    on_large_pages(&mut table);
    table
}

/// An empty table with room for so many.
pub(crate) fn with_capacity(len: usize) -> Vec<u32> {
    let mut table = Vec::with_capacity(len);
    on_large_pages(&mut table);
    table
}

/// Before anything is in it: pages stay as they are.
#[allow(unsafe_code)]
fn on_large_pages(table: &mut Vec<u32>) {
    let bytes = table.capacity() * size_of::<u32>();
    if bytes < LEAST {
        return;
    }
    let from = table.as_mut_ptr().cast::<u8>();
    let skipped = from.addr().wrapping_neg() % PAGE;
    let whole = (bytes - skipped) / PAGE * PAGE;
    // Where the system has none it goes without.
    // SAFETY: the range is within what the vector has allocated. The advice is about how it is mapped, and changes nothing that is in it.
    let _ = unsafe { madvise(from.add(skipped).cast(), whole, Advice::LinuxHugepage) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_what_they_are_without() {
        for len in [0, 1, 1000, LEAST / 4 - 1, LEAST / 4, 3 * LEAST / 4 + 5] {
            let mut table = zeroes(len);
            assert!(table.len() == len && table.iter().all(|n| *n == 0), "{len}");
            (0..len).for_each(|n| table[n] = n as u32);
            assert!((0..len).all(|n| table[n] == n as u32), "{len}");
            let empty = with_capacity(len);
            assert!(empty.is_empty() && empty.capacity() >= len);
        }
    }
}
