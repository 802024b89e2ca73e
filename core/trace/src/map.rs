//! Read-only memory maps, with the only `unsafe` code of this crate.

use std::fs::File;
use std::io;

use memmap2::{Advice, Mmap};

/// Maps a whole file. An empty file cannot be mapped and is an error.
#[allow(unsafe_code)]
pub(crate) fn map_read_only(file: &File) -> io::Result<Mmap> {
    // SAFETY: the map is only read, and only as types for which every byte pattern is valid. One risk remains: another
    // process may truncate the file while it is mapped (SIGBUS) or rewrite it (values change). Native traces are
    // written to a temporary name and renamed, never modified, so only a foreign program can do that. The documentation
    // of `NativeTrace` states this.
    let map = unsafe { Mmap::map(file)? };
    // A hint for the read-ahead only: a trace is scanned from front to back.
    let _ = map.advise(Advice::Sequential);
    Ok(map)
}
