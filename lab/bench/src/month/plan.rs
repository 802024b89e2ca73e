//! Changes of the store except windows: a decision every 15 minutes in the form and size of real ones, jobs with their outcomes, and events.

use manager::store::{Change, StoredDecision};
use manager::view::{EventKind, EventView, JobView, OutcomeView};
use serde_json::{Value, json};

use super::load::{SplitMix64, device_name, volume_name};
use super::{HOST, WINDOW_NS};

/// Number of windows from one decision to the next.
const DECIDE_EVERY: u64 = 90;
/// Number of moves per decision.
const MOVES: u32 = 3;
/// Duration of a move, in windows.
const MOVE_WINDOWS: u64 = 40;
/// Length in bytes of the executor's state, which every commit replaces.
const STATE_BYTES: usize = 8 * 1024;
const TIERS: [&str; 3] = ["nvme", "ssd", "capacity"];

pub struct Plans {
    volumes: usize,
    generation: u64,
    events: u64,
    jobs: Vec<JobView>,
    next_job: u32,
    random: SplitMix64,
}

impl Plans {
    pub fn new(volumes: usize) -> Self {
        Self {
            volumes,
            generation: 0,
            events: 0,
            jobs: Vec::new(),
            next_job: 1,
            random: SplitMix64(2),
        }
    }

    /// Returns the changes that are committed with window `n`.
    pub fn changes(&mut self, n: u64) -> Vec<Change> {
        let at_ns = n * WINDOW_NS;
        let mut changes = vec![self.state(at_ns)];
        if n.is_multiple_of(DECIDE_EVERY) {
            self.decide(at_ns, &mut changes);
        }
        let mut going_on = std::mem::take(&mut self.jobs);
        for job in &mut going_on {
            let windows = (at_ns - job.planned_ns) / WINDOW_NS;
            job.copied_bytes = job.bytes * windows / MOVE_WINDOWS;
            job.left_bytes = job.bytes.saturating_sub(job.copied_bytes);
            job.eta_ns = Some(job.left_bytes * 10);
            if job.left_bytes == 0 {
                job.state = model::JobStatus::Done;
                job.ended_ns = Some(at_ns);
                changes.push(Change::Outcome(self.outcome(job)));
                changes.push(self.event(at_ns, EventKind::Job, "the move is done"));
            }
            changes.push(Change::Job(Box::new(job.clone())));
        }
        going_on.retain(|job| job.ended_ns.is_none());
        self.jobs.append(&mut going_on);
        changes
    }

    fn state(&mut self, at_ns: u64) -> Change {
        let mut value = format!("{{\"at_ns\":{at_ns},\"volumes\":[");
        while value.len() < STATE_BYTES {
            value += &format!("{:.3},", self.random.uniform() * 1e6);
        }
        value += "0]}";
        Change::Put {
            key: format!("host/{HOST}/executor"),
            value,
        }
    }

    fn decide(&mut self, at_ns: u64, changes: &mut Vec<Change>) {
        self.generation += 1;
        let facts: Vec<Value> = (0..self.volumes).map(|n| self.facts(n)).collect();
        let report: Vec<Value> = (0..self.volumes).map(|n| self.reasons(n)).collect();
        let mut moves = Vec::new();
        for _ in 0..MOVES {
            let job = self.job(at_ns);
            moves.push(
                json!({"volume": job.volume, "from": job.from, "to": job.to, "goal": "latency",
                "bytes": job.bytes, "rate": job.rate_bytes_per_s, "reason": job.reason}),
            );
            changes.push(self.event(at_ns, EventKind::Job, "a move was approved and begins"));
            self.jobs.push(job);
        }
        changes.push(self.event(at_ns, EventKind::Plan, "a plan was made"));
        changes.push(Change::Decision(Box::new(StoredDecision {
            host: HOST.to_string(),
            generation: self.generation,
            at_ns,
            strategy: "autotiering".to_string(),
            parameters: json!({"alpha": 0.5, "beta": 0.25, "migration_weight": 1.0}),
            seed: self.generation * 0x9e37,
            facts: json!({"at": at_ns, "volumes": facts}),
            policy: json!({"classes": [{"name": "gold", "slo": {"p99_us": 2000.0}}], "pins": []}),
            state: json!({"slopes": (0..self.volumes).map(|_| self.random.uniform()).collect::<Vec<f64>>()}),
            plan: json!({"generation": self.generation, "moves": moves, "held": []}),
            report: json!({"strategy": "autotiering", "volumes": report, "notes": []}),
        })));
    }

    fn facts(&mut self, n: usize) -> Value {
        let random = &mut self.random;
        let mut flow = || {
            let mean = 80.0 + 900.0 * random.uniform();
            json!({
                "ios": (random.uniform() * 1e5) as u64, "bytes": ((random.uniform() * 1e5) as u64) << 12,
                "latency": {"mean_us": mean, "p50_us": mean * 0.8, "p95_us": mean * 2.0, "p99_us": mean * 3.1,
                    "p999_us": mean * 6.5},
                "injected_us": 0.0, "outstanding": mean / 100.0,
            })
        };
        let (reads, writes) = (flow(), flow());
        json!({
            "name": volume_name(n), "vm": n, "class": n % 3, "size": 200u64 << 30, "device": n % 12,
            "measured": {"duration": 900_000_000_000u64, "reads": reads, "writes": writes, "errors": 0},
            "calibration": [], "calibrating": false,
        })
    }

    fn reasons(&mut self, n: usize) -> Value {
        let random = &mut self.random;
        let options: Vec<Value> = TIERS
            .iter()
            .map(|tier| {
                json!({"tier": tier, "score": random.uniform(), "predicted": {"latency_us": random.uniform() * 1e3,
                    "iops": random.uniform() * 1e4}, "verdict": {"kind": "worse", "by": random.uniform()}})
            })
            .collect();
        json!({
            "volume": volume_name(n), "tier": TIERS[n % 3], "outcome": {"kind": "stay"}, "options": options,
            "evidence": {"slope_us_per_us": random.uniform(), "intercept_us": random.uniform() * 1e3},
        })
    }

    fn job(&mut self, at_ns: u64) -> JobView {
        let job = self.next_job;
        self.next_job += 1;
        JobView {
            host: HOST.to_string(),
            job,
            generation: self.generation,
            volume: volume_name((self.random.uniform() * self.volumes as f64) as usize),
            from_tier: TIERS[1].to_string(),
            to_tier: TIERS[0].to_string(),
            from: device_name(6),
            to: device_name(1),
            extents: None,
            goal: model::Goal::Latency,
            reason: "412 us now, 95 us predicted on nvme, at 1,380 requests a second".to_string(),
            state: model::JobStatus::Active,
            why: None,
            cause: None,
            failed_io: None,
            copied_bytes: 0,
            bytes: 40 << 30,
            left_bytes: 40 << 30,
            rate_bytes_per_s: 100 << 20,
            before_us: None,
            after_us: None,
            planned_ns: at_ns,
            started_ns: Some(at_ns),
            ended_ns: None,
            eta_ns: None,
            stuck_ns: None,
        }
    }

    fn outcome(&mut self, job: &JobView) -> OutcomeView {
        let observed = 80.0 + 40.0 * self.random.uniform();
        OutcomeView {
            host: job.host.clone(),
            job: job.job,
            volume: job.volume.clone(),
            from_tier: job.from_tier.clone(),
            to_tier: job.to_tier.clone(),
            ended_ns: job.ended_ns.unwrap_or(0),
            before_us: Some(412.0),
            predicted_us: Some(95.0),
            predicted_range_us: None,
            observed_us: Some(observed),
            before_iops: Some(1380.0),
            predicted_iops: Some(1500.0),
            observed_iops: Some(1400.0 + observed),
            error: Some((observed - 95.0) / observed),
        }
    }

    fn event(&mut self, at_ns: u64, kind: EventKind, text: &str) -> Change {
        self.events += 1;
        Change::Event(EventView {
            id: self.events,
            at_ns,
            unix_ms: 1_700_000_000_000 + at_ns / 1_000_000,
            kind,
            actor: "controller".to_string(),
            host: Some(HOST.to_string()),
            volume: Some(volume_name(self.events as usize % self.volumes)),
            text: format!("{text}: generation {}", self.generation),
            failed_io: None,
        })
    }
}
