//! Data of the page: consistent replies of the service, and the volumes that match the filter.

use std::cmp::Ordering;

use axum::http::StatusCode;
use manager::question::{Answer, Question};
use manager::view::{
    EventView, JobView, OutcomeView, PlanView, ResponseView, StatusView, TierView, VolumeView,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::Role;
use crate::call::{Call, ServiceCall, unexpected};
use crate::problem::Problem;

/// Maximum number of volumes on the page; the filter finds the others. Keeps the page fast with thousands of volumes.
pub(super) const VOLUMES_MAX: usize = 200;

/// Maximum number of rows of jobs, outcomes, remedies and events.
const ROWS: usize = 50;

/// Query parameters of the page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    /// Words that must all occur in the name, host, tier, device, class or state of a volume.
    #[serde(default)]
    pub(super) filter: String,
    /// Column by which volumes are sorted.
    #[serde(default)]
    pub(super) sort: SortKey,
    /// Sort order; the default depends on the column.
    #[serde(default)]
    pub(super) order: Option<SortOrder>,
}

/// Column of the table of volumes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SortKey {
    #[default]
    Name,
    Tier,
    Class,
    Reads,
    Writes,
    ReadAwait,
    WriteAwait,
    P99,
    /// Measured latency divided by the objective.
    Objective,
}

/// Sort order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Order")]
pub(crate) enum SortOrder {
    Ascending,
    Descending,
}

impl PageQuery {
    /// Returns the requested order. By default texts are ascending and numbers are descending.
    pub(super) fn order(&self) -> SortOrder {
        self.order.unwrap_or(match self.sort {
            SortKey::Name | SortKey::Tier | SortKey::Class => SortOrder::Ascending,
            _ => SortOrder::Descending,
        })
    }

    fn matches(&self, volume: &VolumeView, lowercase_words: &[String]) -> bool {
        if lowercase_words.is_empty() {
            return true;
        }
        let marks = marks(volume)
            .map(|(name, on)| if on { name } else { "" })
            .join(" ");
        let text = format!(
            "{}/{} {} {} {} {marks}",
            volume.host, volume.name, volume.tier, volume.device, volume.class
        );
        let text = text.to_lowercase();
        lowercase_words.iter().all(|w| text.contains(w))
    }
}

/// Returns the special states of a volume, each with whether it applies. The filter matches these words.
pub(super) fn marks(volume: &VolumeView) -> [(&'static str, bool); 6] {
    [
        ("violated", violated(volume)),
        ("moving", volume.moving.is_some()),
        ("calibrating", volume.calibrating),
        ("pinned", volume.pinned.is_some()),
        ("limited", volume.throttle.is_some()),
        ("unknown", volume.load.is_none()),
    ]
}

/// Returns true if the volume violated its objective in the last window.
pub(super) fn violated(volume: &VolumeView) -> bool {
    let slo = volume.slo.as_ref();
    slo.is_some_and(|s| s.measured_us.is_some_and(|m| m > s.target_us))
}

/// Omits the parts of the page that need the store while the store fails. The status reports the
/// failure.
fn without_store(status: &StatusView, problem: Problem) -> Result<(), Problem> {
    let fails = status.store_failure.is_some();
    match fails && problem.status == StatusCode::SERVICE_UNAVAILABLE {
        true => Ok(()),
        false => Err(problem),
    }
}

/// Data of one page.
pub(super) struct PageData {
    pub(super) status: StatusView,
    pub(super) tiers: Vec<TierView>,
    /// At most [`VOLUMES_MAX`], sorted.
    pub(super) volumes: Vec<VolumeView>,
    /// Number of volumes that match the filter.
    pub(super) matching: usize,
    /// Number of all volumes that violated their objective in at least one of the last windows.
    pub(super) violating: usize,
    pub(super) plans: Vec<PlanView>,
    pub(super) jobs: Vec<JobView>,
    pub(super) outcomes: Vec<OutcomeView>,
    pub(super) responses: Vec<ResponseView>,
    /// Newest first.
    pub(super) events: Vec<EventView>,
}

impl PageData {
    pub(super) fn gather(call: &Call, wanted: &PageQuery) -> Result<Self, Problem> {
        debug_assert!(call.caller.role.may(Role::Read));
        let actor = call.actor();
        let mut shown = call.state.ask_all(&actor, Self::ask)?;
        shown.choose(wanted);
        Ok(shown)
    }

    fn ask(service: &mut ServiceCall<'_>) -> Result<Self, Problem> {
        let Answer::Status(status) = service.ask(Question::Status)? else {
            return Err(unexpected());
        };
        let Answer::Tiers(tiers) = service.ask(Question::Tiers)? else {
            return Err(unexpected());
        };
        let Answer::Volumes(volumes) = service.ask(Question::Volumes)? else {
            return Err(unexpected());
        };
        let mut plans = vec![];
        for host in &status.hosts {
            let host = Some(host.name.clone());
            let generation = None;
            match service.ask(Question::Plan { host, generation }) {
                Ok(Answer::Plan(plan)) => plans.push(*plan),
                Ok(_) => return Err(unexpected()),
                // The host has no plan yet.
                Err(problem) if problem.status == StatusCode::NOT_FOUND => {}
                Err(problem) => without_store(&status, problem)?,
            }
        }
        let (mut jobs, mut outcomes, mut responses, mut events) = (vec![], vec![], vec![], vec![]);
        let (after, limit) = (None, ROWS);
        for question in [
            Question::Jobs { limit },
            Question::Outcomes { limit },
            Question::Responses { limit },
            Question::Events { after, limit },
        ] {
            match service.ask(question) {
                Ok(Answer::Jobs(found)) => jobs = found,
                Ok(Answer::Outcomes(found)) => outcomes = found,
                Ok(Answer::Responses(found)) => responses = found,
                Ok(Answer::Events(found)) => events = found,
                Ok(_) => return Err(unexpected()),
                Err(problem) => without_store(&status, problem)?,
            }
        }
        events.reverse();
        let has_violated = |v: &&VolumeView| v.slo.is_some_and(|s| s.violated > 0) || violated(v);
        Ok(Self {
            status: *status,
            tiers,
            matching: volumes.len(),
            violating: volumes.iter().filter(has_violated).count(),
            volumes,
            plans,
            jobs,
            outcomes,
            responses,
            events,
        })
    }

    fn choose(&mut self, wanted: &PageQuery) {
        let words: Vec<String> = wanted
            .filter
            .split_whitespace()
            .map(str::to_lowercase)
            .collect();
        self.volumes.retain(|v| wanted.matches(v, &words));
        self.matching = self.volumes.len();
        let descending = wanted.order() == SortOrder::Descending;
        self.volumes.sort_by(|a, b| {
            let by_key = compare(wanted.sort, a, b, descending);
            by_key.then_with(|| name_of(a).cmp(&name_of(b)))
        });
        self.volumes.truncate(VOLUMES_MAX);
    }

    /// Returns the name of a volume, with its host if several hosts exist.
    pub(super) fn named(&self, host: &str, volume: &str) -> String {
        match self.status.hosts.len() {
            0 | 1 => volume.into(),
            _ => format!("{host}/{volume}"),
        }
    }
}

fn name_of(v: &VolumeView) -> (&str, &str) {
    (&v.name, &v.host)
}

fn compare(key: SortKey, a: &VolumeView, b: &VolumeView, descending: bool) -> Ordering {
    let turned = |o: Ordering| if descending { o.reverse() } else { o };
    let load = |v: &VolumeView| v.load.unwrap_or_default();
    let numbers: fn(&VolumeView) -> Option<f64> = match key {
        SortKey::Name => return turned(name_of(a).cmp(&name_of(b))),
        SortKey::Tier => return turned(a.tier.cmp(&b.tier)),
        SortKey::Class => return turned(a.class.cmp(&b.class)),
        SortKey::Reads => return turned(load(a).reads_per_s.total_cmp(&load(b).reads_per_s)),
        SortKey::Writes => return turned(load(a).writes_per_s.total_cmp(&load(b).writes_per_s)),
        SortKey::ReadAwait => |v| v.load?.read_mean_us,
        SortKey::WriteAwait => |v| v.load?.write_mean_us,
        SortKey::P99 => |v| v.load?.p99_us,
        SortKey::Objective => |v| v.slo.and_then(|s| Some(s.measured_us? / s.target_us)),
    };
    // Volumes without a value come last in both orders.
    match (numbers(a), numbers(b)) {
        (Some(a), Some(b)) => turned(a.total_cmp(&b)),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}
