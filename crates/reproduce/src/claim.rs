//! A claim of a paper, and what becomes of it in every reading of the experiment.
//!
//! ```text
//!  Said: id, source, words ──┐
//!  measures: rule, ours ─────┴─▶ Found, one per reading ──joined──▶ Claim: standing, what decides it
//! ```
//!
//! A *reading* is one way to set the experiment up that the paper's words allow. A measure bears a claim out when the 95 % interval
//! over the seeds keeps the rule as a whole (where there is one seed: when the value does), speaks against it when all of it breaks the rule,
//! and is undecided otherwise, also where there is nothing to measure.

use serde::{Deserialize, Serialize};

use crate::Interval;

/// What became of a measure, or of a claim in one reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As published.
    Agrees,
    /// Not as published.
    Disagrees,
    /// The interval spans the threshold, or there is nothing to measure.
    Undecided,
}

impl Verdict {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Disagrees => "disagrees",
            Verdict::Undecided => "undecided",
        }
    }
}

/// What a measure has to be.
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
    /// Within a share of a printed value, up or down.
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

/// A value that differs from a threshold by rounding only is that threshold: a sum of sixths of a minute is not quite nought.
fn snapped(value: f64, threshold: f64) -> f64 {
    match (value - threshold).abs() <= 1e-9 * threshold.abs().max(1.0) {
        true => threshold,
        false => value,
    }
}

/// A printed value counts as met within a tenth of it, up or down; one that is printed as a gain or a loss is that gain or loss.
pub fn near(value: f64) -> Rule {
    Rule::within(value, 0.1)
}

/// A value with its interval where there are several seeds, and without where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Value {
    /// Mean over seeds; of ratios the geometric one.
    pub mean: f64,
    /// Its interval, where there are several seeds.
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
    /// Of one seed, or of what no seed changes.
    fn from(mean: f64) -> Self {
        Self {
            mean,
            interval: None,
        }
    }
}

impl Value {
    /// Over seeds; `None` if there are none, or one has nothing.
    pub fn over<T>(seeds: &[T], of: impl Fn(&T) -> Option<f64>) -> Option<Self> {
        let values: Vec<f64> = seeds.iter().map(of).collect::<Option<_>>()?;
        match &values[..] {
            [] => None,
            [one] => Some(Self::from(*one)),
            _ => Interval::of(&values).map(Self::from),
        }
    }

    /// Of positive ratios over seeds: mean and interval are those of the logarithms. `None` also if a ratio is not positive.
    pub fn of_ratios<T>(seeds: &[T], of: impl Fn(&T) -> Option<f64>) -> Option<Self> {
        let log = |t: &T| of(t).filter(|r| *r > 0.0).map(libm::log);
        Self::over(seeds, log).map(|v| v.map(libm::exp))
    }

    /// Mean and both ends, each put through a function that grows.
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

    /// Both ends of the interval, or the value twice.
    pub fn ends(&self) -> (f64, f64) {
        self.interval
            .map_or((self.mean, self.mean), |i| (i.ci95_low, i.ci95_high))
    }
}

/// One measure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measure {
    /// What it is.
    pub name: String,
    /// Its unit; empty for ratios and shares.
    pub unit: &'static str,
    /// As printed, where it is.
    pub published: Option<f64>,
    /// What it has to be.
    pub rule: Rule,
    /// What it is here; none where there is nothing to measure.
    pub ours: Option<Value>,
    /// Whether it is as published.
    pub verdict: Verdict,
}

/// A measure, judged.
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
    /// The printed value beside it.
    #[must_use]
    pub fn printed(mut self, value: f64) -> Self {
        self.published = Some(value);
        self
    }

    /// Its unit.
    #[must_use]
    pub fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }
}

/// How measures make a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Needs {
    /// All of them agree; one against it is enough to refute it.
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

/// What to make of agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outlook {
    /// A stand-in for what is not published was selected for it: agreement is a calibration.
    Calibrated,
    /// A rule of ours was chosen for it.
    Designed,
    /// It was not: agreement or disagreement says something.
    Open,
}

impl Outlook {
    /// What is put behind a verdict.
    pub fn mark(self) -> &'static str {
        match self {
            Outlook::Calibrated => " (calibrated)",
            Outlook::Designed => " (designed)",
            Outlook::Open => "",
        }
    }
}

/// What a paper says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Said {
    /// Short name.
    pub id: &'static str,
    /// Where it is published.
    pub source: &'static str,
    /// In words.
    pub says: &'static str,
    /// The printed value, where there is one of all of it.
    pub published: Option<f64>,
    /// Whether all measures must agree or one is enough.
    pub needs: Needs,
    /// What to make of agreement.
    pub outlook: Outlook,
    /// What to keep in mind.
    pub note: &'static str,
}

/// What is said, as a claim that all measures must bear out and for which nothing was calibrated.
pub fn said(id: &'static str, source: &'static str, says: &'static str) -> Said {
    Said {
        id,
        source,
        says,
        published: None,
        needs: Needs::All,
        outlook: Outlook::Open,
        note: "",
    }
}

impl Said {
    /// The printed value.
    #[must_use]
    pub fn printed(self, value: f64) -> Self {
        Self {
            published: Some(value),
            ..self
        }
    }

    /// One measure is enough.
    #[must_use]
    pub fn any(self) -> Self {
        Self {
            needs: Needs::Any,
            ..self
        }
    }

    /// What to make of agreement.
    #[must_use]
    pub fn outlook(self, outlook: Outlook) -> Self {
        Self { outlook, ..self }
    }

    /// What to keep in mind.
    #[must_use]
    pub fn note(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    /// What was found in one reading.
    pub fn found(self, measures: Vec<Measure>) -> Found {
        Found {
            verdict: self.needs.verdict(&measures),
            said: self,
            measures,
        }
    }
}

/// A claim in one reading.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The claim.
    pub said: Said,
    /// What became of it.
    pub verdict: Verdict,
    /// What it rests on.
    pub measures: Vec<Measure>,
}

/// One way to set the experiment up that the paper's words allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// Short name.
    pub id: String,
    /// How it reads the paper, and why that is plausible.
    pub says: String,
    /// What it chooses where readings differ: name and value of each choice, in the order of all readings.
    pub choices: Vec<(&'static str, String)>,
}

/// What became of a claim in one reading.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InReading {
    /// Which.
    pub reading: String,
    /// What became of it.
    pub verdict: Verdict,
    /// What it rests on.
    pub measures: Vec<Measure>,
}

/// What became of a claim over all readings in which it can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It agrees in every reading in which it is asked.
    Every,
    /// It agrees in some.
    Some,
    /// It agrees in none, and disagrees in all.
    None,
    /// It agrees in none, and is undecided in some.
    Undecided,
}

impl Standing {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Every => "in every reading",
            Standing::Some => "in some readings",
            Standing::None => "in no reading",
            Standing::Undecided => "undecided",
        }
    }

    fn of(verdicts: &[Verdict]) -> Self {
        let all = |v: Verdict| !verdicts.is_empty() && verdicts.iter().all(|x| *x == v);
        if all(Verdict::Agrees) {
            Standing::Every
        } else if verdicts.contains(&Verdict::Agrees) {
            Standing::Some
        } else if all(Verdict::Disagrees) {
            Standing::None
        } else {
            Standing::Undecided
        }
    }
}

/// A claim with what became of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim {
    /// What is said.
    #[serde(flatten)]
    pub said: Said,
    /// Over all readings.
    pub standing: Standing,
    /// The choices of which each by itself parts the readings in which it agrees from those in which it disagrees, and does so between two
    /// readings that differ in nothing else; without such a pair, all that part them in one, joined by "or".
    pub decided_by: Vec<String>,
    /// Reading by reading.
    pub readings: Vec<InReading>,
}

/// Claims over all readings: a part of every outcome.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scorecard {
    /// Ways to read the paper.
    pub readings: Vec<Reading>,
    /// How many claims stand how.
    pub tally: Tally,
    /// Claims, published beside ours in every reading.
    pub claims: Vec<Claim>,
}

impl Scorecard {
    /// Of what was found, reading by reading.
    pub fn new(found: Vec<(Reading, Vec<Found>)>) -> Self {
        let claims = joined(&found);
        Self {
            readings: found.into_iter().map(|(reading, _)| reading).collect(),
            tally: Tally::new(claims.iter().map(|c| (c.standing, c.readings.len()))),
            claims,
        }
    }
}

/// How many claims stand how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Claims.
    pub claims: usize,
    /// That agree in every reading in which they are asked.
    pub every: usize,
    /// Of these, asked in one reading only.
    pub every_of_one: usize,
    /// That agree in some.
    pub some: usize,
    /// That disagree in all.
    pub none: usize,
    /// The others.
    pub undecided: usize,
}

impl Tally {
    /// Each with the number of readings in which it is asked.
    pub fn new(standings: impl IntoIterator<Item = (Standing, usize)>) -> Self {
        let mut tally = Self::default();
        for (standing, readings) in standings {
            tally.claims += 1;
            tally.every_of_one += usize::from(standing == Standing::Every && readings == 1);
            *match standing {
                Standing::Every => &mut tally.every,
                Standing::Some => &mut tally.some,
                Standing::None => &mut tally.none,
                Standing::Undecided => &mut tally.undecided,
            } += 1;
        }
        tally
    }
}

/// Claims over all readings, in the order in which they are first found. A reading in which a claim cannot be asked does not have it.
fn joined(found: &[(Reading, Vec<Found>)]) -> Vec<Claim> {
    let mut ids: Vec<Said> = Vec::new();
    for one in found.iter().flat_map(|(_, found)| found) {
        if ids.iter().all(|said| said.id != one.said.id) {
            ids.push(one.said);
        }
    }
    ids.into_iter().map(|said| over(said, found)).collect()
}

fn over(said: Said, found: &[(Reading, Vec<Found>)]) -> Claim {
    let of: Vec<(&Reading, &Found)> = found
        .iter()
        .filter_map(|(reading, found)| {
            let found = found.iter().find(|f| f.said.id == said.id)?;
            Some((reading, found))
        })
        .collect();
    let verdicts: Vec<Verdict> = of.iter().map(|(_, f)| f.verdict).collect();
    let in_reading = |(reading, found): &(&Reading, &Found)| InReading {
        reading: reading.id.clone(),
        verdict: found.verdict,
        measures: found.measures.clone(),
    };
    Claim {
        said,
        standing: Standing::of(&verdicts),
        decided_by: deciding(&of),
        readings: of.iter().map(in_reading).collect(),
    }
}

/// What [`Claim::decided_by`] says.
fn deciding(of: &[(&Reading, &Found)]) -> Vec<String> {
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
    fn a_verdict_needs_the_whole_interval() {
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
    fn all_or_any_of_the_measures() {
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
    fn what_decides_is_the_choice_that_parts_them() {
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
                ("x", Standing::Some, "load".to_string()),
                ("y", Standing::None, String::new()),
                ("z", Standing::Every, String::new()),
            ]
        );
        assert_eq!(claims[2].readings.len(), 1);
        assert_eq!(
            (tally.claims, tally.every, tally.some, tally.none),
            (3, 1, 1, 1)
        );
        assert_eq!(tally.every_of_one, 1, "z");
    }

    /// Two readings that differ in two choices do not say which of them it was.
    #[test]
    fn what_decides_is_not_told_where_two_choices_change_together() {
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
    fn a_difference_by_rounding_is_none() {
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
