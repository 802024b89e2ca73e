//! Table of routes with path, role, query, body and reply. The router and the OpenAPI document are generated from it.

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

/// HTTP method of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
    Put,
}

/// Function that adds a type to a schema generator and returns its schema.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Format of a reply.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    Json(SchemaOf),
    /// Text of this content type.
    Text(&'static str),
    /// HTML: the page, or a part.
    Html,
    /// JSON without a schema.
    Document,
}

/// One route.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) summary: &'static str,
    /// Required role; none for public routes.
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

    /// An order; the reply is one line that reports its effect.
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

    /// Message of an agent.
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
        "State of the controller, hosts and problems",
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
        "Measurements of a volume by window, oldest first",
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
        "Reasons for the present place of a volume",
        json::<WhyView>(),
        |call| {
            let volume = call.part("volume");
            call.answer(Question::Why { volume })
        },
    ),
    Route::get(
        "/v1/volumes/{volume}/why-not/{tier}",
        "Reason why a volume is not on a tier",
        json::<WhyNotView>(),
        |call| {
            let (volume, tier) = (call.part("volume"), call.part("tier"));
            call.answer(Question::WhyNot { volume, tier })
        },
    ),
    Route::get(
        "/v1/place",
        "Best tier for a volume that does not exist yet",
        json::<PlaceView>(),
        |call| call.answer(Question::Place(call.query()?)),
    )
    .query::<PlaceQuestion>(),
    Route::get(
        "/v1/plan",
        "Newest plan of a host",
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
        "Approve moves of a plan",
        |call| call.answer(Question::Apply(choice(call)?)),
    )
    .body::<MovesBody>(),
    Route::order(
        Method::Post,
        "/v1/plans/{generation}/reject",
        "Reject moves of a plan",
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
        "Cancel a job",
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
        "Predicted and measured effect of finished moves, newest first",
        json::<Vec<OutcomeView>>(),
        |call| {
            let limit = rows(call.query::<LimitQuery>()?.limit)?;
            call.answer(Question::Outcomes { limit })
        },
    )
    .query::<LimitQuery>(),
    Route::get(
        "/v1/responses",
        "Remedies for SLO violations since the controller started, newest first, with their evidence",
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
        "Pause: start no new moves on any host",
        |call| {
            call.body::<NoFields>()?;
            call.answer(Question::Pause)
        },
    )
    .body::<NoFields>(),
    Route::order(Method::Post, "/v1/resume", "Resume moves", |call| {
        call.body::<NoFields>()?;
        call.answer(Question::Resume)
    })
    .body::<NoFields>(),
    Route::order(
        Method::Post,
        "/v1/reload",
        "Reload the configuration",
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
        "Open, cordon or drain a tier",
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
        "Pin a volume to a tier, or unpin it",
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
        "Throttle a volume for a limited time",
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
        "Set the mode of a goal: off, recommend, partial or auto",
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
        "Register an agent",
        SchemaGenerator::subschema_for::<Register>,
        json::<Welcome>(),
        |call| call.message(|service, now, host, m| Ok(service.register(now, host, m)?)),
    ),
    Route::agent(
        "/v1/agents/{host}/report",
        "Report a window of an agent's array; the reply has its orders",
        SchemaGenerator::subschema_for::<WindowReport>,
        json::<Orders>(),
        |call| call.message(|service, now, host, m| Ok(service.report(now, host, m)?)),
    ),
    Route::agent(
        "/v1/agents/{host}/jobs",
        "Report ended jobs of an agent's array; the reply has its orders",
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
        "Health check: 503 if the store cannot be written",
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
    Route::get(page::HOME, "Web page", Form::Html, page::whole).query::<page::PageQuery>(),
    Route::get(
        "/page/parts",
        "Parts of the page that change",
        Form::Html,
        page::parts,
    )
    .query::<page::PageQuery>(),
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
        "Script of the sign-in form",
        Form::Text("text/javascript; charset=utf-8"),
        |_| Ok(Reply::text("text/javascript; charset=utf-8", page::SIGN_IN_SCRIPT)),
    )
    .role(None),
];
