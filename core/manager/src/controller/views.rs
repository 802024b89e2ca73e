//! Views of the controller's state for the interface.

use std::collections::BTreeMap;

use executor::{End, JobId, JobState};
use units::Nanos;

use super::facts::main_device;
use super::host::Host;
use super::{Controller, busy};
use crate::settings::UnknownTiers;
use crate::view::{
    CountersView, DeviceView, FailedCounter, HostState, HostView, JobView, LoadView, MoveCounter,
    MovingView, OnTierView, SloView, StatusView, TierView, VolumeCounters, VolumeView,
};
use crate::wire::{Load, VolumeWindow, WindowReport};
use model::TierState;

const GOALS: [model::Goal; 4] = [
    model::Goal::Drain,
    model::Goal::Rules,
    model::Goal::Space,
    model::Goal::Latency,
];

impl Controller {
    pub(super) fn status(&self) -> StatusView {
        let hosts: Vec<HostView> = self.hosts.values().map(|h| self.host_view(h)).collect();
        let reports = self.hosts.values().filter_map(Host::report);
        let jobs = self.hosts.values().flat_map(|h| h.executor.jobs());
        let count =
            |of: fn(&JobState) -> bool| jobs.clone().filter(|j| of(&j.state)).count() as u32;
        StatusView {
            version: env!("CARGO_PKG_VERSION").into(),
            at_ns: self.now.at.0,
            strategy: self.settings.words.strategy.clone(),
            paused: self.operator.paused,
            modes: GOALS.iter().map(|g| (*g, self.mode_of(*g))).collect(),
            trust: self.trust.view(),
            in_hours: self.settings.hours.hold(self.now.unix_ms),
            volumes: reports.clone().map(|r| r.volumes.len() as u32).sum(),
            slo_violated: self
                .hosts
                .values()
                .flat_map(|h| h.sparks.values())
                .filter(|s| s.violated.back() == Some(&true))
                .count() as u32,
            unknown: reports
                .map(|r| r.volumes.iter().filter(|v| v.load.is_none()).count() as u32)
                .sum(),
            objectives_violated: self.objectives_violated(),
            held: self.held(),
            proposed: count(|s| *s == JobState::Proposed),
            jobs: count(|s| !s.ended() && *s != JobState::Proposed),
            hosts,
            problems: vec![],
            store_failure: None,
        }
        .with_problems(self.problems.list())
    }

    fn host_view(&self, host: &Host) -> HostView {
        let epochs = self
            .settings
            .policy(&[], &[], UnknownTiers::Skip)
            .map(|r| r.policy.epochs);
        let epoch = host.epoch.as_ref().filter(|_| !host.lends_only());
        let next = epoch.zip(epochs.ok()).map(|(epoch, epochs)| {
            let per_migration = epochs.migration.0 / epochs.monitor.0;
            let more = per_migration - 1 - host.kept.epoch % per_migration;
            let ends = epoch.began.0 + (more + 1) * epochs.monitor.0;
            ends.saturating_sub(self.now.at.0)
        });
        HostView {
            name: host.name.clone(),
            state: self.state_of(host),
            age_ns: host
                .last
                .as_ref()
                .map(|l| self.now.at.saturating_sub(l.0).0),
            generation: host.executor.generation(),
            next_decision_ns: next,
            problem: host.problem.clone(),
            size_bytes: host
                .report()
                .map_or(0, |r| r.devices.iter().map(|d| d.size_bytes).sum()),
            provisioned_bytes: host
                .report()
                .map_or(0, |r| r.volumes.iter().map(|v| v.size_bytes).sum()),
            lends: self.lends_view(host),
        }
    }

    pub(super) fn tiers(&self) -> Vec<TierView> {
        let mut out = Vec::new();
        for host in self.hosts.values() {
            let Some(report) = host.report() else {
                continue;
            };
            for (rank, tier) in report.tiers.iter().enumerate() {
                out.push(self.tier_view(host, report, rank, tier));
            }
        }
        out
    }

    /// State of a tier: a setting of an operator has precedence over the file.
    pub(super) fn tier_state(&self, host: &str, tier: &str) -> TierState {
        let words = &self.settings.words.policy;
        let by_file = if words.drain.iter().any(|t| t == tier) {
            TierState::Draining
        } else if words.cordon.iter().any(|t| t == tier) {
            TierState::Cordoned
        } else {
            TierState::Open
        };
        let set = self.operator.tiers.get(&format!("{host}/{tier}"));
        set.copied().unwrap_or(by_file)
    }

    fn tier_view(&self, host: &Host, report: &WindowReport, rank: usize, tier: &str) -> TierView {
        let seconds = report.window_ns as f64 / 1e9;
        let of_tier = report.devices.iter().filter(|d| d.tier == *tier);
        let devices: Vec<DeviceView> = of_tier
            .clone()
            .map(|d| {
                let known = d.io.as_ref().zip(self.settings.spec_of(d));
                let utilization = known.map(|(io, spec)| busy::in_use(d, io, spec, seconds));
                DeviceView {
                    name: d.name.clone(),
                    size_bytes: d.size_bytes,
                    used_bytes: d.used_bytes,
                    utilization,
                    connected: d.connected,
                }
            })
            .collect();
        let known: Vec<f64> = devices.iter().filter_map(|d| d.utilization).collect();
        let rate = |bytes: fn(&crate::wire::DeviceIoCounts) -> u64| {
            let sum: u64 = of_tier
                .clone()
                .filter_map(|d| d.io.as_ref().map(bytes))
                .sum();
            sum as f64 / seconds
        };
        let here =
            |v: &&VolumeWindow| main_device(v, report).is_ok_and(|d| host.tier_of(&d) == tier);
        TierView {
            host: host.name.clone(),
            name: tier.into(),
            rank: rank as u32,
            state: self.tier_state(&host.name, tier),
            size_bytes: devices.iter().map(|d| d.size_bytes).sum(),
            used_bytes: devices.iter().map(|d| d.used_bytes).sum(),
            volumes: report.volumes.iter().filter(here).count() as u32,
            provisioned_bytes: report
                .volumes
                .iter()
                .filter(|v| v.home == tier)
                .map(|v| v.size_bytes)
                .sum(),
            described: self.settings.describes(tier, of_tier.clone()),
            utilization: (!known.is_empty())
                .then(|| known.iter().sum::<f64>() / known.len() as f64),
            read_bytes_per_s: rate(|io| io.read_bytes),
            write_bytes_per_s: rate(|io| io.write_bytes),
            devices,
        }
    }

    pub(super) fn volumes(&self) -> Vec<VolumeView> {
        let hosts = self.hosts.values();
        hosts
            .flat_map(|h| {
                let volumes = h.report().map_or(&[][..], |r| &r.volumes[..]);
                volumes.iter().map(move |v| self.volume_view(h, v))
            })
            .collect()
    }

    pub(super) fn volume_view(&self, host: &Host, v: &VolumeWindow) -> VolumeView {
        let report = host.report().expect("the host of a volume has a report");
        let device = main_device(v, report).unwrap_or_default();
        let live = self.state_of(host) == HostState::Live;
        let spark = host.sparks.get(&v.name).cloned().unwrap_or_default();
        let objective = self.settings.class_of(&v.class).target;
        // Old measurements count as unknown.
        let load = v.load.as_ref().filter(|_| live);
        let slo = objective.map(|o| {
            // A limited volume is not judged.
            let judged = load.filter(|_| v.throttle.is_none());
            let judged = judged.map(|l| l.against(o));
            SloView {
                statistic: o.statistic,
                target_us: o.latency.as_micros_f64(),
                measured_us: judged
                    .and_then(|j| j.statistic_ns)
                    .map(|ns| ns as f64 / 1e3),
                violated_now: judged.is_some_and(|j| j.violated),
                violated: spark.violated.iter().filter(|m| **m).count() as u32,
            }
        });
        let cooldown = self.settings.words.policy.cooldown.unwrap_or(Nanos::ZERO);
        let cooldown_left = host
            .kept
            .last_moved
            .get(&v.name)
            .map(|at| (*at + cooldown).saturating_sub(self.now.at));
        let job = host
            .executor
            .jobs()
            .iter()
            .find(|j| j.state.active() && host.kept.names.of_volume(j.order.volume) == v.name);
        VolumeView {
            host: host.name.clone(),
            name: v.name.clone(),
            class: v.class.clone(),
            size_bytes: v.size_bytes,
            allocated_bytes: v.placed.iter().map(|p| p.bytes).sum(),
            tier: host.tier_of(&device).into(),
            device,
            pinned: self.pin_of(&host.name, &v.name),
            bound: v.bound.clone(),
            throttle: self.throttle_view(&host.name, v),
            load: load.map(|l| load_view(l, report.window_ns)),
            slo,
            p99_us: spark.p99_us.into(),
            window_ns: self.settings.words.window.0,
            moving: v.moving.as_ref().map(|m| MovingView {
                job: job.map(|j| j.id.0),
                to: m.device.clone(),
                copied_bytes: m.copied_bytes,
                left_bytes: m.left_bytes,
                rate_bytes_per_s: m.rate_bytes_per_s,
            }),
            cooldown_left_ns: cooldown_left
                .filter(|left| *left > Nanos::ZERO)
                .map(|left| left.0),
            calibrating: v.calibrating,
            on_tiers: on_tiers(v, report, live),
        }
    }

    /// Tier to which a volume is pinned: a setting of an operator has precedence over the file.
    pub(super) fn pin_of(&self, host: &str, volume: &str) -> Option<String> {
        match self.operator.pins.get(&format!("{host}/{volume}")) {
            Some(pin) => pin.clone(),
            None => self.settings.words.policy.pins.get(volume).cloned(),
        }
    }

    pub(super) fn job_view(&self, host: &Host, id: JobId) -> JobView {
        let job = host.executor.get(id).expect("the job belongs to this host");
        let names = &host.kept.names;
        let (from, to) = (
            names.of_device(job.order.from),
            names.of_device(job.order.to),
        );
        let progress = host.progress.get(&id).copied().unwrap_or_default();
        let active = job.state.active();
        let ended = job.state.ended_at();
        let end = job.state.end();
        let left = match (end, progress.left) {
            (Some(End::Done), _) => 0,
            (_, Some(left)) => left,
            (_, None) => job.order.size.0.saturating_sub(job.copied.0),
        };
        let eta = (active && progress.rate > 0)
            .then(|| (left as f64 / progress.rate as f64 * 1e9) as u64);
        let planned = host
            .current
            .as_ref()
            .filter(|c| c.plan.generation == job.generation);
        JobView {
            host: host.name.clone(),
            job: id.0,
            generation: job.generation,
            volume: names.of_volume(job.order.volume).into(),
            from_tier: host.tier_of(from).into(),
            to_tier: host.tier_of(to).into(),
            from: from.into(),
            to: to.into(),
            extents: job.order.extents.clone(),
            goal: job.order.terms.goal,
            reason: job.order.terms.reason.to_string(),
            state: job.state.status(),
            why: end.and_then(End::why),
            cause: end.and_then(End::cause).map(Into::into),
            failed_io: end.and_then(End::failed_io).cloned(),
            copied_bytes: job.copied.0,
            bytes: job.order.size.0,
            left_bytes: left,
            rate_bytes_per_s: progress.rate,
            planned_ns: planned.map_or(job.started.or(ended).unwrap_or(self.now.at).0, |c| {
                c.plan.at.0
            }),
            before_us: job.order.terms.effect.latency_before_us,
            after_us: job.order.terms.effect.latency_after_us,
            started_ns: job.started.map(|s| s.0),
            ended_ns: ended.map(|at| at.0),
            eta_ns: eta,
            stuck_ns: progress
                .called_stuck
                .then(|| self.now.at.saturating_sub(progress.moved_at).0),
        }
    }

    /// Jobs of all executors: unfinished ones first, then the newest.
    pub(super) fn live_jobs(&self) -> Vec<JobView> {
        let hosts = self.hosts.values();
        let mut jobs: Vec<JobView> = hosts
            .flat_map(|h| {
                h.executor
                    .jobs()
                    .iter()
                    .filter(|j| j.state != JobState::Proposed && !j.state.superseded())
                    .map(move |j| self.job_view(h, j.id))
            })
            .collect();
        // Running and waiting jobs first, then the newest.
        let key = |j: &JobView| {
            (
                j.ended_ns.is_some(),
                std::cmp::Reverse(j.job),
                j.host.clone(),
            )
        };
        jobs.sort_by_key(key);
        jobs
    }

    pub(super) fn counters(&self) -> CountersView {
        let mut volumes = Vec::new();
        for host in self.hosts.values() {
            let Some(report) = host.report() else {
                continue;
            };
            for v in &report.volumes {
                let totals = host.totals.get(&v.name).cloned().unwrap_or_default();
                let device = main_device(v, report).unwrap_or_default();
                volumes.push(VolumeCounters {
                    host: host.name.clone(),
                    volume: v.name.clone(),
                    tier: host.tier_of(&device).into(),
                    class: v.class.clone(),
                    reads: totals.reads,
                    writes: totals.writes,
                    errors: totals.errors,
                    slo_violated_ns: totals.slo_violated_ns,
                    from_cache: totals.from_cache,
                });
            }
        }
        let mut failed = Vec::new();
        for host in self.hosts.values() {
            for (device, kinds) in &host.failed {
                failed.extend(kinds.iter().map(|((op, errno), count)| FailedCounter {
                    host: host.name.clone(),
                    device: device.clone(),
                    op: op.clone(),
                    errno: errno.clone(),
                    count: *count,
                }));
            }
        }
        let counters = &self.counters;
        CountersView {
            volumes,
            moves: counters
                .moves
                .iter()
                .map(|((goal, end), count)| MoveCounter {
                    goal: *goal,
                    end: (*end).into(),
                    count: *count,
                })
                .collect(),
            moved_bytes: counters.moved_bytes,
            plans: counters.plans,
            reports: counters.reports,
            reports_refused: counters.reports_refused,
            calibrations: counters.calibrations,
            failed,
            responses: self.answered.counters(),
        }
    }
}

fn load_view(load: &Load, window_ns: u64) -> LoadView {
    let seconds = window_ns as f64 / 1e9;
    let us = |q: f64| load.quantile_ns(q).map(|ns| ns as f64 / 1e3);
    LoadView {
        reads_per_s: load.reads.ios as f64 / seconds,
        writes_per_s: load.writes.ios as f64 / seconds,
        read_bytes_per_s: load.reads.bytes as f64 / seconds,
        write_bytes_per_s: load.writes.bytes as f64 / seconds,
        read_mean_us: load.reads.guest_mean_us(),
        write_mean_us: load.writes.guest_mean_us(),
        mean_us: load.guest_mean_us(),
        p50_us: us(0.5),
        p99_us: us(0.99),
        outstanding: load.in_flight(window_ns),
        waiting: load.waiting(),
        oldest_waiting_us: load.oldest_waiting_ns().map(|ns| ns as f64 / 1e3),
        errors: load.errors,
    }
}

/// Bytes and requests of a volume on each tier.
fn on_tiers(v: &VolumeWindow, report: &WindowReport, live: bool) -> Vec<OnTierView> {
    let device = |name: &str| report.devices.iter().find(|d| d.name == name);
    let tier_of = |name: &str| device(name).map(|d| d.tier.as_str());
    // Old measurements count as unknown.
    let known = v.extents.as_ref().filter(|_| live);
    let mut requests: Option<BTreeMap<&str, u64>> = None;
    if let Some((extents, heat)) = known.and_then(|e| Some((e, e.heat.as_ref()?))) {
        let sums = requests.insert(BTreeMap::new());
        let mut runs = extents.places.runs().iter();
        let (mut end, mut place) = (0, None);
        for (extent, ios) in heat.touched() {
            while *extent >= end {
                let (count, device) = runs.next().expect("accepted reports have valid places");
                (end, place) = (end + count, *device);
            }
            if let Some(device) = place {
                let tier = report.devices[device.index()].tier.as_str();
                *sums.entry(tier).or_default() += u64::from(*ios);
            }
        }
    }
    let on = |tier: &String| {
        let here = v.placed.iter().filter(|p| tier_of(&p.device) == Some(tier));
        OnTierView {
            tier: tier.clone(),
            bytes: here.map(|p| p.bytes).sum(),
            requests: requests
                .as_ref()
                .map(|r| r.get(tier.as_str()).copied().unwrap_or(0)),
        }
    };
    let all = report.tiers.iter().map(on);
    all.filter(|t| t.bytes > 0).collect()
}
