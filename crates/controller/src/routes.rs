//! The table of routes: what can be asked, by whom, in which words. The router and the OpenAPI document are both made of it.

mod asked;

use client::body::{HostBody, ModeBody, MovesBody, PinBody, ThrottleBody, TierStateBody};
use manager::question::{Answer, Done, PlaceQuestion, Question, Refusal};
use manager::store::HistoryPoint;
use manager::view::{
    EventView, JobView, OutcomeView, PlaceView, PlanView, ResponseView, StatusView, TierView,
    VolumeView, WhyNotView, WhyView,
};
use manager::wire::{JobsReport, Orders, Register, Welcome, WindowReport};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::access::Role;
use crate::call::{Call, Reply, unexpected};
use crate::limits::{AGENT_BODY_BYTES_MAX, BODY_BYTES_MAX};
use crate::problem::Problem;
use crate::routes::asked::{
    EventsQuery, ExportQuery, HostQuery, LAST_DEFAULT, LastQuery, LimitQuery, NoFields, choice,
    rows,
};
use crate::{metrics, openapi, page};

/// How a route is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
    Put,
}

/// What is asked of a generator of schemas.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Form of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    Json(SchemaOf),
    /// Text of this content type.
    Text(&'static str),
    /// A page, or a part of one.
    Html,
    /// JSON without a schema of its own.
    Document,
}

/// A line of the table.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) summary: &'static str,
    /// None: anybody may.
    pub(crate) role: Option<Role>,
    pub(crate) query: Option<SchemaOf>,
    pub(crate) body: Option<SchemaOf>,
    pub(crate) form: Form,
    pub(crate) run: fn(&Call) -> Result<Reply, Problem>,
}

impl Route {
    const fn get(
        path: &'static str,
        summary: &'static str,
        form: Form,
        run: fn(&Call) -> Result<Reply, Problem>,
    ) -> Self {
        Self {
            method: Method::Get,
            path,
            summary,
            role: Some(Role::Read),
            query: None,
            body: None,
            form,
            run,
        }
    }

    /// An order: what it does is said in one line.
    const fn order(
        method: Method,
        path: &'static str,
        summary: &'static str,
        run: fn(&Call) -> Result<Reply, Problem>,
    ) -> Self {
        Self {
            method,
            role: Some(Role::Operate),
            ..Self::get(path, summary, json::<Done>(), run)
        }
    }

    /// A message of an agent.
    const fn agent(
        path: &'static str,
        summary: &'static str,
        body: SchemaOf,
        form: Form,
        run: fn(&Call) -> Result<Reply, Problem>,
    ) -> Self {
        Self {
            method: Method::Post,
            role: Some(Role::Agent),
            body: Some(body),
            ..Self::get(path, summary, form, run)
        }
    }

    const fn query<Q: JsonSchema>(self) -> Self {
        Self {
            query: Some(SchemaGenerator::subschema_for::<Q>),
            ..self
        }
    }

    const fn body<B: JsonSchema>(self) -> Self {
        Self {
            body: Some(SchemaGenerator::subschema_for::<B>),
            ..self
        }
    }

    const fn role(self, role: Option<Role>) -> Self {
        Self { role, ..self }
    }

    pub(crate) fn body_bytes_max(&self) -> usize {
        match (self.body, self.role) {
            (None, _) => 0,
            (Some(_), Some(Role::Agent)) => AGENT_BODY_BYTES_MAX,
            (Some(_), _) => BODY_BYTES_MAX,
        }
    }
}

const fn json<T: JsonSchema>() -> Form {
    Form::Json(SchemaGenerator::subschema_for::<T>)
}

pub(crate) const ROUTES: &[Route] = &[
    Route::get(
        "/v1/status",
        "How everything is",
        json::<StatusView>(),
        |call| call.answer(Question::Status),
    ),
    Route::get("/v1/tiers", "All tiers", json::<Vec<TierView>>(), |call| {
        call.answer(Question::Tiers)
    }),
    Route::get(
        "/v1/volumes",
        "All volumes",
        json::<Vec<VolumeView>>(),
        |call| call.answer(Question::Volumes),
    ),
    Route::get(
        "/v1/volumes/{volume}",
        "One volume",
        json::<VolumeView>(),
        |call| {
            let volume = call.part("volume");
            call.answer(Question::Volume { volume })
        },
    ),
    Route::get(
        "/v1/volumes/{volume}/history",
        "A volume's past, oldest first",
        json::<Vec<HistoryPoint>>(),
        |call| {
            let volume = call.part("volume");
            let last_ns = call.query::<LastQuery>()?.last.unwrap_or(LAST_DEFAULT).0;
            call.answer(Question::History { volume, last_ns })
        },
    )
    .query::<LastQuery>(),
    Route::get(
        "/v1/volumes/{volume}/why",
        "Why a volume is where it is",
        json::<WhyView>(),
        |call| {
            let volume = call.part("volume");
            call.answer(Question::Why { volume })
        },
    ),
    Route::get(
        "/v1/volumes/{volume}/why-not/{tier}",
        "Why a volume is not on a tier",
        json::<WhyNotView>(),
        |call| {
            let (volume, tier) = (call.part("volume"), call.part("tier"));
            call.answer(Question::WhyNot { volume, tier })
        },
    ),
    Route::get(
        "/v1/place",
        "Where a volume that does not exist yet would do best",
        json::<PlaceView>(),
        |call| call.answer(Question::Place(call.query()?)),
    )
    .query::<PlaceQuestion>(),
    Route::get(
        "/v1/plan",
        "The current plan of a host",
        json::<PlanView>(),
        |call| {
            let HostQuery { host } = call.query()?;
            let generation = None;
            call.answer(Question::Plan { host, generation })
        },
    )
    .query::<HostQuery>(),
    Route::get(
        "/v1/plans/{generation}",
        "A plan by its number",
        json::<PlanView>(),
        |call| {
            let HostQuery { host } = call.query()?;
            let generation = Some(call.number("generation")?);
            call.answer(Question::Plan { host, generation })
        },
    )
    .query::<HostQuery>(),
    Route::order(
        Method::Post,
        "/v1/plans/{generation}/apply",
        "Carry out moves of a plan",
        |call| call.answer(Question::Apply(choice(call)?)),
    )
    .body::<MovesBody>(),
    Route::order(
        Method::Post,
        "/v1/plans/{generation}/reject",
        "Do not carry out moves of a plan",
        |call| call.answer(Question::Reject(choice(call)?)),
    )
    .body::<MovesBody>(),
    Route::get(
        "/v1/jobs",
        "Jobs, newest first",
        json::<Vec<JobView>>(),
        |call| {
            let limit = rows(call.query::<LimitQuery>()?.limit)?;
            call.answer(Question::Jobs { limit })
        },
    )
    .query::<LimitQuery>(),
    Route::order(
        Method::Post,
        "/v1/jobs/{job}/cancel",
        "Give a job up",
        |call| {
            let job = call.number("job")?;
            let HostBody { host } = call.body()?;
            call.answer(Question::CancelJob { host, job })
        },
    )
    .body::<HostBody>(),
    Route::get(
        "/v1/events",
        "Events, oldest first",
        json::<Vec<EventView>>(),
        |call| {
            let EventsQuery { after, limit } = call.query()?;
            let limit = rows(limit)?;
            call.answer(Question::Events { after, limit })
        },
    )
    .query::<EventsQuery>(),
    Route::get(
        "/v1/outcomes",
        "What came of moves, newest first",
        json::<Vec<OutcomeView>>(),
        |call| {
            let limit = rows(call.query::<LimitQuery>()?.limit)?;
            call.answer(Question::Outcomes { limit })
        },
    )
    .query::<LimitQuery>(),
    Route::get(
        "/v1/responses",
        "Answers to broken objectives since the controller was started, newest first, with what they rest on",
        json::<Vec<ResponseView>>(),
        |call| {
            let limit = rows(call.query::<LimitQuery>()?.limit)?;
            call.answer(Question::Responses { limit })
        },
    )
    .query::<LimitQuery>(),
    Route::order(
        Method::Post,
        "/v1/pause",
        "Begin nothing new anywhere",
        |call| {
            call.body::<NoFields>()?;
            call.answer(Question::Pause)
        },
    )
    .body::<NoFields>(),
    Route::order(Method::Post, "/v1/resume", "Go on", |call| {
        call.body::<NoFields>()?;
        call.answer(Question::Resume)
    })
    .body::<NoFields>(),
    Route::order(
        Method::Post,
        "/v1/reload",
        "Read the configuration anew",
        |call| {
            call.body::<NoFields>()?;
            Reply::json(&call.state.reload(&call.actor())?)
        },
    )
    .body::<NoFields>()
    .role(Some(Role::Admin)),
    Route::order(
        Method::Put,
        "/v1/tiers/{tier}/state",
        "What a tier takes and keeps",
        |call| {
            let tier = call.part("tier");
            let TierStateBody { state } = call.body()?;
            call.answer(Question::SetTier { tier, state })
        },
    )
    .body::<TierStateBody>(),
    Route::order(
        Method::Put,
        "/v1/volumes/{volume}/pin",
        "Keep a volume on a tier",
        |call| {
            let volume = call.part("volume");
            let PinBody { tier } = call.body()?;
            call.answer(Question::Pin { volume, tier })
        },
    )
    .body::<PinBody>(),
    Route::order(
        Method::Put,
        "/v1/volumes/{volume}/throttle",
        "Let a volume do no more than this for a time",
        |call| {
            let volume = call.part("volume");
            let ThrottleBody { to } = call.body()?;
            call.answer(Question::Throttle { volume, to })
        },
    )
    .body::<ThrottleBody>(),
    Route::order(
        Method::Put,
        "/v1/modes/{goal}",
        "How far the controller may go for a goal by itself",
        |call| {
            let goal = call.word("goal")?;
            let ModeBody { mode } = call.body()?;
            call.answer(Question::SetMode { goal, mode })
        },
    )
    .body::<ModeBody>()
    .role(Some(Role::Admin)),
    Route::get(
        "/v1/export/facts",
        "A host's facts, policy and state as a scenario file",
        Form::Text("application/toml"),
        |call| {
            let ExportQuery { host, generation } = call.query()?;
            match call.ask(Question::ExportFacts { host, generation })? {
                Answer::Text(text) => Ok(Reply::text("application/toml", text)),
                _ => Err(unexpected()),
            }
        },
    )
    .query::<ExportQuery>(),
    Route::agent(
        "/v1/agents/{host}/register",
        "An agent is there",
        SchemaGenerator::subschema_for::<Register>,
        json::<Welcome>(),
        |call| call.message(|service, now, host, m| Ok(service.register(now, host, m)?)),
    ),
    Route::agent(
        "/v1/agents/{host}/report",
        "A window of an agent's array; answered with its orders",
        SchemaGenerator::subschema_for::<WindowReport>,
        json::<Orders>(),
        |call| call.message(|service, now, host, m| Ok(service.report(now, host, m)?)),
    ),
    Route::agent(
        "/v1/agents/{host}/jobs",
        "Jobs of an agent's array that have ended; answered with its orders",
        SchemaGenerator::subschema_for::<JobsReport>,
        json::<Orders>(),
        |call| call.message(|service, now, host, m| Ok(service.jobs_ended(now, host, m)?)),
    ),
    Route::get("/v1/openapi.json", "This document", Form::Document, |_| {
        Reply::json(&openapi::openapi())
    }),
    Route::get(
        "/metrics",
        "Metrics for Prometheus",
        Form::Text(metrics::CONTENT_TYPE),
        metrics::answer,
    ),
    Route::get(
        "/healthz",
        "Whether the controller is well",
        Form::Text("text/plain; charset=utf-8"),
        |call| {
            if let Answer::Status(status) = call.ask(Question::Status)?
                && let Some(why) = status.store_failure
            {
                return Err(Refusal::Unavailable(why).into());
            }
            Ok(Reply::text("text/plain; charset=utf-8", "ok\n"))
        },
    )
    .role(None),
    Route::get(page::HOME, "The page", Form::Html, page::whole).query::<page::Wanted>(),
    Route::get(
        "/page/parts",
        "What changes on the page",
        Form::Html,
        page::parts,
    )
    .query::<page::Wanted>(),
    Route::get(
        "/page/page.css",
        "Style of the page",
        Form::Text("text/css; charset=utf-8"),
        |_| Ok(Reply::text("text/css; charset=utf-8", page::STYLE)),
    )
    .role(None),
    Route::get(
        "/page/page.js",
        "Script of the page",
        Form::Text("text/javascript; charset=utf-8"),
        |_| Ok(Reply::text("text/javascript; charset=utf-8", page::SCRIPT)),
    )
    .role(None),
    Route::get(
        "/page/sign-in.js",
        "Script of the form that signs in",
        Form::Text("text/javascript; charset=utf-8"),
        |_| Ok(Reply::text("text/javascript; charset=utf-8", page::SIGN_IN_SCRIPT)),
    )
    .role(None),
];
