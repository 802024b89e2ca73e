//! Queries and orders of operators and programs that need no history.

use executor::{EndCause, Input, JobId};
use units::{Nanos, counted};

use super::Controller;
use super::approval::Verdict;
use super::host::Host;
use crate::question::{Actor, Answer, Done, Question, Refusal};
use crate::service::Now;
use crate::settings::{ONLY_RECOMMENDED, Settings};
use crate::view::EventKind;
use crate::wire::VolumeWindow;
use model::TierState;

impl Controller {
    /// Processes a query or an order; the store handles queries about the past.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn ask(&mut self, now: Now, actor: &Actor, question: Question) -> Result<Answer, Refusal> {
        self.advance(now);
        self.actor = "controller".into();
        self.look_now_and_then();
        self.actor = actor.0.clone();
        if question.is_order() {
            // An order may start pending moves, but not those of an outdated plan.
            let names: Vec<String> = self.hosts.keys().cloned().collect();
            names.iter().for_each(|name| self.reconsider(name));
        }
        match question {
            Question::Status => Ok(Answer::Status(Box::new(self.status()))),
            Question::Tiers => Ok(Answer::Tiers(self.tiers())),
            Question::Volumes => Ok(Answer::Volumes(self.volumes())),
            Question::Volume { volume } => {
                let (host, v) = self.volume_named(&volume)?;
                Ok(Answer::Volume(Box::new(self.volume_view(host, v))))
            }
            Question::Plan { host, .. } => {
                let name = self.host_named(host.as_deref())?;
                let host = &self.hosts[&name];
                let current = host.current.as_ref().ok_or_else(|| {
                    let next = "the first plan is made at the end of the first migration epoch";
                    Refusal::NotFound(format!("no plan for {name} yet: {next}"))
                })?;
                Ok(Answer::Plan(Box::new(self.plan_view(host, current))))
            }
            Question::Jobs { limit } => {
                let mut jobs = self.live_jobs();
                jobs.truncate(limit);
                Ok(Answer::Jobs(jobs))
            }
            Question::Why { volume } => {
                let (host, v) = self.volume_named(&volume)?;
                Ok(Answer::Why(Box::new(self.why(host, v))))
            }
            Question::WhyNot { volume, tier } => {
                let (host, v) = self.volume_named(&volume)?;
                let tiers = host.report().map_or(&[][..], |r| &r.tiers[..]);
                let tier = tier
                    .strip_prefix(&format!("{}/", host.name))
                    .unwrap_or(&tier);
                if !tiers.iter().any(|t| t == tier) {
                    let why = format!(
                        "unknown tier {tier:?} on {}: its tiers are {}",
                        host.name,
                        tiers.join(", ")
                    );
                    return Err(Refusal::NotFound(why));
                }
                Ok(Answer::WhyNot(Box::new(self.why_not(host, v, tier))))
            }
            Question::Place(asked) => Ok(Answer::Place(Box::new(self.place(&asked)?))),
            Question::Responses { limit } => {
                let newest = self.answered.views().rev().take(limit);
                Ok(Answer::Responses(newest.cloned().collect()))
            }
            Question::Counters => Ok(Answer::Counters(Box::new(self.counters()))),
            Question::Apply(choice) => self.choose(&choice, Verdict::Apply).map(Answer::Done),
            Question::Reject(choice) => self.choose(&choice, Verdict::Reject).map(Answer::Done),
            Question::Pause => self.pause(true),
            Question::Resume => self.pause(false),
            Question::CancelJob { host, job } => self.cancel_job(host.as_deref(), job),
            Question::SetTier { tier, state } => self.set_tier(&tier, state),
            Question::Pin { volume, tier } => self.pin(&volume, tier),
            Question::Throttle { volume, to } => self.throttle(&volume, to),
            Question::SetMode { mode, .. }
                if mode.starts_moves() && self.settings.recommends_only() =>
            {
                Err(Refusal::Conflict(ONLY_RECOMMENDED.into()))
            }
            Question::SetMode { goal, mode } => {
                self.operator.modes.insert(goal, mode);
                self.operator_dirty = true;
                let names: Vec<String> = self.hosts.keys().cloned().collect();
                names.iter().for_each(|name| self.reconsider(name));
                if goal == model::Goal::Latency {
                    self.trust.renew();
                }
                self.order_done(None, None, format!("the mode of {goal} is {mode}"))
            }
            Question::History { .. }
            | Question::Events { .. }
            | Question::Outcomes { .. }
            | Question::ExportFacts { .. } => {
                unreachable!("the store handles queries about the past")
            }
        }
    }

    /// Applies a reloaded configuration.
    ///
    /// # Errors
    /// A strategy that cannot be built.
    pub fn reload(&mut self, now: Now, actor: &Actor, settings: Settings) -> Result<Done, Refusal> {
        self.advance(now);
        self.actor = actor.0.clone();
        let strategy = settings.build_strategy();
        let strategy = strategy.map_err(|e| Refusal::Invalid(e.to_string()))?;
        let changed = settings.changed_since(&self.settings);
        let another = strategy.name() != self.strategy.name();
        self.strategy = strategy;
        self.settings = settings;
        let names: Vec<String> = self.hosts.keys().cloned().collect();
        for name in &names {
            let host = self
                .hosts
                .get_mut(name)
                .expect("the name is a key of the hosts");
            host.forget_all_failures();
            if another {
                // The state of another strategy is of no use to this one.
                let state = self.strategy.initial_state();
                host.state = state;
                host.dirty.decision = true;
            }
            let tiers = self.hosts[name]
                .report()
                .map_or(vec![], |r| r.tiers.clone());
            let closed = tiers
                .into_iter()
                .filter(|t| self.tier_state(name, t) != TierState::Open);
            let closed: Vec<String> = closed.collect();
            self.drop_on(name, &EndCause::TierClosed, |host, job| {
                let to = host.tier_of(host.kept.names.of_device(job.order.to));
                closed.iter().any(|t| t == to)
            });
            self.reconsider(name);
        }
        self.actor = "controller".into();
        self.look_for_problem();
        self.actor = actor.0.clone();
        let message = match changed.is_empty() {
            true => "configuration reloaded: no changes".into(),
            false => format!("configuration reloaded: changed {}", changed.join(", ")),
        };
        self.event(EventKind::Operator, None, None, message.clone());
        Ok(Done { message })
    }

    pub(super) fn order_done(
        &mut self,
        host: Option<&str>,
        volume: Option<&str>,
        mut message: String,
    ) -> Result<Answer, Refusal> {
        let mut hosts = self.hosts.keys().map(String::as_str);
        let holder = match host {
            Some(host) => self.other_holder(host),
            None => hosts.find_map(|host| self.other_holder(host)),
        };
        if let Some(holder) = holder {
            message += &format!(
                "; no effect yet: the array obeys {holder}; the order takes effect when this controller has the lease"
            );
        }
        self.event(EventKind::Operator, host, volume, message.clone());
        Ok(Answer::Done(Done { message }))
    }

    fn pause(&mut self, paused: bool) -> Result<Answer, Refusal> {
        self.operator.paused = paused;
        self.operator_dirty = true;
        let names: Vec<String> = self.hosts.keys().cloned().collect();
        for name in names {
            let mut host = self
                .hosts
                .remove(&name)
                .expect("the name is a key of the hosts");
            let input = if paused { Input::Pause } else { Input::Resume };
            self.input(&mut host, self.now.at, input);
            self.hosts.insert(name, host);
        }
        let running = self.hosts.values().flat_map(|h| h.executor.jobs());
        let running = running.filter(|j| j.state.active()).count();
        let message = match (paused, running) {
            (true, 0) => "paused: no new moves start".into(),
            (true, n) => format!(
                "paused: no new moves start; {} not paused: `terrace job cancel` cancels a job",
                counted(n, "running job")
            ),
            (false, _) => "resumed".into(),
        };
        self.order_done(None, None, message)
    }

    fn cancel_job(&mut self, host: Option<&str>, job: u32) -> Result<Answer, Refusal> {
        let name = self.host_named(host)?;
        let mut host = self.hosts.remove(&name).expect("the host was just found");
        let id = JobId(job);
        let result = match host.executor.get(id).map(|j| j.state.clone()) {
            None => Err(Refusal::NotFound(format!("unknown job {job} on {name}"))),
            Some(state) if state.ended() => {
                Err(Refusal::Conflict(format!("job {job} has already ended")))
            }
            Some(_) => {
                self.input(&mut host, self.now.at, Input::Cancel(id));
                let volume = host
                    .kept
                    .names
                    .of_volume(
                        host.executor
                            .get(id)
                            .expect("the job was just found")
                            .order
                            .volume,
                    )
                    .to_string();
                Ok(volume)
            }
        };
        let going = host.executor.get(id).is_some_and(|j| !j.state.ended());
        self.hosts.insert(name.clone(), host);
        let volume = result?;
        let message = if going {
            format!(
                "job {job} can no longer be cancelled: it continues until the whole of {volume} is on its target"
            )
        } else {
            format!(
                "job {job} is cancelled: extents of {volume} that were switched stay on the target"
            )
        };
        self.order_done(Some(&name), Some(&volume), message)
    }

    fn set_tier(&mut self, tier: &str, state: TierState) -> Result<Answer, Refusal> {
        let (host, tier) = self.tier_named(tier)?;
        self.operator.tiers.insert(format!("{host}/{tier}"), state);
        self.operator_dirty = true;
        let what = match state {
            TierState::Open => "accepts new data",
            TierState::Cordoned => "accepts no new data",
            TierState::Draining => "accepts no new data and is drained",
        };
        let mut message = format!("tier {tier} of {host} {what}");
        if state != TierState::Open {
            let dropped = self.drop_on(&host, &EndCause::TierClosed, |host, job| {
                host.tier_of(host.kept.names.of_device(job.order.to)) == tier
            });
            if dropped > 0 {
                message.push_str("; pending moves to it are dropped, running moves continue");
            }
        }
        self.order_done(Some(&host), None, message)
    }

    fn drop_on(
        &mut self,
        name: &str,
        cause: &EndCause,
        which: impl Fn(&Host, &executor::Job) -> bool,
    ) -> usize {
        let mut host = self.hosts.remove(name).expect("the host was just found");
        let dropped = self.drop_queued(&mut host, cause, which);
        self.hosts.insert(name.into(), host);
        dropped
    }

    fn pin(&mut self, volume: &str, tier: Option<String>) -> Result<Answer, Refusal> {
        let (host, v) = self.volume_named(volume)?;
        if let (Some(bound), Some(_)) = (v.bound.as_ref().filter(|_| v.stays()), &tier) {
            let why = format!("{} cannot be moved: {}", v.name, bound.why);
            return Err(Refusal::Conflict(why));
        }
        let by_hand = v.bound.as_ref().map(|b| b.why.clone());
        let (host, volume) = (host.name.clone(), v.name.clone());
        let tier = match tier {
            None => None,
            Some(tier) => {
                let (of, tier) = self.tier_named(&format!(
                    "{host}/{}",
                    tier.strip_prefix(&format!("{host}/")).unwrap_or(&tier)
                ))?;
                debug_assert_eq!(of, host);
                Some(tier)
            }
        };
        let message = match (&tier, by_hand) {
            (Some(tier), Some(why)) => {
                format!("{volume} is pinned to {tier}; move it by hand: {why}")
            }
            (Some(tier), None) => format!("{volume} is pinned to {tier}"),
            (None, _) => format!("{volume} is not pinned"),
        };
        self.drop_on(&host, &EndCause::Pinned, |h, job| {
            let to = h.tier_of(h.kept.names.of_device(job.order.to));
            let pinned = tier.as_deref().is_some_and(|pin| pin != to);
            pinned && h.kept.names.of_volume(job.order.volume) == volume
        });
        self.operator.pins.insert(format!("{host}/{volume}"), tier);
        self.operator_dirty = true;
        self.order_done(Some(&host), Some(&volume), message)
    }

    /// Name of the host, or of the only one.
    pub(super) fn host_named(&self, name: Option<&str>) -> Result<String, Refusal> {
        let known = || {
            self.hosts
                .keys()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", ")
        };
        match name {
            Some(name) if self.hosts.contains_key(name) => Ok(name.into()),
            Some(name) => Err(Refusal::NotFound(format!(
                "unknown host {name:?}; known hosts: {}",
                known()
            ))),
            None => match self.hosts.len() {
                1 => Ok(self.hosts.keys().next().expect("one host is known").clone()),
                0 => Err(Refusal::NotFound("no host has registered yet".into())),
                _ => Err(Refusal::Invalid(format!(
                    "several hosts are known, name one: {}",
                    known()
                ))),
            },
        }
    }

    /// Host and window of a volume.
    pub(super) fn volume_named(&self, name: &str) -> Result<(&Host, &VolumeWindow), Refusal> {
        let (wanted, volume) = match name.split_once('/') {
            Some((host, volume)) if self.hosts.contains_key(host) => (Some(host), volume),
            _ => (None, name),
        };
        let mut found = self
            .hosts
            .values()
            .filter(|h| wanted.is_none_or(|w| w == h.name))
            .filter_map(|h| Some((h, h.report()?.volumes.iter().find(|v| v.name == volume)?)));
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one),
            (Some((a, _)), Some((b, _))) => Err(Refusal::Invalid(format!(
                "volume {volume:?} exists on {} and {}: write {}/{volume}",
                a.name, b.name, a.name
            ))),
            (None, _) => {
                let names = self.hosts.values().filter_map(Host::report);
                let names: Vec<&str> = names
                    .flat_map(|r| r.volumes.iter().map(|v| v.name.as_str()))
                    .collect();
                let hint = config::suggestion(volume, names.into_iter());
                Err(Refusal::NotFound(format!(
                    "unknown volume {volume:?}{hint}"
                )))
            }
        }
    }

    /// Host and name of a tier.
    fn tier_named(&self, name: &str) -> Result<(String, String), Refusal> {
        let (wanted, tier) = match name.split_once('/') {
            Some((host, tier)) if self.hosts.contains_key(host) => (Some(host), tier),
            _ => (None, name),
        };
        let has = |h: &&Host| {
            wanted.is_none_or(|w| w == h.name)
                && h.report()
                    .is_some_and(|r| r.tiers.iter().any(|t| t == tier))
        };
        let mut found = self.hosts.values().filter(has);
        match (found.next(), found.next()) {
            (Some(host), None) => Ok((host.name.clone(), tier.into())),
            (Some(a), Some(b)) => Err(Refusal::Invalid(format!(
                "tier {tier:?} exists on {} and {}: write {}/{tier}",
                a.name, b.name, a.name
            ))),
            (None, _) => {
                let names = self.hosts.values().filter_map(Host::report);
                let names: Vec<&str> = names
                    .flat_map(|r| r.tiers.iter().map(String::as_str))
                    .collect();
                let hint = config::suggestion(tier, names.into_iter());
                Err(Refusal::NotFound(format!("unknown tier {tier:?}{hint}")))
            }
        }
    }

    /// Host and volume of a name, for the store's history.
    pub fn volume_key(&self, name: &str) -> Result<(String, String), Refusal> {
        self.volume_named(name)
            .map(|(h, v)| (h.name.clone(), v.name.clone()))
    }

    /// Host of a name, or the only one.
    pub fn host_key(&self, name: Option<&str>) -> Result<String, Refusal> {
        self.host_named(name)
    }

    /// Time of the controller.
    pub fn time(&self) -> Nanos {
        self.now.at
    }

    /// Settings of the configuration file.
    pub fn settings(&self) -> &crate::settings::Settings {
        &self.settings
    }
}
