//! Time of a decision about a million extents, from facts to a linted plan, per strategy.
//!
//! `cargo run --release -p bench -- extent-plan-speed [volumes] [extents per volume]`
//!
//! Every hour about a quarter of the extents receives requests. Most of them are the same as in the hour before; the hot set drifts
//! slowly. The fast tier has space for a fifth of the extents. Each plan is carried out at once.

use std::time::Instant;

use algo::Rng;
use model::{
    Device, DeviceFacts, ExtentFacts, ExtentHeat, ExtentPlaces, Facts, Policy, SloClass, Specialty,
    Tier, Topology, VolumeFacts,
};
use planner::{Granularity, REGISTRY, build, decide};
use units::{Bytes, ClassId, DeviceId, Nanos, TierId, VmId};

use crate::BenchResult;

const EXTENT: Bytes = Bytes::mib(10);
const HOURS: u64 = 26;

struct Array {
    facts: Facts,
    places: Vec<Vec<u16>>,
    rng: Rng,
}

impl Array {
    fn new(volumes: usize, extents: u32) -> Self {
        let total = volumes as u64 * u64::from(extents);
        let mut topology = Topology {
            tiers: vec![],
            devices: vec![],
        };
        for (i, (preset, share)) in [("pm953", 5), ("pm863", 1)].into_iter().enumerate() {
            let mut spec = model::preset(preset).expect("a preset").spec();
            spec.capacity = Bytes(total * EXTENT.0 / share + (10 << 30));
            topology.devices.push(Device {
                name: preset.into(),
                tier: TierId::from_index(i),
                spec,
            });
            topology.tiers.push(Tier {
                name: preset.into(),
                specialty: Specialty::for_tier(i, 2),
                devices: vec![DeviceId::from_index(i)],
            });
        }
        let volume = |i: usize| VolumeFacts {
            name: format!("v{i}"),
            vm: VmId(0),
            class: ClassId(0),
            size: Bytes(u64::from(extents) * EXTENT.0),
            device: DeviceId(1),
            measured: None,
            calibration: vec![],
            calibrating: false,
            last_moved: None,
            extents: None,
        };
        Self {
            facts: Facts {
                at: Nanos::ZERO,
                epoch: 0,
                placement_due: true,
                generation: 0,
                topology,
                classes: vec![SloClass::none()],
                vms: vec!["vm".into()],
                volumes: (0..volumes).map(volume).collect(),
                devices: vec![DeviceFacts::default(); 2],
                moves: vec![],
                failed: vec![],
                nodes: Default::default(),
            },
            places: vec![vec![1; extents as usize]; volumes],
            rng: Rng::new(1, 1),
        }
    }

    fn next_hour(&mut self) {
        let facts = &mut self.facts;
        facts.at += Nanos::from_secs(3600);
        facts.epoch += 1;
        let mut used = [Bytes::ZERO; 2];
        for (v, places) in facts.volumes.iter_mut().zip(&self.places) {
            let n = places.len() as u64;
            let mut ios = vec![0_u32; places.len()];
            let drift = facts.epoch * n / 200;
            for _ in 0..n {
                // The cube of a uniform number: a few extents get most requests.
                let u = self.rng.unit();
                let rank = (u * u * u * n as f64 * 0.3) as u64;
                ios[((rank * 7919 + drift) % n) as usize] += 1;
            }
            let touched = (0..).zip(ios).filter(|h| h.1 > 0).collect();
            let places = ExtentPlaces::of(places.iter().map(|d| Some(DeviceId(*d))));
            for (device, bytes) in places.held(v.size, EXTENT) {
                used[device.index()] += bytes;
            }
            v.extents = Some(ExtentFacts {
                extent: EXTENT,
                places,
                heat: Some(ExtentHeat::of(touched)),
            });
        }
        for (device, used) in facts.devices.iter_mut().zip(used) {
            device.used = used;
        }
    }
}

pub(crate) fn main(args: &[String]) -> BenchResult {
    let mut args = args.iter();
    let volumes: usize = args.next().map_or(Ok(100), |a| a.parse())?;
    let extents: u32 = args.next().map_or(Ok(10_000), |a| a.parse())?;
    println!("{volumes} volumes of {extents} extents, {HOURS} hours; milliseconds per decision");
    let policy = Policy::default();
    for entry in REGISTRY {
        let config = match entry.name {
            "period" => serde_json::json!({"period": "1h"}),
            _ => serde_json::Value::Null,
        };
        let strategy = build(entry.name, config)?;
        if strategy.granularity() != Granularity::Extent {
            continue;
        }
        let mut array = Array::new(volumes, extents);
        let mut state = strategy.initial_state();
        let (mut times, mut moved, mut bytes) = (vec![], 0, 0);
        for _ in 0..HOURS {
            array.next_hour();
            let begun = Instant::now();
            let decision = decide(&*strategy, &array.facts, &policy, &state, 1)?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            state = decision.state;
            array.facts.generation = decision.plan.generation;
            bytes = bytes.max(serde_json::to_string(&decision.plan)?.len());
            for m in decision.plan.moves() {
                for extent in m.extents.iter().flat_map(|r| r.iter()) {
                    array.places[m.volume.index()][extent as usize] = m.to.0;
                    moved += 1;
                }
            }
        }
        let stored = state.to_json().to_string().len();
        times.sort_by(f64::total_cmp);
        println!(
            "{:16} median {:6.1}  worst {:6.1}  moved {moved} extents; largest plan {} KiB, state {} KiB",
            entry.name,
            times[times.len() / 2],
            times[times.len() - 1],
            bytes / 1024,
            stored / 1024,
        );
    }
    Ok(())
}
