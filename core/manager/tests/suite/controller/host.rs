//! A host that does what a test says: reports, and remembers its orders.

use std::cell::RefCell;
use std::rc::Rc;

use manager::managed::ManagedController;
use manager::question::{Actor, Answer, Question, Refusal};
use manager::service::{MessageRefusal, Now, Service};
use manager::settings::{ManagerConfig, Settings};
use manager::store::memory::MemoryStore;
use manager::store::{
    Change, HistoryPoint, HistoryQuery, Store, StoreError, StoredDecision, StoredWindow, TidyResult,
};
use manager::view::{EventView, JobView, OutcomeView, PlanView, StatusView};
use manager::wire::{
    ApplianceWindow, ArrayProblem, Bound, BusyWindow, CacheWindow, CalibrationResult,
    DeviceIoCounts, DeviceWindow, FailedIo, HandMove, JobProgress, JobWindow, Load, LoadOf,
    MirrorWindow, MovingWindow, Orders, PROTOCOL, Placed, Register, Throttle, VolumeSample,
    VolumeWindow, WindowReport,
};
use model::LeaseStatus;
use units::Nanos;

pub const WINDOW: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

/// A store that outlives its controller.
#[derive(Clone, Default)]
pub struct SharedStore(pub Rc<RefCell<MemoryStore>>);

macro_rules! through {
    ($(fn $name:ident(&mut self $(, $arg:ident: $type:ty)*) -> $out:ty;)*) => {
        impl Store for SharedStore {
            $(fn $name(&mut self $(, $arg: $type)*) -> Result<$out, StoreError> {
                self.0.borrow_mut().$name($($arg),*)
            })*
        }
    };
}

through! {
    fn values(&mut self) -> Vec<(String, String)>;
    fn commit(&mut self, changes: &[Change]) -> ();
    fn history(&mut self, query: &HistoryQuery) -> Vec<HistoryPoint>;
    fn windows(&mut self, host: &str, from_ns: u64, to_ns: u64) -> Vec<StoredWindow>;
    fn decision(&mut self, host: &str, generation: Option<u64>) -> Option<StoredDecision>;
    fn events(&mut self, after: Option<u64>, limit: usize) -> Vec<EventView>;
    fn jobs(&mut self, limit: usize) -> Vec<JobView>;
    fn outcomes(&mut self, limit: usize) -> Vec<OutcomeView>;
    fn tidy(&mut self, now_ns: u64) -> TidyResult;
}

/// A volume as the host reports it.
#[derive(Clone)]
pub struct FakeVolume {
    pub name: &'static str,
    pub class: &'static str,
    pub device: &'static str,
    pub tier: &'static str,
    pub mib: u64,
    pub ios: u64,
    pub latency_us: u64,
    pub moving: Option<(&'static str, u64)>,
    /// What a move that was given up left on another device, MiB.
    pub rest: Option<(&'static str, u64)>,
    /// Requests that wait at the window's end, and for how long, us.
    pub waiting: Option<(u64, u64)>,
    /// What keeps the agent from moving it.
    pub bound: Option<Bound>,
    /// How a person moves it.
    pub by_hand: HandMove,
    pub throttle: Option<Throttle>,
}

pub fn volume(
    name: &'static str,
    tier: &'static str,
    device: &'static str,
    ios: u64,
    latency_us: u64,
) -> FakeVolume {
    FakeVolume {
        name,
        class: "gold",
        device,
        tier,
        mib: 512,
        ios,
        latency_us,
        moving: None,
        rest: None,
        waiting: None,
        bound: None,
        by_hand: HandMove::Command {
            text: "move 'it' '{place}' '{tier}'".into(),
            needed_bytes: 1,
            storages: vec![],
        },
        throttle: None,
    }
}

/// Devices that emulate nothing, of tiers that the configuration describes: their I/O is that of the volumes on them.
#[derive(Default)]
pub struct RealDevices {
    /// Share of the window in which the kernel saw any I/O, of devices of which it does.
    pub kernel: Vec<(&'static str, f64)>,
    /// Whether it is an array, whose agent tells more of volumes than their loads, or virtual machines.
    pub is_array: bool,
}

pub struct Host {
    pub managed: ManagedController<SharedStore>,
    pub store: SharedStore,
    pub config: String,
    pub now_ns: u64,
    pub unix_ms: u64,
    session: u64,
    seq: u64,
    pub volumes: Vec<FakeVolume>,
    pub jobs: Vec<JobWindow>,
    pub calibrations: Vec<CalibrationResult>,
    pub orders: Option<Orders>,
    pub emulated: bool,
    pub real: Option<RealDevices>,
    /// Tiers of which nothing says what they can do.
    pub undescribed: Vec<&'static str>,
    pub unreachable: Vec<&'static str>,
    /// I/Os of a window that fail, by device.
    pub errors: Vec<(&'static str, FailedIo)>,
    /// What the array says of itself.
    pub problems: Vec<ArrayProblem>,
    /// Directory of the devices with its `/`; empty for storages without directories.
    pub directory: &'static str,
    /// Size of each device.
    pub device_mib: u64,
    /// Where it is measured: share of its device's time that each volume takes, and requests of it that are held back.
    pub takes: Vec<(&'static str, f64, u64)>,
    /// Volumes that are cached, and how.
    pub caches: Vec<(&'static str, CacheWindow)>,
    /// Volumes that can have second copies, and what they have.
    pub mirrors: Vec<(&'static str, MirrorWindow)>,
    /// Reads in a window that caches answer.
    pub hits: Vec<(&'static str, u64)>,
    /// Devices that do not say how busy they are.
    pub silent: Vec<&'static str>,
    /// Reads in a window that get past appliances, where not all do.
    /// The lease of its array, as its agent tells.
    pub lease: Option<LeaseStatus>,
    pub array_reads: Vec<(&'static str, u64)>,
    /// What the agent tells of appliances.
    pub appliances: Vec<ApplianceWindow>,
    /// A person has ordered a second level.
    pub second_by_hand: bool,
}

pub fn settings(config: &str) -> Settings {
    let (words, text) =
        config::read::<ManagerConfig>("test.toml", config).expect("it is well formed");
    let mut settings = Settings::new(text, words).expect("it makes sense");
    settings.python = Some(super::python::start);
    settings
}

/// Epochs of two windows, placement every second one; three tiers of one device each.
pub const BASE: &str = r#"
window = "1s"
strategy = "idt"
[[classes]]
name = "gold"
latency = "2ms"
[policy]
monitor_epoch = "2s"
migration_epoch = "4s"
hold = 1
cooldown = "0s"
margin = 0.0
"#;

impl Host {
    pub fn new(config: &str, volumes: Vec<FakeVolume>) -> Self {
        let store = SharedStore::default();
        // Saturday, 21 November 2026, 12:00 UTC.
        let unix_ms = 1_795_262_400_000;
        let managed = ManagedController::new(settings(config), store.clone(), unix_ms, 1);
        let mut host = Self {
            managed,
            store,
            config: config.into(),
            now_ns: WINDOW,
            unix_ms,
            session: 1,
            seq: 0,
            volumes,
            jobs: vec![],
            calibrations: vec![],
            orders: None,
            emulated: true,
            real: None,
            undescribed: vec![],
            unreachable: vec![],
            errors: vec![],
            problems: vec![],
            directory: "/srv/",
            device_mib: 4096,
            takes: vec![],
            caches: vec![],
            mirrors: vec![],
            hits: vec![],
            silent: vec![],
            lease: None,
            array_reads: vec![],
            appliances: vec![],
            second_by_hand: false,
        };
        host.register();
        host
    }

    pub fn now(&self) -> Now {
        Now {
            at: Nanos(self.now_ns),
            unix_ms: self.unix_ms + self.now_ns / 1_000_000,
        }
    }

    pub fn register(&mut self) {
        self.session += 1;
        self.seq = 0;
        let message = Register {
            protocol: PROTOCOL,
            session: self.session,
            version: "test".into(),
        };
        self.managed
            .register(self.now(), "alpha", message)
            .expect("it is welcome");
    }

    /// The controller is killed and started again on its store.
    pub fn restart_controller(&mut self) {
        let unix_ms = self.now().unix_ms;
        self.managed =
            ManagedController::new(settings(&self.config), self.store.clone(), unix_ms, 2);
        self.now_ns = self.now_ns.max(self.managed.time().0);
    }

    pub fn report(&self) -> WindowReport {
        let device = |name: &str, tier: &str, model: &str| DeviceWindow {
            name: name.into(),
            tier: tier.into(),
            size_bytes: self.device_mib * MIB,
            used_bytes: self
                .volumes
                .iter()
                .filter(|v| v.device == name)
                .map(|v| v.mib * MIB)
                .sum(),
            emulate: (self.emulated && self.real.is_none() && !self.undescribed.contains(&tier))
                .then(|| model::preset(model).expect("a preset").spec()),
            connected: !self.unreachable.contains(&name),
            place: Some(format!("{}{name}", self.directory)),
            io: Some(DeviceIoCounts::default()),
            waf: None,
            errors: self
                .errors
                .iter()
                .filter(|e| e.0 == name)
                .map(|e| e.1.clone())
                .collect(),
            node: None,
        };
        let mut report = WindowReport {
            session: self.session,
            seq: self.seq,
            as_of_ns: self.now_ns,
            window_ns: WINDOW,
            tiers: ["fast", "mid", "slow"].map(String::from).into(),
            devices: vec![
                device("fast-0", "fast", "pm953"),
                device("mid-0", "mid", "pm1633"),
                device("slow-0", "slow", "pm863"),
            ],
            volumes: self.volumes.iter().map(window).collect(),
            jobs: self.jobs.clone(),
            calibrations: self.calibrations.clone(),
            problem: vec![],
            second_by_hand: self.second_by_hand,
            appliances: self.appliances.clone(),
            lends: None,
            lease: self.lease.clone(),
            problems: self.problems.clone(),
        };
        self.measure(&mut report);
        report
    }

    /// Adds what devices did, and what the agent of an array tells of volumes.
    fn count(&self, report: &mut WindowReport, real: &RealDevices) {
        for d in &mut report.devices {
            let here = report
                .volumes
                .iter()
                .filter(|v| v.placed[0].device == d.name);
            let loads = here.filter_map(|v| v.load.as_ref());
            let mut io = DeviceIoCounts::default();
            for load in loads {
                io.reads += load.reads.ios;
                io.writes += load.writes.ios;
                io.read_bytes += load.reads.bytes;
                io.write_bytes += load.writes.bytes;
            }
            let kernel = real.kernel.iter().find(|k| k.0 == d.name);
            io.busy_ns = kernel.map(|k| (k.1 * WINDOW as f64) as u64);
            d.io = Some(io);
        }
        for v in report.volumes.iter_mut().filter(|_| real.is_array) {
            let ios = v.load.as_ref().map_or(0, Load::ios);
            v.sample = Some(VolumeSample {
                issued: ios,
                occupied_ns: WINDOW / 2,
                array_reads: ios,
                ..VolumeSample::default()
            });
        }
    }

    /// Adds what each volume takes of its device.
    fn measure(&self, report: &mut WindowReport) {
        if let Some(real) = &self.real {
            self.count(report, real);
        }
        for (name, share, waiting) in &self.takes {
            let Some(v) = report.volumes.iter_mut().find(|v| v.name == *name) else {
                continue;
            };
            let device = v.placed[0].device.clone();
            let reads_ns = (share * WINDOW as f64) as u64;
            let ios = v.load.as_ref().map_or(0, Load::ios);
            v.sample = Some(VolumeSample {
                issued: ios,
                occupied_ns: if *waiting > 0 { WINDOW } else { WINDOW / 2 },
                waiting: *waiting,
                array_reads: ios,
                busy: vec![BusyWindow {
                    resource: device,
                    reads_ns,
                    writes_ns: 0,
                }],
                ..VolumeSample::default()
            });
        }
        for (name, cache) in &self.caches {
            let v = report.volumes.iter_mut().find(|v| v.name == *name);
            v.expect("it is there").cache = Some(cache.clone());
        }
        for (name, mirror) in &self.mirrors {
            let v = report.volumes.iter_mut().find(|v| v.name == *name);
            v.expect("it is there").mirror = Some(mirror.clone());
        }
        for (name, reads) in &self.array_reads {
            let v = report.volumes.iter_mut().find(|v| v.name == *name);
            let sample = v.and_then(|v| v.sample.as_mut());
            sample.expect("it is measured").array_reads = *reads;
        }
        for (name, hits) in &self.hits {
            let v = report.volumes.iter_mut().find(|v| v.name == *name);
            let sample = v.and_then(|v| v.sample.as_mut());
            sample.expect("it is measured").cache_hits = *hits;
        }
        if !self.takes.is_empty() {
            for device in &mut report.devices {
                let io = device.io.get_or_insert_default();
                let busy = report.volumes.iter().flat_map(|v| &v.sample);
                let busy = busy.flat_map(|s| &s.busy);
                let own = busy.filter(|b| b.resource == device.name);
                let silent = self.silent.contains(&device.name.as_str());
                io.busy_ns = (!silent).then(|| own.map(|b| b.reads_ns + b.writes_ns).sum());
            }
        }
    }

    /// A window passes and is reported.
    pub fn window(&mut self) -> Result<&Orders, MessageRefusal> {
        self.now_ns += WINDOW;
        self.seq += 1;
        let orders = self.managed.report(self.now(), "alpha", self.report())?;
        self.jobs.retain(|j| {
            let named = |list: &[manager::wire::MoveOrder]| list.iter().any(|m| m.job == j.job);
            named(&orders.moves) || named(&orders.cancels)
        });
        self.calibrations
            .retain(|c| !orders.calibrations_taken.contains(&c.id));
        Ok(self.orders.insert(orders))
    }

    /// What tells of the jobs now.
    pub fn jobs_report(&self) -> manager::wire::JobsReport {
        manager::wire::JobsReport {
            session: self.session,
            seq: self.seq,
            jobs: self.jobs.clone(),
        }
    }

    /// Half a window later jobs that have ended are told of.
    pub fn tell_of_jobs(&mut self) -> Result<Orders, MessageRefusal> {
        self.now_ns += WINDOW / 2;
        self.seq += 1;
        let message = self.jobs_report();
        self.managed.jobs_ended(self.now(), "alpha", message)
    }

    pub fn windows(&mut self, count: u64) {
        for _ in 0..count {
            self.window().expect("it is taken");
        }
    }

    pub fn tick(&mut self) {
        let now = self.now();
        self.managed.tick(now);
    }

    /// Windows until there is a plan with a higher number.
    pub fn until_plan(&mut self) -> PlanView {
        let before = self.plan().map_or(0, |p| p.generation);
        for _ in 0..12 {
            self.windows(1);
            if let Ok(plan) = self.plan()
                && plan.generation > before
            {
                return plan;
            }
        }
        panic!(
            "no plan in three migration epochs: {:?}",
            self.status().hosts
        )
    }

    pub fn ask(&mut self, question: Question) -> Result<Answer, Refusal> {
        let now = self.now();
        self.managed.ask(now, &Actor("somebody".into()), question)
    }

    pub fn order(&mut self, question: Question) -> String {
        match self.ask(question) {
            Ok(Answer::Done(done)) => done.message,
            other => panic!("{other:?}"),
        }
    }

    pub fn plan(&mut self) -> Result<PlanView, Refusal> {
        match self.ask(Question::Plan {
            host: None,
            generation: None,
        })? {
            Answer::Plan(plan) => Ok(*plan),
            other => panic!("{other:?}"),
        }
    }

    pub fn status(&mut self) -> StatusView {
        match self.ask(Question::Status) {
            Ok(Answer::Status(status)) => *status,
            other => panic!("{other:?}"),
        }
    }

    pub fn job(&mut self, number: u32) -> JobView {
        let Ok(Answer::Jobs(jobs)) = self.ask(Question::Jobs { limit: 100 }) else {
            panic!("it answers")
        };
        jobs.into_iter()
            .find(|j| j.job == number)
            .expect("there is such a job")
    }

    pub fn events(&mut self) -> Vec<String> {
        let Ok(Answer::Events(events)) = self.ask(Question::Events {
            after: None,
            limit: 1000,
        }) else {
            panic!("it answers")
        };
        events.into_iter().map(|e| e.text).collect()
    }

    /// Numbers of the jobs that are ordered.
    pub fn ordered(&self) -> Vec<u32> {
        let orders = self.orders.as_ref().expect("there were reports");
        orders.moves.iter().map(|m| m.job).collect()
    }

    /// The agent says how far a job is.
    pub fn progress(&mut self, job: u32, state: JobProgress) {
        self.jobs.retain(|j| j.job != job);
        self.jobs.push(JobWindow {
            job,
            state,
            failed_io: None,
            permanent: false,
        });
    }

    /// The agent has moved a volume.
    pub fn finish(&mut self, job: u32, latency_us: u64) {
        let orders = self.orders.as_ref().expect("there were reports");
        let order = orders
            .moves
            .iter()
            .find(|m| m.job == job)
            .expect("it was ordered")
            .clone();
        let v = self
            .volumes
            .iter_mut()
            .find(|v| v.name == order.volume)
            .expect("one of ours");
        (v.tier, v.device) = match order.tier.as_str() {
            "fast" => ("fast", "fast-0"),
            "mid" => ("mid", "mid-0"),
            _ => ("slow", "slow-0"),
        };
        v.latency_us = latency_us;
        let copied_bytes = v.mib * MIB;
        self.progress(job, JobProgress::Done { copied_bytes });
    }
}

fn window(v: &FakeVolume) -> VolumeWindow {
    let latency_ns = v.latency_us * 1000;
    let mut reads = LoadOf {
        ios: v.ios,
        bytes: v.ios * 4096,
        sum_ns: v.ios * latency_ns,
        held_ns: 0,
        buckets: vec![(algo::bucket_of(latency_ns) as u16, v.ios)],
    };
    if v.ios == 0 {
        reads.buckets.clear();
    }
    VolumeWindow {
        name: v.name.into(),
        vm: None,
        class: v.class.into(),
        size_bytes: v.mib * MIB,
        home: v.tier.into(),
        placed: std::iter::once((v.device, v.mib))
            .chain(v.rest)
            .map(|(device, mib)| Placed {
                device: device.into(),
                bytes: mib * MIB,
            })
            .collect(),
        movable: true,
        bound: v.bound.clone(),
        by_hand: Some(v.by_hand.clone()),
        moving: v.moving.map(|(device, left_bytes)| MovingWindow {
            device: device.into(),
            copied_bytes: 0,
            left_bytes,
            rate_bytes_per_s: 1,
            extents: None,
        }),
        calibrating: false,
        sample: None,
        cache: None,
        mirror: None,
        throttle: v.throttle,
        load: Some(Load {
            depth_ns: reads.sum_ns,
            reads,
            waiting: v
                .waiting
                .map(|(n, us)| (algo::bucket_of(us * 1000) as u16, n))
                .into_iter()
                .collect(),
            ..Load::default()
        }),
        extents: None,
        node: None,
    }
}
