//! Appliances end in a safe state, whatever happens in whatever order.

use executor::{
    ApplianceAction, ApplianceDeadlines, ApplianceId, ApplianceInput, ApplianceKind,
    ApplianceOrder, ApplianceOutcome, ApplianceState, Appliances, RETURN_ATTEMPTS_MAX, Route,
    WarmUp,
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

fn failed(why: &str) -> ApplianceInput {
    ApplianceInput::Failed { why: why.into() }
}

fn removal() -> ApplianceInput {
    ApplianceInput::Remove {
        why: "quiet".into(),
    }
}

#[test]
fn a_whole_life() {
    use ApplianceAction as A;
    use ApplianceInput as I;
    let mut all = started(WarmUp::Planned);
    let mut log = vec![];
    for (t, input) in [
        (60, I::Created),
        (61, I::Rerouted),
        (200, I::Warmed),
        (900, removal()),
        (901, I::Returned),
        (902, I::Drained),
        (910, I::Destroyed),
    ] {
        log.extend(actions(&mut all));
        all.handle(s(t), ID, input);
        let safe = all.get(ID).unwrap().safe();
        assert_eq!(safe, !(60..901).contains(&t), "at {t}");
    }
    assert_eq!(
        log,
        [
            A::Create(ID),
            A::Reroute(ID),
            A::Warm(ID),
            A::StopWarming(ID),
            A::Return(ID),
            A::Drain(ID),
            A::Destroy(ID)
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
fn one_volume_one_appliance() {
    let mut all = started(WarmUp::None);
    let text = all
        .create(s(1), order(WarmUp::None))
        .unwrap_err()
        .to_string();
    assert_eq!(text, "volume 3 has appliance 0 already");
    all.handle(s(2), ID, failed("no image"));
    all.handle(s(3), ID, ApplianceInput::Destroyed);
    assert_eq!(all.create(s(4), order(WarmUp::None)), Ok(ApplianceId(1)));
}

#[test]
fn those_that_ended_are_forgotten_and_their_numbers_are_not_used_again() {
    let mut all = Appliances::new(ApplianceDeadlines::default());
    let mut other = order(WarmUp::None);
    other.volume = VolumeId(9);
    assert_eq!(all.create(s(0), other), Ok(ID));
    let n = executor::ENDED_MAX as u32 + 20;
    for i in 1..=n {
        let id = all.create(s(1), order(WarmUp::None)).unwrap();
        assert_eq!(id, ApplianceId(i));
        all.handle(s(2), id, failed("no image"));
        all.handle(s(3), id, ApplianceInput::Destroyed);
        assert!(all.get(id).unwrap().ended());
    }
    assert!(all.all().len() <= executor::ENDED_MAX + 2);
    // One that goes on is not forgotten, however old; what is said of a forgotten one is ignored.
    assert!(!all.get(ID).unwrap().ended());
    assert_eq!(all.get(ApplianceId(1)), None);
    all.handle(s(4), ApplianceId(1), ApplianceInput::Created);
    all.handle(s(4), ID, ApplianceInput::Created);
    assert_eq!(all.get(ID).unwrap().state, ApplianceState::Rerouting);
}

#[test]
fn a_failed_or_late_creation_is_cleaned_up() {
    for late in [false, true] {
        let mut all = started(WarmUp::None);
        actions(&mut all);
        if late {
            all.tick(s(299));
            assert!(actions(&mut all).is_empty());
            all.tick(s(300));
        } else {
            all.handle(s(9), ID, failed("no image"));
        }
        assert_eq!(actions(&mut all), [ApplianceAction::Destroy(ID)]);
        // It comes after all: too late.
        all.handle(s(301), ID, ApplianceInput::Created);
        assert!(actions(&mut all).is_empty());
        all.handle(s(302), ID, ApplianceInput::Destroyed);
        assert!(matches!(
            &all.get(ID).unwrap().state,
            ApplianceState::Ended { outcome: ApplianceOutcome::Failed { why }, .. }
                if why.starts_with("it could not be created")
        ));
    }
}

#[test]
fn after_a_failed_rerouting_the_route_is_set_back_before_anything_is_destroyed() {
    let mut all = started(WarmUp::None);
    all.handle(s(60), ID, ApplianceInput::Created);
    all.handle(s(61), ID, failed("no answer"));
    assert_eq!(all.get(ID).unwrap().route, Route::Unknown);
    assert!(!actions(&mut all).contains(&ApplianceAction::Destroy(ID)));
    all.handle(s(62), ID, ApplianceInput::Returned);
    all.handle(s(63), ID, ApplianceInput::Drained);
    let last = actions(&mut all);
    assert_eq!(
        last,
        [ApplianceAction::Drain(ID), ApplianceAction::Destroy(ID)]
    );
    assert!(all.get(ID).unwrap().safe());
}

#[test]
fn one_whose_route_cannot_be_set_back_is_stranded_and_kept() {
    let mut all = started(WarmUp::None);
    all.handle(s(60), ID, ApplianceInput::Created);
    all.handle(s(61), ID, ApplianceInput::Rerouted);
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
    assert_eq!(actions(&mut all), [ApplianceAction::Return(ID)]);
    all.handle(now, ID, ApplianceInput::Returned);
    assert!(all.get(ID).unwrap().safe());
}

#[test]
fn one_whose_host_is_lost_while_its_route_is_set_back_is_asked_for_again_at_once() {
    let lost = || ApplianceInput::Lost {
        why: "no power".into(),
    };
    let mut all = started(WarmUp::None);
    all.handle(s(60), ID, ApplianceInput::Created);
    all.handle(s(61), ID, ApplianceInput::Rerouted);
    all.handle(s(70), ID, removal());
    all.tick(s(100));
    actions(&mut all);
    assert_eq!(all.next_deadline(), Some(s(160)), "the second attempt");
    all.handle(s(101), ID, lost());
    assert_eq!(actions(&mut all), [ApplianceAction::Return(ID)]);
    assert_eq!(all.next_deadline(), Some(s(131)), "the first again");
    while let Some(at) = all.next_deadline() {
        all.tick(at);
    }
    assert_eq!(all.get(ID).unwrap().state, ApplianceState::Stranded);
    actions(&mut all);
    all.handle(s(9000), ID, lost());
    assert_eq!(actions(&mut all), [ApplianceAction::Return(ID)]);
    assert_eq!(all.get(ID).unwrap().state, ApplianceState::Returning);
    all.handle(s(9001), ID, ApplianceInput::Returned);
    assert!(all.get(ID).unwrap().safe());
}

#[test]
fn a_warm_up_that_fails_leaves_a_cold_cache_that_serves() {
    let mut all = started(WarmUp::Planned);
    all.handle(s(60), ID, ApplianceInput::Created);
    all.handle(s(61), ID, ApplianceInput::Rerouted);
    all.tick(s(61 + 1800));
    assert_eq!(all.get(ID).unwrap().state, ApplianceState::Serving);
    let last = actions(&mut all).pop();
    assert_eq!(last, Some(ApplianceAction::StopWarming(ID)));
}

/// A driver and what it drives, with answers as they come. What is true of the route is the world's.
struct World {
    all: Appliances,
    now: Nanos,
    todo: Vec<ApplianceAction>,
    truth: Route,
    destroyed: bool,
}

impl World {
    fn collect(&mut self) -> Result<(), TestCaseError> {
        while let Some(action) = self.all.poll_action() {
            // In order: a later action ends an earlier one that nobody has answered.
            self.todo.clear();
            if matches!(action, ApplianceAction::Destroy(_)) {
                prop_assert_eq!(self.truth, Route::Backend, "destroyed with requests in it");
                self.destroyed = true;
            }
            if matches!(action, ApplianceAction::Reroute(_)) {
                prop_assert!(!self.destroyed, "re-routed to nothing");
            }
            if !matches!(action, ApplianceAction::StopWarming(_)) {
                self.todo.push(action);
            }
        }
        Ok(())
    }

    /// Carries the pending action out, well or not, told or not.
    fn carry_out(&mut self, how: u8) {
        use ApplianceInput as I;
        let Some(action) = self.todo.pop() else {
            return;
        };
        let (well, told) = (how & 1 == 0, how & 2 == 0);
        // A re-routing that is said to have failed may have taken place.
        let done = well || how & 4 == 0;
        let answer = match action {
            ApplianceAction::Create(_) => I::Created,
            ApplianceAction::Reroute(_) => {
                if done {
                    self.truth = Route::Appliance;
                }
                I::Rerouted
            }
            ApplianceAction::Warm(_) => I::Warmed,
            ApplianceAction::Return(_) => {
                if done {
                    self.truth = Route::Backend;
                }
                I::Returned
            }
            ApplianceAction::Drain(_) => I::Drained,
            ApplianceAction::Destroy(_) => I::Destroyed,
            ApplianceAction::StopWarming(_) => return,
        };
        if told {
            let answer = if well {
                answer
            } else {
                failed("it did not work")
            };
            self.all.handle(self.now, ID, answer);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// Random answers, wishes, losses, deadlines, restarts and answers nobody asked for; then a driver that does as it is told.
    #[test]
    fn it_always_ends_in_a_safe_state(
        warm in any::<bool>(),
        events in prop::collection::vec((0u8..14, 0u8..8), 0..60),
    ) {
        let mut world = World {
            all: started(if warm { WarmUp::Planned } else { WarmUp::None }),
            now: s(0),
            todo: vec![],
            truth: Route::Backend,
            destroyed: false,
        };
        for (event, how) in events {
            world.collect()?;
            world.now += s(u64::from(how));
            match event {
                0..=5 => world.carry_out(how),
                6 => world.all.handle(world.now, ID, removal()),
                7 => world.all.handle(world.now, ID, ApplianceInput::Lost { why: "power".into() }),
                8 => {
                    if let Some(at) = world.all.next_deadline() {
                        world.now = world.now.max(at);
                    }
                    world.all.tick(world.now);
                }
                9 => {
                    let text = serde_json::to_string(&world.all).unwrap();
                    world.all = serde_json::from_str(&text).unwrap();
                    world.all.resume(world.now);
                }
                10 => world.all.handle(world.now, ID, ApplianceInput::Retry),
                // Answers to steps that are over; those that speak of the route would be lies, and are left out.
                11 => world.all.handle(world.now, ID, ApplianceInput::Warmed),
                12 if world.todo.is_empty() => world.all.handle(world.now, ID, ApplianceInput::Created),
                _ => world.all.handle(world.now, ID, failed("something")),
            }
            let appliance = world.all.get(ID).unwrap();
            prop_assert!(!appliance.safe() || world.truth == Route::Backend, "{:?}", appliance);
        }
        // From now on all is well.
        for _ in 0..20 {
            world.collect()?;
            world.carry_out(0);
            world.all.handle(world.now, ID, removal());
            world.all.handle(world.now, ID, ApplianceInput::Retry);
            // What was carried out and never told is asked for again when it is late.
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
