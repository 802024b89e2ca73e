//! See `vring::fuzzing::queue`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| vring::fuzzing::queue(bytes));
