//! Step 3: test whether a cache can help a workload. The rules are data that a vendor of appliances could supply.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::curve::Curve;

/// Property of a workload that a rule limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Share of writes in the requests.
    WriteShare,
    /// Share of requests that start at the end of the previous one.
    SequentialShare,
    /// Ratio of the largest working set to the largest available cache.
    WorkingSetOverLargest,
    /// Predicted miss ratio with the largest available cache.
    MissRatioAtLargest,
}

/// Rule for cacheable workloads: a workload above the limit gets no cache.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Property of the workload.
    pub measure: Measure,
    /// Largest value of a cacheable workload.
    pub max: f64,
}

/// Returns the rules for a write-through or write-around cache. The limits are ours; the paper names only the first rule
/// (sec. 5.2).
pub fn write_through_rules() -> Vec<Rule> {
    let rule = |measure, max| Rule { measure, max };
    vec![
        rule(Measure::WriteShare, 0.4),
        rule(Measure::SequentialShare, 0.7),
        rule(Measure::WorkingSetOverLargest, 4.0),
        rule(Measure::MissRatioAtLargest, 0.6),
    ]
}

/// Properties of one workload that the rules limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Traits {
    /// Share of the requests that write.
    pub write_share: f64,
    /// Share of sequential requests; `None` if it is not measured.
    pub sequential: Option<f64>,
    /// Largest measured working set; `None` if none was measured.
    pub working_set_peak: Option<Bytes>,
    /// Miss-ratio curve of its reads; `None` if it is unknown.
    pub curve: Option<Curve>,
}

/// Result of one rule.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub rule: Rule,
    /// Measured value; `None` if it is unknown, which breaks the rule.
    pub value: Option<f64>,
    /// Outcome: kept or broken.
    pub verdict: Fit,
}

/// Outcome of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fit {
    Kept,
    Broken,
}

/// Applies all rules. A workload is cacheable if it breaks none.
pub fn cacheable(rules: &[Rule], traits: &Traits, largest: Bytes) -> Vec<Finding> {
    let find = |rule: &Rule| {
        let value = match rule.measure {
            Measure::WriteShare => Some(traits.write_share),
            Measure::SequentialShare => traits.sequential,
            Measure::WorkingSetOverLargest => {
                let peak = traits.working_set_peak.map(Bytes::as_f64);
                peak.map(|peak| peak / largest.as_f64().max(1.0))
            }
            Measure::MissRatioAtLargest => traits.curve.as_ref().map(|c| c.at(largest)),
        };
        let verdict = match value {
            Some(v) if v <= rule.max => Fit::Kept,
            _ => Fit::Broken,
        };
        Finding {
            rule: *rule,
            value,
            verdict,
        }
    };
    rules.iter().map(find).collect()
}

/// Returns true if all rules are kept.
pub fn all_kept(findings: &[Finding]) -> bool {
    findings.iter().all(|f| f.verdict == Fit::Kept)
}

/// Returns the first broken rule as text; `None` if all are kept.
pub fn why_not(findings: &[Finding]) -> Option<String> {
    let broken = findings.iter().find(|f| f.verdict == Fit::Broken)?;
    let what = match broken.rule.measure {
        Measure::WriteShare => "share of writes",
        Measure::SequentialShare => "sequential share",
        Measure::WorkingSetOverLargest => "working set over the largest cache",
        Measure::MissRatioAtLargest => "miss ratio with the largest cache",
    };
    let max = broken.rule.max;
    Some(match broken.value {
        Some(value) => format!("{what} {value:.2} is above {max:.2}"),
        None => format!("{what} is unknown"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traits() -> Traits {
        Traits {
            write_share: 0.1,
            sequential: Some(0.2),
            working_set_peak: Some(Bytes::gib(3)),
            curve: Some(Curve::new(vec![(Bytes::gib(4), 0.1)])),
        }
    }

    #[test]
    fn each_cacheability_rule_can_reject_with_its_reason() {
        let why = |change: fn(&mut Traits)| {
            let mut traits = traits();
            change(&mut traits);
            why_not(&cacheable(&write_through_rules(), &traits, Bytes::gib(16)))
        };
        assert_eq!(why(|_| ()), None);
        let text = why(|t| t.write_share = 0.55).unwrap();
        assert_eq!(text, "share of writes 0.55 is above 0.40");
        assert!(
            why(|t| t.sequential = Some(0.9))
                .unwrap()
                .starts_with("sequential")
        );
        assert!(
            why(|t| t.working_set_peak = Some(Bytes::gib(80)))
                .unwrap()
                .starts_with("working")
        );
        let flat = why(|t| t.curve = Some(Curve::new(vec![(Bytes::gib(16), 0.9)])));
        assert!(flat.unwrap().starts_with("miss ratio"));
        assert!(why(|t| t.curve = None).unwrap().ends_with("is unknown"));
        assert!(
            why(|t| t.sequential = None)
                .unwrap()
                .ends_with("is unknown")
        );
        let unknown = why(|t| t.working_set_peak = None).unwrap();
        assert!(unknown.ends_with("is unknown"), "{unknown}");
    }
}
