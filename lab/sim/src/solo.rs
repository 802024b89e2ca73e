//! Load of every volume on a tier if it had a device to itself: the true loads for the evaluation of decisions.
//!
//! Clients are sampled. After enough requests in a slice of time to know its rate, a client is silent until the next
//! slice, and its counts are scaled to the whole slice. Traces are replayed in full.

use algo::{DeviceModel, EventHeap};
use model::{Flow, MeasuredLoad, Op};
use units::{Nanos, TierId};

use crate::Model;
use crate::optimum::epochs;
use crate::source::{NEVER, sources};

/// Number of slices per measurement window.
const SLICES: u64 = 4;
/// Number of client requests of a volume in one slice after which the rate is accurate enough.
const REQUESTS_PER_SLICE: u64 = 2_000;
/// Start of a slice that does not count if clients are silenced in the slice. After the silence of the previous slice,
/// all clients start at once, on a device without a queue.
const RUN_IN: Nanos = Nanos::from_millis(20);

/// Requests and bytes, by direction.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    ios: [f64; 2],
    bytes: [f64; 2],
}

impl Count {
    fn add(&mut self, other: &Count, times: f64) {
        for dir in 0..2 {
            self.ios[dir] += times * other.ios[dir];
            self.bytes[dir] += times * other.bytes[dir];
        }
    }
}

/// State of one volume on its device.
struct Solo {
    device: DeviceModel,
    slice: u64,
    /// Requests of its clients in this slice: total, and up to the end of the run-in.
    clients: Count,
    run_in: Option<(u64, Count)>,
    /// Time at which the clients were silenced.
    cut_ns: Option<u64>,
    issued: u64,
    /// Counts by epoch from time zero.
    epochs: Vec<Count>,
}

/// Returns the load by volume and by epoch between decisions, with each volume alone on a device of this tier. The
/// first epoch begins with the first decision.
pub fn solo_loads(model: &Model, tier: TierId) -> Vec<Vec<MeasuredLoad>> {
    let device = model.topology.tier(tier).devices[0];
    let spec = &model.actual[device.index()];
    let slice_ns = (model.window.0 / SLICES).max(1);
    let epoch_ns = model.policy.epochs.migration.0;
    let epochs = epochs(model);
    let mut solos: Vec<Solo> = (0..model.volumes.len())
        .map(|_| Solo {
            device: DeviceModel::new(spec),
            slice: 0,
            clients: Count::default(),
            run_in: None,
            cut_ns: None,
            issued: 0,
            epochs: vec![Count::default(); epochs + 2],
        })
        .collect();
    let (mut sources, origins, starts) = sources(model);
    let mut heap = EventHeap::new();
    for (id, start) in starts.iter().enumerate().filter(|(_, s)| **s != NEVER) {
        heap.push(*start, id as u32);
    }
    while let Some((now, id)) = heap.first() {
        if now >= model.duration.0 {
            break;
        }
        let (source, slot) = origins[id as usize];
        let source = &mut sources[source as usize];
        let client = source.client_volume();
        if let Some(volume) = client {
            let solo = &mut solos[volume as usize];
            solo.enter(now, slice_ns, epoch_ns);
            let begun = solo.slice * slice_ns;
            if solo.run_in.is_none() && now >= begun + RUN_IN.0 {
                (solo.run_in, solo.issued) = (Some((now, solo.clients)), 0);
            }
            if solo.run_in.is_some() && solo.issued >= REQUESTS_PER_SLICE {
                solo.cut_ns.get_or_insert(now);
                heap.reschedule_first((solo.slice + 1) * slice_ns);
                continue;
            }
        }
        let next = match source.take(now, slot) {
            Err(later) => later,
            Ok(issue) => {
                let solo = &mut solos[issue.volume as usize];
                let done = solo.device.submit(now, issue.op, issue.length, issue.bits);
                let dir = usize::from(issue.op != Op::Read);
                let moved = issue.op as u8 <= Op::Write as u8;
                let mut one = Count::default();
                one.ios[dir] = 1.0;
                one.bytes[dir] = if moved { issue.length as f64 } else { 0.0 };
                if client.is_some() {
                    solo.issued += 1;
                    solo.clients.add(&one, 1.0);
                } else {
                    solo.epoch(now, epoch_ns).add(&one, 1.0);
                }
                source.next_after(now, done)
            }
        };
        if next == NEVER {
            heap.pop();
        } else {
            heap.reschedule_first(next);
        }
    }
    solos
        .into_iter()
        .map(|mut solo| {
            solo.enter(u64::MAX / 2, slice_ns, epoch_ns);
            let counted = solo.epochs.into_iter().skip(1).take(epochs);
            let at = |e: usize| (e as u64 + 1) * epoch_ns;
            counted
                .enumerate()
                .map(|(e, c)| c.measured(Nanos(epoch_ns.min(model.duration.0 - at(e)))))
                .collect()
        })
        .collect()
}

impl Solo {
    /// Ends the previous slice, if there is one.
    fn enter(&mut self, now: u64, slice_ns: u64, epoch_ns: u64) {
        let slice = now / slice_ns;
        if slice == self.slice {
            return;
        }
        let begun = self.slice * slice_ns;
        let mut counted = std::mem::take(&mut self.clients);
        let mut times = 1.0;
        if let (Some(cut), Some((from, before))) = (self.cut_ns.take(), self.run_in.take()) {
            counted.add(&before, -1.0);
            times = slice_ns as f64 / (cut - from).max(1) as f64;
        }
        self.epoch(begun, epoch_ns).add(&counted, times);
        (self.slice, self.issued, self.run_in) = (slice, 0, None);
    }

    fn epoch(&mut self, now: u64, epoch_ns: u64) -> &mut Count {
        let last = self.epochs.len() - 1;
        &mut self.epochs[((now / epoch_ns) as usize).min(last)]
    }
}

impl Count {
    fn measured(&self, window: Nanos) -> MeasuredLoad {
        let flow = |dir: usize| Flow {
            ios: self.ios[dir].round() as u64,
            bytes: self.bytes[dir].round() as u64,
            ..Flow::default()
        };
        MeasuredLoad {
            window,
            reads: flow(0),
            writes: flow(1),
            outstanding: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ScenarioFile;

    #[test]
    fn sampled_client_has_the_rate_of_a_full_run() {
        let text = "duration = \"30s\"\nwindow = \"1s\"\n\
            [policy]\nmonitor_epoch = \"5s\"\nmigration_epoch = \"10s\"\n\
            [[tiers]]\nname = \"t\"\npreset = \"pm953\"\n\
            [[volumes]]\nname = \"fast\"\nsize = \"1 GiB\"\n[[volumes]]\nname = \"slow\"\nsize = \"1 GiB\"\n\
            [[clients]]\nvolume = \"fast\"\nhabits = { outstanding = 4, read_share = 0.5 }\n\
            [[clients]]\nvolume = \"slow\"\nhabits = { rate = \"40 IOPS\" }\n";
        let file = ScenarioFile::parse("x.toml", text).unwrap();
        let model = file.build(vec![]).unwrap();
        let loads = solo_loads(&model, TierId(0));
        assert_eq!(loads[0].len(), 2, "two epochs after the first decision");
        assert!(
            (loads[1][1].iops() - 40.0).abs() < 0.5,
            "{}",
            loads[1][1].iops()
        );
        let noop = planner::build("noop", serde_json::Value::Null).unwrap();
        let options = crate::RunOptions {
            series: false,
            decisions: false,
            optimum: None,
        };
        let run = crate::run(&model, noop, Default::default(), options, &mut |_| {}).unwrap();
        let fast = run.groups.iter().find(|g| g.name == "fast").unwrap();
        // Both volumes share the device in the full run. The slow one uses a negligible part.
        let (full, sampled) = (fast.all.iops, loads[0][1].iops());
        assert!((sampled / full - 1.0).abs() < 0.03, "{sampled} {full}");
        let reads = loads[0][1].read_share();
        assert!((reads - 0.5).abs() < 0.01, "{reads}");
    }
}
