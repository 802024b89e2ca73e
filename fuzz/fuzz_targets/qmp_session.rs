//! See `qmp::fuzzing::session`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| qmp::fuzzing::session(bytes));
