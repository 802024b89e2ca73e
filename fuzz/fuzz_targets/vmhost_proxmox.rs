//! See `vmhost::fuzzing::proxmox`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| vmhost::fuzzing::proxmox(bytes));
