//! The run: arrivals, service, tags, completions, controller, tenants that come and go.

mod changes;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::control::{Controller, Got, Slo};
use super::load::{Generator, Load, Recorded};
use super::outcome::{Latency, Outcome, TenantOutcome, proportionality};
use super::plan::{HostConfig, Target, TenantPlan};
use super::service::{Server, Service};
use crate::FlashError;
use crate::drive::{Drive, Op, Served};
use crate::ftl::{Moves, TenantId};
use algo::{Histogram, Rng};

/// Requests that may wait in front of the device, over all tenants: a load that comes faster than it is served would fill the memory.
pub const WAITING_MAX: usize = 1 << 20;

/// Windows of a series at most.
const WINDOWS_MAX: u64 = 1000;

/// Shortest interval of a controller, nanoseconds.
const INTERVAL_MIN_NS: u64 = 1_000_000;

/// Times that a request in a tag may be passed over by others.
const PASSED_MAX: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The warm-up is over. First at its time, so that what ends then counts.
    Count,
    Answer(usize),
    Arrive(usize),
    Go(usize),
    Come(usize),
    Control,
}

/// What the translation layer knows of a tenant.
#[derive(Debug, Clone, Copy, Default)]
struct OnFlash {
    waf: Option<f64>,
    victim_utilization: Option<f64>,
    moves: Moves,
    spare_share: Option<f64>,
}

impl OnFlash {
    fn of(drive: &Drive, id: TenantId) -> Self {
        let ftl = drive.ftl();
        let all = f64::from(ftl.config().blocks / ftl.config().lanes);
        Self {
            waf: ftl.write_amplification_of(id),
            victim_utilization: ftl.victim_utilization_of(id),
            moves: ftl.moves(id),
            spare_share: ftl.spare_blocks(id).ok().map(|b| f64::from(b) / all),
        }
    }
}

#[derive(Debug)]
struct State {
    id: Option<TenantId>,
    gone: bool,
    /// Of one that is gone, if it went while it counted.
    left: Option<OnFlash>,
    generator: Generator,
    random: Rng,
    waiting: VecDeque<(u64, Recorded)>,
    /// When what counts of it begins and ends.
    from_ns: u64,
    until_ns: u64,
    requests: u64,
    reads: u64,
    bytes: u64,
    device_ns: u64,
    latency: Histogram,
    series: Vec<u64>,
    interval: Got,
}

#[derive(Debug, Clone, Copy)]
struct Tagged {
    tenant: usize,
    from_ns: u64,
    request: Recorded,
    passed: u32,
}

/// A run that is going on.
#[derive(Debug)]
pub struct Host<'a, T> {
    target: &'a mut T,
    plans: &'a [TenantPlan],
    config: &'a HostConfig,
    states: Vec<State>,
    server: Server,
    controller: Option<Controller>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// Requests that have a tag and wait for the device.
    tagged: Vec<Tagged>,
    /// Requests that it works on.
    begun: Vec<Option<(Tagged, Served)>>,
    free_places: Vec<usize>,
    working: usize,
    now: u64,
    counting: bool,
    window_ns: u64,
    last_control: u64,
    handed_over: u64,
    hand_over_ns: u64,
}

/// Runs tenants on a target. Tenants that are there from the beginning must have been added to the drive, in order, as `0, 1, …`; those
/// that come later are added when they come.
///
/// Windows of the series are made longer where there would be more than a thousand.
///
/// # Errors
/// When a tenant that comes later finds no room, the controller's interval is below 1 ms, or a load with a rate is so much faster than the
/// device that more than [`WAITING_MAX`] requests wait.
pub fn run<T: Target>(
    target: &mut T,
    plans: &[TenantPlan],
    config: &HostConfig,
) -> Result<Outcome, FlashError> {
    if let Some(control) = &config.control
        && control.interval.0 < INTERVAL_MIN_NS
    {
        return Err(FlashError::Range {
            key: "interval of the controller in seconds",
            value: control.interval.0 as f64 / 1e9,
            range: "0.001 and more",
        });
    }
    let mut host = Host::new(target, plans, config);
    host.serve_all()?;
    Ok(host.outcome())
}

impl<'a, T: Target> Host<'a, T> {
    fn new(target: &'a mut T, plans: &'a [TenantPlan], config: &'a HostConfig) -> Self {
        let window_ns = config.duration.0.div_ceil(WINDOWS_MAX);
        let window_ns = config.window.0.max(window_ns).max(1);
        let windows = config.duration.0.div_ceil(window_ns) as usize;
        let mut next = 0;
        let states = plans.iter().enumerate().map(|(i, p)| {
            let there = p.comes.0 == 0;
            let id = there.then_some(TenantId(next));
            next += u16::from(there);
            State {
                id,
                gone: false,
                left: None,
                generator: Generator::new(p.load.clone(), p.bytes.0, config.seed, i as u64),
                random: Rng::new(config.seed, 0xA11 + i as u64),
                waiting: VecDeque::new(),
                from_ns: 0,
                until_ns: 0,
                requests: 0,
                reads: 0,
                bytes: 0,
                device_ns: 0,
                latency: Histogram::default(),
                series: vec![0; windows],
                interval: Got::default(),
            }
        });
        let states: Vec<State> = states.collect();
        let shares: Vec<f64> = plans
            .iter()
            .map(|p| match config.service {
                Service::DeviceTime => p.time_share,
                _ => p.weight,
            })
            .collect();
        let places = target.side_by_side();
        Self {
            server: Server::new(config.service, &shares),
            controller: config.control.map(|c| Controller::new(c, plans.len())),
            events: BinaryHeap::new(),
            tagged: Vec::new(),
            begun: vec![None; places],
            free_places: (0..places).rev().collect(),
            working: 0,
            now: 0,
            counting: false,
            window_ns,
            last_control: 0,
            handed_over: 0,
            hand_over_ns: 0,
            target,
            plans,
            config,
            states,
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.events.push(Reverse((time, event)));
    }

    fn serve_all(&mut self) -> Result<(), FlashError> {
        let end = self.config.warmup.0.saturating_add(self.config.duration.0);
        self.at(self.config.warmup.0, Event::Count);
        if let Some(c) = &self.controller {
            self.at(c.control.interval.0, Event::Control);
        }
        for (i, plan) in self.plans.iter().enumerate() {
            if let Some(goes) = plan.goes {
                self.at(goes.0, Event::Go(i));
            }
            if plan.comes.0 > 0 {
                self.at(plan.comes.0, Event::Come(i));
            } else {
                self.begin(i);
            }
        }
        self.dispatch();
        while let Some(Reverse((time, event))) = self.events.pop() {
            if time >= end {
                break;
            }
            self.now = time;
            match event {
                Event::Answer(place) => self.answered(place),
                Event::Arrive(i) => self.arrived(i)?,
                Event::Count => self.count(),
                Event::Control => self.control(),
                Event::Come(i) => self.come(i)?,
                Event::Go(i) => self.go(i)?,
            }
            self.dispatch();
        }
        self.now = end;
        Ok(())
    }

    /// The first requests of a tenant.
    fn begin(&mut self, i: usize) {
        self.states[i].from_ns = self.now;
        let recorded = matches!(self.plans[i].load, Load::Recorded(_));
        if self.plans[i].rate.is_some() || (recorded && self.plans[i].depth == 0) {
            self.next_arrival(i);
            return;
        }
        for _ in 0..self.plans[i].depth {
            self.ask(i);
        }
    }

    /// The next request of a closed loop.
    fn ask(&mut self, i: usize) {
        let now = self.now;
        let state = &mut self.states[i];
        if let Some(request) = state.generator.next_request() {
            state.waiting.push_back((now, request));
        }
    }

    /// Draws the next request of an open loop, which waits for its time.
    fn next_arrival(&mut self, i: usize) {
        let now = self.now;
        let state = &mut self.states[i];
        let Some(request) = state.generator.next_request() else {
            return;
        };
        let at = match self.plans[i].rate {
            Some(rate) => now + (state.random.exponential() / rate * 1e9) as u64,
            None => self.plans[i].comes.0 + request.at_ns,
        };
        // It is in the queue already, with a time that is to come: nothing else is behind it.
        state.waiting.push_back((at.max(now), request));
        self.at(at.max(now), Event::Arrive(i));
    }

    fn arrived(&mut self, i: usize) -> Result<(), FlashError> {
        if self.states[i].gone {
            return Ok(());
        }
        // A recorded load is in memory anyway.
        if let Some(rate) = self.plans[i].rate
            && self.states[i].waiting.len() > WAITING_MAX / self.states.len()
        {
            return Err(FlashError::Behind {
                tenant: self.plans[i].name.clone(),
                rate,
                seconds: self.now as f64 / 1e9,
            });
        }
        self.next_arrival(i);
        Ok(())
    }

    fn count(&mut self) {
        self.counting = true;
        for state in &mut self.states {
            state.from_ns = state.from_ns.max(self.now);
        }
        if let Some(drive) = self.target.drive() {
            drive.clear_counts();
        }
    }

    /// Gives out tags, and begins what the device can begin.
    fn dispatch(&mut self) {
        loop {
            let mut heads: Vec<Option<(u64, u32)>> = Vec::with_capacity(self.states.len());
            while self.tagged.len() + self.working < self.config.tags as usize {
                let now = self.now;
                heads.clear();
                heads.extend(self.states.iter().map(|s| {
                    let head = s
                        .waiting
                        .front()
                        .filter(|(at, _)| *at <= now && s.id.is_some());
                    head.map(|(at, r)| (*at, r.bytes))
                }));
                let Some(tenant) = self.server.pick(&heads) else {
                    break;
                };
                let Some((from_ns, request)) = self.states[tenant].waiting.pop_front() else {
                    break;
                };
                self.tagged.push(Tagged {
                    tenant,
                    from_ns,
                    request,
                    passed: 0,
                });
            }
            if self.tagged.is_empty() || self.free_places.is_empty() {
                return;
            }
            let next = self.device_picks();
            let tagged = self.tagged.remove(next);
            for earlier in &mut self.tagged[..next] {
                earlier.passed += 1;
            }
            self.begin_work(tagged);
        }
    }

    /// Which of its tags the device begins: reads first, then what can begin first, then the oldest. None is passed over for ever.
    fn device_picks(&self) -> usize {
        if self.tagged[0].passed >= PASSED_MAX {
            return 0;
        }
        let key = |t: &Tagged| {
            let id = self.states[t.tenant].id.unwrap_or(TenantId(0));
            let ready = self.target.ready_ns(id, t.request.op, t.request.offset);
            (t.request.op != Op::Read, ready.max(self.now))
        };
        let first = self
            .tagged
            .iter()
            .enumerate()
            .min_by_key(|(i, t)| (key(t), *i));
        first.map_or(0, |(i, _)| i)
    }

    fn begin_work(&mut self, tagged: Tagged) {
        let state = &mut self.states[tagged.tenant];
        let Some(id) = state.id else {
            return;
        };
        let r = tagged.request;
        let served = self
            .target
            .serve(self.now, id, r.op, r.offset, r.bytes.into());
        self.server.charge(tagged.tenant, served.device_ns);
        if self.counting {
            state.device_ns += served.device_ns;
        }
        let Some(place) = self.free_places.pop() else {
            return;
        };
        self.begun[place] = Some((tagged, served));
        self.working += 1;
        self.at(served.done_ns, Event::Answer(place));
    }

    fn answered(&mut self, place: usize) {
        let Some((tagged, _)) = self.begun[place].take() else {
            return;
        };
        self.free_places.push(place);
        self.working -= 1;
        let state = &mut self.states[tagged.tenant];
        if state.gone {
            return;
        }
        let bytes = u64::from(tagged.request.bytes);
        // Trims move no data and take no time: as requests they would only flatter.
        let counts = tagged.request.op != Op::Trim;
        if counts {
            state.interval.requests += 1;
            state.interval.bytes += bytes;
        }
        if self.counting && counts {
            state.requests += 1;
            state.reads += u64::from(tagged.request.op == Op::Read);
            state.bytes += bytes;
            state.latency.record(self.now - tagged.from_ns);
            let window = (self.now - self.config.warmup.0) / self.window_ns;
            if let Some(sum) = state.series.get_mut(window as usize) {
                *sum += bytes;
            }
        }
        let plan = &self.plans[tagged.tenant];
        if plan.rate.is_none() && plan.depth > 0 {
            self.ask(tagged.tenant);
        }
    }

    fn outcome(self) -> Outcome {
        let seconds = self.config.duration.0 as f64 / 1e9;
        let window_s = self.window_ns as f64 / 1e9;
        let places = self.target.side_by_side() as f64;
        let now = self.now;
        let mut tenants = Vec::with_capacity(self.states.len());
        for (state, plan) in self.states.iter().zip(self.plans) {
            let until = if state.gone { state.until_ns } else { now };
            let there = until.saturating_sub(state.from_ns) as f64 / 1e9;
            let rate = |n: u64| if there > 0.0 { n as f64 / there } else { 0.0 };
            let (iops, bytes_per_s) = (rate(state.requests), rate(state.bytes));
            let flash = state.id.zip(self.target.drive());
            let flash = flash.map(|(id, drive)| OnFlash::of(drive, id));
            // Of those who left: as it was when they did.
            let OnFlash {
                waf,
                victim_utilization,
                moves,
                spare_share,
            } = flash.or(state.left).unwrap_or_default();
            tenants.push(TenantOutcome {
                name: plan.name.clone(),
                weight: plan.weight,
                load: plan.load.to_string(),
                seconds: there,
                iops,
                bytes_per_s,
                reads: state.reads as f64 / state.requests.max(1) as f64,
                latency: Latency::from(&state.latency),
                device_share: state.device_ns as f64 / 1e9 / (seconds * places),
                waf,
                victim_utilization,
                moved_own: moves.own,
                moved_foreign: moves.foreign,
                moved_by_others: moves.by_others,
                spare_share,
                met: match plan.slo {
                    Slo::Weight => None,
                    Slo::Iops(want) => Some(iops / want),
                    Slo::BytesPerSecond(want) => Some(bytes_per_s / want),
                },
                series: state.series.iter().map(|b| *b as f64 / window_s).collect(),
            });
        }
        let weights: Vec<f64> = self.plans.iter().map(|p| p.weight).collect();
        let rates: Vec<f64> = tenants
            .iter()
            .map(|t: &TenantOutcome| t.bytes_per_s)
            .collect();
        let (relative, error) = proportionality(&weights, &rates);
        Outcome {
            seconds,
            window_s,
            tenants,
            handed_over: self.handed_over,
            hand_over_s: self.hand_over_ns as f64 / 1e9,
            proportionality: relative,
            proportionality_error: error,
        }
    }
}
