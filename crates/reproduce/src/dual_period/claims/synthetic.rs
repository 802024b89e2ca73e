//! Claims about the synthetic conditions.

use trace::conditions::cumulative_share;

use super::super::grid::{Grid, Value, existing, proposed, storage};
use super::super::setup::FAST_SHARES;
use super::{Claim, Measure, Outlook, Rule, claim, exact, measure, near};

/// The synthetic conditions.
pub(super) fn claims(grid: &Grid) -> Vec<Claim> {
    let gain = |name: &str, share: u8| {
        Value::of_ratio(&grid.at(name, share), |a| {
            a.best_proposed().1 / a.best_existing().1
        })
    };
    let letters = ["B", "C", "D", "E", "F", "G"];
    let each = |cycles: &[&str], rule: Rule| -> Vec<Measure> {
        let names = letters
            .iter()
            .flat_map(|l| cycles.iter().map(move |c| format!("{l}-{c}")));
        names
            .map(|n| {
                measure(
                    format!("{n} at 30 %, best proposed over best existing"),
                    gain(&n, 30),
                    rule,
                )
            })
            .collect()
    };
    let all = letters
        .iter()
        .flat_map(|l| ["1h", "3h", "6h", "12h", "not-move"].map(|c| format!("{l}-{c}")));
    let largest = all
        .flat_map(|n| FAST_SHARES.map(|share| gain(&n, share).mean))
        .fold(0.0, f64::max);
    let storage_gain = |name: &str, share: u8| {
        Value::of_ratio(&grid.at(name, share), |a| {
            a.best(proposed, storage).1 / a.best(existing, storage).1
        })
    };
    let higher_h: Vec<Measure> = letters
        .iter()
        .map(|l| {
            let name = format!("{l}-not-move");
            let ratio = storage_gain(&name, 30).mean / storage_gain(&name, 5).mean;
            measure(
                format!("{name}, storage gain at 30 % over that at 5 %"),
                exact(ratio),
                Rule::Above(1.0),
            )
        })
        .collect();
    let longer_cycle: Vec<Measure> = letters
        .iter()
        .map(|l| {
            let of = |cycle: &str| storage_gain(&format!("{l}-{cycle}"), 30).mean;
            measure(
                format!("{l} at 30 %, storage gain at not-move over that at 1h"),
                exact(of("not-move") / of("1h")),
                Rule::Above(1.0),
            )
        })
        .collect();
    let same_at_5: Vec<Measure> = letters
        .iter()
        .map(|l| {
            let name = format!("{l}-not-move");
            measure(
                format!("{name}, storage gain at 5 %"),
                storage_gain(&name, 5),
                near(1.0),
            )
        })
        .collect();
    let locality = [(0.1, 0.63), (0.2, 0.84), (0.3, 0.95)].map(|(x, published)| {
        measure(
            format!("share of requests on {:.0} % of the pages", 100.0 * x),
            exact(cumulative_share(10.0, x)),
            Rule::Between(published - 0.03, published + 0.03),
        )
    });
    let open = Outlook::Open;
    vec![
        claim(
            "locality",
            "Sec. 4.1, Fig. 3",
            "B: 63, 84 and 95 % of I/Os on 10, 20 and 30 % of the pages",
            None,
            Outlook::Calibrated,
            locality.into(),
        ),
        claim(
            "storage-gain-by-h",
            "Sec. 4.4, Fig. 8",
            "the larger the fast tier, the larger the gain in storage performance",
            None,
            open,
            higher_h,
        ),
        claim(
            "storage-gain-by-cycle",
            "Sec. 4.4, Fig. 8",
            "the longer the cycle, the larger the gain in storage performance",
            None,
            open,
            longer_cycle,
        ),
        claim(
            "storage-gain-at-5",
            "Sec. 4.4, Fig. 8",
            "at 5 % storage performance is that of the existing method",
            None,
            open,
            same_at_5,
        ),
        claim(
            "loses-at-1h",
            "Sec. 4.4, Fig. 9",
            "worse than existing where areas move every hour",
            None,
            open,
            each(&["1h"], Rule::Below(1.0)),
        ),
        claim(
            "wins-elsewhere",
            "Sec. 4.4, Fig. 9",
            "better than existing in all other conditions",
            None,
            open,
            each(&["3h", "6h", "12h", "not-move"], Rule::Above(1.0)),
        ),
        Claim {
            note: "the best existing method on such a load is L = 3 h: it repeats a three-hour log",
            ..claim(
                "b-not-move",
                "Sec. 4.4, Fig. 9",
                "B-not-move: 136 % of existing",
                Some(1.36),
                open,
                vec![measure(
                    "B-not-move at 30 %, best proposed over best existing",
                    gain("B-not-move", 30),
                    near(1.36),
                )],
            )
        },
        Claim {
            note: "\"up to\" is a maximum over conditions that are not named; it is taken over all 30 and all six sizes of the fast tier",
            ..claim(
                "up-to",
                "abstract",
                "up to 30.4 % more than existing",
                Some(1.304),
                open,
                vec![measure(
                    "largest gain over the best existing",
                    exact(largest),
                    Rule::Above(1.304),
                )],
            )
        },
    ]
}
