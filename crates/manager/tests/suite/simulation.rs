//! Controller, agents, arrays and hosts of virtual machines in one thread under a clock of their own: messages are lost, late and doubled, agents
//! and the controller are killed, the store fails, clocks jump, moves get stuck, tiers are full, domains end and begin, operators press every button.
//! Whatever happens: no slot has two owners, no device holds more than it has, no domain runs from an image that lacks what its guest was told is
//! written, no move begins without a plan that is alive, nothing is decided on what is old. And when the trouble is over, everything that was begun
//! comes to an end, and the controller knows where everything is.
//!
//! A bounded number of seeds runs with the other tests. More: `TERRACE_SEEDS=0..2000 cargo test --release -p manager
//! simulation`. A seed that fails says so: `TERRACE_SEEDS=17..18` runs it alone.

mod array;
mod machines;
mod site;
mod store;
mod throttles;
mod world;

use testkit::seeds;

/// Seeds that run with the other tests.
const BOUNDED: u64 = 40;

/// What has to happen to virtual machines in that many seeds.
const MUST_HAPPEN: [&str; 18] = [
    "aborts",
    "agents killed around a pivot",
    "agents killed in the middle",
    "copies that ended by themselves",
    "disks bound for a while",
    "disks resized",
    "domains shut down",
    "guests paused by somebody",
    "moves beside one of the same domain",
    "old images removed",
    "orders carried out late",
    "orders without an answer",
    "others' block jobs",
    "power losses",
    "QEMUs killed around a pivot",
    "QEMUs killed with a copy",
    "releases",
    "resets",
];

/// Seeds in which the rarest event also happens.
const MANY: u64 = 1000;

/// A domain whose definition names an image that is not there yet: an agent was killed between two steps of a pivot.
const RAREST: &str = "starts that failed";

#[test]
fn every_seed_keeps_the_promises() {
    let mut sums = world::Sums::default();
    let count = seeds::run(0..BOUNDED, |seed| {
        sums.add(&world::run(seed));
        Ok(())
    });
    eprintln!("{count} seeds: {sums:?}");
    // A simulation in which nothing happens proves nothing.
    if count >= 20 {
        assert!(
            sums.moves_begun > count && sums.moves_done > count && sums.extents_done > count,
            "{sums:?}"
        );
        assert!(sums.throttles > count / 4, "{sums:?}");
        assert!(
            sums.recommended > 0 && sums.answered > count / 10 && sums.taken_back > 0,
            "{sums:?}"
        );
        assert!(sums.answered_there > 0 && sums.moved > 0, "{sums:?}");
        assert!(
            sums.lost > count
                && sums.late > count
                && sums.kills > count / 2
                && sums.rivals > 0
                && sums.rivals_refused > 0,
            "{sums:?}"
        );
        assert!(
            sums.calibrations > 0 && sums.decisions > count && sums.made_again > count,
            "{sums:?}"
        );
        assert!(
            sums.stale_refused > 0
                && sums.ended_at_once > 0
                && sums.store_failures > 0
                && sums.adopted > 0
                && sums.full > 0,
            "{sums:?}"
        );
        // Rare ones are not in twenty seeds.
        let rare = MUST_HAPPEN.iter().filter(|_| count >= BOUNDED);
        let rarest = [&RAREST].into_iter().filter(|_| count >= MANY);
        for what in rare.chain(rarest) {
            let times = sums.machines.0.get(what).copied().unwrap_or(0);
            assert!(times > 0, "{what} never: {sums:?}");
        }
        let often = ["pivots", "moves given up", "domains started again"];
        for what in often {
            assert!(sums.machines.0[what] > count / 2, "{what}: {sums:?}");
        }
    }
}
