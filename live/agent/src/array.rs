//! Connection of an agent to a served array: translates samples of its control socket into snapshots, and actions into
//! control requests.

use std::path::PathBuf;

use datapath::control::{ask, order};
use datapath::control_server::{
    self, ControlAnswer, ControlRequest, DeviceSample, HeatCounts, HeatSample, Problem,
    ProblemKind, Samples, VolumeSample,
};
use datapath::stages::inject;
use datapath::stages::throttle::{self, ThrottleStatus};
use datapath::{DirectionCounts, LastMove, WarmUp};
use manager::agent::{
    ActionError, AgentAction, CacheSnapshot, Counts, DeviceSnapshot, ExtentsSnapshot, HeatCursor,
    HeatSnapshot, MirrorSnapshot, MoveEnd, ReuseSnapshot, SecondSnapshot, Snapshot, VolumeSnapshot,
    WantedExtents,
};
use manager::wire::{
    self, ArrayPolicy, ArrayProblem, BusyWindow, DeviceIoCounts, DevicesLoad, FailedIo, Load,
    LoadOf, MovingWindow, Placed, Throttle, Warm,
};
use model::{ClassObjective, ControllerId, ExtentPlaces, LeaseHolder, LeaseStatus};
use units::{Bytes, BytesPerSec, DeviceId, Iops, Nanos};

use crate::block_times::BlockTimes;
use crate::error::{AgentError, Result};
use crate::host::Host;
use crate::kernel::Kernel;

/// Served array, reached over its control socket.
pub struct ServedArray {
    control: PathBuf,
    /// Controller that claimed the lease last.
    controller: ControllerId,
    /// Times in use of its real devices.
    times: BlockTimes,
    /// L2 cache of the array when all its workers last responded.
    second: Option<SecondSnapshot>,
}

impl ServedArray {
    /// Creates the connection for the array with this control socket.
    pub fn new(control: PathBuf) -> Self {
        Self {
            control,
            controller: ControllerId::default(),
            times: BlockTimes::default(),
            second: None,
        }
    }

    fn ask(&self, question: &ControlRequest) -> Result<ControlAnswer> {
        Ok(ask(&self.control, question)?)
    }

    /// Sends an order of the controller to the array.
    fn order(&self, what: &ControlRequest) -> Result<()> {
        order(&self.control, self.controller, what)?;
        Ok(())
    }
}

/// Returns the error for a reply of another type than expected.
fn other_version() -> AgentError {
    AgentError::Unknown("unexpected reply: use the same version of terrace on both sides".into())
}

impl Host for ServedArray {
    fn called(&self) -> &'static str {
        "the array"
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        match self.ask(&ControlRequest::Samples)? {
            ControlAnswer::Samples(samples) => {
                let times = self.times.look(&samples.devices, &Kernel);
                let stalled = |t: &Problem| t.kind == ProblemKind::WorkerStalled;
                let all_respond = !samples.problems.iter().any(stalled);
                let mut snapshot = snapshot(samples);
                // While a worker is stalled, the state of the L2 cache is unknown: keep the last known one.
                match all_respond {
                    true => self.second.clone_from(&snapshot.second),
                    false => snapshot.second.clone_from(&self.second),
                }
                // An emulated device reports its busy time itself.
                let real = snapshot.devices.iter_mut();
                for d in real.filter(|d| d.emulate.is_none()) {
                    d.io.busy_ns = times.get(&d.name).copied();
                }
                Ok(snapshot)
            }
            _ => Err(other_version()),
        }
    }

    fn look_at_extents(
        &mut self,
        wanted: Vec<WantedExtents>,
        snapshot: &mut Snapshot,
    ) -> Result<()> {
        for WantedExtents { volume, since } in wanted {
            let since = since.map(|s| control_server::HeatCursor {
                since_ns: s.since_ns,
                turn: s.turn,
            });
            let ask = ControlRequest::Heat {
                volume: volume.clone(),
                since,
            };
            let sample = match self.ask(&ask) {
                Ok(ControlAnswer::Heat(sample)) => sample,
                Ok(_) => return Err(other_version()),
                Err(_) => continue,
            };
            let devices = &snapshot.devices;
            let places = places(&sample, devices)?;
            if let Some(v) = snapshot.volumes.iter_mut().find(|v| v.name == volume) {
                v.extents = Some(ExtentsSnapshot {
                    extent_bytes: sample.extent.0,
                    places,
                    heat: sample.heat.map(heat),
                });
            }
        }
        Ok(())
    }

    fn look_at_reuse(&mut self, wanted: Vec<String>, snapshot: &mut Snapshot) -> Result<()> {
        for volume in wanted {
            let ask = ControlRequest::Reuse {
                volume: volume.clone(),
            };
            let sample = match self.ask(&ask) {
                Ok(ControlAnswer::Reuse(sample)) => sample,
                Ok(_) => return Err(other_version()),
                Err(_) => continue, // the volume no longer exists
            };
            let mut all = snapshot.volumes.iter_mut();
            if let Some(v) = all.find(|v| v.name == volume) {
                v.reuse = sample.counts.map(|counts| ReuseSnapshot {
                    page_bytes: counts.page.0,
                    references: counts.references,
                    distances: counts.distances,
                    rate: counts.rate,
                });
            }
        }
        Ok(())
    }

    fn claim(&mut self, by: &LeaseHolder, lasting: Nanos) -> Result<LeaseStatus> {
        let claim = ControlRequest::Claim {
            controller: by.clone(),
            lasting,
        };
        match self.ask(&claim)? {
            ControlAnswer::Lease(status) => {
                self.controller = by.id;
                Ok(status)
            }
            _ => Err(other_version()),
        }
    }

    fn hold_to(&mut self, policy: &ArrayPolicy) -> Result<()> {
        self.order(&ControlRequest::Policy {
            classes: Some(policy.classes.clone()),
            overcommit_max: Some(policy.overcommit_max),
        })
    }

    fn promise(&mut self, objectives: &[ClassObjective], lasting: Nanos) -> Result<()> {
        self.order(&ControlRequest::Objectives {
            objectives: objectives.to_vec(),
            lasting,
        })
    }

    fn carry_out(&mut self, action: &AgentAction) -> Result<(), ActionError> {
        let order = match action {
            AgentAction::StartMove(of) => ControlRequest::Move {
                volume: of.volume.clone(),
                to: of.tier.clone(),
                device: Some(of.device.clone()),
                bandwidth: BytesPerSec(of.rate_bytes_per_s),
                extents: of.extents.clone(),
            },
            AgentAction::CancelMove { volume } => ControlRequest::CancelMove {
                volume: volume.clone(),
            },
            AgentAction::Inject {
                volume,
                delay_ns,
                lasting_ns,
            } => ControlRequest::from(inject::Command::Inject {
                volume: volume.clone(),
                read: Nanos(*delay_ns),
                write: Nanos(*delay_ns),
                lasting: Nanos(*lasting_ns),
            }),
            AgentAction::Throttle { volume, to } => {
                ControlRequest::from(throttle::Command::Throttle {
                    volume: volume.clone(),
                    to: to.map(|to| ThrottleStatus {
                        iops: to.iops.map(|n| Iops(n as f64)),
                        bandwidth: to.bandwidth_bytes_per_s.map(BytesPerSec),
                        lasting: Nanos(to.lasting_ns),
                    }),
                })
            }
            AgentAction::LendCache {
                volume,
                bytes,
                lasting_ns,
            } => ControlRequest::LendCache {
                volume: volume.clone(),
                part: bytes.map(Bytes),
                lasting: Nanos(*lasting_ns),
            },
            AgentAction::Mirror {
                volume,
                device,
                tier,
                extents,
                rate_bytes_per_s,
                lasting_ns,
            } => ControlRequest::Mirror {
                volume: volume.clone(),
                to: tier.clone(),
                device: Some(device.clone()),
                bandwidth: BytesPerSec(*rate_bytes_per_s),
                extents: Some(extents.clone()),
                lasting: Some(Nanos(*lasting_ns)),
            },
            AgentAction::StopMirror { volume } => ControlRequest::StopMirror {
                volume: volume.clone(),
                lent_only: true,
            },
            AgentAction::UseNode {
                id,
                volume,
                server,
                at,
                bytes,
                warm,
            } => ControlRequest::UseNode {
                answer: *id,
                volume: volume.clone(),
                server: Some(server.clone()),
                at: at.clone(),
                size: Bytes(*bytes),
                warm: warm_up(warm),
            },
            AgentAction::StopNode { id } => ControlRequest::StopNode { answer: *id },
        };
        Ok(self.order(&order)?)
    }
}

/// Reads with which the array warms its cache for a volume before guests request the data; `None` if none are ordered.
fn warm_up(of: &Warm) -> Option<WarmUp> {
    let Warm::Zones {
        zones,
        zone,
        rate_per_s,
    } = of
    else {
        return None;
    };
    Some(WarmUp {
        zones: zones.clone(),
        zone: *zone,
        reads_per_s: *rate_per_s,
    })
}

/// Places of a volume's extents, as ids of the snapshot's devices.
fn places(sample: &HeatSample, devices: &[DeviceSnapshot]) -> Result<ExtentPlaces> {
    let known: Vec<DeviceId> = sample
        .devices
        .iter()
        .map(|name| {
            let found = devices.iter().position(|d| d.name == *name);
            let found = found.map(DeviceId::from_index);
            found.ok_or_else(|| {
                AgentError::Changed(format!("device {name:?} has just been added: try again"))
            })
        })
        .collect::<Result<_, _>>()?;
    let runs = sample.places.runs().iter();
    Ok(ExtentPlaces::of_runs(
        runs.map(|(count, d)| (*count, d.map(|d| known[d.index()]))),
    ))
}

fn heat(counts: HeatCounts) -> HeatSnapshot {
    let touched = counts.touched().into_iter();
    HeatSnapshot {
        at: HeatCursor {
            since_ns: counts.cursor.since_ns,
            turn: counts.cursor.turn,
        },
        touched: touched
            .map(|(extent, reads, writes)| (extent, [reads, writes]))
            .collect(),
    }
}

fn snapshot(samples: Samples) -> Snapshot {
    Snapshot {
        tiers: samples.tiers,
        devices: samples.devices.into_iter().map(device).collect(),
        volumes: samples.volumes.into_iter().map(volume).collect(),
        problems: samples.problems.into_iter().map(problem).collect(),
        second: samples.second.map(|s| SecondSnapshot {
            answer: s.of.answer,
            ready: s.ready,
            // Some workers may still report the volume.
            ended: s.ended.filter(|_| s.size == Bytes::ZERO),
        }),
    }
}

fn problem(t: control_server::Problem) -> ArrayProblem {
    ArrayProblem {
        kind: kind_name(t.kind),
        about: t.about,
        what: t.what,
    }
}

/// Name of a kind of problem in messages and in the store.
fn kind_name(kind: ProblemKind) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("kinds are names: {other:?}"),
    }
}

fn device(d: DeviceSample) -> DeviceSnapshot {
    DeviceSnapshot {
        name: d.name,
        tier: d.tier,
        size_bytes: d.size.0,
        used_bytes: d.used.0,
        emulate: d.emulate,
        connected: d.connected,
        place: None,
        since_ns: d.since_ns,
        io: DeviceIoCounts {
            reads: d.reads,
            writes: d.writes,
            read_bytes: d.read_bytes,
            write_bytes: d.write_bytes,
            busy_ns: d.stages.emulate.busy_ns,
        },
        errors: d
            .errors
            .into_iter()
            .map(|e| FailedIo {
                op: e.op,
                errno: e.errno,
                count: e.count,
            })
            .collect(),
        node: None,
    }
}

fn volume(v: VolumeSample) -> VolumeSnapshot {
    let held_back = v.held_back;
    // Reads that a cache appliance serves do not reach the array. They are subtracted from its reads and from its cache
    // hits.
    let by_appliance = v.cache.as_ref().map_or(0, |c| c.by_appliance);
    let busy = v.took.into_iter().map(|took| BusyWindow {
        resource: took.device,
        reads_ns: took.reads_ns,
        writes_ns: took.writes_ns,
    });
    VolumeSnapshot {
        name: v.name,
        class: v.class,
        size_bytes: v.size.0,
        home: v.home,
        placed: v
            .placed
            .into_iter()
            .map(|(device, bytes)| Placed {
                device,
                bytes: bytes.0,
            })
            .collect(),
        movable: v.healthy && v.exported,
        bound: None,
        by_hand: None,
        throttle: v.throttled.map(|t| Throttle {
            iops: t.iops.map(|i| i.0 as u64),
            bandwidth_bytes_per_s: t.bandwidth.map(|b| b.0),
            lasting_ns: t.lasting.0,
        }),
        moving: v.moving.map(|m| MovingWindow {
            device: m.to,
            extents: m.extents,
            copied_bytes: m.copied.0,
            left_bytes: m.left.0,
            rate_bytes_per_s: m.rate.0,
        }),
        last_move: v.last_move.map(|end| match end {
            LastMove::Done { copied } => MoveEnd::Done {
                copied_bytes: copied.0,
            },
            LastMove::Stopped {
                why,
                copied,
                failed,
            } => MoveEnd::Stopped {
                why,
                copied_bytes: copied.0,
                failed_io: failed,
            },
        }),
        counts: v.stages.measure.counts.map(|c| Counts {
            since_ns: c.since_ns,
            sample: c
                .arrivals
                .zip(held_back)
                .map(|(arrivals, waiting)| wire::VolumeSample {
                    sequential: arrivals.sequential,
                    issued: arrivals.all,
                    working_set_bytes: None,
                    occupied_ns: arrivals.occupied_ns,
                    limited_ns: 0,
                    waiting,
                    array_reads: c.reads.ios.saturating_sub(by_appliance),
                    cache_hits: c.from_memory.ios.saturating_sub(by_appliance),
                    busy: busy.collect(),
                }),
            total: Load {
                devices: v.cache.is_some().then(|| on_devices(&c)),
                reads: direction(c.reads),
                writes: direction(c.writes),
                errors: c.errors,
                depth_ns: c.depth_ns,
                waiting: c.waiting,
            },
        }),
        cache: v.cache.map(|c| CacheSnapshot {
            pool: c.of.worker as u32,
            pool_bytes: c.of.size.0,
            page_bytes: c.of.page.0,
            in_parts: c.of.in_parts,
            given_bytes: c.lent.map_or(c.part, |lent| lent.given).map(|b| b.0),
            lent: c.lent.map(|lent| (lent.part.0, lent.left.0)),
        }),
        can_mirror: v.healthy && v.exported,
        mirror: v.mirror.map(|m| MirrorSnapshot {
            device: m.to,
            extents: m.extents,
            bytes: m.bytes.0,
            read_share: m.read_share,
            left_ns: m.left.map(|left| left.0),
        }),
        reuse: None,
        extents: None,
        node: None,
    }
}

/// Load on the devices: all requests of a volume's guest except the reads that the memory cache served.
fn on_devices(c: &datapath::Counts) -> DevicesLoad {
    let reads = c.reads.since(&c.from_memory);
    // The cache's reads are a subset of all reads and counted with them, so the difference exists.
    let reads = reads.unwrap_or_default();
    DevicesLoad {
        waited_ios: reads.ios + c.writes.ios,
        waited_ns: reads.sum_ns + c.writes.sum_ns,
        reads: direction(reads),
        writes: direction(c.writes.clone()),
    }
}

fn direction(d: DirectionCounts) -> LoadOf {
    LoadOf {
        ios: d.ios,
        bytes: d.bytes,
        sum_ns: d.sum_ns,
        held_ns: d.held_ns,
        buckets: d.buckets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_limits_of_agent_and_array_are_equal() {
        assert_eq!(manager::agent::RANGES_PER_MOVE, array::MOVE_RANGES_MAX);
        let span = datapath::control_server::MIRROR_SPAN_MAX;
        assert_eq!(manager::agent::SPAN_PER_MIRROR, span);
    }

    #[test]
    fn array_problem_kinds_are_known_to_the_controller() {
        use manager::problem::ProblemKind as Known;
        for kind in [
            ProblemKind::WorkerStalled,
            ProblemKind::MapFailing,
            ProblemKind::DeviceOverwritten,
            ProblemKind::DeviceLost,
            ProblemKind::DeviceFileGone,
            ProblemKind::VolumeIncomplete,
            ProblemKind::VolumeDamaged,
            ProblemKind::MapCopyLost,
            ProblemKind::DeviceUnreachable,
            ProblemKind::RemoteNotOwned,
            ProblemKind::DeviceErrors,
            ProblemKind::NoSpace,
            ProblemKind::NearlyFull,
            ProblemKind::DeviceNotDirect,
            ProblemKind::SourceLost,
        ] {
            assert_ne!(Known::of_array(&kind_name(kind)), Known::Other, "{kind:?}");
        }
    }

    #[test]
    fn extent_locations_use_the_device_numbers_of_the_snapshot() {
        let named = |name: &str| DeviceSnapshot {
            name: name.into(),
            tier: "t".into(),
            size_bytes: 1,
            used_bytes: 0,
            emulate: None,
            connected: true,
            place: None,
            since_ns: 0,
            io: DeviceIoCounts::default(),
            errors: vec![],
            node: None,
        };
        let sample = |devices: &[&str]| HeatSample {
            volume: "v".into(),
            extent: units::Bytes::mib(1),
            extents: 8,
            devices: devices.iter().map(|d| d.to_string()).collect(),
            places: "3x1,2x-,3x0".to_string().try_into().unwrap(),
            heat: None,
        };
        let devices = [named("a"), named("b"), named("c")];
        let got = places(&sample(&["c", "b"]), &devices).unwrap();
        assert_eq!(String::from(got), "3x1,2x-,3x2");
        assert!(places(&sample(&["c", "new"]), &devices).is_err());
    }
}
