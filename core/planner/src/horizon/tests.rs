use algo::Rng;

use super::*;

/// Returns volumes with varying load, on tiers of which the first is the best and the smallest.
fn instance(seed: u64, volumes: usize, tiers: usize, epochs: usize, soft: bool) -> Horizon {
    let mut rng = Rng::new(seed, 3);
    let mut unit = move || rng.below(1 << 20) as f64 / f64::from(1 << 20);
    let capacity = (0..tiers).map(|t| [0.6, 0.6, 0.4 + t as f64]).collect();
    let price = |p: f64| if soft { p } else { f64::INFINITY };
    let overload = (0..tiers)
        .map(|_| [price(1.0), price(0.7), f64::INFINITY])
        .collect();
    let mut horizon = Horizon::new(epochs, capacity, overload);
    for v in 0..volumes {
        let size = 0.2 + unit();
        let each = 1.5 / volumes as f64;
        let mut load = unit();
        let places: Vec<Vec<Place>> = (0..epochs)
            .map(|_| {
                load = (load + 0.8 * (unit() - 0.5)).clamp(0.05, 1.0);
                (0..tiers)
                    .map(|t| Place {
                        score: load / (1.0 + t as f64),
                        uses: [each * load, each * load * unit(), each * size],
                    })
                    .collect()
            })
            .collect();
        let costs: Vec<Vec<f64>> = vec![vec![0.3 * size; tiers]; tiers];
        horizon.add(TierId::from_index(v % tiers), &places, &costs);
    }
    horizon.admit_present();
    horizon
}

/// Returns the value of the best paths by trying all.
fn exhaustive(h: &Horizon) -> i64 {
    fn go(h: &Horizon, at: usize, tiers: &mut Vec<Vec<TierId>>, best: &mut i64) {
        if at == h.len() * h.epochs() {
            if h.admits(tiers) {
                *best = (*best).max(h.paths(tiers.clone()).value);
            }
            return;
        }
        for t in 0..h.tiers() {
            tiers[at / h.epochs()][at % h.epochs()] = TierId::from_index(t);
            go(h, at + 1, tiers, best);
        }
    }
    let mut tiers = vec![vec![TierId(0); h.epochs()]; h.len()];
    let mut best = i64::MIN;
    go(h, 0, &mut tiers, &mut best);
    best
}

#[test]
fn horizon_bound_is_at_least_the_optimum() {
    let (mut got, mut possible, mut chained) = (0, 0, 0);
    for seed in 0..30 {
        let h = instance(seed, 4, 2, 3, seed % 2 == 0);
        let optimum = exhaustive(&h);
        let (paths, bound) = h.solve();
        let (stay, chain) = (h.stay(), h.chain());
        assert!(
            h.admits(&paths.tiers) && h.admits(&chain.tiers),
            "seed {seed}"
        );
        assert!(bound >= optimum, "seed {seed}: {bound} {optimum}");
        assert!(paths.value <= optimum, "seed {seed}");
        assert!(paths.value >= chain.value.max(stay.value), "seed {seed}");
        assert_eq!(paths, h.paths(paths.tiers.clone()), "seed {seed}");
        got += paths.value - stay.value;
        possible += optimum - stay.value;
        chained += chain.value - stay.value;
    }
    assert!(got as f64 >= 0.97 * possible as f64, "{got} of {possible}");
    assert!(
        chained < got,
        "looking ahead is worth something: {chained} {got}"
    );
}

#[test]
fn paths_of_many_volumes_are_near_the_bound() {
    for seed in 0..4 {
        let h = instance(seed, 60, 3, 12, seed % 2 == 0);
        let (paths, bound) = h.solve();
        let stay = h.stay().value;
        let gap = (bound - paths.value) as f64 / (bound - stay) as f64;
        assert!(h.admits(&paths.tiers));
        assert!((0.0..0.05).contains(&gap), "seed {seed}: {gap}");
    }
}

#[test]
fn move_that_pays_only_over_several_epochs_is_made() {
    // Each epoch gains a tenth on the other tier, and a move costs a quarter: three epochs pay for it.
    for (epochs, moves) in [(2, false), (3, true)] {
        let mut h = Horizon::new(epochs, vec![[1.0; 3]; 2], vec![[f64::INFINITY; 3]; 2]);
        let place = |score: f64| Place {
            score,
            uses: [0.1; 3],
        };
        let places = vec![vec![place(0.6), place(0.5)]; epochs];
        h.add(TierId(1), &places, &[vec![0.0, 0.25], vec![0.25, 0.0]]);
        h.admit_present();
        let (paths, bound) = h.solve();
        assert_eq!(paths.tiers[0][0] == TierId(0), moves);
        assert!((0..10).contains(&(bound - paths.value)), "but for rounding");
        assert_eq!(h.chain(), h.stay(), "epoch by epoch it never pays");
    }
}
