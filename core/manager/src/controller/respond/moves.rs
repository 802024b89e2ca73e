//! Moves of volumes to other devices, as remedies for violated objectives: candidates, start and end.
//!
//! ```text
//!  requested ─▶ devices that the placement rules allow ─▶ chosen ─▶ job of the executor ─▶ done or failed: reported to the responder
//! ```
//!
//! Such a move is a job outside of any plan. It passes the same linter and is executed by the same agents; a newer plan replaces
//! it before it starts. No move is offered for volumes on several devices, to devices of unknown utilization, or while the host
//! moves anything else.

use std::collections::BTreeMap;

use executor::{End, EndCause, Input, JobId, JobState};
use model::{
    Action, Cost as MoveCost, Effect, Facts, Goal, Move, MoveLimits, Op, Plan, Policy, Reason,
    Terms,
};
use slo::ladder::OtherDevice;
use slo::load::Cost;
use slo::{MoveEvent, ResourceId, WorkloadId};
use units::{Bytes, BytesPerSec, DeviceId, Nanos, VolumeId};

use super::live::USE_MAX;
use super::words::ViewChange;
use super::{EventText, HostResponder};
use crate::ManagerError;
use crate::controller::busy::Utilization;
use crate::controller::host::Host;
use crate::controller::{Controller, facts};
use crate::wire::{DeviceWindow, LoadOf, VolumeWindow};

/// Facts and policy of a host as of the current window.
pub(super) struct Moves {
    facts: Facts,
    policy: Policy,
}

/// Least share of a device that a copy gets, even on a saturated device.
const LEFT_MIN: f64 = 0.05;

impl Controller {
    /// Returns facts and policy for moves of a host's volumes. None while something moves, outside of the hours for moves, while
    /// predictions have failed, and if the facts are incomplete.
    pub(super) fn moves_of(&self, host: &Host) -> Option<Moves> {
        let may = self.settings.hours.hold(self.now.unix_ms) && self.trust.broken().is_none();
        if !may {
            return None;
        }
        let jobs = host.executor.jobs().iter();
        let mut under_way = jobs.filter(|j| j.state.active() || j.state == JobState::Waiting);
        if under_way.next().is_some() {
            return None;
        }
        let gathered = facts::gather(host, &self.settings, self.now.at, true, &|_, _| false);
        let facts = gathered.ok()?.facts;
        let policy = self.policy_for(host, &facts).ok()?;
        Some(Moves { facts, policy })
    }

    /// Starts moves that were just ordered.
    pub(super) fn begin_moves(
        &mut self,
        name: &str,
        of: &mut HostResponder,
        said: &mut Vec<EventText>,
    ) -> Vec<ViewChange> {
        let mut failures = vec![];
        for (w, other) in std::mem::take(&mut of.to_move) {
            let workload = WorkloadId(w as u16);
            let begun = self.begin_move(name, of, &other);
            match begun {
                Ok(job) => {
                    of.moving.insert(w, job);
                }
                Err(why) => {
                    let why = why.to_string();
                    said.push((w, format!("{}: move not started: {why}", of.name(w))));
                    let failed = MoveEvent::Failed { why };
                    of.responder.moved(self.now.at, workload, &failed);
                    failures.push((w, failed));
                }
            }
        }
        of.moved(self.now.at, &failures)
    }

    fn begin_move(
        &mut self,
        name: &str,
        of: &HostResponder,
        other: &OtherDevice,
    ) -> Result<JobId, ManagerError> {
        let host = self.hosts.remove(name);
        let mut host = host.ok_or(ManagerError::NotNow("its host is unknown"))?;
        let found = self.moves_of(&host);
        let order = found.as_ref().and_then(|m| {
            let to = m.device(of.resource(other.to))?;
            let volume = m.volume(of.name(other.workload.index()))?;
            m.order(volume, to, "remedy for a violated objective")
        });
        let job = match (found, order) {
            (Some(known), Some(order)) => {
                let names = &mut host.kept.names;
                let order = Move {
                    volume: names.volume(&known.facts.volumes[order.volume.index()].name),
                    from: names.device(&known.facts.topology.device(order.from).name),
                    to: names.device(&known.facts.topology.device(order.to).name),
                    ..order
                };
                host.dirty.kept = true;
                // Proposals for the same volume or target are dropped: the next plan decides again.
                let (volume, to) = (order.volume, order.to);
                self.drop_queued(&mut host, &EndCause::Superseded, |_, j| {
                    j.order.volume == volume || j.order.to == to
                });
                let job = host.executor.next_job();
                self.input(&mut host, self.now.at, Input::Add(Box::new(order)));
                self.input(&mut host, self.now.at, Input::Approve(job));
                Ok(job)
            }
            _ => Err(ManagerError::NotNow(
                "the placement rules do not allow this target now",
            )),
        };
        self.hosts.insert(name.into(), host);
        job
    }
}

impl Moves {
    fn volume(&self, name: &str) -> Option<VolumeId> {
        let found = self.facts.volumes.iter().position(|v| v.name == name);
        found.map(VolumeId::from_index)
    }

    fn device(&self, name: &str) -> Option<DeviceId> {
        let mut devices = self.facts.topology.devices.iter();
        let found = devices.position(|d| d.name == name);
        found.map(DeviceId::from_index)
    }

    /// Move of a whole volume, if no rule forbids it.
    fn order(&self, volume: VolumeId, to: DeviceId, why: &'static str) -> Option<Move> {
        let v = &self.facts.volumes[volume.index()];
        let size = v.taken();
        let bandwidth = planner::copy_bandwidth(&self.facts, &self.policy, volume, to);
        let order = Move {
            volume,
            from: v.device,
            to,
            extents: None,
            size,
            after: vec![],
            bandwidth,
            terms: Terms {
                goal: Goal::Latency,
                reason: Reason::new("objective", why),
                effect: Effect::default(),
                cost: MoveCost {
                    bytes: size,
                    duration: bandwidth.time_for(size),
                },
            },
        };
        let plan = Plan {
            generation: self.facts.generation + 1,
            parent: self.facts.generation,
            at: self.facts.at,
            strategy: "objective".into(),
            actions: vec![Action::Move(order.clone())],
            limits: MoveLimits {
                concurrent: 1,
                concurrent_per_device: 1,
            },
        };
        let reserve = self.policy.space_high.unwrap_or(1.0);
        let device = &self.facts.devices[to.index()];
        let after = device.used + device.reserved + size;
        let room = self.facts.topology.device(to).spec.capacity.as_f64() * reserve;
        let fits = after.as_f64() <= room;
        (fits && planner::lint(&plan, &self.facts, &self.policy).is_empty()).then_some(order)
    }

    /// Devices that could store and serve a volume with the load of its window.
    pub(super) fn offers(
        &self,
        workload: WorkloadId,
        v: &VolumeWindow,
        in_use: &Utilization<'_>,
        resources: &BTreeMap<String, ResourceId>,
    ) -> Vec<OtherDevice> {
        let [place] = &v.placed[..] else {
            return vec![];
        };
        let bound = v.moving.is_some() || v.calibrating || v.bound.is_some();
        let copies = v.mirror.as_ref().is_some_and(|m| m.copies.is_some());
        let (Some(load), false) = (&v.load, bound || copies) else {
            return vec![];
        };
        let here = self.device(&place.device);
        let (Some(volume), Some(from)) = (self.volume(&v.name), resources.get(&place.device))
        else {
            return vec![];
        };
        if here != Some(self.facts.volumes[volume.index()].device) {
            return vec![];
        }
        let seconds = in_use.report.window_ns as f64 / 1e9;
        let source_busy = in_use.used(&place.device).unwrap_or(0.0);
        let mean = |of: &LoadOf| of.bytes as f64 / of.ios.max(1) as f64;
        let (reads, writes) = (load.reads.ios as f64, load.writes.ios as f64);
        let one = |d: &DeviceWindow| -> Option<OtherDevice> {
            let (to, busy) = (&*d.name, in_use.used(&d.name)?);
            let id = self.device(to).filter(|d| Some(*d) != here)?;
            let spec = &self.facts.topology.device(id).spec;
            let cost = Cost {
                read_s: spec.occupancy_s(Op::Read, mean(&load.reads)),
                write_s: spec.occupancy_s(Op::Write, mean(&load.writes)),
            };
            let added = (reads * cost.read_s + writes * cost.write_s) / seconds;
            if busy + added > USE_MAX {
                return None;
            }
            let order = self.order(volume, id, "possible remedy for a violated objective")?;
            let idle = |op, of| spec.bare_latency_us(op, mean(of));
            let all = reads + writes;
            let idle_us = (reads * idle(Op::Read, &load.reads)
                + writes * idle(Op::Write, &load.writes))
                / all.max(1.0);
            Some(OtherDevice {
                workload,
                from: *from,
                to: *resources.get(to)?,
                bytes: Bytes(place.bytes),
                cost,
                idle_us: (all > 0.0).then_some(idle_us),
                copy_rate: left_of(order.bandwidth, source_busy.max(busy)),
            })
        };
        let devices = in_use.report.devices.iter().filter(|d| d.connected);
        devices.filter_map(one).collect()
    }
}

/// Rate of a copy on a device with a given utilization by other I/O.
pub(super) fn left_of(rate: BytesPerSec, busy: f64) -> BytesPerSec {
    BytesPerSec((rate.as_f64() * (1.0 - busy).clamp(LEFT_MIN, 1.0)) as u64)
}

impl HostResponder {
    /// Returns ordered moves that have ended.
    pub(super) fn look_at_moves(&mut self, at: Nanos, host: &Host) -> Vec<(usize, MoveEvent)> {
        let event = |job: JobId| match host.executor.get(job).map(|j| &j.state) {
            Some(JobState::Ended { end: End::Done, .. }) => Some(MoveEvent::Done),
            Some(JobState::Ended { end, .. }) => Some(MoveEvent::Failed {
                why: end.why().unwrap_or_else(|| "the job has ended".into()),
            }),
            Some(_) => None,
            None => Some(MoveEvent::Failed {
                why: "the controller no longer knows the job".into(),
            }),
        };
        let ended = self.moving.iter();
        let ended = ended.filter_map(|(w, job)| Some((*w, event(*job)?)));
        let ended: Vec<(usize, MoveEvent)> = ended.collect();
        for (w, event) in &ended {
            self.moving.remove(w);
            self.responder.moved(at, WorkloadId(*w as u16), event);
        }
        ended
    }
}
