//! Common parts of the documents of all reproductions: readings, claims and their numbers.

use report::{Block, Cell, Section, Tone, number, words};

use crate::claim::{
    Claim, ClaimResult, Measure, Reading, ReadingResult, Rule, Scorecard, Tally, Value, Verdict,
};

/// Part of a document.
pub(crate) fn section(id: &str, title: &str, blocks: Vec<Block>) -> Section {
    Section {
        id: id.into(),
        title: title.into(),
        blocks,
    }
}

/// First parts of every document: claims with their results, and the readings that were run.
pub(crate) fn scorecard(card: &Scorecard) -> Vec<Section> {
    let Scorecard {
        readings,
        tally: t,
        claims,
    } = card;
    vec![
        section("claims", "Claims", vec![
            Block::Text(tally(t)),
            Block::Text("A claim agrees in a reading if the 95 % interval over the seeds satisfies the rule in all its measures (for \"any\": in one measure). It disagrees if a whole interval violates the rule; otherwise it is undecided. \"Calibrated\": a stand-in for unpublished data was selected for the claim, so agreement confirms nothing. \"Designed\": a rule of ours was chosen for the claim.".into()),
            overview(claims),
            Block::List(claims.iter().filter(|c| !c.said.note.is_empty()).map(|c| format!("{}: {}", c.said.id, c.said.note)).collect()),
        ]),
        section("readings", "Readings", vec![of_readings(readings)]),
    ]
}

/// Last part of every document: every measure of every claim, reading by reading.
pub(crate) fn numbers(claims: &[Claim]) -> Section {
    let columns = vec![
        words("claim"),
        words("reading"),
        words("measure"),
        words("published"),
        words("rule"),
        words("ours"),
        words("verdict"),
    ];
    let mut rows = Vec::new();
    for claim in claims {
        for reading in &claim.readings {
            for m in &reading.measures {
                rows.push(vec![
                    claim.said.id.into(),
                    reading.reading.as_str().into(),
                    m.name.as_str().into(),
                    m.published.map_or_else(|| "-".into(), short).into(),
                    rule(m.rule).into(),
                    ours(m).into(),
                    verdict_cell(m.verdict, ""),
                ]);
            }
        }
    }
    section("numbers", "All numbers", vec![Block::Table(columns, rows)])
}

/// Text of a tally: "Of N claims, …".
fn tally(t: &Tally) -> String {
    let of_one = match t.every_of_one {
        0 => String::new(),
        n => format!(" ({n} of them tested in one reading only)"),
    };
    format!(
        "Of {} claims {} agree in every reading that tests them{of_one}, {} in some, {} in none; {} are undecided.",
        t.claims, t.every, t.some, t.none, t.undecided
    )
}

fn overview(claims: &[Claim]) -> Block {
    let columns = vec![
        words("claim"),
        words("source"),
        words("published"),
        words("agrees"),
        number("readings", "+/−/?"),
        words("decided by"),
        words("ours, first reading"),
    ];
    let row = |c: &Claim| -> Vec<Cell> {
        let count = |v: Verdict| c.readings.iter().filter(|r| r.verdict == v).count();
        let tone = match c.standing {
            ClaimResult::Every => Tone::Good,
            ClaimResult::None => Tone::Bad,
            ClaimResult::Some | ClaimResult::Undecided => Tone::Plain,
        };
        vec![
            c.said.id.into(),
            c.said.source.into(),
            c.said.says.into(),
            Cell {
                text: format!("{}{}", c.standing.name(), c.said.outlook.mark()),
                tone,
            },
            format!(
                "{}/{}/{}",
                count(Verdict::Agrees),
                count(Verdict::Disagrees),
                count(Verdict::Undecided)
            )
            .into(),
            c.decided_by.join(", ").into(),
            c.readings.first().map_or_else(String::new, found).into(),
        ]
    };
    Block::Table(columns, claims.iter().map(row).collect())
}

fn of_readings(readings: &[Reading]) -> Block {
    let mut columns = vec![words("reading"), words("interpretation of the paper")];
    let names = readings.first().map_or(&[][..], |r| &r.choices);
    columns.extend(names.iter().map(|(name, _)| words(name)));
    let row = |r: &Reading| -> Vec<Cell> {
        let mut row: Vec<Cell> = vec![r.id.as_str().into(), r.says.as_str().into()];
        row.extend(r.choices.iter().map(|(_, v)| Cell::from(v.as_str())));
        row
    };
    Block::Table(columns, readings.iter().map(row).collect())
}

/// Cell with a coloured verdict and the significance of agreement.
pub(crate) fn verdict_cell(verdict: Verdict, outlook: &str) -> Cell {
    Cell {
        text: format!("{}{outlook}", verdict.name()),
        tone: match verdict {
            Verdict::Agrees => Tone::Good,
            Verdict::Disagrees => Tone::Bad,
            Verdict::Undecided => Tone::Plain,
        },
    }
}

/// Text of a result: one measure in full, several as a count with the extremes.
fn found(reading: &ReadingResult) -> String {
    let measures = &reading.measures;
    if let [one] = &measures[..] {
        return format!("{} ({})", ours(one), rule(one.rule));
    }
    let count = |v: Verdict| measures.iter().filter(|m| m.verdict == v).count();
    let means = measures.iter().filter_map(|m| m.ours.map(|v| v.mean));
    let low = means.clone().fold(f64::INFINITY, f64::min);
    let high = means.fold(f64::NEG_INFINITY, f64::max);
    format!(
        "{} of {}, {} against; {} to {}",
        count(Verdict::Agrees),
        measures.len(),
        count(Verdict::Disagrees),
        short(low),
        short(high)
    )
}

fn ours(measure: &Measure) -> String {
    let text = measure.ours.map_or_else(|| "-".into(), |v| value(&v));
    match measure.unit {
        "" => text,
        unit => format!("{text} {unit}"),
    }
}

fn rule(rule: Rule) -> String {
    match rule {
        Rule::Above(x) => format!("> {}", short(x)),
        Rule::Below(x) => format!("< {}", short(x)),
        Rule::Between(low, high) if low == high => format!("= {}", short(low)),
        Rule::Between(low, high) => format!("{} … {}", short(low), short(high)),
    }
}

/// Text of a value with half of its interval, or with both ends if they are not symmetric (ratios), with a suitable
/// number of digits.
pub(crate) fn value(v: &Value) -> String {
    let digits = digits(v.mean);
    let text = |x: f64| {
        let text = format!("{x:.digits$}");
        match text.trim_start_matches(['-', '0', '.']).is_empty() {
            true => text.trim_start_matches('-').into(),
            false => text,
        }
    };
    let Some(i) = v.interval else {
        return short(v.mean);
    };
    let (below, above) = (v.mean - i.ci95_low, i.ci95_high - v.mean);
    match text(below) == text(above) || (below - above).abs() < LOPSIDED * (below + above) {
        true => format!("{} ± {}", text(v.mean), text(i.half())),
        false => format!(
            "{} [{}, {}]",
            text(v.mean),
            text(i.ci95_low),
            text(i.ci95_high)
        ),
    }
}

/// Asymmetry of an interval, relative to its width, above which both ends are printed.
const LOPSIDED: f64 = 0.05;

fn digits(x: f64) -> usize {
    match x.abs() {
        x if x < 10.0 => 3,
        x if x < 1000.0 => 1,
        _ => 0,
    }
}

fn short(x: f64) -> String {
    let digits = digits(x) + usize::from(x != 0.0 && x.abs() < 1.0);
    let text = format!("{:.digits$}", if x.abs() < 5e-5 { 0.0 } else { x });
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interval;

    #[test]
    fn intervals_show_both_ends_if_asymmetric() {
        let of = |mean, ci95_low, ci95_high| {
            let n = 5;
            value(&Value::from(Interval {
                mean,
                ci95_low,
                ci95_high,
                n,
            }))
        };
        assert_eq!(of(0.25, 0.2, 0.3), "0.250 ± 0.050");
        assert_eq!(of(69.3, 5.0, 350.0), "69.3 [5.0, 350.0]");
        assert_eq!(of(-1e-15, -2e-15, 1e-15), "0.000 ± 0.000");
        assert_eq!(value(&Value::from(-1e-15)), "0");
        assert_eq!(value(&Value::from(0.0345)), "0.0345");
    }
}
