//! Validation and processing of an agent's reports.

use std::collections::BTreeSet;

use executor::{FailCause, Input, JobId};
use model::{ExtentHeat, ExtentPlaces, IoFailure};
use units::{Bytes, Nanos};

use super::host::{Epoch, Host, PendingOutcome, Progress, SPARK_WINDOWS, Totals};
use super::outcomes::WHOLE_EPOCH;
use super::{Controller, bounds, busy, facts};
use crate::store::{Change, DeviceSummary, FlowSummary, StoredWindow, VolumeSummary};
use crate::view::{DirectionCounters, EventKind, LATENCY_BOUNDS_NS, OutcomeView};
use crate::wire::{
    CacheWindow, ExtentWindow, FailedIo, JobProgress, JobWindow, LendWindow, Load, LoadOf,
    MirrorWindow, NodeState, NodeWindow, VolumeWindow, WindowReport, WireRefusal,
};

/// Most volumes and devices of a report. Protects the controller's memory.
const VOLUMES_MAX: usize = 100_000;
const DEVICES_MAX: usize = 4_096;

/// Most tiers of a report.
const TIERS_MAX: usize = 256;

/// Most kinds of failed I/O of a device that are counted. Protects the controller's memory.
const FAILURES_MAX: usize = 1_024;

/// Most bytes of the name of a controller; arrays have the same limit.
const HOLDER_BYTES_MAX: usize = 255;

/// Most jobs of a message: a volume has one move at a time. Protects the controller's memory.
const JOBS_MAX: usize = VOLUMES_MAX;

/// Most bytes of the cause of a failed job, with the failed I/O. It is stored with the job and its event.
const WHY_BYTES_MAX: usize = 4_096;

/// Largest counter, size or sum of them: sums of sums do not overflow.
const COUNT_MAX: u64 = 1 << 60;

/// Returns true if the performance of a device is in a possible range.
fn possible(spec: &model::DeviceSpec) -> bool {
    let positive = |v: f64| v.is_finite() && v > 0.0;
    positive(spec.read_iops)
        && positive(spec.write_iops)
        && spec.read_bandwidth.0 > 0
        && spec.write_bandwidth.0 > 0
        && (0.0..=3.0).contains(&spec.jitter_sigma)
        && spec.usd_per_gb.is_finite()
}

/// Checks a report.
pub(super) fn check(report: &WindowReport) -> Result<(), WireRefusal> {
    let nonsense = |why: String| Err(WireRefusal::Nonsense { why });
    if report.volumes.len() > VOLUMES_MAX || report.devices.len() > DEVICES_MAX {
        return nonsense(format!(
            "{} volumes and {} devices, the limits are {VOLUMES_MAX} and {DEVICES_MAX}",
            report.volumes.len(),
            report.devices.len()
        ));
    }
    if report.window_ns == 0 {
        return nonsense("the window has length 0".into());
    }
    if report.tiers.len() > TIERS_MAX {
        return nonsense(format!(
            "{} tiers, the limit is {TIERS_MAX}",
            report.tiers.len()
        ));
    }
    if let Some(fault) = bounds::fault(report) {
        return nonsense(fault);
    }
    let twice = |t: &&String| report.tiers.iter().filter(|o| o == t).count() > 1;
    if let Some(tier) = report.tiers.iter().find(twice) {
        return nonsense(format!("tier {tier:?} is listed twice"));
    }
    for d in &report.devices {
        if d.size_bytes == 0 || d.size_bytes > COUNT_MAX || d.used_bytes > COUNT_MAX {
            return nonsense(format!("device {:?} has an invalid size", d.name));
        }
        if d.emulate.as_ref().is_some_and(|spec| !possible(spec)) {
            return nonsense(format!(
                "device {:?} emulates a device with invalid performance",
                d.name
            ));
        }
        let counts =
            d.io.iter()
                .flat_map(|io| [io.reads, io.writes, io.read_bytes, io.write_bytes]);
        if counts
            .chain(d.io.and_then(|io| io.busy_ns))
            .any(|n| n > COUNT_MAX)
        {
            return nonsense(format!("device {:?} has counters out of range", d.name));
        }
    }
    let mut names: Vec<&str> = report.volumes.iter().map(|v| v.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|p| p[0] == p[1]) {
        return nonsense(format!("volume {:?} is reported twice", pair[0]));
    }
    let mut names: Vec<&str> = report.devices.iter().map(|d| d.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|p| p[0] == p[1]) {
        return nonsense(format!("device {:?} is reported twice", pair[0]));
    }
    for d in &report.devices {
        if !report.tiers.contains(&d.tier) {
            return nonsense(format!(
                "device {:?} is of tier {:?}, which the report does not list",
                d.name, d.tier
            ));
        }
    }
    check_jobs(&report.jobs)?;
    let lease = report.lease.iter();
    let holders = lease.flat_map(|l| l.refused.iter().chain([&l.holder]));
    if let Some(holder) = holders
        .into_iter()
        .find(|h| h.name.len() > HOLDER_BYTES_MAX)
    {
        return nonsense(format!(
            "lease: the name of a controller has {} bytes, the limit is {HOLDER_BYTES_MAX}",
            holder.name.len()
        ));
    }
    if let Some(why) = report.lends.as_ref().and_then(lends_fault) {
        return nonsense(format!("lends: {why}"));
    }
    let bucket_max = algo::BUCKETS as u16;
    for v in &report.volumes {
        let placed = v.placed.iter().map(|p| p.bytes);
        let moving = v.moving.iter().flat_map(|m| [m.copied_bytes, m.left_bytes]);
        let flows = v.load.iter().flat_map(|l| [&l.reads, &l.writes]);
        let counts = flows.flat_map(|f| [f.ios, f.bytes, f.sum_ns, f.held_ns]);
        let depth = v.load.iter().map(|l| l.depth_ns.min(COUNT_MAX));
        let sum = placed
            .chain(moving)
            .chain(counts)
            .chain(depth)
            .fold(0, u64::saturating_add);
        if sum.max(v.size_bytes) > COUNT_MAX {
            return nonsense(format!("volume {:?} has numbers out of range", v.name));
        }
        if let Some(fault) = v.extents.as_ref().and_then(|e| extent_fault(v, e, report)) {
            return nonsense(format!("volume {:?}: {fault}", v.name));
        }
        if let Some(fault) = v.mirror.as_ref().and_then(|m| mirror_fault(v, m, report)) {
            return nonsense(format!("volume {:?}: {fault}", v.name));
        }
        if let Some(fault) = v.cache.as_ref().and_then(cache_fault) {
            return nonsense(format!("volume {:?}: {fault}", v.name));
        }
        let waiting = v.load.iter().flat_map(|l| &l.waiting);
        let many = waiting
            .clone()
            .any(|b| b.0 >= bucket_max || b.1 > COUNT_MAX);
        if many || !waiting.map(|b| b.0).is_sorted_by(|a, b| a < b) {
            return nonsense(format!(
                "volume {:?}: the ages of its queued requests are invalid",
                v.name
            ));
        }
        for flow in v.load.iter().flat_map(|l| [&l.reads, &l.writes]) {
            let rising = flow.buckets.windows(2).all(|p| p[0].0 < p[1].0);
            let counted: u64 = flow
                .buckets
                .iter()
                .map(|b| b.1)
                .fold(0, u64::saturating_add);
            let known = flow.buckets.last().is_none_or(|b| b.0 < bucket_max);
            // Some hosts report only the sum.
            let complete = flow.buckets.is_empty() || counted == flow.ios;
            if !rising || !known || !complete || flow.held_ns > flow.sum_ns {
                return nonsense(format!(
                    "volume {:?}: its latency histogram does not match its {} requests",
                    v.name, flow.ios
                ));
            }
        }
    }
    Ok(())
}

/// Checks the jobs of a message.
pub(super) fn check_jobs(jobs: &[JobWindow]) -> Result<(), WireRefusal> {
    let nonsense = |why: String| Err(WireRefusal::Nonsense { why });
    if jobs.len() > JOBS_MAX {
        return nonsense(format!("{} jobs, the limit is {JOBS_MAX}", jobs.len()));
    }
    for JobWindow {
        job,
        state,
        failed_io,
        ..
    } in jobs
    {
        let (copied, left, why) = match state {
            JobProgress::Copying {
                copied_bytes,
                left_bytes,
                ..
            } => (*copied_bytes, *left_bytes, ""),
            JobProgress::Done { copied_bytes } => (*copied_bytes, 0, ""),
            JobProgress::Failed { why, copied_bytes } => (*copied_bytes, 0, why.as_str()),
        };
        for (field, bytes) in [("copied_bytes", copied), ("left_bytes", left)] {
            if bytes > COUNT_MAX {
                return nonsense(format!("job {job}: {field} of {bytes} is out of range"));
            }
        }
        if why.len() > WHY_BYTES_MAX {
            return nonsense(format!(
                "job {job}: why has {} bytes, the limit is {WHY_BYTES_MAX}",
                why.len()
            ));
        }
        let Some(IoFailure { device, op, errno }) = failed_io else {
            continue;
        };
        if !matches!(state, JobProgress::Failed { .. }) {
            return nonsense(format!("job {job}: failed_io of a job that has not failed"));
        }
        let length = device.len() + op.len() + errno.len();
        if length > WHY_BYTES_MAX {
            return nonsense(format!(
                "job {job}: failed_io has {length} bytes, the limit is {WHY_BYTES_MAX}"
            ));
        }
    }
    Ok(())
}

/// Most nodes of a donor host, and most bytes of the text of one. Protects the controller's memory.
const NODES_MAX: usize = 4_096;
const NODE_WORDS_MAX: usize = 4_096;

/// Returns why the loans of a host are invalid.
fn lends_fault(lends: &LendWindow) -> Option<String> {
    if lends.nodes.len() > NODES_MAX {
        let count = lends.nodes.len();
        return Some(format!("{count} nodes, the limit is {NODES_MAX}"));
    }
    let sizes = lends.nodes.iter().map(|n| n.bytes);
    let all = [lends.memory_bytes, lends.flash_bytes];
    if sizes.chain(all).any(|b| b > COUNT_MAX) {
        return Some("sizes are out of range".into());
    }
    let mut known = BTreeSet::new();
    for NodeWindow { id, state, .. } in &lends.nodes {
        if !known.insert(*id) {
            return Some(format!("node {id} is listed twice"));
        }
        let (words, fault) = match state {
            NodeState::Ready { at } => (at, config::node_uri_fault(at)),
            NodeState::Failed { why } => (why, None),
            NodeState::Starting | NodeState::Ending => continue,
        };
        if words.len() > NODE_WORDS_MAX {
            let length = words.len();
            return Some(format!(
                "the text of node {id} has {length} bytes, the limit is {NODE_WORDS_MAX}"
            ));
        }
        if let Some(fault) = fault {
            return Some(format!("the URI of node {id} {fault}"));
        }
    }
    None
}

/// Most caches of a host, and most points of a curve: real ones have a few hundred.
const CACHES_MAX: u32 = 4_096;
const CURVE_POINTS_MAX: usize = 16_384;

/// Returns why the cache of a volume is invalid.
fn cache_fault(cache: &CacheWindow) -> Option<String> {
    let sizes = [cache.given_bytes, cache.lent_bytes].into_iter().flatten();
    let sizes = sizes.chain([cache.pool_bytes]);
    let points = cache.curve.iter().flatten();
    let ratio = |r: f64| (0.0..=1.0).contains(&r);
    if cache.pool >= CACHES_MAX
        || sizes
            .chain(points.clone().map(|p| p.bytes))
            .any(|b| b > COUNT_MAX)
    {
        return Some("its cache has numbers out of range".into());
    }
    let many = cache
        .curve
        .as_ref()
        .is_some_and(|c| c.len() > CURVE_POINTS_MAX);
    (many || !points.clone().all(|p| ratio(p.miss_ratio)))
        .then(|| "its miss-ratio curve has too many points, or ratios outside 0..=1".into())
}

/// Most extents of a volume. Limits the memory for their heat.
const EXTENTS_MAX: u32 = 1 << 28;

/// Returns why the extents of a volume are invalid.
fn extent_fault(v: &VolumeWindow, e: &ExtentWindow, report: &WindowReport) -> Option<String> {
    let count = e.places.count();
    if let Some(fault) = places_fault(v, e.extent_bytes, &e.places, report) {
        return Some(fault);
    }
    let moving = v.moving.as_ref().and_then(|m| m.extents.as_ref());
    if moving.is_some_and(|m| m.last().is_some_and(|last| last >= count)) {
        return Some(format!(
            "a move names extents beyond the {count} extents of the volume"
        ));
    }
    heat_fault(count, e.heat.as_ref()?)
}

/// Returns why the mirror of a volume is invalid.
fn mirror_fault(v: &VolumeWindow, m: &MirrorWindow, report: &WindowReport) -> Option<String> {
    let copies = m.copies.as_ref();
    if copies.is_some_and(|c| !(0.0..=1.0).contains(&c.read_share) || c.bytes > COUNT_MAX) {
        return Some("its mirror has numbers out of range".into());
    }
    let access = m.access.as_ref()?;
    let count = access.places.count();
    places_fault(v, access.extent_bytes, &access.places, report)
        .or_else(|| heat_fault(count, &access.reads))
        .or_else(|| heat_fault(count, &access.writes))
}

fn heat_fault(count: u32, heat: &ExtentHeat) -> Option<String> {
    let beyond = heat.touched().last().filter(|t| t.0 >= count)?;
    Some(format!(
        "requests to extent {}, but the volume has {count} extents",
        beyond.0
    ))
}

fn places_fault(
    v: &VolumeWindow,
    extent_bytes: u64,
    places: &ExtentPlaces,
    report: &WindowReport,
) -> Option<String> {
    let count = places.count();
    if extent_bytes == 0 || u64::from(count) != v.size_bytes.div_ceil(extent_bytes.max(1)) {
        return Some(format!(
            "{count} extents of {extent_bytes} bytes do not match its size of {} bytes",
            v.size_bytes
        ));
    }
    if count > EXTENTS_MAX {
        return Some(format!("{count} extents, the limit is {EXTENTS_MAX}"));
    }
    let mut devices = places.runs().iter().filter_map(|r| r.1);
    let device = devices.find(|d| d.index() >= report.devices.len())?;
    Some(format!(
        "it has extents on device {}, but the report has {} devices",
        device.0,
        report.devices.len()
    ))
}

impl Controller {
    /// Processes a window: measurements, ends of jobs and of calibration sessions.
    pub(super) fn take_in(&mut self, name: &str, as_of: Nanos, report: WindowReport) {
        let now = self.now.at;
        let mut host = self
            .hosts
            .remove(name)
            .expect("the host of a report is registered");
        for text in &report.problem {
            self.event(EventKind::Host, Some(name), None, text.clone());
        }
        self.measure(&mut host, as_of, &report);
        self.take_in_jobs(&mut host, now, &report.jobs);
        // A removed volume has no move to cancel.
        let there = |volume: &str| report.volumes.iter().any(|v| v.name == volume);
        let before = host.kept.cancelling.len();
        host.kept.cancelling.retain(|_, o| there(&o.volume));
        host.dirty.kept |= before != host.kept.cancelling.len();
        for result in &report.calibrations {
            let ordered = host.kept.calibrations.iter().any(|c| c.id == result.id);
            let new = !host.results.iter().any(|r| r.id == result.id);
            if ordered && new && !host.kept.taken.contains(&result.id) {
                if let Some(why) = &result.cut_off {
                    let text = format!("calibration of {} ended early: {why}", result.volume);
                    self.say_once(&mut host, &result.volume, "cut off", text);
                }
                host.results.push(result.clone());
            } else if !ordered {
                // Lost by a restart, or already used: the agent may forget it.
                host.kept.taken.insert(result.id);
            }
        }
        let reported = |id: &u64| report.calibrations.iter().any(|c| c.id == *id);
        let before = host.kept.taken.len();
        host.kept.taken.retain(reported);
        host.dirty.kept |= before != host.kept.taken.len();
        host.last = Some((as_of, report));
        self.hosts.insert(name.into(), host);
    }

    fn measure(&mut self, host: &mut Host, as_of: Nanos, report: &WindowReport) {
        let window_ns = report.window_ns;
        let began = Nanos(as_of.0.saturating_sub(window_ns));
        // The load of a throttled volume is not its own.
        let limited = |r: &WindowReport| {
            let limited = r.volumes.iter().filter(|v| v.throttle.is_some());
            limited.map(|v| v.name.clone()).collect::<BTreeSet<_>>()
        };
        let mut throttled = limited(report);
        throttled.extend(host.report().map(limited).unwrap_or_default());
        let epoch = host.epoch.get_or_insert_with(|| Epoch {
            began,
            ..Epoch::default()
        });
        let mut stored = StoredWindow {
            host: host.name.clone(),
            at_ns: as_of.0,
            window_ns,
            volumes: Vec::with_capacity(report.volumes.len()),
            devices: Vec::with_capacity(report.devices.len()),
        };
        let names: BTreeSet<&str> = report.volumes.iter().map(|v| v.name.as_str()).collect();
        host.sparks.retain(|name, _| names.contains(name.as_str()));
        host.totals.retain(|name, _| names.contains(name.as_str()));
        for v in &report.volumes {
            let objective = self.settings.class_of(&v.class).target;
            let spark = host.sparks.entry(v.name.clone()).or_default();
            let load = v.load.as_ref();
            let p99_ns = load.and_then(|l| l.quantile_ns(0.99));
            let limited = throttled.contains(&v.name);
            let objective = objective.filter(|_| !limited);
            let judged = objective.and_then(|o| Some(load?.against(o)));
            let slo_ns = judged.and_then(|j| j.statistic_ns);
            let violated = judged.is_some_and(|j| j.violated);
            spark.p99_us.push_back(p99_ns.map(|ns| ns as f64 / 1e3));
            spark.violated.push_back(violated);
            while spark.p99_us.len() > SPARK_WINDOWS {
                spark.p99_us.pop_front();
                spark.violated.pop_front();
            }
            let heat = v.extents.as_ref().and_then(|e| e.heat.as_ref());
            if let Some(heat) = heat.filter(|_| !limited) {
                let sum = epoch.heats.entry(v.name.clone()).or_default();
                sum.0.add(heat);
                sum.1 += window_ns;
            }
            let Some(load) = load else { continue };
            if !limited {
                let sum = epoch.loads.entry(v.name.clone()).or_default();
                sum.0.add(load);
                sum.1 += window_ns;
            }
            let totals = host.totals.entry(v.name.clone()).or_default();
            count(totals, load, if violated { window_ns } else { 0 });
            if !self.stores {
                continue;
            }
            stored.volumes.push(VolumeSummary {
                volume: v.name.clone(),
                device: facts::main_device(v, report).unwrap_or_default(),
                reads: summary(&load.reads),
                writes: summary(&load.writes),
                p99_ns: p99_ns.unwrap_or(0),
                slo_ns: slo_ns.unwrap_or(0),
                outstanding_milli: (load.in_flight(window_ns) * 1000.0).round() as u64,
            });
        }
        let names: BTreeSet<&str> = report.devices.iter().map(|d| d.name.as_str()).collect();
        host.failed.retain(|name, _| names.contains(name.as_str()));
        for d in &report.devices {
            for FailedIo { op, errno, count } in &d.errors {
                let of_device = host.failed.entry(d.name.clone()).or_default();
                let kind = (op.clone(), errno.clone());
                // The same limit as for one report.
                if of_device.len() < FAILURES_MAX || of_device.contains_key(&kind) {
                    let total = of_device.entry(kind).or_default();
                    *total = total.saturating_add(*count);
                }
            }
            let Some(io) = d.io else { continue };
            let sum = epoch.devices.entry(d.name.clone()).or_default();
            add_io(&mut sum.0, &io, sum.1 == 0);
            sum.1 += window_ns;
            let seconds = window_ns as f64 / 1e9;
            let spec = self.settings.spec_of(d);
            let utilization = spec.map_or(0.0, |spec| busy::in_use(d, &io, spec, seconds));
            stored.devices.push(DeviceSummary {
                device: d.name.clone(),
                used_bytes: d.used_bytes,
                reads: io.reads,
                writes: io.writes,
                read_bytes: io.read_bytes,
                write_bytes: io.write_bytes,
                utilization_milli: (utilization * 1000.0).round() as u64,
            });
        }
        if self.stores {
            self.changes.push(Change::Window(stored));
        }
    }

    /// Updates jobs from the agent's report.
    pub(super) fn take_in_jobs(&mut self, host: &mut Host, now: Nanos, jobs: &[JobWindow]) {
        for job in jobs {
            self.job_progress(host, now, job);
            let over = !matches!(job.state, JobProgress::Copying { .. });
            // The job that was to be cancelled has ended.
            host.dirty.kept |= over && host.kept.cancelling.remove(&job.job).is_some();
        }
    }

    /// Updates a job from the agent's report.
    fn job_progress(&mut self, host: &mut Host, now: Nanos, job: &JobWindow) {
        let id = JobId(job.job);
        let before = match host.executor.get(id) {
            Some(job) if job.state.active() => job.copied,
            _ => return, // ended, or not in this store
        };
        match &job.state {
            JobProgress::Copying {
                copied_bytes,
                left_bytes,
                rate_bytes_per_s,
            } => {
                let progress = host.progress.entry(id).or_insert(Progress {
                    moved_at: now,
                    ..Progress::default()
                });
                let less = progress.left.is_none_or(|left| *left_bytes < left);
                if Bytes(*copied_bytes) > before || less {
                    progress.moved_at = now;
                    progress.called_stuck = false;
                }
                progress.left = Some(*left_bytes);
                progress.rate = *rate_bytes_per_s;
                self.copied(host, now, id, *copied_bytes);
            }
            JobProgress::Done { copied_bytes } => {
                self.copied(host, now, id, *copied_bytes);
                self.input(host, now, Input::Done(id));
                host.forget_failure(id);
                self.await_outcome(host, now, id);
            }
            JobProgress::Failed { why, copied_bytes } => {
                self.copied(host, now, id, *copied_bytes);
                let why = bounds::tidy(why, WHY_BYTES_MAX);
                let failed_io = job.failed_io.clone().map(|io| IoFailure {
                    device: bounds::tidy(&io.device, WHY_BYTES_MAX),
                    op: bounds::tidy(&io.op, WHY_BYTES_MAX),
                    errno: bounds::tidy(&io.errno, WHY_BYTES_MAX),
                });
                self.remember_failure(host, id, &why, job.permanent);
                let cause = FailCause::of_host(why, failed_io);
                self.input(host, now, Input::Failed { job: id, cause });
            }
        }
    }

    /// Records the copied bytes of a job. After a restart the agent counts again from 0; the executor keeps the larger count.
    fn copied(&mut self, host: &mut Host, now: Nanos, job: JobId, copied_bytes: u64) {
        let bytes = Bytes(copied_bytes);
        self.input(host, now, Input::Copied { job, bytes });
    }

    /// Schedules the measurement of a finished move for the first whole epoch from now on.
    fn await_outcome(&mut self, host: &mut Host, now: Nanos, id: JobId) {
        let job = host.executor.get(id).expect("the job has just ended");
        let part = job.order.extents.is_some();
        if part && job.order.terms.effect.latency_after_us.is_none() {
            return; // it has no prediction, and other moves of its volume precede and follow it
        }
        let names = &host.kept.names;
        let (volume, from, to) = (
            names.of_volume(job.order.volume).to_string(),
            names.of_device(job.order.from).to_string(),
            names.of_device(job.order.to).to_string(),
        );
        let (effect, device) = (job.order.terms.effect, job.order.to);
        let outcome = OutcomeView {
            host: host.name.clone(),
            job: id.0,
            volume: volume.clone(),
            from_tier: host.tier_of(&from).into(),
            to_tier: host.tier_of(&to).into(),
            ended_ns: now.0,
            before_us: effect.latency_before_us,
            predicted_us: effect.latency_after_us,
            predicted_range_us: effect.latency_after_range_us,
            observed_us: None,
            before_iops: effect.iops_before,
            predicted_iops: effect.iops_after,
            observed_iops: None,
            error: None,
        };
        self.changes.push(Change::Outcome(outcome.clone()));
        host.kept.awaited.push(PendingOutcome {
            outcome,
            to: device,
            epoch: host.kept.epoch + WHOLE_EPOCH,
            ended: host.kept.epoch,
            part,
        });
        host.dirty.kept = true;
    }
}

fn add_io(sum: &mut crate::wire::DeviceIoCounts, io: &crate::wire::DeviceIoCounts, first: bool) {
    sum.reads += io.reads;
    sum.writes += io.writes;
    sum.read_bytes += io.read_bytes;
    sum.write_bytes += io.write_bytes;
    sum.busy_ns = match (sum.busy_ns, io.busy_ns) {
        (_, Some(busy)) if first => Some(busy),
        (Some(sum), Some(busy)) => Some(sum + busy),
        _ => None,
    };
}

fn summary(load: &LoadOf) -> FlowSummary {
    let at = |q: f64| load.quantile_ns(q).unwrap_or(0);
    FlowSummary {
        ios: load.ios,
        bytes: load.bytes,
        mean_ns: load
            .sum_ns
            .saturating_sub(load.held_ns)
            .checked_div(load.ios)
            .unwrap_or(0),
        p50_ns: at(0.5),
        p95_ns: at(0.95),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
    }
}

fn count(totals: &mut Totals, load: &Load, violated_ns: u64) {
    count_direction(&mut totals.reads, &load.reads);
    count_direction(&mut totals.writes, &load.writes);
    totals.errors += load.errors;
    totals.slo_violated_ns += violated_ns;
    if let Some(devices) = &load.devices {
        let reached = devices.reads.ios + devices.writes.ios;
        *totals.from_cache.get_or_insert(0) += load.ios().saturating_sub(reached);
    }
}

fn count_direction(sum: &mut DirectionCounters, load: &LoadOf) {
    sum.ios += load.ios;
    sum.bytes += load.bytes;
    sum.sum_ns += load.sum_ns;
    sum.up_to.resize(LATENCY_BOUNDS_NS.len(), 0);
    for (bucket, n) in &load.buckets {
        let value_ns = algo::bucket_value_ns(usize::from(*bucket));
        let first = LATENCY_BOUNDS_NS.partition_point(|bound| *bound < value_ns);
        sum.up_to[first..].iter_mut().for_each(|c| *c += n);
    }
}
