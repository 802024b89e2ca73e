//! What goes wrong between a simulated host and its controller, and what operators say to it while it runs.
//!
//! ```text
//!   report ──┬─▶ at once ─────────────▶ controller ──┬─▶ orders
//!            ├─▶ late, and old by then ─▶             └─▶ lost on the way back
//!            └─▶ lost
//! ```
//!
//! An agent says one thing at a time: while a report is on its way nothing else is sent, and windows that end meanwhile are a gap.
//!
//! What is random is a function of the seed and the message's number, so that a scenario goes wrong the same way every time.

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

/// The way between host and controller.
#[derive(Debug)]
pub(crate) struct Way<'a> {
    words: &'a FaultsConfig,
    seed: u64,
    /// Messages that were sent.
    sent: u64,
    /// Reports that are under way, or were, with when they were sent.
    late: Vec<Option<(u64, WindowReport)>>,
    /// Whether the agent waits for an answer.
    busy: bool,
    /// Whether the agent is not there.
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

    /// Whether an agent is there that waits for no answer.
    pub(crate) fn is_open(&self) -> bool {
        !self.agent_lost && !self.busy
    }

    fn unit(&self, luck: Luck) -> f64 {
        let stream = algo::mix(self.seed, 0x7420 + luck as u64);
        algo::unit(algo::mix(stream, self.sent))
    }

    /// Whether the next message gets there.
    pub(crate) fn arrives(&mut self) -> bool {
        self.sent += 1;
        self.unit(Luck::Report) >= self.words.lost_reports
    }

    /// Whether its answer comes back.
    pub(crate) fn is_answered(&self) -> bool {
        self.unit(Luck::Answer) >= self.words.lost_replies
    }

    /// By how much it is late.
    fn late_by_ns(&self) -> u64 {
        match self.unit(Luck::Late) < self.words.late_reports {
            true => (self.unit(Luck::LateBy) * self.words.late_by.as_f64()) as u64,
            false => 0,
        }
    }
}

impl Simulation<'_> {
    /// Notes what is going to happen at times that are known.
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

    /// A window's report sets out.
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

    /// A report that was late gets there.
    pub(crate) fn late_report(&mut self, now_ns: u64, which: u32) -> Result<(), RunError> {
        let report = self.host.way.late[which as usize].take();
        let (sent_ns, report) = report.expect("it gets there once");
        self.host.way.sent += 1;
        let session_goes_on = report.session == self.host.session();
        if session_goes_on {
            self.host.way.busy = false;
        }
        // An agent that is gone, and one that has come since, hear nothing of the answer.
        let heard = session_goes_on && !self.host.way.agent_lost;
        let answered = self.host.way.is_answered() && heard;
        self.deliver(now_ns, sent_ns, report, answered)
    }

    /// The agent's process ends: what it was doing itself ends with it, what the array does goes on.
    pub(crate) fn agent_lost(&mut self) {
        (self.host.way.agent_lost, self.host.way.busy) = (true, false);
        for v in 0..self.sessions.len() {
            self.end_calibration(v, Some("the agent ended".into()));
        }
        self.host.results.clear();
    }

    /// Another agent is there.
    pub(crate) fn agent_back(&mut self, now_ns: u64) {
        self.host.way.agent_lost = false;
        self.host.register(now_ns);
    }

    /// An operator does something.
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

    /// Tenants of a tier's SSDs have other shares of the over-provisioned space from now on. The controller has no part in that: it is the devices'.
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

    /// What an order comes to. Each word is one of the controller's own.
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
