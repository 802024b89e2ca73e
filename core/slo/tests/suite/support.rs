//! Scripted array with the peak of a database and a scan, in steps of ten seconds.
use slo::curve::Curve;
use slo::host::Host;
use slo::ladder::{RemedyAction, RemedyKind};
use slo::load::{Backend, Cost, Place, Resource};
use slo::reroute::{Attachment, Hypervisor, Protocol, Proxy};
use slo::zones::Zone;
use slo::{
    ApplianceEvent, Forecast, Habit, HostId, Knowledge, Promise, ResourceId, ResourceUse,
    Responder, ResponderConfig, ResponseOrder, Sample, Site, WarmForecast, Workload, WorkloadId,
};
use units::{Bytes, Nanos};

pub const DB: WorkloadId = WorkloadId(0);
pub const SCAN: WorkloadId = WorkloadId(1);

pub struct FixedCurves {
    pub db: Option<Curve>,
}

impl Knowledge for FixedCurves {
    fn curve(&self, workload: WorkloadId) -> Option<Curve> {
        match workload {
            DB => self.db.clone(),
            _ => Some(Curve::new(vec![(Bytes::gib(200), 0.95)])),
        }
    }
    fn zones(&self, _: WorkloadId) -> Vec<Zone> {
        vec![
            Zone {
                number: 3,
                share: 0.2,
            },
            Zone {
                number: 9,
                share: 0.1,
            },
        ]
    }
    fn zones_before(&self, workload: WorkloadId) -> Vec<Zone> {
        let of_then = Zone {
            number: 7,
            share: 0.01,
        };
        let now = self.zones(workload).into_iter();
        now.chain([of_then]).rev().collect()
    }
}

pub fn known() -> FixedCurves {
    FixedCurves {
        db: Some(Curve::new(vec![
            (Bytes::gib(2), 0.5),
            (Bytes::gib(4), 0.05),
        ])),
    }
}

pub fn site() -> Site {
    let workload = |name: &str, promised| Workload {
        name: name.into(),
        objective: Promise {
            rate_min_per_s: promised,
            latency_max: None,
            ..Promise::default()
        },
        host: HostId(0),
        attachment: Attachment {
            protocol: Protocol::Nfs3,
            own_addresses: 1,
            hypervisor: Hypervisor::Plain,
            proxy: Proxy::Absent,
        },
        resources: vec![ResourceId(0)],
        pool: 0,
    };
    let host = |id, gib| Host {
        id: HostId(id),
        name: format!("host {id}"),
        rack: 0,
        cpus_free: 8,
        memory_free: Bytes::gib(gib),
    };
    Site {
        workloads: vec![workload("db", Some(1000.0)), workload("scan", Some(500.0))],
        hosts: vec![host(0, 16), host(1, 16)],
        backend: Backend {
            resources: vec![Resource {
                name: "disks".into(),
                place: Place::BehindMemory,
            }],
            memory: vec![Bytes::mib(64)],
            use_max: 0.8,
        },
    }
}

/// Script of an array whose disks serve 1,500 requests per second.
pub struct Script {
    pub responder: Responder,
    pub known: FixedCurves,
    pub step: u64,
    /// Share of writes in the database's requests.
    pub writes: f64,
    /// Share of the time in which the scan has outstanding requests.
    pub scan_occupied: f64,
    /// Share of the database's reads that its appliance serves.
    pub hits: f64,
    /// True if the use of the disks is measured.
    pub measured: bool,
    /// Ratio of the scan's rate to its limit.
    pub overshoot: f64,
    /// Queue of the throttled scan, requests; `None` if it drops requests that it cannot issue.
    pub queue: Option<f64>,
    /// Limit of the scan.
    held: Option<f64>,
    pub log: Vec<String>,
}

impl Script {
    pub fn new(config: ResponderConfig, site: Site) -> Self {
        Self {
            responder: Responder::new(config, site),
            known: known(),
            step: 0,
            writes: 0.1,
            scan_occupied: 0.9,
            hits: 0.0,
            measured: true,
            overshoot: 1.0,
            queue: None,
            held: None,
            log: Vec::new(),
        }
    }

    pub fn now(&self) -> Nanos {
        Nanos::from_secs(10 * self.step)
    }

    /// Runs `n` samples in which the database has this rate and share of occupied time.
    pub fn run(&mut self, n: u64, rate: f64, occupied: f64) {
        for _ in 0..n {
            self.step += 1;
            // Both workloads have the same disturbance, as from a common queue. It affects one of three samples without a
            // period, because a periodic one would be similar to its shifted copies.
            let wave = if self.step % 3 == algo::mix(1, self.step / 3) % 3 {
                30.0
            } else {
                -12.0
            };
            let measured = self.measured;
            let busy = |rate: f64, writes: f64, hits: f64| {
                let disks = ResourceUse {
                    reads: rate * (1.0 - writes) * (1.0 - hits) / 1500.0,
                    writes: rate * writes / 1500.0,
                };
                vec![measured.then_some(disks)]
            };
            let sample = |rate: f64, occupied: f64, writes: f64, hits: f64, us: f64| Sample {
                reads_per_s: rate * (1.0 - writes),
                writes_per_s: rate * writes,
                latency_us: Some(us),
                bytes_per_s: rate * 8192.0,
                bytes_read_per_s: rate * (1.0 - writes) * 8192.0,
                occupied,
                waiting: u64::from(occupied >= 1.0),
                working_set: Some(Bytes::gib(2)),
                backend_reads_per_s: rate * (1.0 - writes) * (1.0 - hits),
                memory_hits: (hits < 1.0).then_some(0.0),
                busy: busy(rate, writes, hits),
                ..Sample::default()
            };
            let us = 9000.0 + 20.0 * wave;
            let asked = if rate > 0.0 { rate + wave } else { 0.0 };
            let db = sample(asked, occupied, self.writes, self.hits, us);
            let asks = 600.0 - wave;
            let (scan, busy, waiting) = match (self.held, &mut self.queue) {
                (Some(held), Some(queue)) => {
                    let gets = held.min(asks + *queue / 10.0);
                    *queue += 10.0 * (asks - gets);
                    let busy = if *queue >= 1.0 { 1.0 } else { 0.9 };
                    (gets, busy, *queue as u64)
                }
                (Some(held), None) => (self.overshoot * held, 1.0, 1),
                (None, _) => {
                    let waiting = u64::from(self.scan_occupied >= 1.0);
                    (asks, self.scan_occupied, waiting)
                }
            };
            let mut scan = sample(scan, busy, 0.0, 0.0, 5000.0 + 15.0 * wave);
            scan.waiting = waiting;
            let orders = self.responder.tell(self.now(), &[db, scan], &self.known);
            for order in orders {
                self.note(&order);
            }
        }
    }

    /// Passes a forecast to the responder.
    pub fn foresee(&mut self, forecast: &Forecast) {
        for order in self.responder.foresee(self.now(), forecast, &self.known) {
            self.note(&order);
        }
    }

    pub fn note(&mut self, order: &ResponseOrder) {
        let at = self.step;
        match order {
            ResponseOrder::Carry {
                action: RemedyAction::Throttle { rate_per_s, .. },
            } => self.held = Some(*rate_per_s),
            ResponseOrder::Unthrottle { .. } => self.held = None,
            _ => {}
        }
        self.log.push(match order {
            ResponseOrder::CreateAppliance {
                workload,
                host,
                cache,
                way,
                warm,
                ..
            } => {
                let warm = serde_json::to_value(warm).unwrap()["warm"].to_string();
                format!(
                    "{at}: create for {} on {}: {cache}, {way}, {warm}",
                    workload.0, host.0
                )
            }
            ResponseOrder::RemoveAppliance { workload, why } => {
                format!("{at}: remove {}: {why}", workload.0)
            }
            ResponseOrder::Carry {
                action:
                    RemedyAction::Throttle {
                        workload,
                        rate_per_s,
                    },
            } => {
                format!("{at}: throttle {} to {rate_per_s:.0}", workload.0)
            }
            ResponseOrder::Carry { action } => format!("{at}: {action:?}"),
            ResponseOrder::Unthrottle { workload } => format!("{at}: unthrottle {}", workload.0),
            ResponseOrder::TakeBack { action } => format!("{at}: take back {action:?}"),
        });
    }

    pub fn event(&mut self, event: ApplianceEvent) {
        let now = self.now();
        self.responder.appliance(now, DB, &event);
    }

    pub fn refusal(&self, kind: RemedyKind) -> String {
        let decision = self.responder.decisions().last().expect("a decision");
        let remedy = decision.remedies.iter().find(|r| r.kind == kind).unwrap();
        remedy.refused.clone().unwrap_or_default()
    }
}

pub fn appliance_only() -> ResponderConfig {
    ResponderConfig {
        allowed: vec![RemedyKind::Appliance],
        ..ResponderConfig::as_published()
    }
}

/// Returns the forecast of a peak whose requests have the database's cost and curve.
pub fn forecast(workload: WorkloadId, at_step: u64, rate_per_s: f64) -> Forecast {
    Forecast {
        workload,
        at: Nanos::from_secs(10 * at_step),
        by: Nanos::from_secs(10 * at_step),
        until: Nanos::from_secs(10 * at_step),
        seen: 0,
        rate_per_s,
        curve: known().db,
        zones: known().zones(DB),
        warm: WarmForecast::Read,
        habit: Habit {
            write_share: 0.1,
            read_bytes: 8192.0,
            costs: vec![Cost {
                read_s: 1.0 / 1500.0,
                write_s: 1.0 / 1500.0,
            }],
        },
    }
}
