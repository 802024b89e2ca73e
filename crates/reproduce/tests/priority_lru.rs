//! Customers of paper 2's reproduction, made of small recordings.

use model::Op;
use reproduce::priority_lru::{Recording, Role, Setup, SetupError, Sources};

fn recording(name: &str, role: Role, writes: u64) -> Recording {
    let mut rng = algo::Rng::new(name.len() as u64, 0);
    let requests = (0..5000).map(|_| {
        let op = if rng.below(10) < writes {
            Op::Write
        } else {
            Op::Read
        };
        (op, rng.below(200 << 20) / 4096 * 4096, 8192)
    });
    Recording {
        name: name.into(),
        role,
        requests: requests.collect(),
    }
}

fn sources() -> Sources {
    Sources {
        about: "made up".into(),
        recordings: vec![
            recording("a", Role::Transactions, 3),
            recording("bb", Role::Scans, 0),
            recording("ccc", Role::Files, 1),
        ],
        intensities: vec![],
    }
}

#[test]
fn what_cannot_be_made_customers_of_is_refused() {
    assert_eq!(Setup::new(sources(), 1, 2).unwrap_err(), SetupError::Hours);
    let mut without = sources();
    without.recordings.remove(1);
    let error = Setup::new(without, 1, 6).unwrap_err();
    assert_eq!(error, SetupError::NoRecording(Role::Scans));
    assert_eq!(
        error.to_string(),
        "customers need recordings of transactions, of scans and of files; there is none of scans"
    );
}

#[test]
fn intensities_are_drawn_the_same_from_the_same_seed() {
    let of = |seed| -> Vec<Vec<f32>> {
        let drawn = Sources::drawn_intensities(seed);
        drawn.into_iter().map(|i| i.rates).collect()
    };
    assert_eq!(of(3), of(3));
    assert_ne!(of(3), of(4));
    assert!(of(3).iter().flatten().all(|r| *r > 0.0));
    // A few volumes do most of the work.
    let mut sums: Vec<f32> = of(3).iter().map(|r| r.iter().sum()).collect();
    sums.sort_by(|a, b| b.total_cmp(a));
    let share = sums[..6].iter().sum::<f32>() / sums.iter().sum::<f32>();
    assert!((0.3..0.9).contains(&share), "{share}");
}
