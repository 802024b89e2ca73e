//! Tests of the page: complete without its script, bounded with many volumes, and working in a browser.

use manager::question::Question;
use manager::view::MoveState;

use crate::support::browser::Browser;
use crate::support::http::{HttpResponse, get, local, remote, session};
use crate::support::{Fake, OPERATE, READ, World};

/// HTML elements without an end tag.
const VOID: [&str; 4] = ["meta", "br", "link", "input"];

/// Checks that every element ends, in order, and that ids are unique; returns the text between the tags.
fn well_formed(html: &str) -> String {
    let mut rest = html.strip_prefix("<!DOCTYPE html>").unwrap_or(html);
    let mut open: Vec<&str> = vec![];
    let mut text = String::new();
    while let Some(start) = rest.find('<') {
        text.push_str(&rest[..start]);
        text.push(' ');
        let mut quoted = false;
        let end = rest[start..].find(|c| {
            quoted ^= c == '"';
            c == '>' && !quoted
        });
        let end = start + end.expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "</{name}> ends another element"),
            None => {
                let name = tag.split_whitespace().next().unwrap();
                assert!(name.bytes().all(|b| b.is_ascii_alphanumeric()), "{name:?}");
                if !VOID.contains(&name) {
                    open.push(name);
                }
            }
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    let mut ids: Vec<&str> = html
        .split(" id=\"")
        .skip(1)
        .map(|s| &s[..s.find('"').unwrap()])
        .collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "ids are unique");
    text + rest
}

fn page(world: &World, query: &str) -> HttpResponse {
    let answer = local(world, &get(&format!("/{query}"), ""));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

/// Texts of a page with a problem, remedies, moves and a violated objective, one element per line.
#[test]
fn texts_are_worded_as_reviewed() {
    let world = World::start(Fake::new(3));
    let answer = page(&world, "");
    let elements = answer.text().split('<').filter_map(|e| e.split_once('>'));
    let texts = elements
        .filter(|(tag, _)| !tag.starts_with("style") && !tag.starts_with("script"))
        .map(|(_, text)| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let texts = texts.filter(|t| t.contains(char::is_alphabetic));
    // Ages grow while the test runs.
    let lines: Vec<String> = texts
        .map(|t| match t.contains(" ago") {
            true => t.replace(|c: char| c.is_ascii_digit(), "#"),
            false => t,
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn page_is_complete_without_its_script() {
    let world = World::start(Fake::new(12));
    let answer = page(&world, "");
    let html = answer.text();
    let text = well_formed(html);
    for expected in [
        "No problems",
        "violated its objective in 31 of the last 60 windows",
    ] {
        assert_eq!(
            text.contains(expected),
            expected.starts_with("violated"),
            "{expected}"
        );
    }
    for expected in [
        "build uses 64 % of slow-0, which is saturated",
        "throttle build to 500 requests/s",
        "predicted: utilization of slow-0 78 % instead of 99 %",
        "last violated 10.0 s after the violation was found",
        "recommended",
        "still violated",
    ] {
        let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(expected), "{expected}");
    }
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}"));
    assert!(
        at("objective-violated") < at("nearly-full"),
        "the more urgent first"
    );
    assert!(text.contains("no decisions on: moves to slow that would exceed"));
    for expected in [
        "autotiering",
        "recommend",
        "512 GiB of 800 GiB (64.0 %)",
        "cordoned",
        "db-replica",
        "✗ violated: 1840",
        "✓ met: 412",
        "violated in 31 of 60 windows",
        "557 → 148",
        "reason 1: gains",
        "parts of the scores",
        "tier price $",
        "-312.5000",
        "max(space, IOPS + bandwidth)",
        "the mode for latency is recommend",
        "1 rejected move",
        "cooldown: moved 5 min ago",
        "stuck for 45.0 s",
        "17.6 min",
        "the target refused",
        "calibrating",
        "pinned to fast",
        "moving to sas1",
        "in cooldown for 25.0 min",
        "unknown",
        "3 errors",
        "+9.64 %",
        "job 117 began",
        "2026-02-01 23:53:24",
        "uid ",
    ] {
        assert!(text.contains(expected), "{expected}");
    }
    assert!(text.contains("vdi &lt;gold&gt;") && !html.contains("vdi <gold>"));
    for word in ["NaN", "inf", "None", "Some("] {
        let whole = |t: &str| t.split(|c: char| !c.is_alphanumeric()).any(|w| w == word);
        assert!(!whole(&text), "{word}");
    }
    // The page has nothing that its content security policy forbids, and nothing from other servers.
    for forbidden in [
        "style=",
        "onclick",
        "http:",
        "https:",
        "<style",
        "javascript:",
    ] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    assert_eq!(html.matches("<script").count(), 1);
    assert_eq!(html.matches("aria-label=\"p99 over the last").count(), 10);
}

#[test]
fn buttons_are_disabled_for_readers() {
    let world = World::start(Fake::new(12));
    let reader = remote(&world, &get("/", &session(&world, READ)));
    let operator = remote(&world, &get("/", &session(&world, OPERATE)));
    let buttons = |a: &HttpResponse| {
        let all = a
            .text()
            .split("<button")
            .skip(1)
            .filter(|b| b.contains("data-path"));
        let tags: Vec<bool> = all
            .map(|b| b[..b.find('>').unwrap()].contains(" disabled"))
            .collect();
        tags
    };
    // Buttons: pause, two for all moves, two each for two moves, and one for the running job.
    assert_eq!(buttons(&reader), [true; 8]);
    assert_eq!(buttons(&operator), [false; 8]);
    assert!(reader.text().contains("orders require the role operate"));
}

/// Returns the names of the volumes that a page shows, in order.
fn names_in(html: &str) -> Vec<String> {
    let table =
        &html[html.find("id=\"volumes\"").unwrap()..html.find("id=\"jobs-section\"").unwrap()];
    let rows = table.split("<tr").skip(2);
    let name = |row: &str| {
        let cell = &row[row.find("scope=\"row\">").unwrap() + 12..];
        cell[..cell.find('<').unwrap()].to_owned()
    };
    rows.map(name).collect()
}

#[test]
fn volumes_are_filtered_and_sorted_by_the_server() {
    let world = World::start(Fake::new(24));
    let names = |query: &str| {
        let answer = page(&world, query);
        names_in(answer.text())
    };
    assert_eq!(names("?filter=db-main"), ["db-main", "db-main-1"]);
    assert_eq!(
        names("?filter=VIOLATED"),
        ["db-replica", "db-replica-1", "home", "home-1"]
    );
    assert_eq!(
        names("?filter=bronze+slow+log&order=descending"),
        ["logs-1", "logs"]
    );
    assert_eq!(names("?sort=reads")[..2], ["db-main", "db-main-1"]);
    assert_eq!(
        names("?sort=p99&order=ascending")[..2],
        ["vdi &lt;gold&gt;", "vdi &lt;gold&gt;-1"]
    );
    // Unknown values come last in both orders.
    assert_eq!(names("?sort=p99&order=ascending")[20..].len(), 4);
    for way in ["ascending", "descending"] {
        let all = names(&format!("?sort=p99&order={way}"));
        assert!(
            all[20..]
                .iter()
                .all(|n| n.starts_with("backup") || n.starts_with("test")),
            "{all:?}"
        );
    }
    assert!(names("?filter=nothing-like-it").is_empty());
    let refused = local(&world, &get("/?sort=colour", ""));
    assert_eq!(refused.status, 400);
    assert!(
        refused.text().contains("unknown variant"),
        "{}",
        refused.text()
    );
}

#[test]
fn page_of_a_thousand_volumes_lists_two_hundred() {
    let world = World::start(Fake::new(1000));
    for query in ["", "?sort=p99"] {
        let answer = page(&world, query);
        assert!(well_formed(answer.text()).contains("The first 200 of 1000 volumes"));
        assert_eq!(names_in(answer.text()).len(), 200);
    }
    // The size of the page is independent of volumes that it does not show.
    let more = World::start(Fake::new(2000));
    let [bytes, of_more] = [&world, &more].map(|w| page(w, "?sort=p99").body.len());
    assert!(
        of_more < bytes + bytes / 50,
        "{bytes} bytes, then {of_more}"
    );
}

#[test]
fn empty_controller_has_a_page() {
    let mut fake = Fake::new(0);
    fake.status.hosts.clear();
    fake.status.problems.clear();
    fake.tiers.clear();
    fake.jobs.clear();
    fake.outcomes.clear();
    fake.responses.clear();
    let world = World::start(fake);
    let answer = page(&world, "");
    let text = well_formed(answer.text());
    for expected in [
        "No agent has registered yet",
        "No problems",
        "No plan yet",
        "No jobs yet",
        "No finished moves yet",
        "No SLO violations in the last windows",
    ] {
        assert!(text.contains(expected), "{expected}");
    }
}

/// Uses the page in a real browser: sign-in by link, refresh, filter, sort, orders, and a controller that stops.
#[test]
fn page_works_in_a_browser() {
    let world = World::start(Fake::new(12));
    let url = format!("{}/#token={OPERATE}", world.url());
    let Some(mut browser) = Browser::open(&url) else {
        return testkit::needs::skipped("chromium");
    };
    // The form of the sign-in is sent by its script.
    browser.wait("document.querySelector('#volumes tbody tr') !== null");
    assert_eq!(
        browser.eval("location.search + location.hash"),
        "",
        "the token is out of the URL"
    );
    assert_eq!(
        browser.eval("document.cookie"),
        "",
        "no script sees the cookie"
    );
    let text = browser.text();
    for expected in [
        "db-replica",
        "reason 0: gains 409 µs",
        "the mode for latency is recommend",
        "Approve all",
        "512 GiB of 800 GiB",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let first_paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1";
    browser.wait(&format!("({first_paint}) > 0"));
    println!(
        "first contentful paint with 12 volumes: {} ms",
        browser.eval(first_paint)
    );

    // The page shows new state without interaction.
    browser.wait("document.getElementById('live').className === 'on'");
    let times =
        "Number(document.getElementById('events').innerText.match(/asked for (\\d+) times/)[1])";
    let before = browser.eval(times).as_u64().unwrap();
    world.fake.lock().unwrap().status.problems[0].what = "host beta is on fire".into();
    browser.wait("document.getElementById('overview').innerText.includes('host beta is on fire')");
    browser.wait(&format!("{times} > {before}"));

    // The filter queries the server, and sorting preserves the filter. The focus survives.
    browser.eval("const f = document.getElementById('filter'); f.focus(); f.value = 'gold'; f.dispatchEvent(new Event('input'))");
    browser.wait("document.querySelectorAll('#volumes tbody tr').length === 3");
    browser.eval(
        "document.getElementById('sort-p99').focus(); document.getElementById('sort-p99').click()",
    );
    browser.wait("document.querySelector('#volumes tbody th').innerText.startsWith('db-replica')");
    browser.wait("location.search.includes('sort=p99') && location.search.includes('filter=gold')");
    assert_eq!(browser.eval("document.activeElement.id"), "sort-p99");

    // Orders, and their rejections.
    browser.eval("document.getElementById('apply-alpha-42-1').click()");
    browser.wait("document.getElementById('said').innerText.includes('done for operator')");
    browser.wait("document.getElementById('plans').innerText.includes('approved')");
    browser.eval("document.getElementById('reject-alpha-42-0').click()");
    browser.wait("document.getElementById('plans').innerText.includes('rejected by operator')");
    let orders = world.orders();
    assert!(
        matches!(&orders[0].1, Question::Apply(c) if c.moves == Some(vec![1]) && c.generation == 42),
        "{orders:?}"
    );
    assert!(
        matches!(&orders[1].1, Question::Reject(c) if c.host.as_deref() == Some("alpha")),
        "{orders:?}"
    );
    {
        let mut fake = world.fake.lock().unwrap();
        fake.plan.moves[0].state = MoveState::Proposed {
            why: "again".into(),
        };
    }
    browser.wait("document.getElementById('apply-alpha-42-0') !== null");
    {
        // A refresh needs this lock, so no page shows the newer plan before the click.
        let mut fake = world.fake.lock().unwrap();
        fake.plan.generation = 43;
        browser.eval("document.getElementById('apply-alpha-42-0').click()");
    }
    browser.wait("document.getElementById('said').className === 'off'");
    let said = browser.eval("document.getElementById('said').innerText");
    assert_eq!(said, "plan 42 is not the newest");

    // The page reports a controller that has stopped.
    let World { running, .. } = world;
    running.stop();
    browser.wait(
        "document.getElementById('live').innerText.startsWith('the controller does not respond')",
    );
}

/// The size of the page is bounded for any number of volumes. The time to lay it out is printed and not checked.
#[test]
fn page_of_a_thousand_volumes_has_bounded_elements() {
    let world = World::start(Fake::new(1000));
    let url = format!("{}/#token={READ}", world.url());
    let Some(mut browser) = Browser::open(&url) else {
        return testkit::needs::skipped("chromium");
    };
    // The form of the sign-in is sent by its script.
    browser.wait("document.querySelector('#volumes tbody tr') !== null");
    let first_paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1";
    browser.wait(&format!("({first_paint}) > 0"));
    println!(
        "first contentful paint with 1,000 volumes: {} ms",
        browser.eval(first_paint)
    );
    let rows = browser.eval("document.querySelectorAll('#volumes tbody tr').length");
    assert_eq!(rows, 200);
    let elements = browser.eval("document.querySelectorAll('*').length");
    let elements = elements.as_u64().unwrap();
    assert!(elements < ELEMENTS_MAX, "{elements}");
}

/// Largest number of elements of a page with the maximum number of volumes.
const ELEMENTS_MAX: u64 = 10_000;
