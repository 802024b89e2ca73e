//! Evidence behind the remedies for SLO violations, by window. Experiments use it; ordinary runs keep none.

use algo::merged_buckets;
use manager::wire::WindowReport;
use slo::curve::Curve;
use slo::load::Backend;
use slo::zones::Zone;
use slo::{Decision, Knowledge, ObjectiveRelation, Sample, WorkloadId};
use units::Nanos;

use crate::Model;
use crate::answering::{LazyMeasurements, site_of};
use crate::engine::Simulation;
use crate::host::HOST;

/// Extent of the evidence to keep.
#[derive(Debug, Clone, Default)]
pub struct EvidenceOptions {
    /// Ends of the windows after which zones and curves are recorded.
    pub looks_at: Vec<Nanos>,
    /// End of the log of accesses.
    pub accesses_until: Nanos,
}

/// Measurements and decisions of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// Array as the responder knows it.
    pub backend: Backend,
    /// Evidence by volume, in the scenario's order.
    pub volumes: Vec<VolumeEvidence>,
    /// All decisions of the responder.
    pub decisions: Vec<Decision>,
    /// Orders and their outcomes: time and text.
    pub events: Vec<(Nanos, String)>,
}

/// Evidence about one volume.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VolumeEvidence {
    /// Name of the volume.
    pub name: String,
    /// Evidence by window.
    pub windows: Vec<WindowEvidence>,
    /// Heavy zones at each recorded time.
    pub zones: Vec<(Nanos, Vec<Zone>)>,
    /// Miss-ratio curves at each recorded time.
    pub curves: Vec<(Nanos, Option<Curve>)>,
    /// Log of accesses.
    pub accesses: AccessLog,
}

/// Evidence about one window of a volume.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowEvidence {
    /// Sample that the responder received.
    pub sample: Sample,
    /// Standing of the volume against its objective.
    pub standing: ObjectiveRelation,
    /// Requests that were issued.
    pub issued: u64,
    /// Latencies of completed requests: buckets of [`algo::Histogram`] with their counts.
    pub latencies: Vec<(u16, u64)>,
}

/// Accesses to the sampled objects of a volume, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AccessLog {
    /// Size of an object, bytes.
    pub object_bytes: u64,
    /// Sampling factor N: one in N objects is logged.
    pub one_in: u32,
    /// Numbers of the accessed objects, with [`AccessLog::WROTE`] set for writes.
    pub accesses: Vec<u32>,
    /// Number of logged accesses at the end of each window.
    pub ends: Vec<usize>,
}

impl AccessLog {
    /// Bit that marks a write.
    pub const WROTE: u32 = 1 << 31;
}

/// Evidence of a run in progress.
pub(crate) struct EvidenceCollector {
    options: EvidenceOptions,
    pub(crate) evidence: Evidence,
}

impl EvidenceCollector {
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

    /// Returns for each volume the requests issued in a window, and their latencies.
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

/// Parts of a report that the evidence needs after the controller has consumed the report.
pub(crate) type ReportedParts = Vec<(u64, Vec<(u16, u64)>)>;

impl Simulation<'_> {
    /// Returns the parts of a report that the evidence needs, before the controller takes it; `None` if no evidence is
    /// gathered.
    pub(crate) fn before_report(&self, report: &WindowReport) -> Option<ReportedParts> {
        self.gathering
            .as_ref()
            .map(|_| EvidenceCollector::windows(report))
    }

    /// Records a window after the controller has processed it and chosen remedies.
    pub(crate) fn after_report(&mut self, now_ns: u64, told: ReportedParts) {
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
            let known = LazyMeasurements {
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

    /// Returns the gathered evidence.
    pub(crate) fn take_evidence(&mut self) -> Evidence {
        let gathering = self.gathering.take();
        let mut evidence = gathering.expect("it is gathered").evidence;
        evidence.decisions = self.host.controller.responses(HOST).to_vec();
        evidence.events = self.host.take_responses();
        evidence
    }
}
