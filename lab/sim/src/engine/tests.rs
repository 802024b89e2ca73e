//! Moves that are cancelled in progress. No public run does this, because it requires an operator or a broken device.

mod extents;
mod tenants;

use super::*;
use crate::ScenarioFile;
use crate::slots::Slots;

impl Simulation<'_> {
    /// Handles an event without callbacks.
    fn handle_alone(&mut self, now_ns: u64, event: Event) {
        let mut callbacks = Callbacks {
            progress: &mut |_| ControlFlow::Continue(()),
            requests: &mut |_| (),
        };
        self.handle(now_ns, event, &mut callbacks).unwrap();
    }
}

/// A volume of ten batches that is pinned elsewhere, with a load on a device of 20 ms latency.
const SCENARIO: &str = r#"
duration = "60s"
window = "1s"
copy_chunk = "2 MiB"
[[tiers]]
name = "fast"
preset = "pm953"
capacity = "1 GiB"
[[tiers]]
name = "slow"
preset = "pm863"
read_latency = "20ms"
[[volumes]]
name = "a"
size = "600 MiB"
tier = "slow"
[[volumes]]
name = "b"
size = "100 MiB"
tier = "fast"
[[clients]]
volume = "a"
habits = { outstanding = 8, read_share = 0.9 }
[policy]
monitor_epoch = "1s"
migration_epoch = "10s"
copy_bandwidth = "100 MiB/s"
pins = { a = "fast" }
"#;

/// Checks that used and reserved space match the volumes and the moves.
fn check_space(sim: &Simulation) {
    let mut used = vec![Bytes::ZERO; sim.used.len()];
    let mut reserved = used.clone();
    for (map, moving) in sim.world.maps.iter().zip(&sim.moving) {
        for extent in 0..map.extents() {
            let device = map.location(extent).unwrap().device;
            used[device.index()] += map.bytes_of(extent);
        }
        if let Some(moving) = moving {
            moving.count(&mut used, &mut reserved);
        }
    }
    assert_eq!((&sim.used, &sim.reserved), (&used, &reserved));
    // Every used slot belongs to one extent, or is a slot that a batch holds.
    let mut places: Vec<_> = sim
        .moving
        .iter()
        .flatten()
        .flat_map(|m| m.places())
        .copied()
        .collect();
    for map in &sim.world.maps {
        places.extend((0..map.extents()).filter_map(|e| map.location(e)));
    }
    let taken: usize = sim.world.slots.iter().map(Slots::taken).sum();
    assert_eq!(places.len(), taken);
    places.sort();
    places.dedup();
    assert_eq!(places.len(), taken, "a slot is used twice");
}

/// Runs to the end and cancels the first move when `cancel` returns true for the first time. Returns the bytes on the
/// target at that time.
fn run_and_cancel(cancel: impl Fn(&Simulation) -> bool) -> Bytes {
    let model = ScenarioFile::parse("cancel.toml", SCENARIO).unwrap();
    let model = model.build(vec![]).unwrap();
    let strategy = planner::build("noop", Default::default()).unwrap();
    let options = RunOptions {
        series: false,
        decisions: false,
        optimum: None,
    };
    let mut sim = Simulation::new(&model, strategy, options);
    let fast = DeviceId(0);
    let mut moved = None;
    while sim.agenda.first_time() <= sim.end_ns {
        sim.run_requests(sim.agenda.first_time());
        let (now, event) = sim.agenda.pop().unwrap();
        sim.handle_alone(now, event);
        check_space(&sim);
        if moved.is_none() && cancel(&sim) {
            moved = Some(
                Bytes::mib(600) - sim.world.maps[0].bytes_not_on(volume::Selection::Whole, fast),
            );
            sim.cancel_move(now, 0);
            check_space(&sim);
            sim.tell_of_jobs(now);
        }
    }
    let jobs = sim.host.jobs();
    let states: Vec<_> = jobs.iter().map(|j| j.state.name()).collect();
    assert_eq!(states, ["failed", "done"], "the next plan moves the rest");
    // Only the pieces of a cancelled batch are copied twice.
    let copied: Vec<_> = jobs.iter().map(|j| Bytes(j.copied_bytes)).collect();
    assert!(copied[1] + moved.unwrap() >= Bytes::mib(600));
    assert!(copied[1] < Bytes::mib(620), "{copied:?}");
    assert_eq!(sim.world.maps[0].sole_device(), Some(fast));
    assert_eq!(sim.reserved, [Bytes::ZERO; 2]);
    moved.unwrap()
}

#[test]
fn cancelled_move_leaves_a_complete_volume_and_exact_space() {
    let batches = |sim: &Simulation| sim.world.maps[0].holders().len() == 2;
    let copied = |sim: &Simulation| {
        sim.moving[0]
            .as_ref()
            .map_or(Bytes::ZERO, ActiveMove::copied)
    };
    // Cancellations in the first batch, in a later one, and between two batches.
    let first = run_and_cancel(|sim| copied(sim) > Bytes::mib(20));
    assert_eq!(first, Bytes::ZERO);
    let later = run_and_cancel(|sim| copied(sim) > Bytes::mib(200));
    assert_eq!(later, Bytes::mib(192));
    let between = run_and_cancel(|sim| {
        batches(sim) && sim.moving[0].as_ref().is_some_and(ActiveMove::switched)
    });
    assert_eq!(between, Bytes::mib(64));
}
