//! See `nbd::fuzzing::server`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nbd::fuzzing::server(bytes));
