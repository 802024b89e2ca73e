//! See `datapath::fuzzing::client`.
#![no_main]

use std::sync::OnceLock;

use datapath::fuzzing::{Parties, client};
use libfuzzer_sys::fuzz_target;
use testkit::certificates::{Authority, Holds};

fn parties() -> &'static Parties {
    static PARTIES: OnceLock<Parties> = OnceLock::new();
    PARTIES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new("ours");
        let [server, theirs] = ["server", "client"].map(|name| dir.path().join(name));
        authority.server(&server, &["localhost"], Holds::Long);
        authority.client(&theirs, Holds::Long, 1);
        Parties::load(&server, &theirs)
    })
}

fuzz_target!(|bytes: &[u8]| client(parties(), bytes));
