use super::history::{EPOCHS, History, Sample};
use super::latency::{Busy, FULL, Use};
use super::learned::Learned;
use super::patterns::Patterns;

fn sample(epoch: u64, iops: f64) -> Sample {
    Sample {
        epoch,
        iops: [iops, 0.0],
        bytes: [4096.0, 4096.0],
        stat_us: Some(200.0),
        mean_us: Some(100.0),
        outstanding: 1.0,
        held_up: false,
        disturbed: false,
    }
}

fn history(rates: impl IntoIterator<Item = f64>) -> History {
    let mut history = History::default();
    for (epoch, iops) in rates.into_iter().enumerate() {
        history.push(sample(epoch as u64, iops), false);
    }
    history
}

fn known(history: &History) -> Vec<f64> {
    history.samples.iter().map(Sample::total).collect()
}

#[test]
fn what_was_before_a_step_is_forgotten_and_a_burst_of_one_epoch_is_no_step() {
    let step = history([100.0; 10].into_iter().chain([300.0; 3]));
    assert_eq!(known(&step), [300.0; 3]);
    assert_eq!(step.changed(), Some(11));
    let burst = history([100.0, 100.0, 100.0, 100.0, 900.0, 100.0, 100.0, 100.0]);
    assert_eq!(burst.samples.len(), 8);
    assert_eq!(burst.changed(), None);
    let noise = (0..40).map(|i| if i % 2 == 0 { 100.0 } else { 115.0 });
    assert_eq!(history(noise).samples.len(), EPOCHS);
}

#[test]
fn who_takes_turns_keeps_its_history_and_the_next_turn_is_no_news() {
    let turns = history((0..60).map(|i| if (i / 6) % 2 == 0 { 50.0 } else { 500.0 }));
    assert_eq!(turns.samples.len(), EPOCHS);
    let high = known(&turns).iter().filter(|r| **r > 100.0).count();
    assert!((5..=11).contains(&high), "{high} of {EPOCHS}");
    assert_eq!(turns.changed(), None);
}

#[test]
fn a_change_of_ones_own_doing_is_none() {
    let mut h = history([100.0; 6]);
    h.push(sample(6, 300.0), true);
    h.push(sample(7, 300.0), true);
    assert_eq!((known(&h), h.changed()), (vec![300.0; 2], None));
}

#[test]
fn predictions_that_fail_are_told_with_wider_bounds() {
    let mut learned = Learned::default();
    let at_first = learned.sigma(0.3);
    (0..20).for_each(|_| learned.outcome(0.02));
    let good = learned.sigma(0.3);
    (0..20).for_each(|i| learned.outcome(if i % 2 == 0 { 0.8 } else { -0.8 }));
    let bad = learned.sigma(0.3);
    assert!(good < at_first && bad > at_first, "{good} {at_first} {bad}");
}

/// Of requests that take a millisecond each.
fn asks(share: f64, in_flight: f64) -> Use {
    Use {
        share,
        residual_s: share * 1e-3,
        queue_s: in_flight * 1e-3,
    }
}

#[test]
fn the_wait_is_that_of_an_open_queue_until_all_who_can_wait_do() {
    let half = Busy::of([asks(0.2, 50.0), asks(0.3, 50.0)].into_iter(), 0.0);
    assert!((half.wait_s - 0.5e-3).abs() < 1e-9, "{half:?}");
    assert!(!half.full());
    // Two requests in flight never wait for more than two.
    let few = Busy::of([asks(0.95, 2.0)].into_iter(), 0.0);
    assert!((few.wait_s - 2e-3).abs() < 1e-9, "{few:?}");
}

#[test]
fn on_a_full_device_who_asks_for_little_gets_it_and_the_others_share_the_rest() {
    // The first asks for a tenth, with more slots than it needs; the second for more than the device has, with eight.
    let busy = Busy::of([asks(0.1, 40.0), asks(2.0, 8.0)].into_iter(), 0.0);
    assert!(busy.full());
    let expected_s = 8e-3 / (FULL - 0.1);
    assert!((busy.wait_s / expected_s - 1.0).abs() < 0.01, "{busy:?}");
    let more = Busy::of([asks(0.1, 40.0), asks(3.0, 16.0)].into_iter(), 0.0);
    assert!(more.wait_s > 1.9 * busy.wait_s, "{more:?}");
}

#[test]
fn steady_loads_are_one_pattern_and_turns_are_two() {
    let steady = vec![vec![0.1, 0.05]; 8];
    assert_eq!(Patterns::of(&steady, &[0, 1]).len(), 1);
    let turns: Vec<Vec<f64>> = (0..8)
        .map(|e| {
            if e % 4 < 2 {
                vec![0.5, 0.05]
            } else {
                vec![0.05, 0.5]
            }
        })
        .collect();
    let patterns = Patterns::of(&turns, &[0, 1]);
    assert_eq!(patterns.share, [0.5, 0.5]);
    assert_eq!(patterns.of, [1, 1, 0, 0, 1, 1, 0, 0]);
    assert!((patterns.mean(&[4.0, 2.0]) - 3.0).abs() < 1e-12);
}

#[test]
fn a_load_that_goes_on_rising_has_changed_once() {
    let ramp = history((0..12).map(|i| 100.0 * 1.3f64.powi(i)));
    assert!(ramp.samples.len() < 12, "what was before is forgotten");
    assert!(ramp.changed().is_some_and(|at| at >= 9));
}
