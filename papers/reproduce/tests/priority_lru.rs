//! Customers of paper 2's reproduction, made of small recordings.

use model::Op;
use reproduce::priority_lru::{
    Load, Outcome, Recording, Role, SCHEMA, Scale, Setup, SetupError, Sources,
};

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

const SCALE: Scale = Scale {
    hours: 4,
    hour_s: 30,
    match_runs: 6,
};

fn setup(sources: Sources, hours: u32) -> Result<Setup, SetupError> {
    let scale = Scale { hours, ..SCALE };
    Setup::new(sources, vec![1, 2], Load::ALL.into(), scale)
}

#[test]
fn unsuitable_recordings_of_customers_are_refused() {
    assert_eq!(setup(sources(), 2).unwrap_err(), SetupError::Hours);
    let mut without = sources();
    without.recordings.remove(1);
    let error = setup(without, 6).unwrap_err();
    assert_eq!(error, SetupError::NoRecording(Role::Scans));
    assert_eq!(
        error.to_string(),
        "customers need recordings of transactions, of scans and of files; a recording of scans is missing"
    );
}

#[test]
fn intensities_are_deterministic_per_seed() {
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

#[test]
fn fingerprint_depends_on_the_recordings() {
    let print = |sources: Sources| sources.fingerprint();
    assert_eq!(print(sources()), print(sources()));
    let mut other = sources();
    other.recordings[0].requests[7].1 += 4096;
    assert_ne!(print(sources()), print(other));
}

/// Everything once, at a scale at which nothing means anything.
#[test]
fn matched_load_is_nearer_to_the_published_times() {
    let setup = setup(sources(), 4).unwrap();
    let jobs = setup.jobs();
    assert_eq!(
        jobs.len(),
        2 * 2 * 4 + 1,
        "two seeds; the array of flash with the first"
    );
    // What is made up here is too little for drives of flash.
    let disks = jobs
        .iter()
        .filter(|j| serde_json::json!(j)["array"] == "disks");
    let disks: Vec<_> = disks.collect();
    // Two at a time: nothing else runs beside this test.
    let halves = disks.split_at(disks.len() / 2);
    let [one, other] = [halves.0, halves.1];
    let run = |jobs: &[&_]| -> Vec<_> {
        jobs.iter()
            .map(|j: &&reproduce::priority_lru::Job| j.run().unwrap())
            .collect()
    };
    let results: Vec<_> = std::thread::scope(|threads| {
        let beside = threads.spawn(|| run(other));
        let mut results = run(one);
        results.extend(beside.join().expect("it runs"));
        results
    });
    for result in &results {
        let Some(matching) = &result.matching else {
            assert_eq!(result.load, Load::AsDrawn);
            continue;
        };
        assert!(matching.runs <= SCALE.match_runs);
        let [drawn, reached] = matching.distance;
        assert!(reached <= drawn, "{matching:?}");
        let logs = (0..3).filter_map(|c| {
            let ours = matching.reached_ms[c]?;
            let log = libm::log(ours / matching.published_ms[c]);
            Some(log * log)
        });
        let logs: Vec<f64> = logs.collect();
        let distance = (logs.iter().sum::<f64>() / logs.len() as f64).sqrt();
        assert!((distance - reached).abs() < 1e-9, "{matching:?}");
    }
    let matchings = results.iter().filter_map(|r| r.matching.as_ref());
    let nearer = matchings.filter(|m| m.distance[1] < 0.9 * m.distance[0]);
    assert!(nearer.count() >= 4, "most loads can be matched better");

    let outcome = Outcome::new("0", setup, results);
    assert_eq!(outcome.schema, SCHEMA);
    assert_eq!(outcome.scorecard.readings.len(), 4);
    assert_eq!(outcome.scorecard.tally.claims, 11);
    for claim in &outcome.scorecard.claims {
        assert_eq!(claim.readings.len(), 4, "{}", claim.said.id);
        for m in claim.readings.iter().flat_map(|r| &r.measures) {
            let ours = m.ours.expect("there are requests in every group");
            assert_eq!(ours.interval.map(|i| i.n), Some(2), "{}", m.name);
        }
    }
    let text = reproduce::priority_lru::document(&outcome).text();
    assert!(!text.contains("NaN"), "{text}");
}
