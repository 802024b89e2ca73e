//! The page: well-formed, self-contained, without numbers that are none, names escaped.

use report::page;
use sim::{GroupKind, RunResult};

use crate::support::{Shape, made_up};

const SHAPE: Shape = Shape {
    windows: 30,
    volumes: 3,
    tiers: 2,
    moves: 7,
    spread: 2.0,
};

/// Elements of HTML that have no end tag.
const VOID: [&str; 2] = ["meta", "br"];

/// Checks that every element ends, in order; returns the text between the tags.
fn well_formed(html: &str) -> String {
    let mut rest = html
        .strip_prefix("<!DOCTYPE html>")
        .expect("it starts with a document type");
    let mut open: Vec<&str> = Vec::new();
    let mut text = String::new();
    while let Some(start) = rest.find('<') {
        text.push_str(&rest[..start]);
        text.push(' ');
        let end = start + tag_end(&rest[start..]);
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> ends another element");
            continue;
        }
        let name = tag.split_whitespace().next().unwrap();
        assert!(
            name.bytes().all(|b| b.is_ascii_alphanumeric()),
            "no element is called {name:?}"
        );
        if VOID.contains(&name) {
            continue;
        }
        open.push(name);
        if matches!(name, "style" | "script") {
            // Raw text up to the end tag.
            rest = &rest[rest.find(&format!("</{name}")).expect("raw text ends")..];
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    text.push_str(rest);
    assert!(!text.contains('>'), "an unescaped sign");
    text
}

/// Position of the sign that ends the tag at the start of `text`, outside quotes.
fn tag_end(text: &str) -> usize {
    let mut quoted = false;
    for (i, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '>' if !quoted => return i,
            '<' if i > 0 => panic!("an unescaped sign in {}", &text[..i + 1]),
            _ => {}
        }
    }
    panic!("a tag does not end");
}

/// What holds for every page.
fn check(results: &[RunResult]) -> String {
    let html = page(results, "A title");
    let text = well_formed(&html);
    for forbidden in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    // Everything but the script, which may name what it guards against.
    let drawn = &html[..html.find("<script>").unwrap()];
    for word in ["NaN", "inf", "Infinity", "None"] {
        let whole = |t: &str| t.split(|c: char| !c.is_alphanumeric()).any(|w| w == word);
        assert!(!whole(drawn), "{word}");
    }
    let mut ids: Vec<&str> = html
        .split(" id=\"")
        .skip(1)
        .map(|s| &s[..s.find('"').unwrap()])
        .collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "ids are unique");
    for target in html
        .split("href=\"#")
        .skip(1)
        .map(|s| &s[..s.find('"').unwrap()])
    {
        assert!(ids.contains(&target), "#{target} leads nowhere");
    }
    text
}

fn all(shape: Shape) -> Vec<RunResult> {
    ["noop", "static", "idt", "autotiering"]
        .iter()
        .enumerate()
        .map(|(i, s)| made_up(s, i, shape))
        .collect()
}

#[test]
fn usual_page_is_complete_without_scripts() {
    let html = page(&all(SHAPE), "A title");
    let text = check(&all(SHAPE));
    for expected in [
        "A title",
        "Summary",
        "Over time",
        "Tiers",
        "Service classes",
        "Manifest",
        "volume-2",
        "requests/s",
    ] {
        assert!(text.contains(expected), "{expected}");
    }
    // Every move of every strategy, with its reason, in the table and on its bar.
    assert_eq!(text.matches("failed: the target refused").count(), 2 * 4);
    // All strategies are visible until the script hides all but one.
    assert_eq!(html.matches("<section class=\"strategy\"").count(), 4);
    assert!(!html.contains("class=\"strategy\" hidden"));
    // Lines are told apart by dashes too.
    assert!(
        html.contains("stroke-dasharray=\"none\"") && html.contains("stroke-dasharray=\"9 3 2 3\"")
    );
}

/// Sets what the verdict compares.
fn set(run: &mut RunResult, seed: u64, violation_s: f64, moved_gib: u64) {
    run.manifest.seed = seed;
    run.moves.bytes = moved_gib << 30;
    for group in &mut run.groups {
        if group.kind == GroupKind::Total {
            group.slo_violation_s = Some(violation_s);
        }
    }
}

#[test]
fn page_starts_with_the_verdict() {
    let mut results = all(SHAPE);
    for (i, run) in results.iter_mut().enumerate() {
        set(run, 3, 100.0 - 20.0 * i as f64, i as u64);
    }
    let text = check(&results);
    let verdict = "autotiering is best: its SLO violation is 40.0 volume-seconds, 60.0 % less than with noop (100.0), \
                   and it moved 3.00 GiB (noop: 0.00 GiB). Each strategy ran with one seed";
    let at = text.find(verdict).expect("the verdict");
    assert!(at < text.find("scenario").unwrap(), "it comes first");
}

#[test]
fn verdict_over_seeds_has_an_interval() {
    let mut results = vec![];
    for (seed, noop, idt) in [(1, 100.0, 50.0), (2, 110.0, 60.0), (3, 90.0, 45.0)] {
        for (strategy, violation_s, gib) in [("noop", noop, 0), ("idt", idt, 2)] {
            let mut run = made_up(strategy, 0, SHAPE);
            set(&mut run, seed, violation_s, gib);
            results.push(run);
        }
    }
    let text = check(&results);
    assert!(text.contains(
        "idt is best: its SLO violation is 51.7 volume-seconds, 48.3 % less than with noop (100.0)"
    ));
    assert!(text.contains(
        "The 95 % interval of the difference over 3 seeds is -55.5 to -41.2 volume-seconds."
    ));
}

#[test]
fn verdict_without_an_improvement_names_the_second_best() {
    let mut results = all(SHAPE);
    for (i, run) in results.iter_mut().enumerate() {
        set(run, 3, 10.0, i as u64);
    }
    let text = check(&results);
    assert!(text.contains("noop is best: its SLO violation is 10.0 volume-seconds and it moved 0.00 GiB. The second best, static,"));
}

#[test]
fn pages_of_equal_results_are_equal() {
    assert_eq!(page(&all(SHAPE), "t"), page(&all(SHAPE), "t"));
}

#[test]
fn single_window_run_has_a_page() {
    let text = check(&[made_up(
        "noop",
        0,
        Shape {
            windows: 1,
            volumes: 1,
            tiers: 1,
            moves: 0,
            spread: 1.0,
        },
    )]);
    assert!(text.contains("This strategy made no moves."));
    assert!(
        !text.contains("vs first"),
        "there is nothing to compare with"
    );
}

#[test]
fn run_without_windows_volumes_or_series_has_a_page() {
    check(&[]);
    let nothing = Shape {
        windows: 0,
        volumes: 0,
        tiers: 0,
        moves: 0,
        spread: 1.0,
    };
    check(&[made_up("noop", 0, nothing)]);
    let mut bare = made_up("noop", 0, SHAPE);
    bare.series = None;
    let text = check(&[bare]);
    assert!(text.contains("have no results over time"));
}

#[test]
fn idle_windows_are_gaps_and_invalid_numbers_dashes() {
    let mut idle = made_up("idle", 0, SHAPE);
    let mut broken = made_up("broken", 0, SHAPE);
    for group in &mut idle.series.as_mut().unwrap().groups {
        for direction in [&mut group.reads, &mut group.writes] {
            direction.iops.fill(0.0);
            direction.mean_us.fill(0.0);
        }
    }
    for group in &mut broken.series.as_mut().unwrap().groups {
        group.reads.mean_us.fill(f64::NAN);
        group.reads.p99_us.fill(f64::INFINITY);
        group.writes.iops.fill(f64::NAN);
    }
    for group in &mut broken.groups {
        group.all.mean_us = f64::NAN;
        group.reads.p99_us = f64::INFINITY;
    }
    broken.manifest.duration_s = f64::NAN;
    broken.manifest.warmup_s = f64::INFINITY;
    check(&[idle, broken]);
}

#[test]
fn long_runs_are_drawn_with_few_points_and_many_volumes_capped() {
    let shape = Shape {
        windows: 5000,
        volumes: 200,
        tiers: 4,
        moves: 90,
        spread: 3000.0,
    };
    let results = [made_up("noop", 0, shape), made_up("idt", 5, shape)];
    let text = check(&results);
    assert!(text.contains("64 of 200 volumes"));
    assert!(text.contains("the first 64 of 90 moved volumes"));
    assert!(text.contains("(log scale)") && text.contains("Linear scale"));
    let html = page(&results, "t");
    let points = html
        .split(" d=\"")
        .skip(1)
        .map(|d| d[..d.find('"').unwrap()].matches(['M', 'L']).count());
    assert!(points.max().unwrap() <= 600);
    assert!(html.len() < 3 << 20, "{} bytes", html.len());
}

#[test]
fn names_are_escaped_on_the_page() {
    const ODD: &str = "<b>&\"</script><img src=x onerror=alert(1)>";
    let mut odd = made_up(ODD, 0, SHAPE);
    let rename = |name: &mut String| {
        if name.contains("-0") {
            *name = ODD.into();
        }
    };
    odd.groups.iter_mut().for_each(|g| rename(&mut g.name));
    odd.final_tiers
        .iter_mut()
        .for_each(|(v, t)| [v, t].into_iter().for_each(rename));
    let series = odd.series.as_mut().unwrap();
    series.groups.iter_mut().for_each(|g| rename(&mut g.name));
    series.devices.iter_mut().for_each(|d| rename(&mut d.tier));
    for m in &mut odd.move_log {
        [&mut m.volume, &mut m.from, &mut m.to]
            .into_iter()
            .for_each(rename);
        m.reason = ODD.into();
    }
    odd.manifest.scenario = ODD.into();
    odd.manifest.strategy_config = serde_json::json!({ "x": ODD });
    let results = [odd];
    let html = page(&results, ODD);
    well_formed(&html);
    assert!(!html.contains("<b>") && !html.contains("<img"));
    assert!(html.contains("&lt;b&gt;&amp;&quot;&lt;/script&gt;"));
}
