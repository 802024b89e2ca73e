//! Read-only memory maps: the only `unsafe` of this crate.

use std::fs::File;
use std::io;

use memmap2::{Advice, Mmap};

/// Maps the whole of `file`. An empty file cannot be mapped and is an error.
#[allow(unsafe_code)]
pub(crate) fn map_read_only(file: &File) -> io::Result<Mmap> {
    // SAFETY: the map is only ever read, and only as types for which every byte pattern is a value. What remains is
    // another process that truncates the file while it is mapped (SIGBUS) or rewrites it (values change under us):
    // native traces are written to a temporary name and renamed into place, never modified, so only a foreign
    // program can do that; the documentation of `NativeTrace` says so.
    let map = unsafe { Mmap::map(file)? };
    // A hint for the read-ahead only: a trace is scanned from front to back.
    let _ = map.advise(Advice::Sequential);
    Ok(map)
}
