//! From HTTP to a route and back: who asks, how much they may send, and the headers of answers.

use std::future::ready;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    LOCATION, REFERRER_POLICY, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use tokio::time::timeout;
use tracing::error;

use crate::access::{Caller, Peer, Role, SignIn, Through};
use crate::call::{Call, Reply, State};
use crate::page;
use crate::problem::Problem;
use crate::routes::{Form, Method, ROUTES, Route};

/// The page loads its own script and style and asks its own server; nothing else, and nobody frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// All routes.
pub(crate) fn router(state: &Arc<State>) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let filter = match route.method {
            Method::Get => MethodFilter::GET,
            Method::Post => MethodFilter::POST,
            Method::Put => MethodFilter::PUT,
        };
        let state = state.clone();
        let handler = on(filter, move |request: Request| {
            answer(state, route, request)
        });
        router = router.route(route.path, handler);
    }
    let not_found = |request: Request| {
        let words = format!("there is nothing at {}", request.uri().path());
        ready(refused(
            Form::Document,
            Problem::new(StatusCode::NOT_FOUND, words),
        ))
    };
    let wrong_method = |request: Request| {
        let words = format!(
            "{} does not take {}",
            request.uri().path(),
            request.method()
        );
        let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, words);
        ready(refused(Form::Document, problem))
    };
    router
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
}

async fn answer(state: Arc<State>, route: &'static Route, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if route.path == page::HOME
        && let Some(sign_in) = SignIn::asked(&parts.uri, &state.tokens())
    {
        return match sign_in {
            Ok(sign_in) => signed_in(&sign_in),
            Err(problem) => refused(route.form, problem),
        };
    }
    let worked = match understood(state, route, parts, body).await {
        Ok(call) => tokio::task::spawn_blocking(move || (route.run)(&call)).await,
        Err(problem) => Ok(Err(problem)),
    };
    match worked {
        Ok(Ok(reply)) => replied(reply),
        Ok(Err(problem)) => {
            if problem.status == StatusCode::INTERNAL_SERVER_ERROR {
                error!(path = route.path, why = problem.words(), "a request failed");
            }
            refused(route.form, problem)
        }
        // It panicked. The service's mutex says so from now on, if it was the service.
        Err(why) => {
            error!(path = route.path, %why, "a request made the controller fail");
            let words = "this request made the controller fail";
            let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, words);
            refused(route.form, problem)
        }
    }
}

/// Everything that is to be known before a route is run. Who has no right to ask is not listened to.
async fn understood(
    state: Arc<State>,
    route: &'static Route,
    mut parts: Parts,
    body: Body,
) -> Result<Call, Problem> {
    let peer = parts.extensions.get().copied().unwrap_or(Peer::Tls);
    let caller = match route.role {
        None => nobody(),
        Some(needed) => {
            let caller = Caller::find(peer, &parts.headers, &state.tokens())?;
            caller.check(needed)?;
            if route.method != Method::Get {
                caller.check_order(&parts.headers)?;
            }
            caller
        }
    };
    let query = parts.uri.query().unwrap_or_default().to_owned();
    if route.query.is_none()
        && let Some(key) = query.split(['&', '=']).find(|k| !k.is_empty())
    {
        let words = format!("the query is not understood: unknown field `{key}`");
        return Err(Problem::invalid(words));
    }
    let path = match RawPathParams::from_request_parts(&mut parts, &()).await {
        Ok(path) => path
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        Err(_) if !route.path.contains('{') => vec![],
        Err(e) => return Err(Problem::invalid(e.body_text())),
    };
    let reading = read(&parts.headers, body, route.body_bytes_max());
    let body = match timeout(state.limits.body_time, reading).await {
        Ok(body) => body?,
        Err(_) => {
            let words = "the body did not arrive in time";
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, words));
        }
    };
    Ok(Call {
        state,
        caller,
        path,
        query,
        body,
    })
}

/// Who asks what anybody may ask.
fn nobody() -> Caller {
    Caller {
        role: Role::Read,
        name: "anybody".into(),
        through: Through::Header,
    }
}

async fn read(headers: &HeaderMap, body: Body, most: usize) -> Result<Vec<u8>, Problem> {
    let too_long = || {
        let words = match most {
            0 => "this takes no body".to_owned(),
            most => format!("the body is longer than {most} bytes"),
        };
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, words)
    };
    let length = headers.get(CONTENT_LENGTH).and_then(|l| l.to_str().ok());
    let length: Option<usize> = length.and_then(|l| l.parse().ok());
    if length.is_some_and(|l| l > most) {
        return Err(too_long());
    }
    match to_bytes(body, most).await {
        Ok(bytes) => Ok(bytes.into()),
        // A client that breaks off gets no answer anyway.
        Err(_) => Err(too_long()),
    }
}

fn signed_in(sign_in: &SignIn) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    set(&mut response, SET_COOKIE, &sign_in.cookie);
    set(&mut response, LOCATION, &sign_in.location);
    protected(response)
}

fn replied(reply: Reply) -> Response {
    let mut response = Response::new(Body::from(reply.body));
    set(&mut response, CONTENT_TYPE, reply.content_type);
    protected(response)
}

fn refused(form: Form, problem: Problem) -> Response {
    let status = problem.status;
    let (content_type, body) = match form {
        Form::Html => (
            "text/html; charset=utf-8",
            page::refused(&problem).into_bytes(),
        ),
        _ => ("application/json", problem.json()),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    set(&mut response, CONTENT_TYPE, content_type);
    if status == StatusCode::UNAUTHORIZED {
        set(&mut response, WWW_AUTHENTICATE, "Bearer");
    }
    protected(response)
}

/// What browsers are told of every answer.
fn protected(mut response: Response) -> Response {
    set(&mut response, CONTENT_SECURITY_POLICY, POLICY);
    set(&mut response, X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(&mut response, REFERRER_POLICY, "no-referrer");
    set(&mut response, CACHE_CONTROL, "no-store");
    response
}

fn set(response: &mut Response, name: HeaderName, value: &str) {
    // Tokens have no characters that a header has not; what still does not fit is not sent.
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
