//! See `nbd::fuzzing::server` and `strict_server`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    nbd::fuzzing::server(bytes);
    nbd::fuzzing::strict_server(bytes);
});
