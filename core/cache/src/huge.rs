//! Tables with random access, on large pages if the system offers them: the only `unsafe` of this crate.
//!
//! Random lookups in tables of a hundred megabytes wait for memory, and before that for the address translation: with
//! pages of 4 KiB the translation cache of the processor covers little. The first access to a large page waits until
//! its 2 MiB are cleared. The tables have only some dozens of such pages, and it happens once. Large pages are not
//! requested for the bytes of cached pages.

use rustix::mm::{Advice, madvise};

/// Smaller tables are left unchanged: the translation cache covers them.
const LEAST: usize = 4 << 20;

/// Upper limit of the system's page size. The advice applies to whole pages.
const PAGE: usize = 64 << 10;

/// Returns a table of `len` zeroes.
pub(crate) fn zeroes(len: usize) -> Vec<u32> {
    let mut table = vec![0; len];
    on_large_pages(&mut table);
    table
}

/// Returns an empty table with room for `len` entries.
pub(crate) fn with_capacity(len: usize) -> Vec<u32> {
    let mut table = Vec::with_capacity(len);
    on_large_pages(&mut table);
    table
}

/// Requests large pages. Call it while the table is empty, because existing pages stay as they are.
#[allow(unsafe_code)]
fn on_large_pages(table: &mut Vec<u32>) {
    let bytes = table.capacity() * size_of::<u32>();
    if bytes < LEAST {
        return;
    }
    let from = table.as_mut_ptr().cast::<u8>();
    let skipped = from.addr().wrapping_neg() % PAGE;
    let whole = (bytes - skipped) / PAGE * PAGE;
    // Without large pages in the system, the advice has no effect.
    // SAFETY: the range is within the vector's allocation. The advice changes how it is mapped, not its content.
    let _ = unsafe { madvise(from.add(skipped).cast(), whole, Advice::LinuxHugepage) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_page_tables_behave_like_vectors() {
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
