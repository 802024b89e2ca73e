//! Workloads on an array with their remedies, as an ordinary scenario, and its run.

use std::fmt::Write as _;
use std::sync::Arc;

use sim::{EvidenceOptions, RunOptions, ScenarioFile};
use slo::load::Backend;
use slo::{Forecast, WarmForecast};
use trace::LoadedTrace;
use units::{Bytes, BytesPerSec, Nanos};

use super::array::ArrayModel;
use super::result::{CaseResult, Looks, OfferedRequests};

/// Device of all data except the array's root volume.
const GROUP: &str = "group";
/// Maximum number of outstanding requests of a workload (the buffer of Linux's asynchronous I/O).
const OUTSTANDING: u32 = 16;
/// The paper's compute server (its table 2): eight cores and 24 GB, minus those of the application machines and the
/// hypervisor.
const SERVER: &str = "cpus = 6\nmemory = \"20 GiB\"\n";
/// Chunk sizes. On several disks a chunk is much larger than a request, because requests are no powers of two. On one disk
/// the size only limits the gap that the disk passes over instead of seeking.
const CHUNKS: [&str; 2] = ["16 MiB", "64 KiB"];
/// Read size of a warm-up: about a request of USR-1.
const WARM_READ: Bytes = Bytes(64 << 10);

/// Interval of the zones and curves.
const EVERY: Nanos = Nanos::from_secs(300);

/// Load of a workload.
#[derive(Clone)]
pub(super) enum Load {
    /// Requests at given times. Requests that cannot be issued in time wait.
    Requests(Arc<LoadedTrace>),
    /// 4 KiB random reads at a rate. Reads that could not be issued in time are skipped.
    RandomReader {
        /// Requests per second.
        rate_per_s: f64,
    },
}

/// Part of the array's memory that caches a workload's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Part for small reads, shared with other workloads.
    Small,
    /// Part for small reads, full of its data at the start, as after a long run.
    SmallFull,
    /// Part for large reads.
    Large,
    /// No part; the workload has its own disks, too (an array's root volume).
    OwnDisks,
}

/// Workload.
#[derive(Clone)]
pub(super) struct Workload {
    pub(super) name: String,
    pub(super) size: Bytes,
    pub(super) load: Load,
    /// Guaranteed requests per second, an integer.
    pub(super) promised_per_s: Option<f64>,
    pub(super) part: Part,
}

/// Remedies and their parameters.
#[derive(Debug, Clone, Default)]
pub(super) struct RemedyParameters {
    /// Names of remedies; without any, the workloads are only monitored.
    pub(super) remedies: Vec<&'static str>,
    /// Maximum fill rate of an appliance.
    pub(super) fill_max: Option<BytesPerSec>,
    /// Data reduction factor of an appliance, and its processor time per 4 KiB.
    pub(super) reduction: Option<(f64, Nanos)>,
    /// Keys of `response.workflow.warm`.
    pub(super) warm: Vec<&'static str>,
    /// Tables of peaks known in advance.
    pub(super) peaks: String,
}

/// Case to run.
pub(super) struct Case {
    pub(super) workloads: Vec<Workload>,
    pub(super) array: ArrayModel,
    /// Page size of the array's memory and of an appliance.
    pub(super) page: Bytes,
    pub(super) answering: RemedyParameters,
    pub(super) duration: Nanos,
    /// Time by which all earlier arrivals should have been issued.
    pub(super) mark: Nanos,
    /// Span whose latencies are evaluated.
    pub(super) span: (Nanos, Nanos),
    /// Times of the curves.
    pub(super) curves_at: Vec<Nanos>,
    pub(super) seed: u64,
}

impl Case {
    /// Runs the case.
    ///
    /// # Panics
    /// If the scenario is invalid, which would be a bug.
    pub(super) fn run(&self) -> CaseResult {
        let file = ScenarioFile::parse("reproduce-dynamite.toml", &self.text());
        let file = file.unwrap_or_else(|e| panic!("{e}"));
        let traces = self.workloads.iter().filter_map(|w| match &w.load {
            Load::Requests(trace) => Some(Arc::clone(trace)),
            Load::RandomReader { .. } => None,
        });
        let model = file.build(traces.collect());
        let model = model.unwrap_or_else(|e| panic!("{e}"));
        let strategy = file.strategy("noop").unwrap_or_else(|e| panic!("{e}"));
        let options = RunOptions {
            series: false,
            decisions: false,
            optimum: None,
        };
        let kept = EvidenceOptions {
            looks_at: self.looks_at(),
            accesses_until: self.curves_at.iter().copied().max().unwrap_or_default(),
        };
        let run = sim::run_with_evidence(&model, strategy, options, kept);
        let (run, evidence) = run.unwrap_or_else(|e| panic!("{e}"));
        let asked: Vec<OfferedRequests> = self.workloads.iter().map(|w| self.asked(w)).collect();
        let looks = Looks {
            mark: self.mark,
            span: self.span,
            curves_at: self.curves_at.clone(),
            windows: (self.duration.0 / slo::SAMPLE.0) as usize,
        };
        CaseResult::new(&run, evidence, &asked, &looks)
    }

    /// Returns the times of zones and curves: every five minutes, and the times of drawn curves.
    fn looks_at(&self) -> Vec<Nanos> {
        let last = self.duration.0 / EVERY.0;
        let all = (1..=last).map(|i| Nanos(i * EVERY.0));
        all.chain(self.curves_at.iter().copied()).collect()
    }

    fn asked(&self, of: &Workload) -> OfferedRequests {
        match &of.load {
            Load::Requests(trace) => {
                let before = |at: Nanos| {
                    let records = trace.records();
                    records.partition_point(|r| r.time_ns < at.0) as u64
                };
                OfferedRequests {
                    before_mark: Some(before(self.mark)),
                    all: before(self.duration),
                }
            }
            Load::RandomReader { rate_per_s } => OfferedRequests {
                before_mark: None,
                all: (rate_per_s * self.duration.as_secs_f64()) as u64,
            },
        }
    }

    /// Returns the text of the scenario.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // The results of a window are known when the next one has begun.
        let _ = write!(
            text,
            "name = \"reproduce-dynamite\"\nseed = {}\nduration = \"{}ns\"\nwindow = \"10s\"\nstrategy = \"noop\"\n",
            self.seed & (u64::MAX >> 1),
            self.duration.0 + slo::SAMPLE.0,
        );
        self.tiers(&mut text);
        self.cache(&mut text);
        let _ = write!(
            text,
            "\n[hosts.server]\n{SERVER}link = \"{} B/s\"\nsharing = \"by-turns\"\nlatency = \"{}ns\"\n",
            self.array.link.0,
            self.array.controller.0 / 2,
        );
        for w in &self.workloads {
            let tier = match w.part {
                Part::OwnDisks => "own",
                _ => GROUP,
            };
            let _ = write!(
                text,
                "\n[[classes]]\nname = \"{0}\"\n\n[[volumes]]\nname = \"{0}\"\nclass = \"{0}\"\nsize = \"{1} B\"\ntier = \"{tier}\"\n",
                w.name, w.size.0,
            );
            let _ = match &w.load {
                Load::Requests(_) => write!(
                    text,
                    "\n[[traces]]\nfile = \"{0}\"\nvolume = \"{0}\"\nreplay = \"window\"\noutstanding = {OUTSTANDING}\n",
                    w.name
                ),
                Load::RandomReader { rate_per_s } => write!(
                    text,
                    "\n[[clients]]\nvolume = \"{}\"\nhabits = {{ outstanding = {OUTSTANDING}, rate = \"{rate_per_s:.0} IOPS\" }}\n",
                    w.name
                ),
            };
        }
        self.response(&mut text);
        text
    }

    /// Adds the array's disks, and the device of its root volume, if it has one.
    fn tiers(&self, text: &mut String) {
        let array = &self.array;
        let reads = f64::from(array.data_disks) * 1e9 / array.seek.as_f64();
        let bandwidth = u64::from(array.data_disks) * array.transfer.0;
        let chunk = CHUNKS[usize::from(array.data_disks == 1)];
        let (raid, count) = match array.parity {
            true => ("raid4", array.data_disks + 1),
            false => ("raid0", array.data_disks),
        };
        let _ = write!(
            text,
            "\n[[tiers]]\nname = \"{GROUP}\"\npreset = \"disk-15k\"\nmembers = [{{ name = \"disks\", capacity = \"4 TiB\" }}]\n\
             read_iops = \"{reads:.0} IOPS\"\nwrite_iops = \"{reads:.0} IOPS\"\nread_bandwidth = \"{bandwidth} B/s\"\nwrite_bandwidth = \"{bandwidth} B/s\"\n\
             \n[disks.{GROUP}]\npreset = \"disk-15k\"\ncount = {count}\nraid = \"{raid}\"\nchunk = \"{chunk}\"\n\
             positioning = \"{}ns\"\nspread = {:?}\nbandwidth = \"{} B/s\"\nwrite_back = \"{}ns\"\n",
            array.seek.0, array.spread, array.transfer.0, array.write_back.0,
        );
        if self.has(Part::OwnDisks) {
            text.push_str(
                "\n[[tiers]]\nname = \"own\"\npreset = \"disk-15k\"\nmembers = [{ name = \"own disks\", capacity = \"1 TiB\" }]\n\
                 \n[disks.own]\npreset = \"disk-15k\"\ncount = 1\n",
            );
        }
    }

    fn has(&self, part: Part) -> bool {
        self.workloads.iter().any(|w| w.part == part)
    }

    fn cache(&self, text: &mut String) {
        let [small, large] = self.array.memory;
        let all = small.0 + large.0;
        let _ = write!(
            text,
            "\n[cache]\nsize = \"{all} B\"\npage = \"{} B\"\npolicy = \"lru\"\nwrites = \"write-around\"\nhit = \"0ns\"\n",
            self.page.0,
        );
        let full = self.workloads.iter().filter(|w| w.part == Part::SmallFull);
        let full: Vec<&str> = full.map(|w| w.name.as_str()).collect();
        if !full.is_empty() {
            let _ = writeln!(text, "holds = {full:?}");
        }
        let share = |part: Bytes| part.0 as f64 / all as f64;
        for w in &self.workloads {
            let share = match w.part {
                Part::Small => continue,
                Part::SmallFull => share(small),
                Part::Large => share(large),
                Part::OwnDisks => 0.0,
            };
            let _ = write!(
                text,
                "[[cache.parts]]\nvolume = \"{}\"\nshare = {share:?}\n",
                w.name
            );
        }
    }

    fn response(&self, text: &mut String) {
        let answering = &self.answering;
        let page = self.page;
        let _ = write!(text, "\n[response]\nremedies = {:?}\n", answering.remedies);
        let promised: Vec<String> = self
            .workloads
            .iter()
            .filter_map(|w| {
                Some(format!(
                    "\"{}\" = \"{:.0} IOPS\"\n",
                    w.name, w.promised_per_s?
                ))
            })
            .collect();
        let _ = write!(text, "\n[response.iops_min]\n{}", promised.concat());
        let _ = write!(
            text,
            "\n[response.appliance]\ncreate = \"59s\"\nreroute = \"1s\"\ndestroy = \"10s\"\nper_request = \"320us\"\nhit = \"150us\"\n\
             ssd = \"64 GiB\"\nssd_hit = \"500us\"\npage = \"{} B\"\nwarm_read = \"{} B\"\n",
            page.0,
            WARM_READ.0.max(page.0),
        );
        if let Some(rate) = answering.fill_max {
            let _ = writeln!(text, "fill_max = \"{} B/s\"", rate.0);
        }
        if let Some((ratio, per_page)) = answering.reduction {
            let per_page = per_page.0;
            let _ = writeln!(
                text,
                "reduction = {{ ratio = {ratio:?}, per_page = \"{per_page}ns\" }}"
            );
        }
        // As published: interference is decided by correlations alone, and prices are not compared.
        text.push_str(
            "\n[response.workflow]\nchoice = \"order\"\n\n[response.workflow.interference]\ntaken_min = 2.0\n",
        );
        if !answering.warm.is_empty() {
            let keys = answering.warm.join("\n");
            let _ = writeln!(text, "\n[response.workflow.warm]\n{keys}");
        }
        text.push_str(&answering.peaks);
    }
}

/// Returns a table for a peak known in advance, with the time of the action.
pub(super) fn peak_table(
    volume: &str,
    forecast: &Forecast,
    act_at: Nanos,
    backend: &Backend,
) -> String {
    let mut text = String::new();
    let zones = match forecast.warm {
        WarmForecast::Read => "read",
        WarmForecast::Leave => "leave",
    };
    let rate = forecast.rate_per_s;
    let habit = &forecast.habit;
    let misses = forecast.curve.iter().flat_map(|c| c.points());
    let misses: Vec<String> = misses
        .map(|(size, ratio)| format!("[\"{} B\", {ratio:?}]", size.0))
        .collect();
    let heavy = forecast.zones.iter();
    let heavy: Vec<String> = heavy
        .map(|z| format!("[{}, {:?}]", z.number, z.share))
        .collect();
    let _ = write!(
        text,
        "\n[[response.peaks]]\nvolume = \"{volume}\"\nat = \"{}ns\"\nlead = \"{}ns\"\nzones = \"{zones}\"\n\
         \n[response.peaks.recorded]\niops = \"{rate:.0} IOPS\"\nwrite_share = {:?}\nread_size = \"{:.0} B\"\nmisses = [{}]\nheavy = [{}]\n\
         \n[response.peaks.recorded.costs]\n",
        forecast.at.0,
        forecast.at.0.saturating_sub(act_at.0),
        habit.write_share,
        habit.read_bytes,
        misses.join(", "),
        heavy.join(", "),
    );
    for (resource, cost) in backend.resources.iter().zip(&habit.costs) {
        let [read_ns, write_ns] = [cost.read_s, cost.write_s].map(|s| (s * 1e9).round() as u64);
        let _ = writeln!(
            text,
            "\"{}\" = [\"{read_ns}ns\", \"{write_ns}ns\"]",
            resource.name
        );
    }
    text
}
