//! Claims about condition A.

use super::super::grid::{At, Grid, Value, existing, storage};
use super::super::method::{Method, PERIODS};
use super::super::setup::FAST_SHARES;
use super::{Claim, Measure, Outlook, Rule, claim, exact, measure, near};

/// What the stand-in for condition A was selected for.
pub(super) fn calibrated(grid: &Grid) -> Vec<Claim> {
    let at = grid.at("A", 30);
    let over = |m: Method| Value::of_ratio(&at, |a| a.total(m) / a.total(Method::Existing(24)));
    let movement = |m: Method| Value::of(&at, |a| a.cell(m).score.movement);
    let best_gain = |share: u8| {
        Value::of_ratio(&grid.at("A", share), |a| {
            a.best_proposed().1 / a.best_existing().1
        })
    };
    let (l1, c10) = (Method::Existing(1), Method::Proposed(10));
    let ratio = Value::of(&at, |a| {
        a.cell(c10).score.movement / a.cell(l1).score.movement
    });
    let one = |id, source, says, published: f64, name: &str, value, rule| {
        claim(
            id,
            source,
            says,
            Some(published),
            Outlook::Calibrated,
            vec![measure(name, value, rule)],
        )
    };
    vec![
        one(
            "l1-over-l24",
            "Sec. 4.3, Fig. 7",
            "A, 30 %: L = 1 h gives 129 % of L = 24 h",
            1.29,
            "total, L = 1 h over L = 24 h",
            over(l1),
            near(1.29),
        ),
        one(
            "movement-l1",
            "Sec. 4.3, Fig. 7",
            "A, 30 %: L = 1 h moves 14.3 %",
            0.143,
            "M of L = 1 h",
            movement(l1),
            near(0.143),
        ),
        one(
            "c10-over-l24",
            "Sec. 4.3, Fig. 7",
            "A, 30 %: C = 10 % gives 137 % of L = 24 h",
            1.37,
            "total, C = 10 % over L = 24 h",
            over(c10),
            near(1.37),
        ),
        one(
            "movement-c10",
            "Sec. 4.3, Fig. 7",
            "A, 30 %: C = 10 % moves 7.15 %",
            0.0715,
            "M of C = 10 %",
            movement(c10),
            near(0.0715),
        ),
        one(
            "movement-halved",
            "abstract, Sec. 4.3",
            "A, 30 %: half of the movement of L = 1 h, without less performance",
            0.5,
            "M of C = 10 % over M of L = 1 h",
            ratio,
            near(0.5),
        ),
        one(
            "best-gain-30",
            "Sec. 4.3, Fig. 6",
            "A, 30 %: 13.8 % more than the best existing",
            1.138,
            "best proposed over best existing at 30 %",
            best_gain(30),
            near(1.138),
        ),
        one(
            "best-gain-5",
            "Sec. 4.3, Fig. 6",
            "A, 5 %: 1.0 % less than the best existing",
            0.99,
            "best proposed over best existing at 5 %",
            best_gain(5),
            Rule::Below(1.0),
        ),
    ]
}

/// Shapes on condition A that it was not selected for.
pub(super) fn shapes(grid: &Grid) -> Vec<Claim> {
    let a = |share: u8| grid.at("A", share);
    let ratio = |share: u8, of: &dyn Fn(&At<'_>) -> f64| Value::of_ratio(&a(share), of);
    let best_c: Vec<Measure> = FAST_SHARES[1..]
        .iter()
        .map(|share| {
            let by = |at: &At<'_>| {
                let of = |c| at.total(Method::Proposed(c));
                of(20).max(of(30)) / at.best_proposed().1
            };
            measure(
                format!("better of C = 20 and 30 % over the best C, at {share} %"),
                ratio(*share, &by),
                Rule::Above(0.99),
            )
        })
        .collect();
    let l1 = |at: &At<'_>| at.cell(Method::Existing(1)).score.movement;
    let at_20 = Value::of(&a(20), l1);
    let movement_peak: Vec<Measure> = [5, 10, 15, 25, 30]
        .iter()
        .map(|share| {
            let pairs: Vec<At<'_>> = a(*share);
            let here = Value::of(&pairs, l1);
            measure(
                format!("M of L = 1 h at {share} % over that at 20 %"),
                exact(here.mean / at_20.mean),
                Rule::Below(1.0),
            )
        })
        .collect();
    let highest_storage: Vec<Measure> = FAST_SHARES
        .iter()
        .map(|share| {
            let by = |at: &At<'_>| {
                at.cell(Method::Existing(1)).score.storage / at.best(existing, storage).1
            };
            measure(
                format!("storage performance of L = 1 h over the best L, at {share} %"),
                ratio(*share, &by),
                Rule::Above(0.9999),
            )
        })
        .collect();
    let loss = Value::of(&a(20), |at| {
        let score = at.cell(Method::Existing(1)).score;
        score.total / score.storage - 1.0
    });
    let best_period = |share: u8| {
        let best = a(share)[0].best_existing().0;
        PERIODS
            .iter()
            .copied()
            .find(|p| best == Method::Existing(*p))
            .map_or(0.0, f64::from)
    };
    let long_at_small = [5, 10].map(|share| {
        measure(
            format!("best L at {share} %, hours"),
            exact(best_period(share)),
            Rule::Between(24.0, 24.0),
        )
    });
    let gain =
        |share: u8| Value::of_ratio(&a(share), |at| at.best_proposed().1 / at.best_existing().1);
    let gains_grow = [(5, 10), (10, 20), (20, 30)].map(|(low, high)| {
        measure(
            format!("gain over the best existing at {high} % over that at {low} %"),
            exact(gain(high).mean / gain(low).mean),
            Rule::Above(1.0),
        )
    });
    let small_gain = FAST_SHARES[1..].iter().map(|share| {
        measure(
            format!("best proposed over best existing at {share} %"),
            gain(*share),
            Rule::Above(1.0),
        )
    });
    let open = Outlook::Open;
    vec![
        claim(
            "best-from-10",
            "Sec. 4.3",
            "A, 10 % and more: proposed is better than existing",
            None,
            open,
            small_gain.collect(),
        ),
        claim(
            "best-c",
            "Sec. 4.3, Fig. 4",
            "A, 10 % and more: C = 20 or 30 % is best",
            None,
            open,
            best_c,
        ),
        claim(
            "movement-peak",
            "Sec. 4.3, Fig. 5",
            "A, L = 1 h: movement is largest at 20 %",
            None,
            open,
            movement_peak,
        ),
        claim(
            "storage-l1",
            "Sec. 4.3",
            "A: storage performance is highest at L = 1 h whatever the fast tier",
            None,
            open,
            highest_storage,
        ),
        claim(
            "l1-loss-20",
            "Sec. 4.3",
            "A, 20 %, L = 1 h: 17 % less through movement",
            Some(-0.17),
            open,
            vec![measure(
                "total over storage performance, less one",
                loss,
                near(-0.17),
            )],
        ),
        Claim {
            note: "the paper says \"four hours\", which is no tested period: 24 is read",
            ..claim(
                "long-l-at-small",
                "Sec. 4.3",
                "A, 5 and 10 %: the longest period is the best existing one",
                Some(24.0),
                open,
                long_at_small.into(),
            )
        },
        claim(
            "gain-grows",
            "Sec. 4.3, Fig. 6",
            "A: the gain grows with the fast tier",
            None,
            open,
            gains_grow.into(),
        ),
    ]
}
