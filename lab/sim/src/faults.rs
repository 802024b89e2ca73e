//! Faults between a simulated host and its controller, and orders of operators during the run.
//!
//! ```text
//!   report ──┬─▶ at once ─────────────▶ controller ──┬─▶ orders
//!            ├─▶ delayed, old on arrival ▶           └─▶ lost on the way back
//!            └─▶ lost
//! ```
//!
//! An agent sends one message at a time. While a report is in transit it sends nothing else, and windows that end
//! meanwhile are a gap.
//!
//! Random faults are a function of the seed and the message's number, so a scenario repeats the same faults.

use std::collections::BTreeMap;

use config::scenario::{FaultsConfig, OperatorConfig};
use manager::question::{Actor, Answer, Choice, Question, Refusal};
use manager::wire::WindowReport;

use crate::agenda::Event;
use crate::engine::{RunError, Simulation};
use crate::running::throttle;

/// Streams of random numbers.
#[derive(Debug, Clone, Copy)]
enum Luck {
    Report,
    Answer,
    Late,
    LateBy,
}

/// Connection between host and controller.
#[derive(Debug)]
pub(crate) struct Way<'a> {
    words: &'a FaultsConfig,
    seed: u64,
    /// Number of sent messages.
    sent: u64,
    /// Delayed reports with the times of their sending; `None` after delivery.
    late: Vec<Option<(u64, WindowReport)>>,
    /// True while the agent waits for a reply.
    busy: bool,
    /// True while no agent runs.
    agent_lost: bool,
}

impl<'a> Way<'a> {
    pub(crate) fn new(words: &'a FaultsConfig, seed: u64) -> Self {
        Self {
            seed: words.seed.unwrap_or(seed),
            words,
            sent: 0,
            late: vec![],
            busy: false,
            agent_lost: false,
        }
    }

    /// Returns true if an agent runs and waits for no reply.
    pub(crate) fn is_open(&self) -> bool {
        !self.agent_lost && !self.busy
    }

    fn unit(&self, luck: Luck) -> f64 {
        let stream = algo::mix(self.seed, 0x7420 + luck as u64);
        algo::unit(algo::mix(stream, self.sent))
    }

    /// Returns true if the next message arrives.
    pub(crate) fn arrives(&mut self) -> bool {
        self.sent += 1;
        self.unit(Luck::Report) >= self.words.lost_reports
    }

    /// Returns true if the reply to the last message arrives.
    pub(crate) fn is_answered(&self) -> bool {
        self.unit(Luck::Answer) >= self.words.lost_replies
    }

    /// Returns the delay of the message.
    fn late_by_ns(&self) -> u64 {
        match self.unit(Luck::Late) < self.words.late_reports {
            true => (self.unit(Luck::LateBy) * self.words.late_by.as_f64()) as u64,
            false => 0,
        }
    }
}

impl Simulation<'_> {
    /// Schedules the events whose times are known.
    pub(crate) fn foresee(&mut self) {
        for (i, order) in self.model.running.operators.iter().enumerate() {
            self.agenda.at(order.at.0, Event::Operator(i as u32));
        }
        for gone in &self.model.running.faults.agent_lost {
            let end_ns = gone.at.0.saturating_add(gone.lasting.0);
            self.agenda.at(gone.at.0, Event::AgentLost);
            self.agenda.at(end_ns, Event::AgentBack);
        }
    }

    /// Sends the report of a window.
    pub(crate) fn send(&mut self, now_ns: u64, report: WindowReport) -> Result<(), RunError> {
        if !self.host.way.arrives() {
            return Ok(());
        }
        let late_ns = self.host.way.late_by_ns();
        if late_ns == 0 {
            let answered = self.host.way.is_answered();
            return self.deliver(now_ns, now_ns, report, answered);
        }
        self.host.way.busy = true;
        let late = &mut self.host.way.late;
        late.push(Some((now_ns, report)));
        let which = late.len() as u32 - 1;
        self.agenda.at(now_ns + late_ns, Event::LateReport(which));
        Ok(())
    }

    /// Delivers a delayed report.
    pub(crate) fn late_report(&mut self, now_ns: u64, which: u32) -> Result<(), RunError> {
        let report = self.host.way.late[which as usize].take();
        let (sent_ns, report) = report.expect("it gets there once");
        self.host.way.sent += 1;
        let session_goes_on = report.session == self.host.session();
        if session_goes_on {
            self.host.way.busy = false;
        }
        // A lost agent, or one that started after the message, does not receive the reply.
        let heard = session_goes_on && !self.host.way.agent_lost;
        let answered = self.host.way.is_answered() && heard;
        self.deliver(now_ns, sent_ns, report, answered)
    }

    /// Ends the agent's process. Its own activities end with it; those of the array continue.
    pub(crate) fn agent_lost(&mut self) {
        (self.host.way.agent_lost, self.host.way.busy) = (true, false);
        for v in 0..self.sessions.len() {
            self.end_calibration(v, Some("the agent ended".into()));
        }
        self.host.results.clear();
    }

    /// Starts another agent.
    pub(crate) fn agent_back(&mut self, now_ns: u64) {
        self.host.way.agent_lost = false;
        self.host.register(now_ns);
    }

    /// Executes the order of an operator.
    pub(crate) fn operate(&mut self, now_ns: u64, which: u32) {
        let order = &self.model.running.operators[which as usize];
        for question in self.questions(now_ns, order) {
            let actor = Actor("operator".into());
            let now = self.host.now(now_ns);
            let answer = self.host.controller.ask(now, &actor, question);
            if let Err(refusal) = answer {
                self.host.log_event(
                    now_ns,
                    format!("the operator's request was rejected: {refusal}"),
                );
            }
        }
        for (tier, shares) in &order.over_provisioning {
            self.over_provision(now_ns, tier, shares);
        }
    }

    /// Changes the tenants' shares of the over-provisioned space on a tier's SSDs. The devices apply them; the
    /// controller is not involved.
    fn over_provision(&mut self, now_ns: u64, tier: &str, shares: &BTreeMap<String, f64>) {
        let topology = &self.model.topology;
        let tier_of = |d: usize| topology.tier(topology.devices[d].tier).name.as_str();
        for d in (0..topology.devices.len()).filter(|d| tier_of(*d) == tier) {
            let flash = self.model.flash[d].as_ref();
            let tenants = flash.and_then(|f| f.tenants.as_ref());
            let names = &tenants.expect("operators were checked").names;
            let named = names.iter().enumerate();
            let named = named.filter_map(|(t, name)| Some((t, *shares.get(name)?)));
            let named: Vec<(usize, f64)> = named.collect();
            let device = self.world.devices[d].flash();
            let set = device.map(|flash| flash.set_ops_shares(&named));
            set.expect("it has flash").expect("shares were checked");
        }
        for (tenant, share) in shares {
            let percent = share * 100.0;
            let text = format!(
                "tenant \"{tenant}\" has {percent:.1} % of the over-provisioning of tier \"{tier}\""
            );
            self.host.tell("operator", now_ns, text);
        }
    }

    /// Translates an operator's order into requests to the controller.
    fn questions(&mut self, now_ns: u64, order: &OperatorConfig) -> Vec<Question> {
        let mut out = vec![];
        out.extend(order.pause.map(|pause| match pause {
            true => Question::Pause,
            false => Question::Resume,
        }));
        out.extend(order.modes.iter().map(|(goal, mode)| Question::SetMode {
            goal: *goal,
            mode: *mode,
        }));
        out.extend(order.tiers.iter().map(|(tier, state)| Question::SetTier {
            tier: tier.clone(),
            state: *state,
        }));
        out.extend(order.pins.iter().map(|(volume, tier)| Question::Pin {
            volume: volume.clone(),
            tier: Some(tier.clone()).filter(|t| !t.is_empty()),
        }));
        if let Some(apply) = order.apply {
            out.extend(self.newest_plan(now_ns).map(|generation| {
                let choice = Choice {
                    host: None,
                    generation,
                    moves: None,
                };
                match apply {
                    true => Question::Apply(choice),
                    false => Question::Reject(choice),
                }
            }));
        }
        out.extend(
            order
                .throttle
                .iter()
                .map(|(volume, to)| Question::Throttle {
                    volume: volume.clone(),
                    to: throttle(to),
                }),
        );
        for volume in &order.cancel {
            let jobs = self.host.open_jobs(volume);
            out.extend(
                jobs.into_iter()
                    .map(|job| Question::CancelJob { host: None, job }),
            );
        }
        out
    }

    fn newest_plan(&mut self, now_ns: u64) -> Option<u64> {
        let question = Question::Plan {
            host: None,
            generation: None,
        };
        let actor = Actor("operator".into());
        let now = self.host.now(now_ns);
        match self.host.controller.ask(now, &actor, question) {
            Ok(Answer::Plan(plan)) => Some(plan.generation),
            Ok(_) | Err(Refusal::NotFound(_)) => None,
            Err(other) => unreachable!("a plan can be asked for: {other}"),
        }
    }
}
