//! Renders the web page: as a whole document for the first request, and as parts that its script fetches every two seconds.
//! The page loads nothing from other servers. Without the script it shows the same content but does not refresh.

mod data;
mod lists;
mod overview;
mod plans;
mod spark;
mod volumes;
mod words;

use axum::http::StatusCode;
use maud::{DOCTYPE, Markup, html};

pub(crate) use data::PageQuery;

use crate::access::{AuthMethod, Role};
use crate::call::{Call, Reply};
use crate::page::data::PageData;
use crate::problem::Problem;

/// Path of the page.
pub(crate) const HOME: &str = "/";

/// Path that the sign-in form is sent to.
pub(crate) const SIGN_IN: &str = "/sign-in";

pub(crate) const SIGN_OUT: &str = "/sign-out";

/// The script of the sign-in form. It reads a token from the fragment of the URL, which browsers do not send.
pub(crate) const SIGN_IN_SCRIPT: &str = include_str!("page/sign-in.js");

pub(crate) const STYLE: &str = include_str!("page/page.css");

pub(crate) const SCRIPT: &str = include_str!("page/page.js");

const HTML: &str = "text/html; charset=utf-8";

/// Rights of the viewer: operators may send orders, readers may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Viewer {
    Operator,
    Reader,
}

impl Viewer {
    fn of(role: Role) -> Self {
        match role.may(Role::Operate) {
            true => Viewer::Operator,
            false => Viewer::Reader,
        }
    }
}

/// Renders the whole page.
pub(crate) fn whole(call: &Call) -> Result<Reply, Problem> {
    let wanted: PageQuery = call.query()?;
    let shown = PageData::gather(call, &wanted)?;
    let viewer = Viewer::of(call.caller.role);
    let document = document(
        "Terrace",
        html! {
            a class="skip" href="#volumes-section" { "Skip to the volumes" }
            header {
                h1 { "Terrace" }
                nav aria-label="Sections" {
                    a href="#overview-section" { "Overview" }
                    a href="#plans-section" { "Recommendations" }
                    a href="#volumes-section" { "Volumes" }
                    a href="#jobs-section" { "Jobs" }
                    a href="#outcomes-section" { "Outcomes" }
                    a href="#responses-section" { "Remedies" }
                    a href="#events-section" { "Events" }
                }
                // The script replaces this text with the age of the page.
                p id="live" role="status" { "not live: reload the page to refresh it" }
            }
            p id="said" role="alert" hidden {}
            main {
                form class="note" method="post" action=(SIGN_OUT) {
                    "Signed in as " b { (call.caller.name) } " with the role " (call.caller.role.name())
                    @if viewer == Viewer::Reader { ": orders require the role operate" }
                    ". "
                    @if call.caller.through == AuthMethod::Cookie {
                        button type="submit" { "Sign out" }
                    }
                }
                section id="overview-section" aria-label="Overview" { h2 { "Overview" } (overview::part(&shown, viewer)) }
                section id="plans-section" aria-label="Recommendations" { h2 { "Recommendations" } (plans::part(&shown, viewer)) }
                section id="volumes-section" aria-label="Volumes" {
                    h2 { "Volumes" }
                    (volumes::filter(&wanted))
                    (volumes::part(&shown, &wanted))
                }
                section id="jobs-section" aria-label="Jobs" { h2 { "Jobs" } (lists::jobs(&shown, viewer)) }
                section id="outcomes-section" aria-label="Outcomes" {
                    h2 { "Outcomes" }
                    p class="note" { "Predicted and measured effect of finished moves. The measurement covers the first complete epoch after the move." }
                    (lists::outcomes(&shown))
                }
                section id="responses-section" aria-label="Remedies for SLO violations" {
                    h2 { "Remedies for SLO violations" }
                    p class="note" { "Remedies that were ordered or recommended for lasting violations and expected peaks, since the controller started." }
                    (lists::responses(&shown))
                }
                section id="events-section" aria-label="Events" { h2 { "Events" } (lists::events(&shown)) }
            }
            noscript { p class="note" { "Scripts are disabled: this page does not refresh and cannot send orders." } }
            script src="/page/page.js" defer {}
        },
    );
    Ok(Reply::text(HTML, document.into_string()))
}

/// Renders the parts that change. The script replaces the elements that have the same ids.
pub(crate) fn parts(call: &Call) -> Result<Reply, Problem> {
    let wanted: PageQuery = call.query()?;
    let shown = PageData::gather(call, &wanted)?;
    let viewer = Viewer::of(call.caller.role);
    let parts = html! {
        (overview::part(&shown, viewer))
        (plans::part(&shown, viewer))
        (volumes::part(&shown, &wanted))
        (lists::jobs(&shown, viewer))
        (lists::outcomes(&shown))
        (lists::responses(&shown))
        (lists::events(&shown))
    };
    Ok(Reply::text(HTML, parts.into_string()))
}

/// Renders the page for rejected requests: the sign-in form, or the error.
pub(crate) fn refused(problem: &Problem) -> String {
    let document = document(
        "Terrace",
        html! {
            header { h1 { "Terrace" } }
            main {
                @if problem.status == StatusCode::UNAUTHORIZED {
                    // The text after the colon is for programs.
                    p class="bad" { (problem.words().split(':').next().unwrap_or_default()) }
                    form class="sign-in" id="sign-in" method="post" action=(SIGN_IN) {
                        label for="token" { "Token" }
                        input id="token" name="token" type="password" autocomplete="current-password" required;
                        button type="submit" { "Sign in" }
                    }
                    p class="note" { "Enter a token from the controller's token file. The role of the token limits the available actions." }
                    script src="/page/sign-in.js" defer {}
                } @else {
                    p class="bad" { (problem.words()) }
                    p { a href="/" { "Back to the overview" } }
                }
            }
        },
    );
    document.into_string()
}

fn document(title: &str, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="stylesheet" href="/page/page.css";
                // Without this element browsers request /favicon.ico.
                link rel="icon" href="data:,";
            }
            body { (body) }
        }
    }
}

/// Button that sends an order.
struct OrderButton<'a> {
    id: String,
    /// Visible text.
    text: &'a str,
    /// Description of the order for screen readers.
    label: String,
    method: &'a str,
    path: String,
    body: serde_json::Value,
}

impl OrderButton<'_> {
    fn button(&self, viewer: Viewer) -> Markup {
        let body = self.body.to_string();
        let why_not = (viewer == Viewer::Reader).then_some("requires the role operate");
        html! {
            button type="button" id=(self.id) aria-label=(self.label) title=[why_not] disabled[viewer == Viewer::Reader]
                data-method=(self.method) data-path=(self.path) data-body=(body) { (self.text) }
        }
    }
}
