//! Entry points for fuzzers: any bytes, and nothing panics.

use crate::At;
use crate::moving::Intent;
use crate::qemu::{Machine, Names, Options, add_nodes, mirror};

/// What a QEMU answers to [`crate::qemu::queries`], as a list of seven.
pub fn qemu(bytes: &[u8]) {
    let Ok(answers) = serde_json::from_slice::<[serde_json::Value; 7]>(bytes) else {
        return;
    };
    let Ok(machine) = Machine::of(&answers) else {
        return;
    };
    let at = At::File("/a".into());
    machine.unused_on(&at);
    machine.images().count();
    machine.goes_away();
    let of = |target: &str| {
        let names = machine.names_of(target);
        names.map_or(Options::default(), |names| Options::of(&[], names))
    };
    machine.domain("a", 1, "", of);
    for target in machine.targets() {
        let image = |at: &At| crate::Image {
            at: at.clone(),
            format: "raw".into(),
        };
        let intent = Intent::new(
            "a".into(),
            target.into(),
            image(&at),
            image(&at),
            "/b".into(),
        );
        let names = Names::of(&intent);
        machine.live(target, &names, None);
        add_nodes(&machine, &intent, &names, of(target));
        mirror(&machine, &intent, &names, of(target));
    }
}
