//! Facts as the array shows them, and calibration sessions on its volumes.

use model::{
    CalibrationRun, CalibrationStep, CalibrationWindow, DeviceFacts, ExtentFacts, ExtentPlaces,
    Facts, Flow, Measured, RunningMove, VolumeFacts,
};
use units::{Nanos, VolumeId};

use crate::engine::{Event, Simulation, World};
use crate::flash_device::FlashDevice;
use crate::stats::EpochLoad;

/// A calibration session under way.
pub(crate) struct Session {
    steps: Vec<CalibrationStep>,
    step: usize,
    /// Requests and summed latency of the volume when the window began, by direction.
    before: [(u64, u64); 2],
}

impl Simulation<'_> {
    pub(crate) fn gather_facts(&mut self, now_ns: u64) -> Facts {
        let model = self.model;
        self.epoch += 1;
        let epochs = &model.policy.epochs;
        let last_moved = self.last_moved();
        let mut extents = self.extent_facts();
        let volumes = (0..model.volumes.len())
            .map(|i| {
                let v = &model.volumes[i];
                VolumeFacts {
                    name: v.name.clone(),
                    vm: v.vm,
                    class: v.class,
                    size: v.size,
                    device: self.device_of(i),
                    measured: Some({
                        let in_flight = self.waiting(i);
                        measured(self.world.stats.take_epoch(i), in_flight, epochs.monitor)
                    }),
                    calibration: std::mem::take(&mut self.session_windows[i]),
                    calibrating: self.sessions[i].is_some(),
                    last_moved: last_moved[i],
                    extents: extents.as_mut().map(|e| e.next().expect("one per volume")),
                }
            })
            .collect();
        let seconds = epochs.monitor.as_secs_f64();
        let devices = (0..model.topology.devices.len())
            .map(|d| {
                let now = self.world.devices[d].counters();
                let before = std::mem::replace(&mut self.busy_before[d], now);
                let waf = self.world.devices[d]
                    .flash()
                    .and_then(FlashDevice::epoch_waf);
                DeviceFacts {
                    used: self.used[d],
                    reserved: self.reserved[d],
                    utilization: ((now.busy_ns - before.busy_ns) / epochs.monitor.as_f64())
                        .min(1.0),
                    read_bytes_per_s: (now.read_bytes - before.read_bytes) as f64 / seconds,
                    write_bytes_per_s: (now.write_bytes - before.write_bytes) as f64 / seconds,
                    waf,
                }
            })
            .collect();
        let jobs = self.executor.jobs().iter().filter(|j| j.state.active());
        Facts {
            at: Nanos(now_ns),
            epoch: self.epoch,
            placement_due: now_ns.is_multiple_of(epochs.migration.0),
            generation: self.executor.generation(),
            topology: model.topology.clone(),
            classes: model.classes.clone(),
            vms: model.vms.clone(),
            volumes,
            devices,
            moves: jobs
                .map(|j| RunningMove {
                    volume: j.order.volume,
                    from: j.order.from,
                    to: j.order.to,
                    extents: j.order.extents.clone(),
                })
                .collect(),
        }
    }

    /// Where every extent of each volume is and what was asked of it, where the strategy places extents.
    fn extent_facts(&mut self) -> Option<impl Iterator<Item = ExtentFacts> + use<>> {
        let World { maps, heat, .. } = &mut self.world;
        let heat = heat.as_mut()?.take();
        let facts: Vec<ExtentFacts> = maps
            .iter()
            .zip(heat)
            .map(|(map, heat)| ExtentFacts {
                extent: map.extent_bytes(),
                places: ExtentPlaces::of(
                    (0..map.extents()).map(|e| map.location(e).map(|l| l.device)),
                ),
                heat: Some(heat),
            })
            .collect();
        Some(facts.into_iter())
    }

    pub(crate) fn start_calibration(&mut self, now_ns: u64, run: &CalibrationRun) {
        let v = run.volume.index();
        self.sessions[v] = Some(Session {
            steps: run.steps.clone(),
            step: 0,
            before: self.so_far(v),
        });
        self.begin_step(now_ns, run.volume);
    }

    fn so_far(&self, volume: usize) -> [(u64, u64); 2] {
        [0, 1].map(|dir| self.world.stats.issued(volume, dir))
    }

    fn begin_step(&mut self, now_ns: u64, volume: VolumeId) {
        let session = self.sessions[volume.index()]
            .as_ref()
            .expect("a session is under way");
        let step = session.steps[session.step];
        self.world.inject_ns[volume.index()] = step.inject.0;
        self.agenda.at(
            now_ns + step.duration.0,
            Event::Calibration { volume: volume.0 },
        );
    }

    pub(crate) fn end_calibration_window(&mut self, now_ns: u64, volume: VolumeId) {
        let v = volume.index();
        let now = self.so_far(v);
        let device = self.device_of(v);
        let session = self.sessions[v].as_mut().expect("a session is under way");
        let step = session.steps[session.step];
        let last = session.step + 1 == session.steps.len();
        let [reads, writes] = [0, 1].map(|dir| {
            let count = now[dir].0 - session.before[dir].0;
            let sum = now[dir].1 - session.before[dir].1;
            (
                count,
                if count == 0 {
                    0.0
                } else {
                    sum as f64 / count as f64 / 1e3
                },
            )
        });
        self.session_windows[v].push(CalibrationWindow {
            wanted_us: step.inject.as_micros_f64(),
            injected_us: step.inject.as_micros_f64(),
            duration: step.duration,
            reads: reads.0,
            writes: writes.0,
            read_mean_us: reads.1,
            write_mean_us: writes.1,
            device,
            last,
        });
        session.before = now;
        session.step += 1;
        if last {
            self.sessions[v] = None;
            self.world.inject_ns[v] = 0;
        } else {
            self.begin_step(now_ns, volume);
        }
    }
}

/// The load of an epoch; the epoch starts again from nothing.
fn measured(epoch: &mut EpochLoad, in_flight: u64, window: Nanos) -> Measured {
    let busy_s: f64 = epoch.latency.iter().map(|h| h.sum_s()).sum();
    let injected_s: f64 = epoch.injected_ns.iter().map(|ns| *ns as f64 / 1e9).sum();
    let flow = |dir: usize| {
        let h = &epoch.latency[dir];
        let mut latency = h.summary();
        if h.count() > 0 {
            latency.mean_us -= epoch.injected_ns[dir] as f64 / h.count() as f64 / 1e3;
        }
        Flow {
            ios: h.count(),
            bytes: epoch.bytes[dir],
            latency,
        }
    };
    let in_flight_mean = (busy_s - injected_s).max(0.0) / window.as_secs_f64();
    let growing = Some(in_flight as f64).filter(|n| *n > 2.0 * in_flight_mean + 1.0);
    let out = Measured {
        window,
        reads: flow(0),
        writes: flow(1),
        // By Little's law; where a queue grows, what waits at the end is more than what was answered tells.
        outstanding: growing.unwrap_or(in_flight_mean),
    };
    epoch.latency.iter_mut().for_each(|h| h.clear());
    (epoch.bytes, epoch.injected_ns) = ([0; 2], [0; 2]);
    out
}
