use super::*;
use crate::Rng;

/// Kinds of independent workloads.
#[derive(Debug, Clone, Copy)]
enum Noise {
    White,
    /// Each sample keeps 0.9 of the previous one.
    Slow,
    /// Latencies with spikes by a factor of a hundred.
    Spikes,
    /// Own noise on a common level: the morning of a day, 20 times as steep as in samples of 10 s.
    Diurnal,
}

fn workload(noise: Noise, samples: usize, seed: u64, no: u64) -> (Vec<f64>, Vec<f64>) {
    let mut rng = Rng::new(seed, no);
    let mut normal = move || (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
    let mut slow = [0.0; 2];
    let mut sample = |at: usize, which: usize| {
        let n = normal();
        let day = libm::sin(at as f64 / samples as f64 * std::f64::consts::FRAC_PI_2);
        match noise {
            Noise::White => 1000.0 + 100.0 * n,
            Noise::Slow => {
                slow[which] = 0.9 * slow[which] + n;
                1000.0 + 100.0 * slow[which]
            }
            Noise::Spikes => libm::exp(2.0 * n),
            Noise::Diurnal => 1000.0 + 500.0 * day + 50.0 * n,
        }
    };
    (0..samples)
        .map(|at| (sample(at, 0), sample(at, 1)))
        .unzip()
}

fn tested(workloads: &[(Vec<f64>, Vec<f64>)], rule: &InterferenceRule) -> Interference {
    let series: Vec<MeasuredSeries<'_>> = workloads
        .iter()
        .map(|(iops, latency)| MeasuredSeries { iops, latency })
        .collect();
    interference(&series, |_, _| true, rule)
}

/// 30 independent workloads: no edge may be found in 95 of 100 cases. That is also the false-discovery rate if nothing
/// can be discovered.
#[test]
fn independent_workloads_have_no_edges() {
    let seeds = 60;
    for (correlation, noise, samples) in [
        (Correlation::Spearman, Noise::White, 60),
        (Correlation::Pearson, Noise::White, 60),
        (Correlation::Spearman, Noise::Slow, 60),
        (Correlation::Spearman, Noise::Spikes, 60),
        (Correlation::Spearman, Noise::Diurnal, 90),
    ] {
        let rule = InterferenceRule {
            correlation,
            ..InterferenceRule::default()
        };
        let (mut edges, mut cases, mut pairs) = (0, 0, 0);
        for seed in 0..seeds {
            let workloads: Vec<_> = (0..30)
                .map(|no| workload(noise, samples, seed, no))
                .collect();
            let found = tested(&workloads, &rule);
            assert_eq!((found.pairs.len(), found.untested.len()), (435, 0));
            let n = found.pairs.iter().filter(|p| p.edge).count();
            (edges, pairs) = (edges + n, pairs + found.pairs.len());
            cases += usize::from(n > 0);
            assert_eq!(n > 0, !found.sets.is_empty());
        }
        println!(
            "{correlation:?} {noise:?}: edges in {cases} of {seeds} cases, {edges} of {pairs} pairs"
        );
        // Three on average; more than eight has a probability below half a percent.
        assert!(cases <= 8, "{noise:?}: edges in {cases} of {seeds} cases");
        assert!(
            (edges as f64) < 0.001 * pairs as f64,
            "{noise:?}: {edges} of {pairs}"
        );
    }
}

/// Latency of one workload follows the requests of another with a lag, as on a shared device; the rest is noise.
#[test]
fn planted_dependence_is_found_without_false_edges() {
    for noise in [Noise::White, Noise::Slow, Noise::Spikes, Noise::Diurnal] {
        let (mut found_it, mut others) = (0, 0);
        for seed in 0..20 {
            let mut workloads: Vec<_> = (0..12).map(|no| workload(noise, 90, seed, no)).collect();
            let cause = workloads[3].0.clone();
            for (at, latency) in workloads[7].1.iter_mut().enumerate() {
                *latency = 0.3 * *latency + 0.9 * cause[at.saturating_sub(1)];
            }
            let found = tested(&workloads, &InterferenceRule::default());
            for pair in found.pairs.iter().filter(|p| p.edge) {
                if (pair.a, pair.b) == (3, 7) {
                    found_it += 1;
                    assert_eq!(pair.lag, 1, "b follows a by one");
                    assert!(pair.correlation > 0.5);
                    assert!(found.sets.iter().any(|s| s.contains(&3) && s.contains(&7)));
                } else {
                    others += 1;
                }
            }
        }
        assert!(found_it >= 19, "{noise:?}: found in {found_it} of 20");
        assert!(others <= 4, "{noise:?}: {others} false edges");
    }
}

#[test]
fn two_workloads_can_be_tested() {
    let mut pair = [
        workload(Noise::White, 60, 1, 0),
        workload(Noise::White, 60, 1, 1),
    ];
    assert!(tested(&pair, &InterferenceRule::default()).sets.is_empty());
    pair[1].1 = pair[0].0.iter().map(|v| v * 2.0).collect();
    let found = tested(&pair, &InterferenceRule::default());
    assert_eq!(found.sets, [vec![0, 1]]);
    assert!(found.pairs[0].p <= 0.05 && (found.pairs[0].correlation - 1.0).abs() < 1e-9);
}

#[test]
fn untestable_workloads_are_listed() {
    let ok = workload(Noise::White, 80, 1, 0);
    let short = workload(Noise::White, 59, 1, 1);
    let constant = (vec![5.0; 80], vec![1.0; 80]);
    let unknown = (ok.0.clone(), vec![f64::NAN; 80]);
    let found = tested(
        &[ok.clone(), short, constant, unknown, ok],
        &InterferenceRule::default(),
    );
    let tested: Vec<_> = found.pairs.iter().map(|p| (p.a, p.b)).collect();
    assert_eq!(tested, [(0, 4)]);
    assert_eq!(found.untested.len(), 9);
    assert_eq!(
        interference(&[], |_, _| true, &InterferenceRule::default()),
        Interference::default()
    );
}

#[test]
fn only_candidate_pairs_are_compared() {
    let workloads: Vec<_> = (0..6).map(|no| workload(Noise::White, 60, 2, no)).collect();
    let series: Vec<MeasuredSeries<'_>> = workloads
        .iter()
        .map(|(iops, latency)| MeasuredSeries { iops, latency })
        .collect();
    let found = interference(&series, |a, b| a % 2 == b % 2, &InterferenceRule::default());
    assert_eq!(found.pairs.len(), 6);
    assert!(found.pairs.iter().all(|p| p.a % 2 == p.b % 2 && p.a < p.b));
}

#[test]
fn rank_and_correlation_helpers_are_exact() {
    assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [2.5, 0.0, 2.5, 1.0]);
    let p = [0.01, 0.5, 0.03, 0.02, 0.9];
    // Limits 0.01, 0.02, 0.03, …: the third is met, and therefore the second counts too.
    assert_eq!(discoveries(&p, 0.05), [true, false, true, true, false]);
    assert_eq!(discoveries(&[0.2, 0.9], 0.05), [false, false]);
    let (x, y) = ([1.0, 2.0, 3.0], [10.0, 20.0, 40.0]);
    assert_eq!(circular(&x, &y), [170.0, 130.0, 120.0]);
}

#[test]
fn correlations_below_the_minimum_are_not_found() {
    let mut pair = [
        workload(Noise::White, 60, 1, 0),
        workload(Noise::White, 60, 1, 1),
    ];
    pair[1].1 = pair[0]
        .0
        .iter()
        .zip(&pair[1].0)
        .map(|(a, b)| 4.0 * a + b)
        .collect();
    let of = |correlation_min| {
        let rule = InterferenceRule {
            correlation_min,
            ..InterferenceRule::default()
        };
        tested(&pair, &rule)
    };
    assert_eq!((of(0.5).sets.len(), of(0.9999).sets.len()), (1, 0));
    let [a, b] = [0, 1].map(|i: usize| MeasuredSeries {
        iops: &pair[i].0,
        latency: &pair[i].1,
    });
    let alone = interference_strength(&a, &b, &InterferenceRule::default());
    assert_eq!(alone, Some(of(0.5).pairs[0].correlation.abs()));
}

#[test]
fn minimum_sample_count_leaves_a_null_distribution() {
    for lag_max in 0..=10 {
        let rule = InterferenceRule {
            lag_max,
            samples_min: 0,
            ..InterferenceRule::default()
        };
        let of = |samples| -> Vec<_> {
            (0..3)
                .map(|no| workload(Noise::White, samples, 5, no))
                .collect()
        };
        let least = 8 * lag_max + 20;
        let found = tested(&of(least), &rule);
        assert_eq!(found.pairs.len(), 3, "lag {lag_max}");
        // A comparison without shifts would give no number, or certainty.
        assert!(
            found
                .pairs
                .iter()
                .all(|p| p.p > 0.0 && p.p <= 1.0 && p.correlation.is_finite()),
            "lag {lag_max}: {found:?}"
        );
        let all: Vec<_> = of(least);
        let series = |w: &(Vec<f64>, Vec<f64>)| {
            changes(
                &MeasuredSeries {
                    iops: &w.0,
                    latency: &w.1,
                },
                &rule,
            )
        };
        let (a, b) = (series(&all[0]).unwrap(), series(&all[1]).unwrap());
        let mut null = Vec::new();
        let compared = compare(&a, &b, &rule, &mut null).unwrap();
        assert!(compared.score.is_finite());
        assert!(
            null.iter().all(|v| v.is_finite()),
            "lag {lag_max}: {null:?}"
        );
        assert!(!null.is_empty());
        assert_eq!(
            tested(&of(least - 1), &rule).untested.len(),
            3,
            "lag {lag_max}"
        );
    }
}
