//! Collection of samples: one message to each worker, then one request to the keeper.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use array::{DeviceKind, Extent, Health, MoveRecord, VolumeRecord};
use units::{Bytes, BytesPerSec, DeviceId, Nanos, VolumeId};
use volume::VolumeMap;

use super::{
    ControlAnswer, ControlServer, DeviceErrors, DeviceSample, DeviceTimeSample, MovingSample,
    Problem, ProblemKind, Result, Samples, VolumeSample, not_served, policy, tier_name,
};
use crate::clock;
use crate::device::{Device, DeviceCounts, FailureCount};
use crate::keeper::{Keeper, errno_name};
use crate::pulse::StalledWorker;
use crate::stages::StagesSample;
use crate::stages::throttle::ThrottleStatus;
use crate::worker::{
    Inbox, LiveSample, Message, NoReply, PendingAnswer, SecondStatus, WorkerSamples,
};

/// Phase of a move that waits until its volume is served.
const WAITING: &str = "waiting";

/// Samples of the workers that respond, and the workers that do not.
struct WorkersAnswers {
    /// True if the array is served and has workers.
    served: bool,
    workers: Vec<WorkerSamples>,
    stalled: Vec<StalledWorker>,
}

impl ControlServer {
    pub(super) fn samples(&self) -> Result<ControlAnswer> {
        let at_ns = clock::now_ns();
        let answers = self.workers_answers(at_ns)?;
        let throttled = self.throttled();
        let mut samples =
            self.with_keeper(move |keeper| samples(keeper, at_ns, answers, &throttled))??;
        let of_controller = self.of_controller.lock();
        let of_controller = of_controller.unwrap_or_else(PoisonError::into_inner);
        samples.problems.extend(of_controller.iter().cloned());
        samples.problems.sort_by_key(|t| t.kind);
        Ok(ControlAnswer::Samples(samples))
    }

    /// Lists problems of the controller in this process among the problems of the array. Callers can then see them even if
    /// the controller does not answer. Replaces the list of the last call.
    pub fn report_controller(&self, parts: impl Iterator<Item = (String, String)>) {
        let problems = parts.map(|(about, what)| Problem {
            kind: ProblemKind::ControllerDegraded,
            about,
            what,
        });
        let mut of_controller = self
            .of_controller
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *of_controller = problems.collect();
    }

    fn workers_answers(&self, at_ns: u64) -> Result<WorkersAnswers> {
        let mut answers = WorkersAnswers {
            served: self.server.is_some(),
            workers: vec![],
            stalled: vec![],
        };
        for asked in self.workers_samples(at_ns) {
            match asked {
                Ok(samples) => answers.workers.push(samples),
                Err(
                    NoReply::Stalled { worker, still }
                    | NoReply::StalledMeanwhile { worker, still },
                ) => {
                    let server = self.server.as_ref().ok_or_else(not_served)?;
                    let server = server.lock().unwrap_or_else(PoisonError::into_inner);
                    answers.stalled.push(server.stalled_worker(worker, still));
                }
                Err(why @ NoReply::Ended) => return Err(why.into()),
            }
        }
        Ok(answers)
    }

    /// Requests samples from all workers at the same time, and returns them in the order of the workers.
    pub(super) fn workers_samples(
        &self,
        at_ns: u64,
    ) -> Vec<std::result::Result<WorkerSamples, NoReply>> {
        let Some(server) = &self.server else {
            return vec![];
        };
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let workers = server.workers.clone();
        drop(server);
        let ask = |worker: &Inbox| worker.begin(|answer| Message::Samples(at_ns, answer));
        let asked: Vec<_> = workers.iter().map(ask).collect();
        let answer = |asked: std::result::Result<PendingAnswer<_>, _>| asked.and_then(|a| a.wait());
        asked.into_iter().map(answer).collect()
    }
}

fn samples(
    keeper: &mut Keeper,
    at_ns: u64,
    answers: WorkersAnswers,
    throttled: &BTreeMap<VolumeId, ThrottleStatus>,
) -> Result<Samples> {
    let WorkersAnswers {
        served: is_served,
        workers,
        stalled,
    } = answers;
    let connected = |device: DeviceId| {
        let linked = |w: &WorkerSamples| w.linked.contains(&device);
        is_served && workers.iter().all(linked)
    };
    let there = keeper
        .records
        .values()
        .filter(|d| d.kind != DeviceKind::Gone);
    let ids = there.map(|d| d.id);
    let devices = ids.map(|id| device(keeper, id, connected(id))).collect();
    let all_respond = stalled.is_empty();
    let looked = Nanos(workers.iter().map(|w| w.looked.0).sum());
    let second = workers.iter().filter_map(|w| w.second.clone());
    let second = second.reduce(SecondStatus::and).map(Box::new);
    let live = workers.into_iter().flat_map(|w| w.volumes);
    let mut live: BTreeMap<VolumeId, LiveSample> = live.map(|v| (v.id, v)).collect();
    let moves = keeper.map.moves()?;
    let of_stalled = stalled.iter().flat_map(|s| &s.volumes);
    let of_stalled: BTreeSet<VolumeId> = of_stalled.map(|(id, _)| *id).collect();
    let mut volumes = vec![];
    // Snapshots have no guests and no objectives, and no strategy places them.
    for record in keeper.volumes.values().filter(|v| v.snapshot.is_none()) {
        volumes.push(match live.remove(&record.id) {
            Some(live) => served(keeper, record, live),
            None => at_rest(keeper, record, &moves)?,
        });
        if let Some(sample) = volumes.last_mut() {
            sample.throttled = throttled.get(&record.id).copied();
            if of_stalled.contains(&record.id) {
                (sample.connections, sample.held_back) = (None, None);
            }
        }
    }
    let problems = problems(keeper, &volumes, &stalled);
    // Data on a removed lost device has no place any more.
    let given_up = |name: &str| {
        let mut gone = keeper
            .records
            .values()
            .filter(|d| d.kind == DeviceKind::Gone);
        gone.any(|d| d.name == name)
    };
    for volume in &mut volumes {
        volume.placed.retain(|(device, _)| !given_up(device));
    }
    let tiers = keeper.tiers.iter().map(|t| t.id);
    Ok(Samples {
        at_ns,
        extent: keeper.map.extent(),
        tiers: keeper.tiers.iter().map(|t| t.name.clone()).collect(),
        provisioned: tiers.map(|t| policy::provisioned(keeper, t)).collect(),
        devices,
        volumes,
        problems,
        looked: all_respond.then_some(looked),
        second: second.filter(|_| all_respond),
    })
}

fn device(keeper: &Keeper, id: DeviceId, linked: bool) -> DeviceSample {
    let record = &keeper.records[&id];
    let handle = keeper.devices.get(&id);
    let counts = handle.map_or(NO_COUNTS, |d| d.counts());
    let bytes = |slots: u32| Bytes(u64::from(slots) * keeper.map.extent().0);
    let slots = keeper.slots.total(id);
    DeviceSample {
        name: record.name.clone(),
        tier: tier_name(keeper, record.tier),
        path: record.path.clone(),
        size: bytes(slots),
        used: bytes(slots - keeper.slots.free(id)),
        emulate: record.emulate.clone(),
        connected: handle.is_some() && (!record.kind.is_remote() || linked && keeper.answers(id)),
        since_ns: counts.since_ns,
        reads: counts.reads,
        writes: counts.writes,
        read_bytes: counts.read_bytes,
        write_bytes: counts.write_bytes,
        stages: handle.map(|d| d.stages.sample()).unwrap_or_default(),
        errors: handle.map_or(vec![], |d| errors(d)),
    }
}

/// Counters of an unusable device.
const NO_COUNTS: DeviceCounts = DeviceCounts {
    since_ns: 0,
    reads: 0,
    writes: 0,
    read_bytes: 0,
    write_bytes: 0,
};

fn errors(device: &Device) -> Vec<DeviceErrors> {
    let one = |failed: FailureCount| DeviceErrors {
        op: failed.op.into(),
        errno: errno_name(failed.errno),
        count: failed.count,
    };
    device.errors().into_iter().map(one).collect()
}

/// Returns the problems of the array and of the volumes that are affected.
fn problems(keeper: &Keeper, volumes: &[VolumeSample], stalled: &[StalledWorker]) -> Vec<Problem> {
    let mut problems = keeper.problems();
    problems.extend(stalled.iter().map(problem_of_worker));
    let lost: Vec<&str> = keeper
        .lost
        .keys()
        .map(|d| keeper.records[d].name.as_str())
        .collect();
    for volume in volumes {
        let gone = volume
            .placed
            .iter()
            .filter(|(d, _)| lost.contains(&d.as_str()));
        let gone: Vec<String> = gone.map(|(d, b)| format!("{b} on {d}")).collect();
        if !gone.is_empty() {
            problems.push(Problem {
                kind: ProblemKind::VolumeIncomplete,
                about: volume.name.clone(),
                what: format!(
                    "{}: {} cannot be read or written; the rest is available",
                    volume.name,
                    gone.join(", ")
                ),
            });
        }
    }
    problems.sort_by_key(|t| t.kind);
    problems
}

fn problem_of_worker(stalled: &StalledWorker) -> Problem {
    let about = format!("worker {}", stalled.worker);
    let follows = match stalled.volumes.is_empty() {
        true => "",
        false => ": their I/O hangs, orders about them fail, and their load is unknown",
    };
    let what = format!(
        "{about}: no response for {} s. It serves {}{follows}. Restart the server if the worker does not recover; the watchdog of its systemd unit does so after a minute. Acknowledged writes are safe",
        stalled.still.as_secs(),
        stalled.names()
    );
    Problem {
        kind: ProblemKind::WorkerStalled,
        about,
        what,
    }
}

fn device_name(keeper: &Keeper, device: DeviceId) -> String {
    keeper.records[&device].name.clone()
}

/// Returns the sample of a volume that its worker serves.
fn served(keeper: &Keeper, record: &VolumeRecord, live: LiveSample) -> VolumeSample {
    let moving = live.moving.map(|moving| MovingSample {
        to: device_name(keeper, DeviceId(moving.to)),
        extents: moving.extents,
        copied: moving.copied,
        left: moving.left,
        rate: moving.rate,
        phase: moving.phase,
    });
    let is_there = |d: &DeviceId| keeper.records.contains_key(d);
    let took = live.took.into_iter().filter(|(d, _)| is_there(d));
    let took = took.map(|(d, [reads_ns, writes_ns])| DeviceTimeSample {
        device: device_name(keeper, d),
        reads_ns,
        writes_ns,
    });
    VolumeSample {
        exported: true,
        connections: Some(live.connections),
        moving,
        last_move: live.last_move,
        mirror: live.mirror,
        throttled: None,
        held_back: Some(live.held_back),
        took: took.collect(),
        stages: live.stages,
        cache: live.cache,
        ..known(keeper, record, live.placed)
    }
}

/// Returns the sample of a volume from the map alone.
fn at_rest(keeper: &Keeper, record: &VolumeRecord, moves: &[MoveRecord]) -> Result<VolumeSample> {
    let place = |extent| match extent {
        Extent::At(location) => Some(location),
        Extent::Hole | Extent::Lost => None,
    };
    let extents = keeper.map.extents(record.id)?;
    let extent = keeper.map.extent();
    let map = VolumeMap::from_source(
        record.size,
        extent,
        extents.into_iter().map(place).collect(),
        record.source.as_ref().map(|s| s.device),
    );
    let holders = map.holders().iter();
    let placed = holders.map(|(d, n)| (*d, Bytes(u64::from(*n) * extent.0)));
    let order = moves.iter().find(|m| m.volume == record.id);
    let order = order.map(MoveRecord::order);
    let moving = order.map(|order| MovingSample {
        to: device_name(keeper, order.to),
        extents: order.extents.clone(),
        copied: Bytes(0),
        left: map.bytes_not_on(order.selection(), order.to),
        rate: BytesPerSec(0),
        phase: Cow::Borrowed(WAITING),
    });
    Ok(VolumeSample {
        moving,
        ..known(keeper, record, placed.collect())
    })
}

/// Returns the part of a sample that comes from the map.
fn known(keeper: &Keeper, record: &VolumeRecord, placed: Vec<(DeviceId, Bytes)>) -> VolumeSample {
    let placed = placed.into_iter();
    VolumeSample {
        name: record.name.clone(),
        size: record.size,
        class: record.class.clone(),
        home: tier_name(keeper, record.home),
        placed: placed.map(|(d, b)| (device_name(keeper, d), b)).collect(),
        healthy: record.health == Health::Whole,
        exported: false,
        connections: Some(0),
        moving: None,
        last_move: None,
        mirror: None,
        throttled: None,
        held_back: Some(0),
        took: vec![],
        stages: StagesSample::default(),
        cache: None,
    }
}
