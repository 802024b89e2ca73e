//! Plans that move arbitrary extents, with occasional cancellations. No data is lost, no device exceeds its capacity,
//! and the result is as planned.

use std::collections::BTreeSet;

use model::{ExtentRanges, Goal};
use planner::extents::ExtentReason;
use planner::{ConfigError, Context, Draft, ExtentWish, Strategy};
use units::TierId;

use super::*;
use planner::Granularity;
use units::VolumeId;

const SCENARIO: &str = r#"
duration = "300s"
window = "1s"
extent = "1 MiB"
copy_chunk = "256 KiB"
[[tiers]]
name = "fast"
preset = "pm953"
capacity = "60 MiB"
[[tiers]]
name = "middle"
preset = "pm1633"
members = [{ name = "m0", capacity = "50 MiB" }, { name = "m1", capacity = "40 MiB" }]
[[tiers]]
name = "slow"
preset = "pm863"
capacity = "1 GiB"
[[volumes]]
name = "a"
size = "128 MiB"
tier = "slow"
[[volumes]]
name = "b"
size = "98816 KiB"
tier = "slow"
[[volumes]]
name = "c"
size = "20 MiB"
tier = "fast"
[[clients]]
volume = "a"
habits = { outstanding = 2, read_share = 0.5, rate = "200 IOPS" }
[[clients]]
volume = "b"
habits = { outstanding = 2, read_share = 0.2, rate = "100 IOPS" }
[policy]
monitor_epoch = "1s"
migration_epoch = "10s"
copy_bandwidth = "20 MiB/s"
concurrent_moves_per_device = 2
"#;

/// Strategy that wants random extents on random tiers.
struct Shuffle;

impl Strategy for Shuffle {
    type Config = ();
    type State = ();
    const NAME: &'static str = "shuffle";
    const SUMMARY: &'static str = "for tests";
    const GRANULARITY: Granularity = Granularity::Extent;

    fn new((): ()) -> Result<Self, ConfigError> {
        Ok(Self)
    }

    fn plan(&self, context: &Context<'_>, (): &(), draft: &mut Draft) {
        let facts = context.facts;
        let mut rng = algo::Rng::new(context.seed, 1);
        for (i, v) in facts.volumes.iter().enumerate() {
            let extents = v.extents.as_ref().unwrap();
            // Some volumes are not touched.
            let share = rng.unit() - 0.2;
            let mut wanted: [Vec<u32>; 3] = Default::default();
            for e in 0..extents.places.count() {
                if rng.unit() < share {
                    wanted[rng.below(3) as usize].push(e);
                }
            }
            for (tier, numbers) in wanted.into_iter().enumerate() {
                let heat = numbers.iter().map(|e| (*e, rng.below(9) as u32 + 1));
                let heat = heat.collect();
                draft.extent_wishes.push(ExtentWish {
                    volume: VolumeId::from_index(i),
                    extents: ExtentRanges::from_sorted(numbers),
                    tiers: (tier..3).map(TierId::from_index).collect(),
                    goal: Goal::Latency,
                    reason: ExtentReason::Cool {
                        period: Nanos::ZERO,
                    },
                    heat,
                    space: planner::SpaceLimit::Planned,
                    refused: None,
                });
            }
        }
    }
}

fn places(sim: &Simulation) -> Vec<Vec<DeviceId>> {
    let of = |map: &VolumeMap| {
        (0..map.extents())
            .map(|e| map.location(e).unwrap().device)
            .collect()
    };
    sim.world.maps.iter().map(of).collect()
}

/// Runs with a seed. Cancels the move in `cancels` of a thousand events with a move in progress. Returns the number of
/// moved extents.
fn shuffled(seed: u64, cancels: u64) -> u64 {
    let model = ScenarioFile::parse("shuffle.toml", SCENARIO).unwrap();
    let mut model = model.build(vec![]).unwrap();
    model.seed = seed;
    let options = RunOptions {
        series: false,
        decisions: false,
        optimum: None,
    };
    let mut sim = Simulation::new(&model, Box::new(Shuffle), options);
    let mut rng = algo::Rng::new(seed, 2);
    let mut expected = places(&sim);
    let mut ended = BTreeSet::new();
    let mut moved = 0;
    while sim.agenda.first_time() <= sim.end_ns {
        sim.run_requests(sim.agenda.first_time());
        let (now, event) = sim.agenda.pop().unwrap();
        sim.handle_alone(now, event);
        let active = sim.moving.iter().position(Option::is_some);
        if let Some(volume) = active
            && rng.below(1000) < cancels
        {
            sim.cancel_move(now, volume);
        }
        check_space(&sim);
        for (d, device) in model.topology.devices.iter().enumerate() {
            assert!(sim.used[d] + sim.reserved[d] <= device.spec.capacity);
        }
        let held: Bytes = sim.used.iter().copied().sum();
        let size: Bytes = model.volumes.iter().map(|v| v.size).sum();
        assert_eq!(held, size, "every extent is on one device");
        for job in sim.host.jobs() {
            if job.state == model::JobStatus::Done && ended.insert(job.job) {
                let to = |d: &model::Device| d.name == job.to;
                let to = model.topology.devices.iter().position(to).unwrap();
                let to = DeviceId::from_index(to);
                let volume = |v: &crate::VolumeModel| v.name == job.volume;
                let volume = model.volumes.iter().position(volume).unwrap();
                let extents = job.extents.unwrap();
                moved += u64::from(extents.count());
                for e in extents.iter() {
                    expected[volume][e as usize] = to;
                    let there = sim.world.maps[volume].location(e as usize);
                    assert_eq!(there.unwrap().device, to);
                }
            }
        }
    }
    if cancels == 0 {
        let running = |v: usize| sim.moving[v].is_some();
        let now = places(&sim);
        for v in (0..now.len()).filter(|v| !running(*v)) {
            assert_eq!(now[v], expected[v], "volume {v}");
        }
    }
    moved
}

#[test]
fn planned_extent_moves_are_carried_out_exactly() {
    for seed in 1..4 {
        assert!(shuffled(seed, 0) > 1000);
    }
}

#[test]
fn cancelled_moves_lose_no_extent() {
    for seed in 1..4 {
        assert!(shuffled(seed, 5) > 20);
    }
}
