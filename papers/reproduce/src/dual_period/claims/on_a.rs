//! Claims about condition A.

use super::super::grid::{GridCell, View, existing, quantity, ratio, storage};
use super::super::method::{Method, PERIODS};
use super::super::setup::FAST_SHARES;
use crate::claim::{ClaimFinding, Measure, Outlook, Rule, Value, measure, near, said};

const HEADLINE: &str = "Sec. 4.3, Fig. 7";
const GAINS: &str = "Sec. 4.3, Fig. 6";

/// Claims for which the stand-in for condition A was selected.
pub(super) fn calibrated(view: View<'_>) -> Vec<ClaimFinding> {
    let at = view.at("A", 30);
    let over = |m: Method| ratio(&at, |a| a.total(m) / a.total(Method::Existing(24)));
    let movement = |a: &GridCell<'_>, m: Method| a.cell(m).score.movement;
    let (l1, c10) = (Method::Existing(1), Method::Proposed(10));
    let one = |id, source, says, published: f64, name: &str, value: Value| {
        let said = said(id, source, says).printed(published);
        let measure = measure(name, Some(value), near(published)).printed(published);
        said.outlook(Outlook::Calibrated).found(vec![measure])
    };
    let gain_5 = ratio(&view.at("A", 5), GridCell::gain);
    vec![
        one(
            "l1-over-l24",
            HEADLINE,
            "A, 30 %: L = 1 h gives 129 % of L = 24 h",
            1.29,
            "total, L = 1 h over L = 24 h",
            over(l1),
        ),
        one(
            "movement-l1",
            HEADLINE,
            "A, 30 %: L = 1 h moves 14.3 %",
            0.143,
            "M of L = 1 h",
            quantity(&at, |a| movement(a, l1)),
        ),
        one(
            "c10-over-l24",
            HEADLINE,
            "A, 30 %: C = 10 % gives 137 % of L = 24 h",
            1.37,
            "total, C = 10 % over L = 24 h",
            over(c10),
        ),
        one(
            "movement-c10",
            HEADLINE,
            "A, 30 %: C = 10 % moves 7.15 %",
            0.0715,
            "M of C = 10 %",
            quantity(&at, |a| movement(a, c10)),
        ),
        said(
            "movement-halved",
            "abstract, Sec. 4.3",
            "A, 30 %: half of the movement of L = 1 h, without less performance",
        )
        .printed(0.5)
        .outlook(Outlook::Calibrated)
        .found(vec![
            measure(
                "M of C = 10 % over M of L = 1 h",
                Some(ratio(&at, |a| movement(a, c10) / movement(a, l1))),
                near(0.5),
            )
            .printed(0.5),
            measure(
                "total of C = 10 % over total of L = 1 h",
                Some(ratio(&at, |a| a.total(c10) / a.total(l1))),
                Rule::Above(0.999),
            ),
        ]),
        one(
            "best-gain-30",
            GAINS,
            "A, 30 %: 13.8 % more than the best existing",
            0.138,
            "best proposed over best existing at 30 %, minus one",
            ratio(&at, GridCell::gain).map(|g| g - 1.0),
        ),
        said(
            "best-gain-5",
            GAINS,
            "A, 5 %: 1.0 % less than the best existing",
        )
        .printed(0.99)
        .outlook(Outlook::Calibrated)
        .found(vec![
            measure(
                "best proposed over best existing at 5 %",
                Some(gain_5),
                Rule::Below(1.0),
            )
            .printed(0.99),
        ]),
    ]
}

/// Claims about condition A for which the stand-in was not selected.
pub(super) fn shapes(view: View<'_>) -> Vec<ClaimFinding> {
    let a = |share: u8| view.at("A", share);
    let at_shares = |shares: &[u8], rule: Rule, what: &str, of: &dyn Fn(&GridCell<'_>) -> f64| {
        let one = |share: &u8| {
            let name = format!("{what}, at {share} %");
            measure(name, Some(ratio(&a(*share), of)), rule)
        };
        shares.iter().map(one).collect::<Vec<Measure>>()
    };
    let from_10 = &FAST_SHARES[1..];
    let best_c = |at: &GridCell<'_>| {
        let of = |c| at.total(Method::Proposed(c));
        of(20).max(of(30)) / at.best_proposed().1
    };
    let l1 = |at: &GridCell<'_>| at.cell(Method::Existing(1)).score;
    let best_period = |at: &GridCell<'_>| {
        let best = at.best_existing().0;
        let mut periods = PERIODS.into_iter();
        periods
            .find(|p| best == Method::Existing(*p))
            .map_or(0.0, f64::from)
    };
    let long_at_small = [5, 10].map(|share| {
        let hours = quantity(&a(share), best_period);
        measure(
            format!("best L at {share} %"),
            Some(hours),
            Rule::Between(24.0, 24.0),
        )
        .printed(24.0)
        .unit("h")
    });
    let gains_grow = [(5, 10), (10, 20), (20, 30)].map(|(low, high)| {
        let grows = ratio(&a(high), |at| at.gain() / at.at_share(low).gain());
        measure(
            format!("gain over the best existing at {high} % over that at {low} %"),
            Some(grows),
            Rule::Above(1.0),
        )
    });
    let loss = quantity(&a(20), |at| l1(at).total / l1(at).storage - 1.0);
    vec![
        said(
            "best-from-10",
            "Sec. 4.3",
            "A, 10 % and more: proposed is better than existing",
        )
        .found(at_shares(
            from_10,
            Rule::Above(1.0),
            "best proposed over best existing",
            &|at| at.gain(),
        )),
        said(
            "best-c",
            "Sec. 4.3, Fig. 4",
            "A, 10 % and more: C = 20 or 30 % is best",
        )
        .found(at_shares(
            from_10,
            Rule::Above(0.99),
            "better of C = 20 and 30 % over the best C",
            &best_c,
        )),
        said(
            "movement-peak",
            "Sec. 4.3, Fig. 5",
            "A, L = 1 h: movement is largest at 20 %",
        )
        .found(at_shares(
            &[5, 10, 15, 25, 30],
            Rule::Below(1.0),
            "M of L = 1 h over that at 20 %",
            &|at| l1(at).movement / l1(&at.at_share(20)).movement,
        )),
        said(
            "storage-l1",
            "Sec. 4.3",
            "A: storage performance is highest at L = 1 h whatever the fast tier",
        )
        .found(at_shares(
            &FAST_SHARES,
            Rule::Above(0.9999),
            "storage performance of L = 1 h over the best L",
            &|at| l1(at).storage / at.best(existing, storage).1,
        )),
        said(
            "l1-loss-20",
            "Sec. 4.3",
            "A, 20 %, L = 1 h: 17 % less through movement",
        )
        .printed(-0.17)
        .found(vec![
            measure(
                "total over storage performance, minus one",
                Some(loss),
                near(-0.17),
            )
            .printed(-0.17),
        ]),
        said(
            "long-l-at-small",
            "Sec. 4.3",
            "A, 5 and 10 %: the longest period is the best existing one",
        )
        .printed(24.0)
        .note("the paper names \"four hours\", which is not a tested period: it is read as 24")
        .found(long_at_small.into()),
        said("gain-grows", GAINS, "A: the gain grows with the fast tier").found(gains_grow.into()),
    ]
}
