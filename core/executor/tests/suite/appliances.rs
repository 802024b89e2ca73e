//! Appliances end in a safe state after any sequence of events.

use executor::{
    ApplianceAction, ApplianceAnswer, ApplianceDeadlines, ApplianceId, ApplianceInput,
    ApplianceKind, ApplianceOrder, ApplianceOutcome, ApplianceState, ApplianceStep, Appliances,
    IgnoreReason, REMOVE_ATTEMPTS_MAX, RETURN_ATTEMPTS_MAX, Route, WarmUp,
};
use proptest::prelude::*;
use units::{Bytes, Nanos, VolumeId};

const ID: ApplianceId = ApplianceId(0);

fn order(warm: WarmUp) -> ApplianceOrder {
    ApplianceOrder {
        volume: VolumeId(3),
        host: 1,
        kind: ApplianceKind::CacheWriteAround,
        cpus: 4,
        memory: Bytes::gib(4),
        warm,
    }
}

fn s(n: u64) -> Nanos {
    Nanos::from_secs(n)
}

fn actions(all: &mut Appliances) -> Vec<ApplianceAction> {
    std::iter::from_fn(|| all.poll_action()).collect()
}

fn started(warm: WarmUp) -> Appliances {
    let mut all = Appliances::new(ApplianceDeadlines::default());
    all.create(s(0), order(warm)).unwrap();
    all
}

fn failed(why: &str) -> ApplianceAnswer {
    ApplianceAnswer::Failed { why: why.into() }
}

fn removal() -> ApplianceInput {
    ApplianceInput::Remove {
        why: "quiet".into(),
    }
}

fn lost() -> ApplianceInput {
    ApplianceInput::Lost {
        why: "no power".into(),
    }
}

fn restart(all: &Appliances, at: u64) -> Appliances {
    let mut again: Appliances = serde_json::from_str(&serde_json::to_string(all).unwrap()).unwrap();
    again.resume(s(at));
    again
}

fn state(all: &Appliances) -> &ApplianceState {
    &all.get(ID).unwrap().state
}

fn step(attempt: u32) -> ApplianceStep {
    ApplianceStep { id: ID, attempt }
}

/// Answers the current step.
fn answer(all: &mut Appliances, at: u64, answer: ApplianceAnswer) {
    let step = all.get(ID).unwrap().step();
    all.answer(s(at), step, answer).unwrap();
}

#[test]
fn appliance_passes_through_all_states() {
    use ApplianceAction as A;
    use ApplianceAnswer as W;
    let mut all = started(WarmUp::Planned);
    let mut log = vec![];
    let safe = |all: &Appliances| all.get(ID).unwrap().safe();
    for (t, word) in [
        (60, Some(W::Created)),
        (61, Some(W::Rerouted)),
        (200, Some(W::Warmed)),
        (900, None),
        (901, Some(W::Returned)),
        (902, Some(W::Drained)),
        (910, Some(W::Destroyed)),
    ] {
        log.extend(actions(&mut all));
        match word {
            Some(word) => answer(&mut all, t, word),
            None => all.handle(s(t), ID, removal()),
        }
        assert_eq!(safe(&all), !(60..901).contains(&t), "at {t}");
    }
    assert_eq!(
        log,
        [
            A::Create(step(1)),
            A::Reroute(step(2)),
            A::Warm(step(3)),
            A::StopWarming(step(3)),
            A::Return(step(4)),
            A::Drain(step(5)),
            A::Destroy(step(6))
        ]
    );
    let outcome = ApplianceOutcome::Removed {
        why: "quiet".into(),
    };
    assert_eq!(
        all.get(ID).unwrap().state,
        ApplianceState::Ended {
            at: s(910),
            outcome
        }
    );
    assert_eq!(all.next_deadline(), None);
}

#[test]
fn answer_to_another_attempt_is_ignored_with_an_error() {
    let mut all = started(WarmUp::None);
    answer(&mut all, 60, ApplianceAnswer::Created);
    answer(&mut all, 61, ApplianceAnswer::Rerouted);
    all.handle(s(70), ID, removal());
    all.tick(s(100));
    assert_eq!(
        actions(&mut all)[2..],
        [
            ApplianceAction::Return(step(3)),
            ApplianceAction::Return(step(4))
        ]
    );
    // A late failure of the first attempt neither shortens the time of the second nor uses one of its attempts.
    let before = all.get(ID).unwrap().clone();
    let late = all.answer(s(101), step(3), failed("no answer"));
    let latest = 4;
    assert_eq!(
        late,
        Err(IgnoreReason::OtherAttempt {
            step: step(3),
            latest
        })
    );
    assert_eq!(
        late.unwrap_err().to_string(),
        "appliance 0: reply to attempt 3 ignored, since the latest attempt is 4"
    );
    // Answers to future attempts, and answers of another kind, have no effect either.
    assert!(
        all.answer(s(101), step(5), ApplianceAnswer::Returned)
            .is_err()
    );
    let unfit = all.answer(s(101), step(4), ApplianceAnswer::Created);
    assert_eq!(unfit, Err(IgnoreReason::NotAsked { step: step(4) }));
    let other = ApplianceStep {
        id: ApplianceId(7),
        attempt: 1,
    };
    let unknown = all.answer(s(101), other, ApplianceAnswer::Created);
    assert_eq!(unknown, Err(IgnoreReason::Unknown { id: other.id }));
    assert_eq!(all.get(ID), Some(&before));
    assert!(actions(&mut all).is_empty());
    all.answer(s(102), step(4), ApplianceAnswer::Returned)
        .unwrap();
    // A repetition has no effect.
    let again = all.answer(s(102), step(4), ApplianceAnswer::Returned);
    assert!(matches!(again, Err(IgnoreReason::OtherAttempt { .. })));
}

#[test]
fn restart_is_a_new_step_and_earlier_answers_are_ignored() {
    let mut all = started(WarmUp::None);
    actions(&mut all);
    all = restart(&all, 50);
    assert_eq!(actions(&mut all), [ApplianceAction::Create(step(2))]);
    let late = all.answer(s(51), step(1), ApplianceAnswer::Created);
    assert!(matches!(late, Err(IgnoreReason::OtherAttempt { .. })));
    answer(&mut all, 60, ApplianceAnswer::Created);
    answer(&mut all, 61, ApplianceAnswer::Rerouted);
    all.handle(s(70), ID, removal());
    all.tick(s(100));
    assert_eq!(all.next_deadline(), Some(s(160)), "the second attempt");
    // After any number of restarts it is still the second attempt, with the same deadline.
    for at in 101..150 {
        all = restart(&all, at);
        assert_eq!(all.next_deadline(), Some(s(160)));
        assert_eq!(actions(&mut all).len(), 1);
    }
    let mut lates = 1;
    while let Some(at) = all.next_deadline() {
        all = restart(&all, at.0 / 1_000_000_000 - 1);
        all.tick(all.next_deadline().unwrap());
        lates += 1;
    }
    assert_eq!(lates, RETURN_ATTEMPTS_MAX);
    assert_eq!(all.get(ID).unwrap().state, ApplianceState::Stranded);
}

#[test]
fn volume_has_at_most_one_appliance() {
    let mut all = started(WarmUp::None);
    let text = all
        .create(s(1), order(WarmUp::None))
        .unwrap_err()
        .to_string();
    assert_eq!(text, "volume 3 already has appliance 0");
    answer(&mut all, 2, failed("no image"));
    answer(&mut all, 3, ApplianceAnswer::Destroyed);
    assert_eq!(all.create(s(4), order(WarmUp::None)), Ok(ApplianceId(1)));
}

#[test]
fn ended_appliances_are_removed_and_numbers_are_not_reused() {
    let mut all = Appliances::new(ApplianceDeadlines::default());
    let mut other = order(WarmUp::None);
    other.volume = VolumeId(9);
    assert_eq!(all.create(s(0), other), Ok(ID));
    let n = executor::ENDED_MAX as u32 + 20;
    for i in 1..=n {
        let id = all.create(s(1), order(WarmUp::None)).unwrap();
        assert_eq!(id, ApplianceId(i));
        for word in [failed("no image"), ApplianceAnswer::Destroyed] {
            let step = all.get(id).unwrap().step();
            all.answer(s(2), step, word).unwrap();
        }
        assert!(all.get(id).unwrap().ended());
    }
    assert!(all.all().len() <= executor::ENDED_MAX + 2);
    // An appliance that has not ended is never forgotten; answers for a forgotten one are ignored.
    assert!(!all.get(ID).unwrap().ended());
    assert_eq!(all.get(ApplianceId(1)), None);
    let id = ApplianceId(1);
    let step = ApplianceStep { id, attempt: 2 };
    let forgotten = all.answer(s(4), step, ApplianceAnswer::Destroyed);
    assert_eq!(forgotten, Err(IgnoreReason::Unknown { id }));
    all.handle(s(4), id, removal());
    answer(&mut all, 4, ApplianceAnswer::Created);
    assert_eq!(all.get(ID).unwrap().state, ApplianceState::Rerouting);
}

#[test]
fn failed_or_late_creation_is_cleaned_up() {
    for late in [false, true] {
        let mut all = started(WarmUp::None);
        actions(&mut all);
        if late {
            all.tick(s(299));
            assert!(actions(&mut all).is_empty());
            all.tick(s(300));
        } else {
            answer(&mut all, 9, failed("no image"));
        }
        assert_eq!(actions(&mut all), [ApplianceAction::Destroy(step(2))]);
        // It is created too late.
        let late = all.answer(s(301), step(1), ApplianceAnswer::Created);
        assert!(late.is_err());
        assert!(actions(&mut all).is_empty());
        answer(&mut all, 302, ApplianceAnswer::Destroyed);
        assert!(matches!(
            &all.get(ID).unwrap().state,
            ApplianceState::Ended { outcome: ApplianceOutcome::Failed { why }, .. }
                if why.starts_with("it could not be created")
        ));
    }
}

#[test]
fn route_is_restored_before_destroying_after_a_failed_rerouting() {
    let mut all = started(WarmUp::None);
    answer(&mut all, 60, ApplianceAnswer::Created);
    answer(&mut all, 61, failed("no answer"));
    assert_eq!(all.get(ID).unwrap().route, Route::Unknown);
    let destroys = |a: &ApplianceAction| matches!(a, ApplianceAction::Destroy(_));
    assert!(!actions(&mut all).iter().any(destroys));
    answer(&mut all, 62, ApplianceAnswer::Returned);
    answer(&mut all, 63, ApplianceAnswer::Drained);
    let last = actions(&mut all);
    assert_eq!(
        last,
        [
            ApplianceAction::Drain(step(4)),
            ApplianceAction::Destroy(step(5))
        ]
    );
    assert!(all.get(ID).unwrap().safe());
}

#[test]
fn appliance_with_an_unrestorable_route_is_stranded() {
    let mut all = started(WarmUp::None);
    answer(&mut all, 60, ApplianceAnswer::Created);
    answer(&mut all, 61, ApplianceAnswer::Rerouted);
    all.handle(s(70), ID, removal());
    actions(&mut all);
    let mut asked = 1;
    let mut now = s(70);
    while let Some(at) = all.next_deadline() {
        assert!(at > now, "time goes on");
        now = at;
        all.tick(now);
        asked += actions(&mut all).len();
    }
    assert_eq!(asked, RETURN_ATTEMPTS_MAX as usize);
    assert_eq!(now, s(70 + 30 * 127), "the time between attempts doubles");
    assert_eq!(all.get(ID).unwrap().state, ApplianceState::Stranded);
    all.handle(now, ID, ApplianceInput::Retry);
    let again = step(RETURN_ATTEMPTS_MAX + 3);
    assert_eq!(actions(&mut all), [ApplianceAction::Return(again)]);
    all.answer(now, again, ApplianceAnswer::Returned).unwrap();
    assert!(all.get(ID).unwrap().safe());
}

#[test]
fn return_of_a_route_is_retried_at_once_if_its_host_is_lost() {
    let mut all = started(WarmUp::None);
    answer(&mut all, 60, ApplianceAnswer::Created);
    answer(&mut all, 61, ApplianceAnswer::Rerouted);
    all.handle(s(70), ID, removal());
    all.tick(s(100));
    actions(&mut all);
    assert_eq!(all.next_deadline(), Some(s(160)), "the second attempt");
    all.handle(s(101), ID, lost());
    assert_eq!(actions(&mut all), [ApplianceAction::Return(step(5))]);
    assert_eq!(all.next_deadline(), Some(s(131)), "the first again");
    // The same holds for a stranded appliance.
    let mut all = returning();
    while let Some(at) = all.next_deadline() {
        all.tick(at);
    }
    assert_eq!(*state(&all), ApplianceState::Stranded);
    actions(&mut all);
    all.handle(s(9000), ID, lost());
    let again = step(3 + RETURN_ATTEMPTS_MAX);
    assert_eq!(actions(&mut all), [ApplianceAction::Return(again)]);
    assert_eq!(*state(&all), ApplianceState::Returning);
    // Only once: a host is lost only once.
    while let Some(at) = all.next_deadline() {
        all.tick(at);
    }
    actions(&mut all);
    all.handle(s(20_000), ID, lost());
    assert_eq!(*state(&all), ApplianceState::Stranded);
    assert!(actions(&mut all).is_empty());
    all.answer(s(20_001), again, ApplianceAnswer::Returned)
        .unwrap();
    assert!(all.get(ID).unwrap().safe());
}

/// Returns an appliance whose first action to set its route back has number 3, at 70 s.
fn returning() -> Appliances {
    let mut all = started(WarmUp::None);
    answer(&mut all, 60, ApplianceAnswer::Created);
    answer(&mut all, 61, ApplianceAnswer::Rerouted);
    all.handle(s(70), ID, removal());
    actions(&mut all);
    all
}

#[test]
fn repeated_loss_report_has_no_effect() {
    let mut all = started(WarmUp::None);
    answer(&mut all, 60, ApplianceAnswer::Created);
    answer(&mut all, 61, ApplianceAnswer::Rerouted);
    all.handle(s(70), ID, lost());
    actions(&mut all);
    // The loss is reported every 10 s, and a return takes 12 s.
    let before = all.get(ID).unwrap().clone();
    all.handle(s(80), ID, lost());
    assert_eq!(all.get(ID), Some(&before));
    assert!(actions(&mut all).is_empty());
    let mut heard = all.clone();
    heard
        .answer(s(82), step(3), ApplianceAnswer::Returned)
        .unwrap();
    assert!(heard.get(ID).unwrap().safe());
    // Without an answer, it is stranded at the same time as without the reports, and stays so.
    let end = 70 + 30 * 127;
    for at in (90..end + 500).step_by(10) {
        all.tick(s(at));
        all.handle(s(at), ID, lost());
        assert_eq!(*state(&all) == ApplianceState::Stranded, at >= end, "{at}");
    }
    assert_eq!(actions(&mut all).len(), RETURN_ATTEMPTS_MAX as usize - 1);
    // An operator may still retry it; further reports have no effect then either.
    all.handle(s(9000), ID, ApplianceInput::Retry);
    let before = all.get(ID).unwrap().clone();
    all.handle(s(9001), ID, lost());
    assert_eq!(all.get(ID), Some(&before));
}

#[test]
fn returned_route_is_accepted_from_any_attempt() {
    use ApplianceAnswer::Returned;
    // The cases: during a retry, stranded, after a retry by an operator, after the loss of its host.
    for case in 0..4 {
        let mut all = returning();
        all.tick(s(100));
        if case == 1 || case == 2 {
            while let Some(at) = all.next_deadline() {
                all.tick(at);
            }
            assert_eq!(*state(&all), ApplianceState::Stranded);
        }
        match case {
            2 => all.handle(s(9000), ID, ApplianceInput::Retry),
            3 => all.handle(s(101), ID, lost()),
            _ => {}
        }
        // Not accepted: an attempt of another step, a future attempt, or a failure of an earlier attempt.
        let before = all.get(ID).unwrap().clone();
        let next = before.step().attempt + 1;
        for (attempt, word) in [(2, Returned), (next, Returned), (3, failed("no answer"))] {
            let heard = all.answer(s(9001), step(attempt), word);
            assert!(matches!(heard, Err(IgnoreReason::OtherAttempt { .. })));
        }
        assert_eq!(all.get(ID), Some(&before));
        all.answer(s(9001), step(3), Returned).unwrap();
        assert_eq!(*state(&all), ApplianceState::Draining);
        assert!(all.get(ID).unwrap().safe());
        // Only once.
        assert!(all.answer(s(9002), step(4), Returned).is_err());
        assert_eq!(
            actions(&mut all).last(),
            Some(&ApplianceAction::Drain(step(next)))
        );
    }
}

#[test]
fn destroyed_machine_is_accepted_from_any_attempt() {
    use ApplianceAnswer::Destroyed;
    let removing = || {
        let mut all = returning();
        answer(&mut all, 80, ApplianceAnswer::Returned);
        answer(&mut all, 90, ApplianceAnswer::Drained);
        actions(&mut all);
        all
    };
    // Destroying takes 130 s, and is retried after 120 s.
    let mut all = removing();
    all.tick(s(210));
    assert_eq!(actions(&mut all), [ApplianceAction::Destroy(step(6))]);
    assert!(all.answer(s(219), step(5), failed("no answer")).is_err());
    assert!(all.answer(s(219), step(4), Destroyed).is_err());
    all.answer(s(220), step(5), Destroyed).unwrap();
    let outcome = ApplianceOutcome::Removed {
        why: "quiet".into(),
    };
    let ended = ApplianceState::Ended {
        at: s(220),
        outcome,
    };
    assert_eq!(*state(&all), ended);
    assert!(all.answer(s(340), step(6), Destroyed).is_err());
    // Without an answer, the time between attempts doubles, and then it ends.
    let mut all = removing();
    let mut now = s(90);
    while let Some(at) = all.next_deadline() {
        now = at;
        all.tick(now);
    }
    assert_eq!(actions(&mut all).len(), REMOVE_ATTEMPTS_MAX as usize - 1);
    assert_eq!(now, s(90 + 120 * 31));
    assert!(all.get(ID).unwrap().ended());
}

#[test]
fn restarts_do_not_extend_the_deadline_of_a_step() {
    // A restart every 25 s; a route must be set back within 30 s.
    let mut all = returning();
    let end = 70 + 30 * 127;
    for at in 71..=end {
        all.tick(s(at));
        if at % 25 == 0 {
            all = restart(&all, at);
        }
        assert_eq!(*state(&all) == ApplianceState::Stranded, at == end, "{at}");
    }
    // Each restart repeats the action with a new number.
    let mut all = returning();
    for attempt in 4..14 {
        all = restart(&all, 71);
        assert_eq!(actions(&mut all), [ApplianceAction::Return(step(attempt))]);
        assert_eq!(all.next_deadline(), Some(s(100)));
    }
    // A clock that was set back does not extend the deadline beyond the full time.
    assert_eq!(restart(&all, 20).next_deadline(), Some(s(50)));
}

#[test]
fn step_expired_during_downtime_gets_one_more_deadline() {
    let mut all = started(WarmUp::None);
    all = restart(&all, 1000);
    assert_eq!(actions(&mut all), [ApplianceAction::Create(step(2))]);
    assert_eq!(all.next_deadline(), Some(s(1300)));
    // Not twice: then it is late.
    all = restart(&all, 2000);
    assert_eq!(actions(&mut all), [ApplianceAction::Destroy(step(3))]);
    assert_eq!(*state(&all), ApplianceState::Removing);
    // Each attempt gets this once, so an appliance without a running controller at its deadlines ends too, from every state.
    let planned = || started(WarmUp::Planned);
    let mut rerouting = planned();
    answer(&mut rerouting, 60, ApplianceAnswer::Created);
    let mut warming = rerouting.clone();
    answer(&mut warming, 61, ApplianceAnswer::Rerouted);
    let mut draining = returning();
    answer(&mut draining, 71, ApplianceAnswer::Returned);
    let cases = [
        (planned(), 2 + 10),
        (rerouting, 2 + 14),
        (warming, 2),
        (returning(), 14),
        (draining, 2 + 10),
    ];
    for (mut all, end) in cases {
        let mut restarts = 0;
        while let Some(at) = all.next_deadline() {
            all = restart(&all, at.0 / 1_000_000_000 + 7);
            restarts += 1;
            assert!(restarts <= end);
        }
        assert_eq!(restarts, end);
        match &all.get(ID).unwrap().state {
            ApplianceState::Serving | ApplianceState::Stranded => {}
            ApplianceState::Ended { .. } => assert!(all.get(ID).unwrap().safe()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn older_store_without_first_attempts_is_readable() {
    let mut all = returning();
    all.tick(s(100));
    let mut stored = serde_json::to_value(&all).unwrap();
    let appliance = stored["all"][0].as_object_mut().unwrap();
    for field in ["first", "lost_at", "late_restarts"] {
        assert!(appliance.remove(field).is_some());
    }
    let mut all: Appliances = serde_json::from_value(stored).unwrap();
    all.resume(s(101));
    // The beginning of the step is unknown: only the latest attempt is accepted.
    assert!(
        all.answer(s(102), step(3), ApplianceAnswer::Returned)
            .is_err()
    );
    answer(&mut all, 102, ApplianceAnswer::Returned);
    assert!(all.get(ID).unwrap().safe());
}

#[test]
fn failed_warm_up_leaves_a_serving_cold_cache() {
    let mut all = started(WarmUp::Planned);
    answer(&mut all, 60, ApplianceAnswer::Created);
    answer(&mut all, 61, ApplianceAnswer::Rerouted);
    all.tick(s(61 + 1800));
    assert_eq!(all.get(ID).unwrap().state, ApplianceState::Serving);
    let last = actions(&mut all).pop();
    assert_eq!(last, Some(ApplianceAction::StopWarming(step(3))));
}

/// Driver with its environment and delayed answers. The world has the true state of the route and of the virtual machine.
struct World {
    all: Appliances,
    now: Nanos,
    todo: Vec<ApplianceAction>,
    /// Answers that were not delivered in time, and may be delivered later.
    late: Vec<(ApplianceStep, ApplianceAnswer)>,
    truth: Route,
    /// True if a virtual machine exists that could serve.
    there: bool,
    destroyed: bool,
    /// True if the loss of its host was reported.
    lost: bool,
}

impl World {
    fn collect(&mut self) -> Result<(), TestCaseError> {
        while let Some(action) = self.all.poll_action() {
            // In order: a later action ends an earlier one without an answer.
            self.todo.clear();
            match action {
                ApplianceAction::Destroy(_) => {
                    prop_assert_eq!(self.truth, Route::Backend, "destroyed with requests in it");
                    (self.destroyed, self.there) = (true, false);
                }
                // A virtual machine from before a restart is not trusted; it is recreated.
                ApplianceAction::Create(_) => self.there = false,
                ApplianceAction::Reroute(_) => {
                    prop_assert!(!self.destroyed && self.there, "re-routed to nothing");
                }
                _ => {}
            }
            if !matches!(action, ApplianceAction::StopWarming(_)) {
                self.todo.push(action);
            }
        }
        Ok(())
    }

    /// Carries the pending action out, successfully or not, with or without an answer.
    fn carry_out(&mut self, how: u8) -> Result<(), TestCaseError> {
        use ApplianceAnswer as W;
        let Some(action) = self.todo.pop() else {
            return Ok(());
        };
        let (well, answered) = (how & 1 == 0, how & 2 == 0);
        // A re-routing that is reported as failed may have taken place.
        let done = well || how & 4 == 0;
        let (step, answer) = match action {
            ApplianceAction::Create(step) => {
                self.there = done;
                (step, W::Created)
            }
            ApplianceAction::Reroute(step) => {
                if done {
                    self.truth = Route::Appliance;
                }
                (step, W::Rerouted)
            }
            ApplianceAction::Warm(step) => (step, W::Warmed),
            ApplianceAction::Return(step) => {
                if done {
                    self.truth = Route::Backend;
                }
                (step, W::Returned)
            }
            ApplianceAction::Drain(step) => (step, W::Drained),
            ApplianceAction::Destroy(step) => (step, W::Destroyed),
            ApplianceAction::StopWarming(_) => return Ok(()),
        };
        let answer = if well {
            answer
        } else {
            failed("it did not work")
        };
        if answered {
            // The step may have been reported as failed before; it is still the latest.
            let heard = self.all.answer(self.now, step, answer);
            let latest = !matches!(heard, Err(IgnoreReason::OtherAttempt { .. }));
            prop_assert!(latest, "{:?}", heard);
        } else {
            self.late.push((step, answer));
        }
        Ok(())
    }

    /// Delivers a late answer, for the first time or again. After a newer attempt, it is accepted only with a lasting
    /// result.
    fn tell_late(&mut self, which: u8) -> Result<(), TestCaseError> {
        if self.late.is_empty() {
            return Ok(());
        }
        let (step, answer) = self.late[usize::from(which) % self.late.len()].clone();
        let before = self.all.get(ID).unwrap().clone();
        use ApplianceAnswer as W;
        use ApplianceState as S;
        let lasting = matches!(
            (&before.state, &answer),
            (S::Returning | S::Stranded, W::Returned) | (S::Removing, W::Destroyed)
        );
        let heard = self.all.answer(self.now, step, answer);
        if lasting {
            prop_assert_eq!(heard, Ok(()));
        } else if step != before.step() {
            let latest = before.step().attempt;
            prop_assert_eq!(heard, Err(IgnoreReason::OtherAttempt { step, latest }));
        }
        if heard.is_err() {
            prop_assert_eq!(self.all.get(ID).unwrap(), &before);
        }
        Ok(())
    }

    /// Reports the loss of its host. A repeated report has no effect during a return.
    fn lose(&mut self) -> Result<(), TestCaseError> {
        use ApplianceState as S;
        let before = self.all.get(ID).unwrap().clone();
        self.all.handle(self.now, ID, lost());
        if self.lost && matches!(before.state, S::Returning | S::Stranded) {
            prop_assert_eq!(self.all.get(ID).unwrap(), &before);
        }
        self.lost = true;
        Ok(())
    }

    /// Sends an answer to the latest step, whatever its kind.
    fn say(&mut self, answer: ApplianceAnswer) {
        let step = self.all.get(ID).unwrap().step();
        // An answer of another kind has no effect; another test checks that.
        let _ = self.all.answer(self.now, step, answer);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// Random answers, requests, losses, deadlines, restarts, unexpected and late answers; then a driver that carries out
    /// every action.
    #[test]
    fn appliance_always_ends_in_a_safe_state(
        warm in any::<bool>(),
        events in prop::collection::vec((0u8..16, 0u8..8), 0..60),
    ) {
        let mut world = World {
            all: started(if warm { WarmUp::Planned } else { WarmUp::None }),
            now: s(0),
            todo: vec![],
            late: vec![],
            truth: Route::Backend,
            there: false,
            destroyed: false,
            lost: false,
        };
        for (event, how) in events {
            world.collect()?;
            world.now += s(u64::from(how));
            match event {
                0..=5 => world.carry_out(how)?,
                6 => world.all.handle(world.now, ID, removal()),
                7 => world.lose()?,
                8 => {
                    if let Some(at) = world.all.next_deadline() {
                        world.now = world.now.max(at);
                    }
                    world.all.tick(world.now);
                }
                9 => {
                    // In some cases, no controller ran at the deadline.
                    if let (true, Some(at)) = (how & 1 == 0, world.all.next_deadline()) {
                        world.now = world.now.max(at);
                    }
                    let text = serde_json::to_string(&world.all).unwrap();
                    world.all = serde_json::from_str(&text).unwrap();
                    world.all.resume(world.now);
                }
                10 => world.all.handle(world.now, ID, ApplianceInput::Retry),
                11..=13 => world.tell_late(how)?,
                // These are no answers to most steps. Answers about the route or the machine would be false, and are left
                // out.
                14 => world.say(ApplianceAnswer::Warmed),
                _ => world.say(failed("something")),
            }
            let appliance = world.all.get(ID).unwrap();
            prop_assert!(!appliance.safe() || world.truth == Route::Backend, "{:?}", appliance);
        }
        // From now on, all actions succeed.
        for _ in 0..20 {
            world.collect()?;
            world.carry_out(0)?;
            world.all.handle(world.now, ID, removal());
            world.all.handle(world.now, ID, ApplianceInput::Retry);
            for which in 0..world.late.len() {
                world.tell_late(which as u8)?;
            }
            // Actions without an answer are repeated when they are late.
            world.collect()?;
            if let (true, Some(at)) = (world.todo.is_empty(), world.all.next_deadline()) {
                world.now = world.now.max(at);
                world.all.tick(world.now);
            }
        }
        world.collect()?;
        let appliance = world.all.get(ID).unwrap();
        prop_assert!(appliance.ended(), "{:?}", appliance);
        prop_assert_eq!(appliance.route, Route::Backend);
        prop_assert_eq!(world.truth, Route::Backend);
    }
}
