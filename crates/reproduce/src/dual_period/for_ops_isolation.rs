//! What the reproduction of paper 4 takes from here until it has the one form of claims ([`crate::claim`]).

use serde::Serialize;

use crate::claim::{self, Outlook, Rule, Value, Verdict};

/// One measure.
#[derive(Debug, Clone, Serialize)]
pub struct Measure {
    /// What it is.
    pub name: String,
    /// What it has to be.
    pub rule: Rule,
    /// What it is here.
    pub ours: Value,
    /// Whether it is as published.
    pub verdict: Verdict,
}

/// One claim.
#[derive(Debug, Clone, Serialize)]
pub struct Claim {
    /// Short name.
    pub id: &'static str,
    /// Where it is published.
    pub source: &'static str,
    /// In words.
    pub says: &'static str,
    /// The printed value, where there is one.
    pub published: Option<f64>,
    /// What to make of agreement.
    pub outlook: Outlook,
    /// What became of it: agrees where all measures do, disagrees where one does.
    pub verdict: Verdict,
    /// What it rests on.
    pub ours: Vec<Measure>,
    /// What to keep in mind.
    pub note: &'static str,
}

pub(crate) fn measure(name: impl Into<String>, ours: Value, rule: Rule) -> Measure {
    let judged = claim::measure(name, Some(ours), rule);
    Measure {
        name: judged.name,
        rule,
        ours,
        verdict: judged.verdict,
    }
}

pub(crate) fn claim(
    id: &'static str,
    source: &'static str,
    says: &'static str,
    published: Option<f64>,
    outlook: Outlook,
    ours: Vec<Measure>,
) -> Claim {
    let again = |m: &Measure| claim::measure("", Some(m.ours), m.rule);
    let found = claim::said(id, source, says).found(ours.iter().map(again).collect());
    Claim {
        id,
        source,
        says,
        published,
        outlook,
        verdict: found.verdict,
        ours,
        note: "",
    }
}

/// What was found, in words.
pub(crate) fn found(claim: &Claim) -> String {
    let ours = &claim.ours;
    if let [one] = &ours[..] {
        return value(&one.ours, 3);
    }
    let count = |v: Verdict| ours.iter().filter(|m| m.verdict == v).count();
    format!(
        "{} of {}, {} against",
        count(Verdict::Agrees),
        ours.len(),
        count(Verdict::Disagrees)
    )
}

/// A value with half of its interval.
pub(crate) fn value(v: &Value, digits: usize) -> String {
    match v.interval {
        Some(i) => format!("{:.digits$} ± {:.digits$}", v.mean, i.half()),
        None => format!("{:.digits$}", v.mean),
    }
}
