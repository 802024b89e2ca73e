//! Run: arrivals, service, tags, completions, controller, and tenants that arrive and leave.

mod changes;
mod results;
mod tags;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::control::{Controller, IntervalWork};
use super::load::{Generator, Load, RecordedRequest};
use super::outcome::Outcome;
use super::plan::{HostConfig, Target, TenantPlan};
use super::service::{Server, Service};
use crate::FlashError;
use crate::ftl::TenantId;
use algo::{Histogram, Rng};
use results::FlashCounts;
use tags::Tags;

/// Maximum number of requests queued in front of the device, over all tenants. A load that arrives faster than it is
/// served would fill the memory.
pub const WAITING_MAX: usize = 1 << 20;

/// Maximum number of windows in a series.
const WINDOWS_MAX: u64 = 1000;

/// Minimum interval of a controller, in nanoseconds.
const INTERVAL_MIN_NS: u64 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The warm-up ends. First among events of the same time, so completions at that time are counted.
    Count,
    Answer(usize),
    Arrive(usize),
    Go(usize),
    Come(usize),
    Control,
    /// The resource of a request in a tag is free.
    Ready,
}

#[derive(Debug)]
struct State {
    id: Option<TenantId>,
    gone: bool,
    /// Flash counts of a tenant that left during the counted time.
    left: Option<FlashCounts>,
    generator: Generator,
    random: Rng,
    waiting: VecDeque<(u64, RecordedRequest)>,
    /// Arrival time.
    came_ns: u64,
    /// Start and end of its counted time.
    from_ns: u64,
    until_ns: u64,
    requests: u64,
    reads: u64,
    bytes: u64,
    device_ns: u64,
    latency: Histogram,
    series: Vec<u64>,
    interval: IntervalWork,
}

/// Run in progress.
#[derive(Debug)]
pub struct Host<'a, T> {
    target: &'a mut T,
    plans: &'a [TenantPlan],
    config: &'a HostConfig,
    states: Vec<State>,
    server: Server,
    controller: Option<Controller>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// Requests at the device.
    tags: Tags,
    now: u64,
    counting: bool,
    window_ns: u64,
    last_control: u64,
    handed_over: u64,
    hand_over_ns: u64,
}

/// Runs tenants on a target. The tenants present from the start must have been added to the drive in order, numbered
/// from 0. Later ones are added when they arrive.
///
/// If a series would have more than a thousand windows, its windows are made longer.
///
/// # Errors
/// A later tenant does not fit, the controller's interval is below 1 ms, or a load with a rate exceeds the device so
/// far that more than [`WAITING_MAX`] requests are queued.
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
        // A drive numbers its present tenants; a disk has a place for every tenant from the start.
        let places_for_all = target.drive().is_none();
        let mut next = 0;
        let states = plans.iter().enumerate().map(|(i, p)| {
            let there = p.comes.0 == 0;
            let number = if places_for_all { i as u16 } else { next };
            let id = there.then_some(TenantId(number));
            next += u16::from(there);
            State {
                id,
                gone: false,
                left: None,
                generator: Generator::new(p.load.clone(), p.bytes.0, config.seed, i as u64),
                random: Rng::new(config.seed, 0xA11 + i as u64),
                waiting: VecDeque::new(),
                came_ns: p.comes.0,
                from_ns: 0,
                until_ns: 0,
                requests: 0,
                reads: 0,
                bytes: 0,
                device_ns: 0,
                latency: Histogram::default(),
                series: vec![0; windows],
                interval: IntervalWork::default(),
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
        let tags = config.tags.min(target.tags()).max(1) as usize;
        Self {
            server: Server::new(config.service, &shares),
            controller: config.control.map(|c| Controller::new(c, plans.len())),
            events: BinaryHeap::new(),
            tags: Tags::new(tags, plans.len()),
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
                Event::Ready if !self.tags.woken(time) => continue,
                Event::Ready => {}
            }
            self.dispatch();
        }
        self.now = end;
        Ok(())
    }

    /// Issues the first requests of a tenant.
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

    /// Issues the next request of a closed loop.
    fn ask(&mut self, i: usize) {
        let now = self.now;
        let state = &mut self.states[i];
        if let Some(request) = state.generator.next_request() {
            state.waiting.push_back((now, request));
        }
    }

    /// Draws the next request of an open loop, which arrives at its own time.
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
        // It is already in the queue, with a future time, and nothing is queued behind it.
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
}
