use super::history::{EPOCHS, History, Sample};
use super::learned::Learned;

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
    assert_eq!(step.steady_epochs(12), 3);
    let burst = history([100.0, 100.0, 100.0, 100.0, 900.0, 100.0, 100.0, 100.0]);
    assert_eq!(burst.samples.len(), 8);
    assert_eq!(burst.changed(), None);
    let noise = (0..40).map(|i| if i % 2 == 0 { 100.0 } else { 115.0 });
    assert_eq!(history(noise).samples.len(), EPOCHS);
}

#[test]
fn who_takes_turns_keeps_its_history_and_is_not_taken_to_be_steady() {
    let turns = history((0..60).map(|i| if (i / 6) % 2 == 0 { 50.0 } else { 500.0 }));
    assert_eq!(turns.samples.len(), EPOCHS);
    let high = known(&turns).iter().filter(|r| **r > 100.0).count();
    assert!((5..=11).contains(&high), "{high} of {EPOCHS}");
    assert!(turns.steady_epochs(59) <= 8, "{}", turns.steady_epochs(59));
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
    let at_first = learned.sigma();
    (0..20).for_each(|_| learned.outcome(0.02));
    let good = learned.sigma();
    (0..20).for_each(|i| learned.outcome(if i % 2 == 0 { 0.8 } else { -0.8 }));
    let bad = learned.sigma();
    assert!(good < at_first && bad > at_first, "{good} {at_first} {bad}");
}
