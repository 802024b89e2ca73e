//! Summary of all reproductions: number of claims that agree in every reading, in some, in none.

use report::{Block, Cell, Document, number, words};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::claim::{ClaimResult, Outlook, Tally};
use crate::page::section;
use crate::{autotiering, dual_period, dynamite, ops_isolation, priority_lru};

/// Name and version of the layout.
pub const SCHEMA: &str = "terrace.reproduce.summary/1";

/// Part of an outcome that is read, for any paper.
#[derive(Debug, Clone, Deserialize)]
pub struct OutcomeRead {
    schema: String,
    version: String,
    setup: Value,
    readings: Vec<Value>,
    claims: Vec<ClaimRead>,
}

#[derive(Debug, Clone, Deserialize)]
struct ClaimRead {
    id: String,
    source: String,
    says: String,
    standing: ClaimResult,
    outlook: Outlook,
    decided_by: Vec<String>,
    readings: Vec<Value>,
}

impl ClaimRead {
    /// Returns true if the claim has the same result and the same numbers in several readings.
    fn has_same_numbers(&self) -> bool {
        let measures = |r: &Value| r.get("measures").cloned();
        let first = self.readings.first().and_then(measures);
        matches!(self.standing, ClaimResult::Every | ClaimResult::None)
            && self.readings.len() > 1
            && first.is_some()
            && self.readings.iter().all(|r| measures(r) == first)
    }
}

/// Reason that the JSON of an outcome cannot be read.
#[derive(Debug, Error)]
pub enum OutcomeError {
    /// The JSON names no layout.
    #[error("schema: missing; use the JSON outcome of an experiment")]
    NoSchema,
    /// The layout cannot be read.
    #[error("schema: {found:?} must be one of {known}")]
    Schema {
        /// Layout of the JSON.
        found: String,
        /// Layouts that can be read.
        known: String,
    },
    /// The JSON does not have its layout.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Layouts of outcomes that can be read.
const OUTCOMES: [&str; 5] = [
    autotiering::SCHEMA,
    dual_period::SCHEMA,
    priority_lru::SCHEMA,
    ops_isolation::SCHEMA,
    dynamite::SCHEMA,
];

impl OutcomeRead {
    /// Reads the JSON of an outcome.
    ///
    /// # Errors
    /// [`OutcomeError`].
    pub fn of(json: Value) -> Result<Self, OutcomeError> {
        let schema = json.get("schema").and_then(Value::as_str);
        let schema = schema.ok_or(OutcomeError::NoSchema)?;
        if !OUTCOMES.contains(&schema) {
            let (found, known) = (schema.into(), OUTCOMES.join(", "));
            return Err(OutcomeError::Schema { found, known });
        }
        Ok(serde_json::from_value(json)?)
    }
}

/// Summary of one paper.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Paper {
    /// Short name, as in its command.
    pub paper: String,
    /// Version of the program that ran it.
    pub version: String,
    /// Number of seeds.
    pub seeds: usize,
    /// Size of the run: the numbers of its setup.
    pub run: String,
    /// Number of readings.
    pub readings: usize,
    /// Its claims.
    #[serde(flatten)]
    pub tally: Tally,
    /// Claims that agree in every reading and for which nothing was calibrated or designed.
    pub every_open: usize,
    /// Claims that agree in every reading, or in none, with the same numbers in several readings: the readings do not
    /// affect them.
    pub same_numbers: usize,
    /// Claims that do not agree everywhere, in words, with the deciding choices.
    pub open_points: Vec<Point>,
}

/// Claim that does not agree in every reading.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Short name.
    pub id: String,
    /// Place of publication.
    pub source: String,
    /// Claim in words.
    pub says: String,
    /// Result over all readings.
    pub standing: ClaimResult,
    /// Choices that decide it.
    pub decided_by: Vec<String>,
}

/// Summary of all papers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Summaries of the papers.
    pub papers: Vec<Paper>,
    /// Total of all papers.
    pub all: Tally,
}

impl Summary {
    /// Creates the summary from outcomes written with `-o json`.
    ///
    /// # Errors
    /// Index of an outcome whose paper occurs twice, and the reason.
    pub fn new(outcomes: &[OutcomeRead]) -> Result<Self, (usize, String)> {
        let mut papers: Vec<Paper> = Vec::new();
        for (i, outcome) in outcomes.iter().enumerate() {
            let paper = paper(outcome);
            if papers.iter().any(|p| p.paper == paper.paper) {
                return Err((i, format!("{} is given twice", paper.paper)));
            }
            papers.push(paper);
        }
        let mut all = Tally::default();
        for t in papers.iter().map(|p| p.tally) {
            all.claims += t.claims;
            all.every += t.every;
            all.every_of_one += t.every_of_one;
            all.some += t.some;
            all.none += t.none;
            all.undecided += t.undecided;
        }
        Ok(Self {
            schema: SCHEMA,
            papers,
            all,
        })
    }

    /// Returns the summary as tables.
    pub fn document(&self) -> Document {
        let counts =
            |name: &str, readings: String, t: &Tally, (open, same): (usize, usize)| -> Vec<Cell> {
                let mut row: Vec<Cell> = vec![name.into(), readings.into()];
                row.extend([t.claims, t.every].map(|n| Cell::from(n.to_string())));
                row.push(open.to_string().into());
                row.push(t.every_of_one.to_string().into());
                row.extend([t.some, t.none, t.undecided, same].map(|n| Cell::from(n.to_string())));
                row
            };
        let columns = vec![
            words("paper"),
            number("readings", ""),
            number("claims", ""),
            number("in every reading", ""),
            number("of these unbiased", ""),
            number("of these tested in one", ""),
            number("in some", ""),
            number("in none", ""),
            number("undecided", ""),
            number("every or none, same numbers", ""),
        ];
        let of = |p: &Paper| {
            let besides = (p.every_open, p.same_numbers);
            counts(&p.paper, p.readings.to_string(), &p.tally, besides)
        };
        let mut rows: Vec<_> = self.papers.iter().map(of).collect();
        let open = self.papers.iter().map(|p| p.every_open).sum();
        let same = self.papers.iter().map(|p| p.same_numbers).sum();
        rows.push(counts("all", String::new(), &self.all, (open, same)));
        let run = vec![
            words("paper"),
            number("seeds", ""),
            words("run"),
            words("version"),
        ];
        let run_of = |p: &Paper| -> Vec<Cell> {
            let seeds = p.seeds.to_string();
            [&p.paper, &seeds, &p.run, &p.version]
                .map(|c| c.as_str().into())
                .into()
        };
        let points = vec![
            words("paper"),
            words("claim"),
            words("source"),
            words("published"),
            words("agrees"),
            words("decided by"),
        ];
        let points_of = self.papers.iter().flat_map(|p| {
            p.open_points.iter().map(|c| -> Vec<Cell> {
                vec![
                    p.paper.as_str().into(),
                    c.id.as_str().into(),
                    c.source.as_str().into(),
                    c.says.as_str().into(),
                    c.standing.name().into(),
                    c.decided_by.join(", ").into(),
                ]
            })
        });
        Document {
            title: "The papers' claims".into(),
            facts: vec![],
            sections: vec![
                section("claims", "Agreement of claims", vec![
                    Block::Text("A reading is one setup of an experiment that the paper's text permits. \"Unbiased\" claims are neither calibrated nor designed: no stand-in and no rule of ours was chosen for them. Last column: if all readings that test a claim have the same numbers, they count as one reading of it.".into()),
                    Block::Table(columns, rows),
                    Block::Text("Extent of the runs: a short run has the same claims and wider intervals.".into()),
                    Block::Table(run, self.papers.iter().map(run_of).collect()),
                ]),
                section("points", "Claims that do not agree in every reading", vec![
                    Block::Text("\"Decided by\": a choice that separates the readings in which the claim agrees from the readings in which it disagrees. \"In no reading\" indicates a property of the paper or a common property of our readings. A claim that agrees in some readings is not a finding about the paper.".into()),
                    Block::Table(points, points_of.collect()),
                ]),
            ],
        }
    }
}

/// Lists the numbers of a setup, including those of its parts.
fn numbers(setup: &Value) -> String {
    let mut all = Vec::new();
    for (name, value) in setup.as_object().into_iter().flatten() {
        match value {
            Value::Number(n) => all.push(format!("{name} {n}")),
            Value::Object(_) if name == "scale" => all.push(numbers(value)),
            _ => {}
        }
    }
    all.join(", ")
}

fn paper(outcome: &OutcomeRead) -> Paper {
    let name = outcome.schema.rsplit(['.', '/']).nth(1).unwrap_or_default();
    let every = |c: &&ClaimRead| c.standing == ClaimResult::Every;
    let point = |c: &ClaimRead| Point {
        id: c.id.clone(),
        source: c.source.clone(),
        says: c.says.clone(),
        standing: c.standing,
        decided_by: c.decided_by.clone(),
    };
    Paper {
        paper: name.into(),
        version: outcome.version.clone(),
        seeds: outcome.setup["seeds"].as_array().map_or(0, Vec::len),
        run: numbers(&outcome.setup),
        readings: outcome.readings.len(),
        tally: Tally::new(
            outcome
                .claims
                .iter()
                .map(|c| (c.standing, c.readings.len())),
        ),
        every_open: {
            let claims = outcome.claims.iter().filter(every);
            claims.filter(|c| c.outlook == Outlook::Open).count()
        },
        same_numbers: outcome
            .claims
            .iter()
            .filter(|c| c.has_same_numbers())
            .count(),
        open_points: {
            let claims = outcome.claims.iter();
            claims.filter(|c| !every(c)).map(point).collect()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{ClaimFinding, Reading, Rule, Scorecard, measure, said};

    fn reading(id: &str) -> Reading {
        Reading {
            id: id.into(),
            says: "as it is".into(),
            choices: vec![],
        }
    }

    /// Returns a claim that requires a positive value.
    fn found(id: &'static str, ours: f64) -> ClaimFinding {
        said(id, "Fig. 1", "words").found(vec![measure("m", Some(ours.into()), Rule::Above(0.0))])
    }

    #[test]
    fn claims_independent_of_readings_are_counted_separately() {
        let of = |b: f64| vec![found("a", 1.0), found("b", b), found("c", -1.0)];
        let card = Scorecard::new(vec![(reading("one"), of(1.0)), (reading("two"), of(2.0))]);
        let mut written = serde_json::to_value(card).unwrap();
        (written["version"], written["setup"]) = ("1".into(), serde_json::json!({"seeds": [1]}));
        written["schema"] = dynamite::SCHEMA.into();
        let summary = Summary::new(&[OutcomeRead::of(written).unwrap()]).unwrap();
        // a agrees and c disagrees with the same number in both readings; b agrees with different numbers.
        assert_eq!((summary.all.every, summary.all.none), (2, 1));
        assert_eq!(summary.papers[0].same_numbers, 2);
    }

    #[test]
    fn written_outcome_is_read_and_counted() {
        let card = Scorecard::new(vec![(
            reading("one"),
            vec![found("a", 1.0), found("b", -1.0)],
        )]);
        let mut written = serde_json::to_value(card).unwrap();
        written["version"] = "1.2.3".into();
        written["setup"] =
            serde_json::json!({"seeds": [1, 2], "days": 3, "scale": {"hours": 24}, "names": ["x"]});
        let with = |schema: &str| {
            let mut written = written.clone();
            written["schema"] = schema.into();
            OutcomeRead::of(written)
        };
        let read = [dual_period::SCHEMA, dynamite::SCHEMA].map(|s| with(s).unwrap());
        let summary = Summary::new(&read).unwrap();
        assert_eq!(summary.all.claims, 4);
        let all = summary.all;
        assert_eq!((all.every, all.every_of_one, all.none), (2, 2, 2));
        let paper = &summary.papers[0];
        assert_eq!(paper.paper, "dual-period");
        assert_eq!(paper.open_points[0].id, "b");
        assert_eq!((paper.seeds, &paper.run[..]), (2, "days 3, hours 24"));
        let twice = [read[0].clone(), read[1].clone(), read[0].clone()];
        assert_eq!(
            Summary::new(&twice).unwrap_err(),
            (2, "dual-period is given twice".into())
        );
        for other in [
            "terrace.sim.run/1",
            "terrace.reproduce./1",
            "terrace.reproduce.dynamite/1",
            SCHEMA,
        ] {
            let why = with(other).unwrap_err().to_string();
            assert!(why.starts_with("schema: ") && why.contains(other), "{why}");
        }
        let why = OutcomeRead::of(serde_json::json!([])).unwrap_err();
        let why = why.to_string();
        assert!(why.starts_with("schema: missing"), "{why}");
    }
}
