//! Claim of a paper, and its result in every reading of the experiment.
//!
//! ```text
//!   Said: id, source, words ──┐
//!   measures: rule, result ───┴─▶ Found, one per reading ──joined──▶ Claim: standing, deciding choices
//! ```
//!
//! A *reading* is one setup of the experiment that the paper's words allow. A measure confirms a claim if the whole 95
//! % interval over the seeds satisfies the rule (with one seed: if the value does). It contradicts the claim if the
//! whole interval breaks the rule. Otherwise, or without a value, it is undecided.

use serde::{Deserialize, Serialize};

use crate::Interval;

/// Result of a measure, or of a claim in one reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As published.
    Agrees,
    /// Not as published.
    Disagrees,
    /// The interval spans the threshold, or there is no value.
    Undecided,
}

impl Verdict {
    /// Returns the printed name.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Disagrees => "disagrees",
            Verdict::Undecided => "undecided",
        }
    }
}

/// Condition for a measure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Above this.
    Above(f64),
    /// Below this.
    Below(f64),
    /// Between these, both included.
    Between(f64, f64),
}

impl Rule {
    /// Returns a rule for a relative deviation from a printed value, in both directions.
    pub fn within(value: f64, share: f64) -> Self {
        let slack = share * value.abs();
        Rule::Between(value - slack, value + slack)
    }

    fn verdict(self, ends: (f64, f64)) -> Verdict {
        let (x, y) = match self {
            Rule::Above(x) | Rule::Below(x) => (x, x),
            Rule::Between(least, most) => (least, most),
        };
        let snapped = |end| snapped(snapped(end, x), y);
        let (low, high) = (snapped(ends.0), snapped(ends.1));
        let (keeps, breaks) = match self {
            Rule::Above(x) => (low > x, high <= x),
            Rule::Below(x) => (high < x, low >= x),
            Rule::Between(least, most) => {
                (low >= least && high <= most, high < least || low > most)
            }
        };
        match (keeps, breaks) {
            (true, _) => Verdict::Agrees,
            (_, true) => Verdict::Disagrees,
            _ => Verdict::Undecided,
        }
    }
}

/// Rounds a value to a threshold if they differ only by rounding errors: a sum of sixths of a minute is not exactly
/// zero.
fn snapped(value: f64, threshold: f64) -> f64 {
    match (value - threshold).abs() <= 1e-9 * threshold.abs().max(1.0) {
        true => threshold,
        false => value,
    }
}

/// Returns the rule for a printed value: within a tenth in both directions. The sign of a gain or loss must match.
pub fn near(value: f64) -> Rule {
    Rule::within(value, 0.1)
}

/// Value, with an interval if there are several seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Value {
    /// Mean over seeds; for ratios the geometric mean.
    pub mean: f64,
    /// Interval, if there are several seeds.
    pub interval: Option<Interval>,
}

impl From<Interval> for Value {
    fn from(interval: Interval) -> Self {
        Self {
            mean: interval.mean,
            interval: Some(interval),
        }
    }
}

impl From<f64> for Value {
    /// Creates a value from one seed, or one that is independent of the seed.
    fn from(mean: f64) -> Self {
        Self {
            mean,
            interval: None,
        }
    }
}

impl Value {
    /// Computes the value over seeds; `None` without seeds, or if a seed has no value.
    pub fn over<T>(seeds: &[T], of: impl Fn(&T) -> Option<f64>) -> Option<Self> {
        let values: Vec<f64> = seeds.iter().map(of).collect::<Option<_>>()?;
        match &values[..] {
            [] => None,
            [one] => Some(Self::from(*one)),
            _ => Interval::of(&values).map(Self::from),
        }
    }

    /// Computes the value of positive ratios over seeds: mean and interval are those of the logarithms. `None` also if
    /// a ratio is not positive.
    pub fn of_ratios<T>(seeds: &[T], of: impl Fn(&T) -> Option<f64>) -> Option<Self> {
        let log = |t: &T| of(t).filter(|r| *r > 0.0).map(libm::log);
        Self::over(seeds, log).map(|v| v.map(libm::exp))
    }

    /// Maps mean and both ends with an increasing function.
    pub fn map(self, grows: impl Fn(f64) -> f64) -> Self {
        Self {
            mean: grows(self.mean),
            interval: self.interval.map(|i| Interval {
                mean: grows(i.mean),
                ci95_low: grows(i.ci95_low),
                ci95_high: grows(i.ci95_high),
                n: i.n,
            }),
        }
    }

    /// Returns both ends of the interval, or the value twice.
    pub fn ends(&self) -> (f64, f64) {
        self.interval
            .map_or((self.mean, self.mean), |i| (i.ci95_low, i.ci95_high))
    }
}

/// Measure of a claim.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measure {
    /// Name.
    pub name: String,
    /// Unit; empty for ratios and shares.
    pub unit: &'static str,
    /// Printed value, if published.
    pub published: Option<f64>,
    /// Condition.
    pub rule: Rule,
    /// Measured value; `None` if it cannot be measured.
    pub ours: Option<Value>,
    /// Result of the comparison.
    pub verdict: Verdict,
}

/// Creates a measure and judges it.
pub fn measure(name: impl Into<String>, ours: Option<Value>, rule: Rule) -> Measure {
    Measure {
        name: name.into(),
        unit: "",
        published: None,
        rule,
        ours,
        verdict: ours.map_or(Verdict::Undecided, |v| rule.verdict(v.ends())),
    }
}

impl Measure {
    /// Adds the printed value.
    #[must_use]
    pub fn printed(mut self, value: f64) -> Self {
        self.published = Some(value);
        self
    }

    /// Sets the unit.
    #[must_use]
    pub fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }
}

/// Combination of measures into a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Needs {
    /// All must agree; one contradiction refutes the claim.
    All,
    /// One is enough ("sometimes", "not the lowest").
    Any,
}

impl Needs {
    fn verdict(self, measures: &[Measure]) -> Verdict {
        let all = |v: Verdict| !measures.is_empty() && measures.iter().all(|m| m.verdict == v);
        let any = |v: Verdict| measures.iter().any(|m| m.verdict == v);
        let (agrees, disagrees) = match self {
            Needs::All => (all(Verdict::Agrees), any(Verdict::Disagrees)),
            Needs::Any => (any(Verdict::Agrees), all(Verdict::Disagrees)),
        };
        match (agrees, disagrees) {
            (true, _) => Verdict::Agrees,
            (_, true) => Verdict::Disagrees,
            _ => Verdict::Undecided,
        }
    }
}

/// Significance of agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outlook {
    /// A substitute for unpublished data was selected for this claim: agreement is a calibration.
    Calibrated,
    /// A rule of this project was chosen for this claim.
    Designed,
    /// Nothing was chosen for this claim: the result is evidence.
    Open,
}

impl Outlook {
    /// Returns the mark printed after a verdict.
    pub fn mark(self) -> &'static str {
        match self {
            Outlook::Calibrated => " (calibrated)",
            Outlook::Designed => " (designed)",
            Outlook::Open => "",
        }
    }
}

/// Claim as published.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PublishedClaim {
    /// Short name.
    pub id: &'static str,
    /// Place of publication.
    pub source: &'static str,
    /// Claim in words.
    pub says: &'static str,
    /// Printed value, if a single one covers the whole claim.
    pub published: Option<f64>,
    /// Combination of the measures.
    pub needs: Needs,
    /// Significance of agreement.
    pub outlook: Outlook,
    /// Note for the reader.
    pub note: &'static str,
}

/// Creates a claim that needs all measures and for which nothing was calibrated.
pub fn said(id: &'static str, source: &'static str, says: &'static str) -> PublishedClaim {
    PublishedClaim {
        id,
        source,
        says,
        published: None,
        needs: Needs::All,
        outlook: Outlook::Open,
        note: "",
    }
}

impl PublishedClaim {
    /// Sets the printed value.
    #[must_use]
    pub fn printed(self, value: f64) -> Self {
        Self {
            published: Some(value),
            ..self
        }
    }

    /// Makes one measure sufficient.
    #[must_use]
    pub fn any(self) -> Self {
        Self {
            needs: Needs::Any,
            ..self
        }
    }

    /// Sets the significance of agreement.
    #[must_use]
    pub fn outlook(self, outlook: Outlook) -> Self {
        Self { outlook, ..self }
    }

    /// Sets the note for the reader.
    #[must_use]
    pub fn note(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    /// Combines the claim with its measures in one reading.
    pub fn found(self, measures: Vec<Measure>) -> ClaimFinding {
        ClaimFinding {
            verdict: self.needs.verdict(&measures),
            said: self,
            measures,
        }
    }
}

/// Claim in one reading.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimFinding {
    /// Claim as published.
    pub said: PublishedClaim,
    /// Result.
    pub verdict: Verdict,
    /// Measures behind the result.
    pub measures: Vec<Measure>,
}

/// Setup of the experiment that the paper's words allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// Short name.
    pub id: String,
    /// Interpretation of the paper, and why it is plausible.
    pub says: String,
    /// Name and value of each choice in which readings differ, in the same order for all readings.
    pub choices: Vec<(&'static str, String)>,
}

/// Result of a claim in one reading.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReadingResult {
    /// Name of the reading.
    pub reading: String,
    /// Result.
    pub verdict: Verdict,
    /// Measures behind the result.
    pub measures: Vec<Measure>,
}

/// Result of a claim over all readings to which it applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimResult {
    /// Agrees in every reading to which it applies.
    Every,
    /// Agrees in some.
    Some,
    /// Agrees in none, and disagrees in all.
    None,
    /// Agrees in none, and is undecided in some.
    Undecided,
}

impl ClaimResult {
    /// Returns the printed name.
    pub fn name(self) -> &'static str {
        match self {
            ClaimResult::Every => "in every reading",
            ClaimResult::Some => "in some readings",
            ClaimResult::None => "in no reading",
            ClaimResult::Undecided => "undecided",
        }
    }

    fn of(verdicts: &[Verdict]) -> Self {
        let all = |v: Verdict| !verdicts.is_empty() && verdicts.iter().all(|x| *x == v);
        if all(Verdict::Agrees) {
            ClaimResult::Every
        } else if verdicts.contains(&Verdict::Agrees) {
            ClaimResult::Some
        } else if all(Verdict::Disagrees) {
            ClaimResult::None
        } else {
            ClaimResult::Undecided
        }
    }
}

/// Claim with its results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim {
    /// Claim as published.
    #[serde(flatten)]
    pub said: PublishedClaim,
    /// Result over all readings.
    pub standing: ClaimResult,
    /// Choices that separate the agreeing readings from the disagreeing ones, each by itself, and do so between two
    /// readings that differ in nothing else. Without such a pair: all separating choices in one text, joined by "or".
    pub decided_by: Vec<String>,
    /// Results by reading.
    pub readings: Vec<ReadingResult>,
}

/// Claims over all readings, a part of every outcome.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scorecard {
    /// Readings of the paper.
    pub readings: Vec<Reading>,
    /// Number of claims by standing.
    pub tally: Tally,
    /// Claims, with published and measured values in every reading.
    pub claims: Vec<Claim>,
}

impl Scorecard {
    /// Creates the scorecard from the results of each reading.
    pub fn new(found: Vec<(Reading, Vec<ClaimFinding>)>) -> Self {
        let claims = joined(&found);
        Self {
            readings: found.into_iter().map(|(reading, _)| reading).collect(),
            tally: Tally::new(claims.iter().map(|c| (c.standing, c.readings.len()))),
            claims,
        }
    }
}

/// Number of claims by standing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// All claims.
    pub claims: usize,
    /// Claims that agree in every reading to which they apply.
    pub every: usize,
    /// Claims in [`every`](Self::every) that apply to one reading only.
    pub every_of_one: usize,
    /// Claims that agree in some readings.
    pub some: usize,
    /// Claims that disagree in all readings.
    pub none: usize,
    /// Other claims.
    pub undecided: usize,
}

impl Tally {
    /// Counts standings, each with the number of readings to which the claim applies.
    pub fn new(standings: impl IntoIterator<Item = (ClaimResult, usize)>) -> Self {
        let mut tally = Self::default();
        for (standing, readings) in standings {
            tally.claims += 1;
            tally.every_of_one += usize::from(standing == ClaimResult::Every && readings == 1);
            *match standing {
                ClaimResult::Every => &mut tally.every,
                ClaimResult::Some => &mut tally.some,
                ClaimResult::None => &mut tally.none,
                ClaimResult::Undecided => &mut tally.undecided,
            } += 1;
        }
        tally
    }
}

/// Joins claims over all readings, in order of first occurrence. A reading to which a claim does not apply is omitted.
fn joined(found: &[(Reading, Vec<ClaimFinding>)]) -> Vec<Claim> {
    let mut ids: Vec<PublishedClaim> = Vec::new();
    for one in found.iter().flat_map(|(_, found)| found) {
        if ids.iter().all(|said| said.id != one.said.id) {
            ids.push(one.said);
        }
    }
    ids.into_iter().map(|said| over(said, found)).collect()
}

fn over(said: PublishedClaim, found: &[(Reading, Vec<ClaimFinding>)]) -> Claim {
    let of: Vec<(&Reading, &ClaimFinding)> = found
        .iter()
        .filter_map(|(reading, found)| {
            let found = found.iter().find(|f| f.said.id == said.id)?;
            Some((reading, found))
        })
        .collect();
    let verdicts: Vec<Verdict> = of.iter().map(|(_, f)| f.verdict).collect();
    let in_reading = |(reading, found): &(&Reading, &ClaimFinding)| ReadingResult {
        reading: reading.id.clone(),
        verdict: found.verdict,
        measures: found.measures.clone(),
    };
    Claim {
        said,
        standing: ClaimResult::of(&verdicts),
        decided_by: deciding(&of),
        readings: of.iter().map(in_reading).collect(),
    }
}

/// Computes [`Claim::decided_by`].
fn deciding(of: &[(&Reading, &ClaimFinding)]) -> Vec<String> {
    let decided: Vec<(&Reading, bool)> = of
        .iter()
        .filter(|(_, f)| f.verdict != Verdict::Undecided)
        .map(|(r, f)| (*r, f.verdict == Verdict::Agrees))
        .collect();
    let differ = |agrees: bool| decided.iter().any(|(_, a)| *a == agrees);
    if !(differ(true) && differ(false)) {
        return vec![];
    }
    let value = |reading: &Reading, name: &str| {
        let of = reading.choices.iter().find(|(n, _)| *n == name);
        of.map(|(_, value)| value.clone())
    };
    let mut names: Vec<&'static str> = Vec::new();
    for (name, _) in decided.iter().flat_map(|(r, _)| &r.choices) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names.retain(|name| {
        decided.iter().all(|(a, agrees)| {
            let same = |(b, _): &&(&Reading, bool)| value(a, name) == value(b, name);
            decided
                .iter()
                .filter(same)
                .all(|(_, other)| other == agrees)
        })
    });
    let alone = |name: &&&str| {
        let name: &str = name;
        let differ_in_it = |a: &Reading, b: &Reading| {
            let others = |r: &Reading| -> Vec<_> {
                let others = r.choices.iter().filter(|(n, _)| *n != name);
                others.cloned().collect()
            };
            value(a, name) != value(b, name) && others(a) == others(b)
        };
        let opposite =
            |(a, x): &(&Reading, bool), (b, y): &(&Reading, bool)| x != y && differ_in_it(a, b);
        decided
            .iter()
            .any(|a| decided.iter().any(|b| opposite(a, b)))
    };
    let sure: Vec<String> = names.iter().filter(alone).map(|n| n.to_string()).collect();
    match sure.is_empty() && !names.is_empty() {
        true => vec![names.join(" or ")],
        false => sure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Agrees, Disagrees, Undecided};

    fn value(low: f64, high: f64) -> Option<Value> {
        let mean = (low + high) / 2.0;
        Some(Value::from(Interval {
            mean,
            ci95_low: low,
            ci95_high: high,
            n: 5,
        }))
    }

    #[test]
    fn verdict_requires_the_entire_interval() {
        for (low, high, rule, want) in [
            (1.1, 1.2, Rule::Above(1.0), Agrees),
            (0.9, 1.2, Rule::Above(1.0), Undecided),
            (0.9, 1.0, Rule::Above(1.0), Disagrees),
            (0.8, 0.9, Rule::Below(1.0), Agrees),
            (1.0, 1.2, Rule::Below(1.0), Disagrees),
            (1.25, 1.3, near(1.29), Agrees),
            (1.1, 1.3, near(1.29), Undecided),
            (1.5, 1.6, near(1.29), Disagrees),
            (-0.18, -0.16, near(-0.17), Agrees),
        ] {
            let verdict = measure("", value(low, high), rule).verdict;
            assert_eq!(verdict, want, "{low} {high} {rule:?}");
        }
        // One seed: the value itself.
        assert_eq!(
            measure("", Some(1.01.into()), Rule::Above(1.0)).verdict,
            Agrees
        );
        assert_eq!(measure("", None, Rule::Above(1.0)).verdict, Undecided);
    }

    #[test]
    fn claim_may_require_all_or_any_of_its_measures() {
        let of = |values: &[f64]| -> Vec<Measure> {
            let one = |v: &f64| match v.is_nan() {
                true => measure("", None, Rule::Above(0.0)),
                false => measure("", Some((*v).into()), Rule::Above(0.0)),
            };
            values.iter().map(one).collect()
        };
        for (all, values, want) in [
            (true, vec![1.0, 1.0], Agrees),
            (true, vec![1.0, f64::NAN], Undecided),
            (true, vec![1.0, f64::NAN, -1.0], Disagrees),
            (true, vec![], Undecided),
            (false, vec![1.0, -1.0], Agrees),
            (false, vec![-1.0, -1.0], Disagrees),
            (false, vec![-1.0, f64::NAN], Undecided),
        ] {
            let said = said("x", "", "");
            let said = if all { said } else { said.any() };
            assert_eq!(said.found(of(&values)).verdict, want, "{values:?}");
        }
    }

    #[test]
    fn deciding_choice_is_the_one_that_separates_the_readings() {
        let reading = |load: &str, depth: &str| Reading {
            id: format!("{load}-{depth}"),
            says: String::new(),
            choices: vec![("load", load.into()), ("depth", depth.into())],
        };
        let found = |id: &'static str, ours: f64| {
            said(id, "", "").found(vec![measure("", Some(ours.into()), Rule::Above(0.0))])
        };
        let all = [
            (reading("a", "1"), vec![found("x", 1.0), found("y", -1.0)]),
            (reading("a", "8"), vec![found("x", 1.0), found("y", -1.0)]),
            (
                reading("b", "8"),
                vec![found("x", -1.0), found("y", -1.0), found("z", 1.0)],
            ),
        ];
        let Scorecard { tally, claims, .. } = Scorecard::new(all.into());
        let standings: Vec<_> = claims
            .iter()
            .map(|c| (c.said.id, c.standing, c.decided_by.join(", ")))
            .collect();
        assert_eq!(
            standings,
            [
                ("x", ClaimResult::Some, "load".to_string()),
                ("y", ClaimResult::None, String::new()),
                ("z", ClaimResult::Every, String::new()),
            ]
        );
        assert_eq!(claims[2].readings.len(), 1);
        assert_eq!(
            (tally.claims, tally.every, tally.some, tally.none),
            (3, 1, 1, 1)
        );
        assert_eq!(tally.every_of_one, 1, "z");
    }

    /// Two readings that differ in two choices do not show which of the two decided.
    #[test]
    fn deciding_choice_is_unknown_if_two_choices_change_together() {
        let reading = |load: &str, depth: &str| Reading {
            id: format!("{load}-{depth}"),
            says: String::new(),
            choices: vec![("load", load.into()), ("depth", depth.into())],
        };
        let found = |ours: f64| {
            vec![said("x", "", "").found(vec![measure("", Some(ours.into()), Rule::Above(0.0))])]
        };
        let all = [
            (reading("a", "1"), found(1.0)),
            (reading("b", "8"), found(-1.0)),
        ];
        let card = Scorecard::new(all.into());
        assert_eq!(card.claims[0].decided_by, ["load or depth"]);
    }

    #[test]
    fn rounding_difference_is_ignored() {
        let nought = Some(Value::from(-3.55e-15));
        assert_eq!(measure("", nought, Rule::Above(0.0)).verdict, Disagrees);
        assert_eq!(measure("", nought, Rule::Below(0.0)).verdict, Disagrees);
        let of_three = Some(Value::from(3.0 + 1e-12));
        assert_eq!(
            measure("", of_three, Rule::Between(3.0, 3.0)).verdict,
            Agrees
        );
    }
}
