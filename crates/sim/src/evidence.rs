//! What answers to broken objectives were found by, window by window: for experiments that show it. Ordinary runs keep none of it.

use algo::merged_buckets;
use manager::wire::WindowReport;
use slo::curve::Curve;
use slo::load::Backend;
use slo::zones::Zone;
use slo::{Decision, Knowledge, Sample, Standing, WorkloadId};
use units::Nanos;

use crate::Model;
use crate::answering::{Known, site_of};
use crate::engine::Simulation;
use crate::host::HOST;

/// How much of it is kept.
#[derive(Debug, Clone, Default)]
pub struct EvidenceOptions {
    /// Zones and curves are looked at when the windows that end at these times have ended.
    pub looks_at: Vec<Nanos>,
    /// Accesses are logged until then.
    pub accesses_until: Nanos,
}

/// What was known and decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The array as the responder knows it.
    pub backend: Backend,
    /// By volume, in the scenario's order.
    pub volumes: Vec<VolumeEvidence>,
    /// Every decision.
    pub decisions: Vec<Decision>,
    /// What was ordered and what became of it: when, and in words.
    pub events: Vec<(Nanos, String)>,
}

/// Of one volume.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VolumeEvidence {
    /// Its name.
    pub name: String,
    /// Window by window.
    pub windows: Vec<WindowEvidence>,
    /// Its heavy zones, each time that they were looked at.
    pub zones: Vec<(Nanos, Vec<Zone>)>,
    /// Its miss-ratio curves.
    pub curves: Vec<(Nanos, Option<Curve>)>,
    /// Its accesses.
    pub accesses: AccessLog,
}

/// A window of a volume.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowEvidence {
    /// As the responder took it.
    pub sample: Sample,
    /// How it stands to what was promised.
    pub standing: Standing,
    /// Requests that were issued.
    pub issued: u64,
    /// Latencies of requests that completed: buckets of [`algo::Histogram`], and how many are in each.
    pub latencies: Vec<(u16, u64)>,
}

/// Accesses in order, of those objects of a volume that are looked at.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AccessLog {
    /// Bytes of an object.
    pub object_bytes: u64,
    /// One of how many objects is looked at.
    pub one_in: u32,
    /// Numbers of objects; with [`AccessLog::WROTE`] where one was written.
    pub accesses: Vec<u32>,
    /// How many there were at the end of each window.
    pub ends: Vec<usize>,
}

impl AccessLog {
    /// Marks a write.
    pub const WROTE: u32 = 1 << 31;
}

/// What is gathered while it runs.
pub(crate) struct Gathering {
    options: EvidenceOptions,
    pub(crate) evidence: Evidence,
}

impl Gathering {
    pub(crate) fn new(model: &Model, options: EvidenceOptions) -> Self {
        let volume = |name: &String| VolumeEvidence {
            name: name.clone(),
            ..VolumeEvidence::default()
        };
        let names = model.volumes.iter().map(|v| &v.name);
        let evidence = Evidence {
            backend: site_of(model).backend,
            volumes: names.map(volume).collect(),
            decisions: vec![],
            events: vec![],
        };
        Self { options, evidence }
    }

    /// Of each volume, what was issued in a window and how long it took.
    fn windows(report: &WindowReport) -> Vec<(u64, Vec<(u16, u64)>)> {
        let of = |v: &manager::wire::VolumeWindow| {
            let issued = v.sample.as_ref().map_or(0, |s| s.issued);
            let load = v.load.as_ref();
            let latencies = load.map(|l| merged_buckets(&l.reads.buckets, &l.writes.buckets));
            (issued, latencies.unwrap_or_default())
        };
        report.volumes.iter().map(of).collect()
    }
}

/// What a report says that the controller takes over: told again when it has.
pub(crate) type Told = Vec<(u64, Vec<(u16, u64)>)>;

impl Simulation<'_> {
    /// What evidence needs of a report before the controller has it; none where none is gathered.
    pub(crate) fn before_report(&self, report: &WindowReport) -> Option<Told> {
        self.gathering.as_ref().map(|_| Gathering::windows(report))
    }

    /// The controller has taken a window in and answered what is broken.
    pub(crate) fn after_report(&mut self, now_ns: u64, told: Told) {
        let Some(gathering) = &mut self.gathering else {
            return;
        };
        let controller = &self.host.controller;
        let now = Nanos(now_ns);
        let until = gathering.options.accesses_until;
        let looks = gathering.options.looks_at.contains(&now);
        let Some(watch) = &mut self.world.watch else {
            return;
        };
        for (v, (volume, (issued, latencies))) in
            gathering.evidence.volumes.iter_mut().zip(told).enumerate()
        {
            let workload = WorkloadId(v as u16);
            let sample = controller.last_sample(HOST, workload);
            let standing = controller.standing(HOST, workload);
            if let (Some(sample), Some(standing)) = (sample, standing) {
                volume.windows.push(WindowEvidence {
                    sample: sample.clone(),
                    standing,
                    issued,
                    latencies,
                });
            }
            watch.log_into(v, &mut volume.accesses, now < until);
        }
        if looks {
            let known = Known {
                watch,
                devices: &self.world.devices,
                maps: &self.world.maps,
            };
            for (v, volume) in gathering.evidence.volumes.iter_mut().enumerate() {
                let workload = WorkloadId(v as u16);
                volume.zones.push((now, known.zones(workload)));
                volume.curves.push((now, known.curve(workload)));
            }
        }
    }

    /// All that was gathered.
    pub(crate) fn take_evidence(&mut self) -> Evidence {
        let gathering = self.gathering.take();
        let mut evidence = gathering.expect("it is gathered").evidence;
        evidence.decisions = self.host.controller.responses(HOST).to_vec();
        evidence.events = self.host.take_responses();
        evidence
    }
}
