//! Dispatch of HTTP requests to routes: authentication, limits of bodies, and headers of replies.

use std::future::ready;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::{MethodFilter, on, post};
use tracing::error;

use crate::access::{self, AuthMethod, Caller, Peer, Role};
use crate::call::{Call, Reply, State};
use crate::limits::SIGN_IN_BYTES_MAX;
use crate::page;
use crate::problem::Problem;
use crate::routes::{Form, Method, ROUTES, Route};

/// The page may load only its own script and style, connect only to its own server, and may not be framed.
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
    // Routes of the page, which are not part of the interface.
    let (of_in, of_out) = (state.clone(), state.clone());
    router = router
        .route(
            page::SIGN_IN,
            post(move |request: Request| sign_in(of_in, request)),
        )
        .route(
            page::SIGN_OUT,
            post(move |request: Request| sign_out(of_out, request)),
        );
    let not_found = |request: Request| {
        let words = format!(
            "no resource at {}: see /v1/openapi.json",
            request.uri().path()
        );
        ready(refused(
            Form::Document,
            Problem::new(StatusCode::NOT_FOUND, words),
        ))
    };
    let wrong_method = |request: Request| {
        let words = format!(
            "{} does not accept {}",
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
        // The route panicked. If the service panicked, its mutex is now poisoned.
        Err(why) => {
            error!(path = route.path, %why, "a request caused a panic");
            let words = "this request caused a failure of the controller: its log has the details";
            let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, words);
            refused(route.form, problem)
        }
    }
}

/// Authenticates the caller and reads the request. The body of an unauthorized caller is not read.
async fn understood(
    state: Arc<State>,
    route: &'static Route,
    mut parts: Parts,
    body: Body,
) -> Result<Call, Problem> {
    let peer = peer(&parts)?;
    let caller = match route.role {
        None => {
            access::admit_unknown(&peer)?;
            nobody()
        }
        Some(needed) => {
            let caller = Caller::find(&peer, &parts.headers, &state)?;
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
    let (most, limits) = (route.body_bytes_max(), state.limits);
    let reading = state
        .bodies
        .read(&caller.name, &parts.headers, body, most, &limits);
    let body = reading.await?;
    Ok(Call {
        state,
        caller,
        path,
        query,
        body,
    })
}

/// Returns the caller of public routes.
fn nobody() -> Caller {
    Caller {
        role: Role::Read,
        name: "anybody".into(),
        through: AuthMethod::Header,
    }
}

fn peer(parts: &Parts) -> Result<Peer, Problem> {
    let peer = parts.extensions.get::<Peer>().cloned();
    peer.ok_or_else(|| {
        let words = "internal error: connection without a peer";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, words)
    })
}

/// Exchanges the token in a form for a session.
async fn sign_in(state: Arc<State>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let signed = async {
        let peer = peer(&parts)?;
        access::admit_unknown(&peer)?;
        access::check_form(&parts.headers)?;
        let (most, limits) = (SIGN_IN_BYTES_MAX, state.limits);
        let reading = state
            .bodies
            .read("anybody", &parts.headers, body, most, &limits);
        let body = reading.await?;
        let fields: Vec<(String, String)> = serde_urlencoded::from_bytes(body.bytes())
            .map_err(|e| Problem::invalid(format!("the form is not understood: {e}")))?;
        let token = fields.iter().find(|(name, _)| name == "token");
        let secret = token.map(|(_, secret)| secret.trim()).unwrap_or_default();
        access::sign_in(&peer, secret.as_bytes(), &state)
    };
    home_with(signed.await)
}

/// Ends the session of the page.
async fn sign_out(state: Arc<State>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let signed = peer(&parts)
        .and_then(|peer| access::admit_unknown(&peer))
        .and_then(|()| access::check_form(&parts.headers))
        .map(|()| access::sign_out(&parts.headers, &state));
    home_with(signed)
}

/// Redirects to the page with a new cookie.
fn home_with(cookie: Result<String, Problem>) -> Response {
    let cookie = match cookie {
        Ok(cookie) => cookie,
        Err(problem) => return refused(Form::Html, problem),
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    set(&mut response, SET_COOKIE, &cookie);
    set(&mut response, LOCATION, page::HOME);
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
    match status {
        StatusCode::UNAUTHORIZED => set(&mut response, WWW_AUTHENTICATE, "Bearer"),
        StatusCode::TOO_MANY_REQUESTS => set(&mut response, RETRY_AFTER, "5"),
        _ => {}
    }
    protected(response)
}

/// Adds the headers that protect browsers to a reply.
fn protected(mut response: Response) -> Response {
    set(&mut response, CONTENT_SECURITY_POLICY, POLICY);
    set(&mut response, X_CONTENT_TYPE_OPTIONS, "nosniff");
    // Browsers send the referrer only to this site, where forms are checked with it.
    set(&mut response, REFERRER_POLICY, "same-origin");
    set(&mut response, CACHE_CONTROL, "no-store");
    response
}

fn set(response: &mut Response, name: HeaderName, value: &str) {
    // Tokens have only characters that headers allow; other values are not sent.
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
