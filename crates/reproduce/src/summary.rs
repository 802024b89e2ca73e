//! All reproductions beside each other: of so many claims, how many agree in every reading, in some, in none.

use report::{Cell, Document, number, words};
use serde::{Deserialize, Serialize};

use crate::claim::{Outlook, Standing, Tally};
use crate::page::section;
use report::Block;

/// Name and version of the layout.
pub const SCHEMA: &str = "terrace.reproduce.summary/1";

/// What is read of an outcome, whichever paper it is of.
#[derive(Debug, Clone, Deserialize)]
pub struct OutcomeRead {
    schema: String,
    readings: Vec<ReadingRead>,
    claims: Vec<ClaimRead>,
}

#[derive(Debug, Clone, Deserialize)]
struct ReadingRead {}

#[derive(Debug, Clone, Deserialize)]
struct ClaimRead {
    id: String,
    source: String,
    says: String,
    standing: Standing,
    outlook: Outlook,
    decided_by: Vec<String>,
}

/// One paper.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Paper {
    /// Short name: that of its command.
    pub paper: String,
    /// Readings.
    pub readings: usize,
    /// Its claims.
    #[serde(flatten)]
    pub tally: Tally,
    /// Those of them, agreeing in every reading, for which nothing was calibrated or designed.
    pub every_open: usize,
    /// Claims that do not agree everywhere, in words, with what decides them.
    pub open_points: Vec<Point>,
}

/// A claim that does not agree in every reading.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Short name.
    pub id: String,
    /// Where it is published.
    pub source: String,
    /// In words.
    pub says: String,
    /// How it stands.
    pub standing: Standing,
    /// The choices that decide it.
    pub decided_by: Vec<String>,
}

/// All papers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Paper by paper.
    pub papers: Vec<Paper>,
    /// All of them together.
    pub all: Tally,
}

impl Summary {
    /// Of outcomes as they were written with `-o json`.
    ///
    /// # Errors
    /// The index of one that is not a reproduction's, and why.
    pub fn new(outcomes: &[OutcomeRead]) -> Result<Self, (usize, String)> {
        let papers = outcomes.iter().enumerate();
        let papers: Vec<Paper> = papers
            .map(|(i, o)| paper(o).map_err(|why| (i, why)))
            .collect::<Result<_, _>>()?;
        let mut all = Tally::default();
        for t in papers.iter().map(|p| p.tally) {
            all.claims += t.claims;
            all.every += t.every;
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

    /// Tables.
    pub fn document(&self) -> Document {
        let counts = |name: &str, readings: String, t: &Tally, open: String| -> Vec<Cell> {
            let mut row: Vec<Cell> = vec![name.into(), readings.into()];
            row.extend([t.claims, t.every].map(|n| Cell::from(n.to_string())));
            row.push(open.into());
            row.extend([t.some, t.none, t.undecided].map(|n| Cell::from(n.to_string())));
            row
        };
        let columns = vec![
            words("paper"),
            number("readings", ""),
            number("claims", ""),
            number("in every reading", ""),
            number("of these open", ""),
            number("in some", ""),
            number("in none", ""),
            number("undecided", ""),
        ];
        let of = |p: &Paper| {
            let open = p.every_open.to_string();
            counts(&p.paper, p.readings.to_string(), &p.tally, open)
        };
        let mut rows: Vec<_> = self.papers.iter().map(of).collect();
        let open: usize = self.papers.iter().map(|p| p.every_open).sum();
        rows.push(counts("all", String::new(), &self.all, open.to_string()));
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
                section("claims", "How many claims agree", vec![
                    Block::Text("A reading is one way to set an experiment up that the paper's words allow. \"Open\" are claims for which no stand-in was selected and no rule of ours chosen.".into()),
                    Block::Table(columns, rows),
                ]),
                section("points", "Claims that do not agree in every reading", vec![
                    Block::Text("\"Decided by\": a choice that by itself parts the readings in which the claim agrees from those in which it disagrees. \"In no reading\" says something about the paper or about what our readings have in common; a claim that agrees in some readings is no finding about the paper.".into()),
                    Block::Table(points, points_of.collect()),
                ]),
            ],
        }
    }
}

fn paper(outcome: &OutcomeRead) -> Result<Paper, String> {
    let schema = &outcome.schema;
    let name = schema.strip_prefix("terrace.reproduce.");
    let name = name.and_then(|n| n.split_once('/')).map(|(name, _)| name);
    let name = name.ok_or_else(|| format!("schema: {schema:?} is not a reproduction's"))?;
    let every = |c: &&ClaimRead| c.standing == Standing::Every;
    let point = |c: &ClaimRead| Point {
        id: c.id.clone(),
        source: c.source.clone(),
        says: c.says.clone(),
        standing: c.standing,
        decided_by: c.decided_by.clone(),
    };
    Ok(Paper {
        paper: name.into(),
        readings: outcome.readings.len(),
        tally: Tally::new(outcome.claims.iter().map(|c| c.standing)),
        every_open: {
            let claims = outcome.claims.iter().filter(every);
            claims.filter(|c| c.outlook == Outlook::Open).count()
        },
        open_points: {
            let claims = outcome.claims.iter();
            claims.filter(|c| !every(c)).map(point).collect()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{Reading, Rule, Scorecard, measure, said};

    #[test]
    fn what_is_written_is_read_and_counted() {
        let reading = Reading {
            id: "one".into(),
            says: "as it is".into(),
            choices: vec![],
        };
        let found = |id, ours: f64| {
            said(id, "Fig. 1", "words").found(vec![measure(
                "m",
                Some(ours.into()),
                Rule::Above(0.0),
            )])
        };
        let card = Scorecard::new(vec![(reading, vec![found("a", 1.0), found("b", -1.0)])]);
        let mut written = serde_json::to_value(card).unwrap();
        written["schema"] = "terrace.reproduce.some-paper/1".into();
        let read: OutcomeRead = serde_json::from_value(written.clone()).unwrap();
        let summary = Summary::new(&[read.clone(), read]).unwrap();
        assert_eq!(summary.all.claims, 4);
        assert_eq!((summary.all.every, summary.all.none), (2, 2));
        assert_eq!(summary.papers[0].paper, "some-paper");
        assert_eq!(summary.papers[0].open_points[0].id, "b");
        let mut other = written;
        other["schema"] = "terrace.sim.run/1".into();
        let other: OutcomeRead = serde_json::from_value(other).unwrap();
        let (at, why) = Summary::new(&[other]).unwrap_err();
        assert_eq!(at, 0);
        assert!(why.contains("terrace.sim.run/1"), "{why}");
    }
}
