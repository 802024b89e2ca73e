//! Quality of decisions: comparison of strategies over a suite, as text and as a page.

use decisions::{
    Ablation, Comparison, HarmTotals, NOOP, RatioInterval, ScenarioRow, Spread, StrategyRow,
    StrategyTotals, Variant,
};

use crate::document::{Block, Cell, Document, Section, Tone};
use crate::format::{NONE, change, fixed, maybe};
use crate::tables::{Column, number, words};

/// Renders the comparison for a terminal.
pub fn decisions(comparison: &Comparison) -> String {
    document(comparison, false).text()
}

/// Renders the comparison as one page, with all numbers of all scenarios.
pub fn decisions_page(comparison: &Comparison) -> String {
    document(comparison, true).page()
}

/// Renders the comparison of a strategy with its variants for a terminal.
pub fn ablation(a: &Ablation) -> String {
    let seeds: Vec<String> = a.seeds.iter().map(u64::to_string).collect();
    let columns = vec![
        words("change"),
        number("V/V", "without change"),
        number("V", "weighted s"),
        number("moves", ""),
        number("copied data", "GiB"),
        number("returns", "all runs"),
        words("best scenario"),
        words("worst scenario"),
    ];
    let most = |of: &Option<(String, f64)>| match of {
        Some((scenario, ratio)) => format!("{scenario} {}", fixed(*ratio, 2)),
        None => NONE.into(),
    };
    let row = |v: &Variant| -> Vec<Cell> {
        vec![
            v.change.clone().into(),
            ratio_cell(v.ratio),
            fixed(v.violation, 0).into(),
            fixed(v.moves, 1).into(),
            fixed(v.gib, 1).into(),
            v.returns.to_string().into(),
            most(&v.helps).into(),
            most(&v.harms).into(),
        ]
    };
    let text = "V/V is the geometric mean of V with the change divided by V without it, with its 95 % interval. Above 1 the change is harmful. \
                V, moves and bytes are per seed over all scenarios.";
    let document = Document {
        title: format!("Effect of the parts of {}, over {}", a.strategy, a.suite),
        facts: vec![
            ("scenarios".into(), a.scenarios.to_string()),
            ("seeds".into(), seeds.join(", ")),
            ("version".into(), a.version.clone()),
        ],
        sections: vec![Section {
            id: "variants".into(),
            title: "Variants".into(),
            blocks: vec![
                Block::Text(text.into()),
                Block::Table(columns, a.variants.iter().map(row).collect()),
            ],
        }],
    };
    document.text()
}

fn document(c: &Comparison, whole: bool) -> Document {
    let seeds: Vec<String> = c.seeds.iter().map(u64::to_string).collect();
    let guards = c.scenarios.iter().filter(|s| s.guard).count();
    let mut sections = vec![over_all(c), harm(c), by_scenario(c)];
    if whole {
        sections.extend(c.scenarios.iter().enumerate().map(|(i, s)| one(i, s)));
    }
    let mut facts: Vec<(String, String)> = vec![];
    facts.extend(verdict(c).map(|verdict| ("verdict".to_owned(), verdict)));
    facts.extend([
        (
            "scenarios".to_owned(),
            format!("{} contests, {guards} guards", c.scenarios.len() - guards),
        ),
        ("seeds".to_owned(), seeds.join(", ")),
        ("version".to_owned(), c.version.clone()),
    ]);
    Document {
        title: format!("Quality of decisions over {}", c.suite),
        facts,
        sections,
    }
}

/// Returns the strategy with the least violation over all scenarios, relative to `noop`; `None` without a strategy that ran in
/// all scenarios.
fn verdict(c: &Comparison) -> Option<String> {
    let violation = |strategy: &str| -> Option<f64> {
        let of = |s: &ScenarioRow| {
            let row = s.strategies.iter().find(|r| r.strategy == strategy)?;
            Some(row.violation)
        };
        c.scenarios.iter().map(of).sum()
    };
    let known = c.totals.iter();
    let known = known.filter_map(|t| Some((t, violation(&t.strategy)?)));
    let (best, least) = known.min_by(|a, b| a.1.total_cmp(&b.1))?;
    let mut text = format!(
        "{} has the lowest SLO violation, {} s (class-weighted, per seed over all scenarios)",
        best.strategy,
        fixed(least, 0)
    );
    let noop = c.totals.iter().find(|t| t.strategy == NOOP);
    if let Some((noop, base)) = noop.zip(violation(NOOP))
        && best.strategy != NOOP
    {
        text += &format!(
            ", {} relative to noop, and copies {} GiB per seed (noop: {} GiB)",
            change(base, least),
            fixed(best.gib, 1),
            fixed(noop.gib, 1)
        );
    }
    let own = c.totals.iter().find(|t| t.strategy == c.own);
    if let Some(interval) = own.and_then(|t| t.ratio) {
        text += &format!(
            ". V/B of {}, its violation relative to the best rival of each scenario, is {} (95 % interval)",
            c.own,
            ratio(Some(interval))
        );
    }
    Some(text)
}

pub(crate) fn ratio(r: Option<RatioInterval>) -> String {
    r.map_or_else(
        || NONE.into(),
        |r| {
            let [at, low, high] = [r.ratio, r.ci95_low, r.ci95_high].map(|x| fixed(x, 2));
            format!("{at} [{low}, {high}]")
        },
    )
}

fn toned(text: String, good: bool, bad: bool) -> Cell {
    let tone = match (good, bad) {
        (true, _) => Tone::Good,
        (_, true) => Tone::Bad,
        _ => Tone::Plain,
    };
    Cell { text, tone }
}

fn ratio_cell(r: Option<RatioInterval>) -> Cell {
    let good = r.is_some_and(|r| r.ci95_high < 1.0);
    let bad = r.is_some_and(|r| r.ci95_low > 1.0);
    toned(ratio(r), good, bad)
}

pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| NONE.into(), |s| format!("{} %", fixed(100.0 * s, 0)))
}

fn over_all(c: &Comparison) -> Section {
    let columns = vec![
        words("strategy"),
        number("V/B", "contests"),
        number("V/B", "bounded"),
        number("gain", "share of H's"),
        number("losses", "contests"),
        number("moves", "per seed"),
        number("copied data", "GiB per seed"),
        number("returns", "all runs"),
        number("caused returns", "all runs"),
        number("moves", "in guards"),
        number("V above noop", "s, in guards"),
        number("in interval", "of predicted"),
        number("above it", "of predicted"),
        number("interval width", "of predicted"),
        number("prediction error", "median"),
    ];
    let row = |t: &StrategyTotals| -> Vec<Cell> {
        let share =
            |n: u64| percent((t.with_interval > 0).then(|| n as f64 / t.with_interval as f64));
        vec![
            t.strategy.clone().into(),
            ratio_cell(t.ratio),
            ratio_cell(t.ratio_bounded),
            percent(t.gained).into(),
            t.lost.len().to_string().into(),
            fixed(t.moves, 1).into(),
            fixed(t.gib, 1).into(),
            t.returns.to_string().into(),
            t.returns_caused.to_string().into(),
            t.guard_moves.to_string().into(),
            maybe(t.guard_violation, 0).into(),
            share(t.held).into(),
            share(t.worse).into(),
            percent(t.width).into(),
            percent(t.error_median).into(),
        ]
    };
    let lost = c
        .totals
        .iter()
        .filter(|t| t.strategy == c.own && !t.lost.is_empty());
    let lost: Vec<String> = lost
        .map(|t| {
            format!(
                "{} is worse than the best rival in: {}.",
                t.strategy,
                t.lost.join(", ")
            )
        })
        .collect();
    Section {
        id: "all".into(),
        title: "All scenarios".into(),
        blocks: vec![
            Block::Text(
                "V is the time in which objectives are violated, in seconds weighted by class. B is the V of the best rival of each \
                 scenario. V/B is the geometric mean of (V+ε)/(B+ε) over all contests, with its 95 % interval; below 1 the strategy is \
                 better than its best rival. For \"bounded\", B is the best rival that makes no volume without an objective more than twice \
                 as slow as noop. H is the V of the best plan in hindsight. In guards, no strategy violates less than noop. Moves and bytes \
                 are per seed over all scenarios. A return is a move back to a tier that was left within 20 epochs; a caused one follows a \
                 change of load."
                    .into(),
            ),
            Block::Table(columns, c.totals.iter().map(row).collect()),
            Block::List(lost),
        ],
    }
}

/// Slowdown of volumes against `noop`, of each strategy that was compared with it.
fn harm(c: &Comparison) -> Section {
    let mut columns = vec![
        words("strategy"),
        words("volumes"),
        number("volume-runs", ""),
    ];
    for statistic in ["mean", "p99", "mean, 10 min", "p99, 10 min"] {
        columns.push(number(statistic, "worst"));
        columns.push(number(statistic, "≤ 2x"));
        columns.push(number(statistic, "≤ 3x"));
    }
    let row = |t: &StrategyTotals, kind: &str, of: &Option<HarmTotals>| -> Option<Vec<Cell>> {
        let of = of.as_ref()?;
        let mut cells: Vec<Cell> = vec![
            t.strategy.clone().into(),
            kind.into(),
            of.volume_runs.to_string().into(),
        ];
        cells.extend(spreads(of).into_iter().map(Cell::from));
        Some(cells)
    };
    let rows = |t: &StrategyTotals| {
        [
            row(t, "with an objective", &t.harm_with_objective),
            row(t, "without", &t.harm_without_objective),
        ]
    };
    Section {
        id: "harm".into(),
        title: "Harm".into(),
        blocks: vec![
            Block::Text(
                "Latency over that under noop with the same seed, for each volume with at least 1,000 requests in a run: of the whole run, \
                 and of its worst ten minutes. Shares are of volume-runs at most two and three times as slow."
                    .into(),
            ),
            Block::Table(columns, c.totals.iter().flat_map(rows).flatten().collect()),
        ],
    }
}

/// Cells of the harm to one kind of volumes: worst, shares within 2x and within 3x, of each statistic.
pub(crate) fn spreads(of: &HarmTotals) -> Vec<String> {
    let cells = |spread: &Spread| {
        let worst = format!("{}x", fixed(spread.worst, 1));
        [worst, share(spread.within_2x), share(spread.within_3x)]
    };
    let all = [&of.mean, &of.p99, &of.mean_worst, &of.p99_worst];
    all.into_iter().flat_map(cells).collect()
}

/// A share in percent with one decimal: 99.4 is not 99.
pub(crate) fn share(of: f64) -> String {
    format!("{} %", fixed(100.0 * of, 1))
}

fn by_scenario(c: &Comparison) -> Section {
    let names: Vec<&String> = c.totals.iter().map(|t| &t.strategy).collect();
    let fixed_columns = [
        words("scenario"),
        number("largest possible V", "s"),
        number("V without contention", "s"),
        number("H", "s"),
    ];
    let mut columns: Vec<Column> = fixed_columns.into();
    columns.extend(names.iter().map(|n| Column {
        name: (*n).clone().into(),
        ..number("", "s")
    }));
    columns.extend([number("V/B", ""), number("of H's gain", "")]);
    let row = |s: &ScenarioRow| -> Vec<Cell> {
        let own = s.strategies.iter().find(|r| r.strategy == c.own);
        let mut cells: Vec<Cell> = vec![
            match s.guard {
                true => format!("{} (guard)", s.scenario).into(),
                false => s.scenario.clone().into(),
            },
            fixed(s.possible, 0).into(),
            maybe(s.solo, 0).into(),
            maybe(s.hindsight, 0).into(),
        ];
        cells.extend(names.iter().map(|name| {
            let of = s.strategies.iter().find(|r| r.strategy == **name);
            let text = maybe(of.map(|r| r.violation), 0);
            toned(text, **name == s.rival, false)
        }));
        let own_ratio = own.and_then(|o| o.ratio);
        cells.push(ratio_cell(own_ratio));
        cells.push(percent(own.and_then(|o| o.gained)).into());
        cells
    };
    Section {
        id: "scenarios".into(),
        title: "By scenario".into(),
        blocks: vec![
            Block::Text(format!(
                "V by strategy, as mean over seeds. H is the V of the best plan found in hindsight. V without contention is the violation \
                 if every volume had its best tier to itself (optimistic). The last two columns are for {}.",
                c.own
            )),
            Block::Table(columns, c.scenarios.iter().map(row).collect()),
        ],
    }
}

fn one(i: usize, s: &ScenarioRow) -> Section {
    let mut columns = vec![
        words("strategy"),
        number("V", "s"),
        number("excess", "s"),
        number("V/B", ""),
        number("moves", ""),
        number("copied data", "GiB"),
        number("returns", ""),
        number("moves above interval", ""),
        number("latency without SLO", "vs noop"),
    ];
    let first = s.strategies.first().and_then(|r| r.runs.first());
    let classes: Vec<String> = first.map_or(vec![], |j| {
        j.classes.iter().map(|c| c.class.clone()).collect()
    });
    for class in &classes {
        for statistic in ["mean", "p99"] {
            columns.push(Column {
                name: format!("{class} {statistic}").into(),
                ..number("", crate::format::MICROS)
            });
        }
    }
    let row = |r: &StrategyRow| -> Vec<Cell> {
        let mut cells: Vec<Cell> = vec![
            r.strategy.clone().into(),
            toned(fixed(r.violation, 0), r.strategy == s.rival, false),
            fixed(r.excess, 0).into(),
            ratio_cell(r.ratio),
            fixed(r.moves, 1).into(),
            fixed(r.gib, 2).into(),
            fixed(r.returns, 1).into(),
            fixed(r.worse, 1).into(),
            maybe(r.free_mean, 2).into(),
        ];
        for class in 0..classes.len() {
            let of = |value: fn(&decisions::ClassJudged) -> Option<f64>| {
                let values: Option<Vec<f64>> = r
                    .runs
                    .iter()
                    .map(|j| value(j.classes.get(class)?))
                    .collect();
                let values = values.filter(|v| !v.is_empty());
                maybe(values.map(|v| v.iter().sum::<f64>() / v.len() as f64), 0)
            };
            cells.push(of(|c| c.mean_us).into());
            cells.push(of(|c| c.p99_us).into());
        }
        cells
    };
    Section {
        id: format!("scenario-{i}"),
        title: s.scenario.clone(),
        blocks: vec![Block::Table(
            columns,
            s.strategies.iter().map(row).collect(),
        )],
    }
}
