//! One call per route.

use std::fmt::Write as _;

use hyper::{Method, StatusCode};
use manager::question::{Choice, Done, PlaceQuestion};
use manager::store::HistoryPoint;
use manager::view::{
    EventView, JobView, OutcomeView, PlaceView, PlanView, ResponseView, StatusView, TierView,
    VolumeView, WhyNotView, WhyView,
};
use manager::wire::{JobsReport, Orders, Register, Throttle, Welcome, WindowReport, WireRefusal};
use model::Goal;
use model::Mode;
use model::TierState;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use units::Nanos;

use crate::body::{
    ErrorBody, HostBody, ModeBody, MovesBody, PinBody, ThrottleBody, TierStateBody, goal_name,
};
use crate::connection::Client;
use crate::error::ClientError;

type Answered<T> = Result<T, ClientError>;

/// A name as a part of a path, slashes and all.
fn part(name: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(name, NON_ALPHANUMERIC)
}

/// A path with the query keys that have a value.
fn with_query(path: String, keys: &[(&str, Option<String>)]) -> String {
    let given = keys
        .iter()
        .filter_map(|(k, v)| v.as_deref().map(|v| (k, v)));
    let mut path = path;
    for (i, (key, value)) in given.enumerate() {
        let mark = if i == 0 { '?' } else { '&' };
        // Writing to a string does not fail.
        let _ = write!(path, "{mark}{key}={}", part(value));
    }
    path
}

/// Every call fails with a [`ClientError`] that says what to do.
#[allow(clippy::missing_errors_doc)] // said once, above
impl Client {
    /// How everything is.
    pub fn status(&mut self) -> Answered<StatusView> {
        self.get("/v1/status".into())
    }

    pub fn tiers(&mut self) -> Answered<Vec<TierView>> {
        self.get("/v1/tiers".into())
    }

    pub fn volumes(&mut self) -> Answered<Vec<VolumeView>> {
        self.get("/v1/volumes".into())
    }

    pub fn volume(&mut self, volume: &str) -> Answered<VolumeView> {
        self.get(format!("/v1/volumes/{}", part(volume)))
    }

    /// A volume's past, oldest first.
    pub fn history(&mut self, volume: &str, last: Nanos) -> Answered<Vec<HistoryPoint>> {
        let path = format!("/v1/volumes/{}/history", part(volume));
        self.get(with_query(path, &[("last", Some(last.to_string()))]))
    }

    /// Returns the reasons for the present place of a volume.
    pub fn why(&mut self, volume: &str) -> Answered<WhyView> {
        self.get(format!("/v1/volumes/{}/why", part(volume)))
    }

    /// Returns the reason why a volume is not on a tier.
    pub fn why_not(&mut self, volume: &str, tier: &str) -> Answered<WhyNotView> {
        let (volume, tier) = (part(volume), part(tier));
        self.get(format!("/v1/volumes/{volume}/why-not/{tier}"))
    }

    /// Where a volume that does not exist yet would do best.
    pub fn place(&mut self, asked: &PlaceQuestion) -> Answered<PlaceView> {
        let PlaceQuestion {
            size,
            class,
            like,
            host,
        } = asked.clone();
        let keys = [
            ("size", Some(size.to_string())),
            ("class", class),
            ("like", like),
            ("host", host),
        ];
        self.get(with_query("/v1/place".into(), &keys))
    }

    /// The current plan of a host; it may be left out when there is one.
    pub fn plan(&mut self, host: Option<&str>) -> Answered<PlanView> {
        let host = host.map(str::to_owned);
        self.get(with_query("/v1/plan".into(), &[("host", host)]))
    }

    /// A plan by its number.
    pub fn plan_of(&mut self, generation: u64, host: Option<&str>) -> Answered<PlanView> {
        let path = format!("/v1/plans/{generation}");
        self.get(with_query(path, &[("host", host.map(str::to_owned))]))
    }

    /// Carries out moves of a plan.
    pub fn apply(&mut self, choice: &Choice) -> Answered<Done> {
        self.choose("apply", choice)
    }

    /// Does not carry out moves of a plan.
    pub fn reject(&mut self, choice: &Choice) -> Answered<Done> {
        self.choose("reject", choice)
    }

    fn choose(&mut self, what: &str, choice: &Choice) -> Answered<Done> {
        let body = MovesBody {
            host: choice.host.clone(),
            moves: choice.moves.clone(),
        };
        self.post(format!("/v1/plans/{}/{what}", choice.generation), &body)
    }

    /// Jobs, newest first, at most `limit`.
    pub fn jobs(&mut self, limit: Option<usize>) -> Answered<Vec<JobView>> {
        let limit = limit.map(|l| l.to_string());
        self.get(with_query("/v1/jobs".into(), &[("limit", limit)]))
    }

    /// Gives a job up.
    pub fn cancel(&mut self, job: u32, host: Option<&str>) -> Answered<Done> {
        let host = host.map(str::to_owned);
        self.post(format!("/v1/jobs/{job}/cancel"), &HostBody { host })
    }

    /// Events with numbers above `after`, or the newest without it; oldest first, at most `limit`.
    pub fn events(&mut self, after: Option<u64>, limit: Option<usize>) -> Answered<Vec<EventView>> {
        let keys = [
            ("after", after.map(|a| a.to_string())),
            ("limit", limit.map(|l| l.to_string())),
        ];
        self.get(with_query("/v1/events".into(), &keys))
    }

    /// What came of moves, newest first, at most `limit`.
    pub fn outcomes(&mut self, limit: Option<usize>) -> Answered<Vec<OutcomeView>> {
        let limit = limit.map(|l| l.to_string());
        self.get(with_query("/v1/outcomes".into(), &[("limit", limit)]))
    }

    /// Answers to broken objectives since the controller was started, newest first, at most `limit`.
    pub fn responses(&mut self, limit: Option<usize>) -> Answered<Vec<ResponseView>> {
        let limit = limit.map(|l| l.to_string());
        self.get(with_query("/v1/responses".into(), &[("limit", limit)]))
    }

    /// Begins nothing new anywhere.
    pub fn pause(&mut self) -> Answered<Done> {
        self.post("/v1/pause".into(), &serde_json::json!({}))
    }

    /// Goes on.
    pub fn resume(&mut self) -> Answered<Done> {
        self.post("/v1/resume".into(), &serde_json::json!({}))
    }

    /// Has the controller read its configuration anew.
    pub fn reload(&mut self) -> Answered<Done> {
        self.post("/v1/reload".into(), &serde_json::json!({}))
    }

    /// What a tier takes and keeps.
    pub fn set_tier(&mut self, tier: &str, state: TierState) -> Answered<Done> {
        let path = format!("/v1/tiers/{}/state", part(tier));
        self.call(Method::PUT, path, &TierStateBody { state })
    }

    /// Keeps a volume on a tier; on none in particular without one.
    pub fn pin(&mut self, volume: &str, tier: Option<&str>) -> Answered<Done> {
        let path = format!("/v1/volumes/{}/pin", part(volume));
        let tier = tier.map(str::to_owned);
        self.call(Method::PUT, path, &PinBody { tier })
    }

    /// Lets a volume do no more than this for a time; as much as it can without it.
    pub fn throttle(&mut self, volume: &str, to: Option<Throttle>) -> Answered<Done> {
        let path = format!("/v1/volumes/{}/throttle", part(volume));
        self.call(Method::PUT, path, &ThrottleBody { to })
    }

    /// How far the controller may go for a goal by itself.
    pub fn set_mode(&mut self, goal: Goal, mode: Mode) -> Answered<Done> {
        let path = format!("/v1/modes/{}", goal_name(goal));
        self.call(Method::PUT, path, &ModeBody { mode })
    }

    /// A host's facts, policy and state as a scenario file; of the last decision that could place data without a number.
    pub fn export_facts(
        &mut self,
        host: Option<&str>,
        generation: Option<u64>,
    ) -> Answered<String> {
        let keys = [
            ("host", host.map(str::to_owned)),
            ("generation", generation.map(|g| g.to_string())),
        ];
        self.text(&with_query("/v1/export/facts".into(), &keys))
    }

    /// An agent is there.
    pub fn register(&mut self, host: &str, message: &Register) -> Answered<Welcome> {
        self.post(format!("/v1/agents/{}/register", part(host)), message)
    }

    /// A window of an agent's array.
    pub fn report(&mut self, host: &str, message: &WindowReport) -> Answered<Orders> {
        self.post(format!("/v1/agents/{}/report", part(host)), message)
    }

    /// Jobs of an agent's array that have ended.
    pub fn jobs_ended(&mut self, host: &str, message: &JobsReport) -> Answered<Orders> {
        self.post(format!("/v1/agents/{}/jobs", part(host)), message)
    }

    /// The interface as an OpenAPI document.
    pub fn openapi(&mut self) -> Answered<serde_json::Value> {
        self.get("/v1/openapi.json".into())
    }

    /// Metrics in Prometheus' text format.
    pub fn metrics(&mut self) -> Answered<String> {
        self.text("/metrics")
    }

    /// Whether the controller is well; needs no token.
    pub fn health(&mut self) -> Answered<()> {
        self.text("/healthz").map(|_| ())
    }

    fn get<T: DeserializeOwned>(&mut self, path: String) -> Answered<T> {
        let (status, body) = self.send(Method::GET, &path, vec![])?;
        self.understood(status, &body)
    }

    fn post<T: DeserializeOwned>(&mut self, path: String, body: &impl Serialize) -> Answered<T> {
        self.call(Method::POST, path, body)
    }

    fn call<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: String,
        body: &impl Serialize,
    ) -> Answered<T> {
        let body = serde_json::to_vec(body).map_err(|e| ClientError::Invalid(e.to_string()))?;
        let (status, body) = self.send(method, &path, body)?;
        self.understood(status, &body)
    }

    fn text(&mut self, path: &str) -> Answered<String> {
        let (status, body) = self.send(Method::GET, path, vec![])?;
        if status != StatusCode::OK {
            return Err(self.refused(status, &body));
        }
        String::from_utf8(body.into()).map_err(|e| self.strange(e.to_string()))
    }

    fn understood<T: DeserializeOwned>(&self, status: StatusCode, body: &[u8]) -> Answered<T> {
        match status {
            StatusCode::OK => serde_json::from_slice(body).map_err(|e| self.strange(e.to_string())),
            _ => Err(self.refused(status, body)),
        }
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> ClientError {
        if status == StatusCode::CONFLICT
            && let Ok(refusal) = serde_json::from_slice::<WireRefusal>(body)
        {
            return ClientError::Wire(refusal);
        }
        let Ok(ErrorBody { error }) = serde_json::from_slice(body) else {
            return self.strange(format!("status {status}"));
        };
        match status {
            StatusCode::UNAUTHORIZED => ClientError::Unauthorized(error),
            StatusCode::FORBIDDEN => ClientError::Forbidden(error),
            StatusCode::NOT_FOUND => ClientError::NotFound(error),
            StatusCode::CONFLICT => ClientError::Conflict(error),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                ClientError::Unavailable(error)
            }
            _ => ClientError::Invalid(error),
        }
    }

    fn strange(&self, why: String) -> ClientError {
        let address = self.address.to_string();
        ClientError::Strange { address, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded() {
        assert_eq!(part("alpha/db 1?é").to_string(), "alpha%2Fdb%201%3F%C3%A9");
        let keys = [
            ("a", None),
            ("host", Some("x&y".into())),
            ("n", Some("1".into())),
        ];
        assert_eq!(with_query("/p".into(), &keys), "/p?host=x%26y&n=1");
        assert_eq!(with_query("/p".into(), &[("a", None)]), "/p");
    }
}
