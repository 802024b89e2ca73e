//! One call per route of the REST interface.

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

type CallResult<T> = Result<T, ClientError>;

/// Encodes a name as one path segment, including slashes.
fn part(name: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(name, NON_ALPHANUMERIC)
}

/// Returns a path with the query keys that have a value.
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

/// Calls of the REST interface. Each fails with a [`ClientError`], whose message has the required action.
#[allow(clippy::missing_errors_doc)] // documented above
impl Client {
    /// Returns the state of the whole system.
    pub fn status(&mut self) -> CallResult<StatusView> {
        self.get("/v1/status".into())
    }

    pub fn tiers(&mut self) -> CallResult<Vec<TierView>> {
        self.get("/v1/tiers".into())
    }

    pub fn volumes(&mut self) -> CallResult<Vec<VolumeView>> {
        self.get("/v1/volumes".into())
    }

    pub fn volume(&mut self, volume: &str) -> CallResult<VolumeView> {
        self.get(format!("/v1/volumes/{}", part(volume)))
    }

    /// Returns the history of a volume, oldest first.
    pub fn history(&mut self, volume: &str, last: Nanos) -> CallResult<Vec<HistoryPoint>> {
        let path = format!("/v1/volumes/{}/history", part(volume));
        self.get(with_query(path, &[("last", Some(last.to_string()))]))
    }

    /// Returns the reasons for the present place of a volume.
    pub fn why(&mut self, volume: &str) -> CallResult<WhyView> {
        self.get(format!("/v1/volumes/{}/why", part(volume)))
    }

    /// Returns the reason why a volume is not on a tier.
    pub fn why_not(&mut self, volume: &str, tier: &str) -> CallResult<WhyNotView> {
        let (volume, tier) = (part(volume), part(tier));
        self.get(format!("/v1/volumes/{volume}/why-not/{tier}"))
    }

    /// Returns the best places for a volume that does not exist yet.
    pub fn place(&mut self, asked: &PlaceQuestion) -> CallResult<PlaceView> {
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

    /// Returns the current plan of a host, which is optional if there is only one.
    pub fn plan(&mut self, host: Option<&str>) -> CallResult<PlanView> {
        let host = host.map(str::to_owned);
        self.get(with_query("/v1/plan".into(), &[("host", host)]))
    }

    /// Returns the plan with a number.
    pub fn plan_of(&mut self, generation: u64, host: Option<&str>) -> CallResult<PlanView> {
        let path = format!("/v1/plans/{generation}");
        self.get(with_query(path, &[("host", host.map(str::to_owned))]))
    }

    /// Approves moves of a plan.
    pub fn apply(&mut self, choice: &Choice) -> CallResult<Done> {
        self.choose("apply", choice)
    }

    /// Rejects moves of a plan.
    pub fn reject(&mut self, choice: &Choice) -> CallResult<Done> {
        self.choose("reject", choice)
    }

    fn choose(&mut self, what: &str, choice: &Choice) -> CallResult<Done> {
        let body = MovesBody {
            host: choice.host.clone(),
            moves: choice.moves.clone(),
        };
        self.post(format!("/v1/plans/{}/{what}", choice.generation), &body)
    }

    /// Returns the newest jobs, newest first, at most `limit`.
    pub fn jobs(&mut self, limit: Option<usize>) -> CallResult<Vec<JobView>> {
        let limit = limit.map(|l| l.to_string());
        self.get(with_query("/v1/jobs".into(), &[("limit", limit)]))
    }

    /// Cancels a job.
    pub fn cancel(&mut self, job: u32, host: Option<&str>) -> CallResult<Done> {
        let host = host.map(str::to_owned);
        self.post(format!("/v1/jobs/{job}/cancel"), &HostBody { host })
    }

    /// Returns the events with numbers above `after`, or the newest ones without it; oldest first, at most `limit`.
    pub fn events(
        &mut self,
        after: Option<u64>,
        limit: Option<usize>,
    ) -> CallResult<Vec<EventView>> {
        let keys = [
            ("after", after.map(|a| a.to_string())),
            ("limit", limit.map(|l| l.to_string())),
        ];
        self.get(with_query("/v1/events".into(), &keys))
    }

    /// Returns the outcomes of moves, newest first, at most `limit`.
    pub fn outcomes(&mut self, limit: Option<usize>) -> CallResult<Vec<OutcomeView>> {
        let limit = limit.map(|l| l.to_string());
        self.get(with_query("/v1/outcomes".into(), &[("limit", limit)]))
    }

    /// Returns the responses to violations since the controller started, newest first, at most `limit`.
    pub fn responses(&mut self, limit: Option<usize>) -> CallResult<Vec<ResponseView>> {
        let limit = limit.map(|l| l.to_string());
        self.get(with_query("/v1/responses".into(), &[("limit", limit)]))
    }

    /// Pauses the controller: nothing new starts on any host.
    pub fn pause(&mut self) -> CallResult<Done> {
        self.post("/v1/pause".into(), &serde_json::json!({}))
    }

    /// Ends the pause.
    pub fn resume(&mut self) -> CallResult<Done> {
        self.post("/v1/resume".into(), &serde_json::json!({}))
    }

    /// Reloads the configuration of the controller.
    pub fn reload(&mut self) -> CallResult<Done> {
        self.post("/v1/reload".into(), &serde_json::json!({}))
    }

    /// Sets the state of a tier.
    pub fn set_tier(&mut self, tier: &str, state: TierState) -> CallResult<Done> {
        let path = format!("/v1/tiers/{}/state", part(tier));
        self.call(Method::PUT, path, &TierStateBody { state })
    }

    /// Pins a volume to a tier; `None` removes the pin.
    pub fn pin(&mut self, volume: &str, tier: Option<&str>) -> CallResult<Done> {
        let path = format!("/v1/volumes/{}/pin", part(volume));
        let tier = tier.map(str::to_owned);
        self.call(Method::PUT, path, &PinBody { tier })
    }

    /// Throttles a volume for a time; `None` removes the limit.
    pub fn throttle(&mut self, volume: &str, to: Option<Throttle>) -> CallResult<Done> {
        let path = format!("/v1/volumes/{}/throttle", part(volume));
        self.call(Method::PUT, path, &ThrottleBody { to })
    }

    /// Sets the mode of a goal.
    pub fn set_mode(&mut self, goal: Goal, mode: Mode) -> CallResult<Done> {
        let path = format!("/v1/modes/{}", goal_name(goal));
        self.call(Method::PUT, path, &ModeBody { mode })
    }

    /// Returns facts, policy and state of a host as a scenario file: of the decision with this number, or of the last one
    /// that could place data.
    pub fn export_facts(
        &mut self,
        host: Option<&str>,
        generation: Option<u64>,
    ) -> CallResult<String> {
        let keys = [
            ("host", host.map(str::to_owned)),
            ("generation", generation.map(|g| g.to_string())),
        ];
        self.text(&with_query("/v1/export/facts".into(), &keys))
    }

    /// Registers an agent.
    pub fn register(&mut self, host: &str, message: &Register) -> CallResult<Welcome> {
        self.post(format!("/v1/agents/{}/register", part(host)), message)
    }

    /// Reports a window of an agent's array.
    pub fn report(&mut self, host: &str, message: &WindowReport) -> CallResult<Orders> {
        self.post(format!("/v1/agents/{}/report", part(host)), message)
    }

    /// Reports ended jobs of an agent's array.
    pub fn jobs_ended(&mut self, host: &str, message: &JobsReport) -> CallResult<Orders> {
        self.post(format!("/v1/agents/{}/jobs", part(host)), message)
    }

    /// Returns the OpenAPI document of the interface.
    pub fn openapi(&mut self) -> CallResult<serde_json::Value> {
        self.get("/v1/openapi.json".into())
    }

    /// Returns metrics in the text format of Prometheus.
    pub fn metrics(&mut self) -> CallResult<String> {
        self.text("/metrics")
    }

    /// Checks the health of the controller; needs no token.
    pub fn health(&mut self) -> CallResult<()> {
        self.text("/healthz").map(|_| ())
    }

    fn get<T: DeserializeOwned>(&mut self, path: String) -> CallResult<T> {
        let (status, body) = self.send(Method::GET, &path, vec![])?;
        self.understood(status, &body)
    }

    fn post<T: DeserializeOwned>(&mut self, path: String, body: &impl Serialize) -> CallResult<T> {
        self.call(Method::POST, path, body)
    }

    fn call<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: String,
        body: &impl Serialize,
    ) -> CallResult<T> {
        let body = serde_json::to_vec(body).map_err(|e| ClientError::Invalid(e.to_string()))?;
        let (status, body) = self.send(method, &path, body)?;
        self.understood(status, &body)
    }

    fn text(&mut self, path: &str) -> CallResult<String> {
        let (status, body) = self.send(Method::GET, path, vec![])?;
        if status != StatusCode::OK {
            return Err(self.refused(status, &body));
        }
        String::from_utf8(body.into()).map_err(|e| self.strange(e.to_string()))
    }

    fn understood<T: DeserializeOwned>(&self, status: StatusCode, body: &[u8]) -> CallResult<T> {
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
    fn names_are_encoded_in_urls() {
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
