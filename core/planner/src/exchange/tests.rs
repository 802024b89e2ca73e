use algo::Rng;

use super::*;

fn station(service: ServiceTime) -> Station {
    Station {
        service,
        bare_ns: None,
    }
}

fn load(volume: u32, device: u16, reads: f32, writes: f32) -> ExtentLoad {
    ExtentLoad {
        volume,
        device,
        reads,
        writes,
    }
}

/// Returns F of the loads in their present places, from its definition.
fn objective(stations: &[Station], loads: &[ExtentLoad], weights: &[f64]) -> f64 {
    let terms = ExchangeTerms::default();
    Chooser::new(stations, loads, weights, &terms).objective()
}

fn apply(loads: &mut [ExtentLoad], exchanges: &[Exchange]) {
    for x in exchanges {
        let (a, b) = (loads[x.a as usize].device, loads[x.b as usize].device);
        loads[x.a as usize].device = b;
        loads[x.b as usize].device = a;
    }
}

fn random_case(seed: u64) -> (Vec<Station>, Vec<ExtentLoad>, Vec<f64>) {
    let mut rng = Rng::new(seed, 0);
    let mut stations = vec![station(ServiceTime::flash_2010())];
    stations.extend(vec![station(ServiceTime::fc_15k()); 2]);
    stations.extend(vec![station(ServiceTime::sata_7k2()); 4]);
    let loads = (0..700)
        .map(|_| {
            let hot = if rng.below(10) == 0 { 4.0 } else { 0.05 };
            let reads = (rng.exponential() * hot) as f32;
            let writes = (rng.exponential() * hot * 0.3) as f32;
            load(rng.below(5) as u32, rng.below(7) as u16, reads, writes)
        })
        .collect();
    (stations, loads, vec![0.5, 0.1, 0.2, 1.0, 0.05])
}

#[test]
fn hot_extent_is_exchanged_with_an_idle_one_on_flash() {
    let stations = [
        station(ServiceTime::flash_2010()),
        station(ServiceTime::sata_7k2()),
    ];
    let loads = [load(0, 0, 0.0, 0.0), load(0, 1, 20.0, 0.0)];
    let done = exchange(&stations, &loads, &[1.0], &ExchangeTerms::default());
    assert_eq!(done.list, [Exchange { a: 0, b: 1 }]);
    assert!(done.after < done.before / 10.0);
}

#[test]
fn weight_decides_between_equally_hot_extents() {
    let stations = [
        station(ServiceTime::flash_2010()),
        station(ServiceTime::sata_7k2()),
    ];
    let loads = [
        load(0, 0, 0.0, 0.0),
        load(0, 1, 10.0, 0.0),
        load(1, 1, 10.0, 0.0),
    ];
    for (weights, want) in [([1.0, 4.0], 2), ([4.0, 1.0], 1)] {
        let done = exchange(&stations, &loads, &weights, &ExchangeTerms::default());
        assert_eq!(done.list, [Exchange { a: 0, b: want }]);
    }
}

#[test]
fn congestion_is_priced_between_equal_devices() {
    let stations = [station(ServiceTime::sata_7k2()); 2];
    let mut loads = vec![];
    loads.extend((0..20).map(|_| load(0, 0, 3.0, 0.0)));
    loads.extend((0..20).map(|_| load(0, 1, 0.1, 0.0)));
    let done = exchange(&stations, &loads, &[1.0], &ExchangeTerms::default());
    assert!((8..=11).contains(&done.list.len()), "{}", done.list.len());
    apply(&mut loads, &done.list);
    let busy = |d: u16| -> f32 {
        loads
            .iter()
            .filter(|l| l.device == d)
            .map(|l| l.reads)
            .sum()
    };
    assert!((busy(0) - busy(1)).abs() < 4.0);
}

#[test]
fn reported_objective_is_exact_and_decreases() {
    for seed in 0..8 {
        let (stations, mut loads, weights) = random_case(seed);
        let done = exchange(&stations, &loads, &weights, &ExchangeTerms::default());
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
        assert!(near(objective(&stations, &loads, &weights), done.before));
        apply(&mut loads, &done.list);
        assert!(near(objective(&stations, &loads, &weights), done.after));
        assert!(done.after < 0.7 * done.before);
    }
}

#[test]
fn exchange_moves_each_extent_once_and_keeps_device_counts() {
    let (stations, mut loads, weights) = random_case(3);
    let held = |loads: &[ExtentLoad]| -> Vec<usize> {
        let on = |d: u16| loads.iter().filter(|l| l.device == d).count();
        (0..stations.len() as u16).map(on).collect()
    };
    let before = held(&loads);
    let done = exchange(&stations, &loads, &weights, &ExchangeTerms::default());
    let mut touched: Vec<u32> = done.list.iter().flat_map(|x| [x.a, x.b]).collect();
    let all = touched.len();
    touched.sort_unstable();
    touched.dedup();
    assert_eq!(touched.len(), all);
    apply(&mut loads, &done.list);
    assert_eq!(held(&loads), before);
}

/// After the exchanges of the list, the remaining ones gain little in comparison.
#[test]
fn second_exchange_gains_little() {
    for seed in 0..4 {
        let (stations, mut loads, weights) = random_case(seed);
        let done = exchange(&stations, &loads, &weights, &ExchangeTerms::default());
        let gained = done.before - done.after;
        apply(&mut loads, &done.list);
        let again = exchange(&stations, &loads, &weights, &ExchangeTerms::default());
        assert!(again.before - again.after < 0.05 * gained, "seed {seed}");
    }
}

#[test]
fn exchange_budget_is_respected_and_best_exchanges_come_first() {
    let (stations, loads, weights) = random_case(1);
    let all = exchange(&stations, &loads, &weights, &ExchangeTerms::default());
    let terms = ExchangeTerms {
        most: 10,
        ..ExchangeTerms::default()
    };
    let some = exchange(&stations, &loads, &weights, &terms);
    assert_eq!(some.list, all.list[..10]);
    let share = (some.before - some.after) / (all.before - all.after);
    assert!(share > 10.0 / all.list.len() as f64 * 2.0);
}

#[test]
fn exchanges_without_profit_within_the_horizon_are_omitted() {
    let (stations, loads, weights) = random_case(2);
    let short = ExchangeTerms {
        horizon: Nanos::from_secs(1),
        ..ExchangeTerms::default()
    };
    let few = exchange(&stations, &loads, &weights, &short).list.len();
    let many = exchange(&stations, &loads, &weights, &ExchangeTerms::default());
    assert!(few < many.list.len() / 2, "{few} of {}", many.list.len());
}

#[test]
fn idle_or_empty_input_gives_no_exchange() {
    let stations = [station(ServiceTime::fc_15k()); 3];
    let idle: Vec<ExtentLoad> = (0..30).map(|e| load(0, (e % 3) as u16, 0.0, 0.0)).collect();
    assert!(
        exchange(&stations, &idle, &[1.0], &ExchangeTerms::default())
            .list
            .is_empty()
    );
    assert!(
        exchange(&stations, &[], &[], &ExchangeTerms::default())
            .list
            .is_empty()
    );
}
