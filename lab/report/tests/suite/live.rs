//! Views of a live controller as text, word by word. The views are made up; ages are counted from two hours after its start.

use manager::view::{HostState, MoveState, PlanState, StatusView};
use model::TierState;
use report::live::{
    PlanDetail, TopOrder, decided_again, diff, diff_plans, event_line, history, in_order, job_line,
    jobs, modes, only_in_one, outcomes, place, plan, status, to_apply, top, why, why_not,
};
use units::Nanos;

use crate::views::{self, NOW};

#[test]
fn status_fits_one_screen() {
    let busy = views::status();
    insta::assert_snapshot!("status", status(&busy));
    let quiet = StatusView {
        hosts: vec![],
        paused: false,
        problems: vec![],
        store_failure: None,
        trust: manager::view::TrustView {
            trusted: true,
            outcomes: 0,
            error_median: None,
            why: None,
        },
        ..busy.clone()
    };
    insta::assert_snapshot!("status_at_the_first_start", status(&quiet));
    assert!(status(&busy).lines().count() <= 24);
    insta::assert_snapshot!("modes", modes(&busy.modes));
}

#[test]
fn top_has_iostat_columns_in_the_selected_order() {
    let (tiers, mut volumes) = (views::tiers(), views::volumes());
    in_order(&mut volumes, TopOrder::P99);
    insta::assert_snapshot!("top", top(&tiers, &volumes, None));
    let names = |volumes: &[manager::view::VolumeView]| -> Vec<String> {
        volumes.iter().map(|v| v.name.clone()).collect()
    };
    assert_eq!(names(&volumes), ["db", "mail", "archive", "new"]);
    in_order(&mut volumes, TopOrder::Iops);
    assert_eq!(names(&volumes), ["mail", "db", "archive", "new"]);
    in_order(&mut volumes, TopOrder::Mibps);
    assert_eq!(names(&volumes), ["db", "mail", "archive", "new"]);
    in_order(&mut volumes, TopOrder::Name);
    assert_eq!(names(&volumes), ["archive", "db", "mail", "new"]);
}

#[test]
fn top_counts_the_rows_beyond_the_terminal_height() {
    let (mut tiers, mut volumes) = (views::tiers(), views::volumes());
    let all = top(&tiers, &volumes, None).lines().count();
    assert_eq!(
        top(&tiers, &volumes, Some(all)),
        top(&tiers, &volumes, None)
    );
    let cut = top(&tiers, &volumes, Some(all - 1));
    assert_eq!(cut.lines().count(), all - 1);
    assert!(cut.ends_with("\n2 volumes not shown\n"), "{cut}");
    // Too small for anything: no panic.
    assert!(top(&tiers, &volumes, Some(1)).contains("4 volumes not shown"));
    assert!(top(&[], &[], None).ends_with("no volumes\n"));
    // With several hosts, names say which.
    volumes[0].host = "beta".into();
    tiers[0].devices[0].connected = false;
    tiers[1].state = TierState::Open;
    let text = top(&tiers, &volumes, None);
    for part in ["beta/", "alpha/mail", "not connected"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn plan_shows_the_dependencies_of_its_moves() {
    let p = views::plan(12);
    insta::assert_snapshot!("plan", plan(&p, NOW, PlanDetail::Moves));
    insta::assert_snapshot!("plan_explained", plan(&p, NOW, PlanDetail::Reasons));
    let open: Vec<_> = p.moves.iter().take(2).collect();
    insta::assert_snapshot!("to_apply", to_apply(&p, &open, NOW));
    let old = manager::view::PlanView {
        state: PlanState::Superseded,
        ..p.clone()
    };
    // Nobody can approve it any more.
    assert!(!plan(&old, NOW, PlanDetail::Moves).contains("terrace apply"));
    let empty = manager::view::PlanView { moves: vec![], ..p };
    let text = plan(&empty, NOW, PlanDetail::Reasons);
    assert!(text.contains("no moves"), "{text}");
    assert_eq!(diff(&empty), "plan 12 of alpha changes nothing\n");
}

#[test]
fn plan_differences_are_by_volume_and_by_tier() {
    let (a, mut b) = (views::plan(12), views::plan(13));
    insta::assert_snapshot!("diff", diff(&a));
    b.moves.remove(0);
    b.moves[0].to = "nvme-9".into();
    insta::assert_snapshot!("diff_plans", diff_plans(&a, &b));
    let only = only_in_one(&a, &b);
    let volumes = |moves: &[&manager::view::PlannedMove]| -> Vec<String> {
        moves.iter().map(|m| m.volume.clone()).collect()
    };
    assert_eq!(volumes(&only.first), ["db", "mail"]);
    assert_eq!(volumes(&only.second), ["mail"]);
    assert_eq!(only.both, a.moves.len() - 2);
}

#[test]
fn jobs_show_progress_and_the_reason_of_their_end() {
    let all = views::jobs();
    insta::assert_snapshot!("jobs", jobs(&all));
    let lines: Vec<String> = all.iter().map(job_line).collect();
    insta::assert_snapshot!("job_lines", lines.join("\n"));
    assert_eq!(jobs(&[]), "no jobs\n");
}

#[test]
fn outcomes_and_history_have_ages() {
    insta::assert_snapshot!("outcomes", outcomes(&views::outcomes(), NOW));
    insta::assert_snapshot!("history", history(&views::history(), NOW));
    assert_eq!(outcomes(&[], NOW), "no finished moves yet\n");
    assert_eq!(history(&[], NOW), "no measurements in this period\n");
    let lines: Vec<String> = views::events().iter().map(event_line).collect();
    insta::assert_snapshot!("events", lines.join("\n"));
}

#[test]
fn reasons_have_their_numbers() {
    let (mut reasons, not) = (views::why(), views::why_not());
    insta::assert_snapshot!("why_live", why(&reasons, NOW));
    insta::assert_snapshot!("why_not_live", why_not(&not));
    reasons.generation = None;
    reasons.options.clear();
    reasons.evidence.clear();
    reasons.outcomes.clear();
    reasons.volume.load = None;
    reasons.outcome = "no decision that could move data has looked at it yet".into();
    insta::assert_snapshot!("why_without_a_decision", why(&reasons, NOW));
    let here = manager::view::WhyNotView {
        here: not.tier.clone(),
        ..not
    };
    assert_eq!(why_not(&here), "volume db is on fast\n");
}

#[test]
fn remedies_of_a_violation_are_among_the_reasons() {
    let mut reasons = views::why();
    let mut response = manager::view::ResponseView {
        id: 1,
        host: "alpha".into(),
        volume: "orders".into(),
        found_ns: NOW.0 - 120 * views::S,
        peak: None,
        at_ns: NOW.0 - 120 * views::S,
        evidence: vec![
            "objective violated in 5 of the last 6 windows".into(),
            "batch uses 64 % of slow-0, which is saturated".into(),
        ],
        remedy: serde_json::from_value("throttle".into()).unwrap(),
        to: Some("batch".into()),
        rate_per_s: Some(500.0),
        cache_bytes: None,
        copies: None,
        lost_per_s: Some(1500.0),
        action: "throttle batch to 500 requests/s (1500 requests/s less)".into(),
        price_s: Some(347.5),
        price: Some("348 s (10 s until it helps, 338 s for losses of others)".into()),
        others: vec![manager::view::OtherView {
            remedy: serde_json::from_value("memory-share".into()).unwrap(),
            action: "reserve 64 MiB of the cache for orders".into(),
            price_s: 400.0,
            price: "400 s (120 s until it helps, 280 s for losses of others)".into(),
        }],
        prediction: Some("utilization of slow-0 78 % instead of 99 %".into()),
        refused: vec![],
        state: manager::view::ResponseState::InForce,
        violated_last_ns: None,
        recovered_ns: None,
        ended_ns: None,
    };
    let said = |responses: Vec<manager::view::ResponseView>,
                reasons: &mut manager::view::WhyView| {
        reasons.responses = responses;
        let text = why(reasons, NOW);
        let (_, said) = text.split_once("SLO violations\n").expect("it is told");
        said.to_owned()
    };
    assert_eq!(
        said(vec![response.clone()], &mut reasons),
        "  orders, 2 min ago: objective violated in 5 of the last 6 windows; batch uses 64 % of slow-0, which is saturated\n    in force: throttle batch to 500 requests/s (1500 requests/s less)\n    predicted: utilization of slow-0 78 % instead of 99 %\n    price: 348 s (10 s until it helps, 338 s for losses of others)\n    alternative: reserve 64 MiB of the cache for orders, price: 400 s (120 s until it helps, 280 s for losses of others)\n    objective still violated\n"
    );
    response.state = manager::view::ResponseState::TakenBack;
    response.ended_ns = Some(NOW.0 - 10 * views::S);
    response.recovered_ns = Some(NOW.0 - 60 * views::S);
    response.violated_last_ns = Some(NOW.0 - 110 * views::S);
    let ended = said(vec![response.clone()], &mut reasons);
    assert!(
        ended.contains(
            "taken back: throttle batch to 500 requests/s (1500 requests/s less) 10 s ago"
        ),
        "{ended}"
    );
    assert!(
        ended.contains("recovered 60 s ago; last violated 10 s after the violation was found"),
        "{ended}"
    );
    // Ahead of a peak nothing was broken: before it, in it and after it.
    let mut peak = manager::view::PeakView {
        at_ns: NOW.0 + 60 * views::S,
        until_ns: NOW.0 + 120 * views::S,
        rate_per_s: 900.0,
        outcome: None,
    };
    let mut ahead = |peak: &manager::view::PeakView| {
        let response = manager::view::ResponseView {
            peak: Some(peak.clone()),
            ..response.clone()
        };
        let text = said(vec![response], &mut reasons);
        text.lines().last().expect("it is told").trim().to_owned()
    };
    assert_eq!(ahead(&peak), "peak expected in 60 s");
    peak.at_ns = NOW.0;
    assert_eq!(ahead(&peak), "peak expected now");
    peak.outcome = Some(manager::view::PeakOutcome {
        windows: 60,
        violated: 2,
        rate_max_per_s: 890.0,
    });
    assert_eq!(
        ahead(&peak),
        "peak: maximum 890 requests/s, 900 expected; 2 of 60 windows violated the objective"
    );
}

#[test]
fn placement_advice_has_a_row_per_tier() {
    let mut advice = views::place();
    insta::assert_snapshot!("place", place(&advice, NOW));
    let why = "strategy idt does not advise on new volumes";
    advice.tier = None;
    advice.why_not = Some(why.into());
    for tier in &mut advice.tiers[..2] {
        tier.standing = manager::view::PlaceStanding::Unknown;
        tier.verdict = why.into();
    }
    for tier in &mut advice.tiers {
        (tier.latency_us, tier.latency_range_us) = (None, None);
        (tier.cost, tier.device_use, tier.device) = (None, None, None);
    }
    insta::assert_snapshot!("place_without_a_model", place(&advice, NOW));
}

/// Empties a tier: what is known of the volumes is of no account for that, but for one whose load is unknown.
#[test]
fn reproduced_decision_lists_moves_and_rejecting_filters() {
    let text = include_str!("support/recorded.toml");
    let file = sim::ScenarioFile::parse("recorded.toml", text).unwrap_or_else(|e| panic!("{e}"));
    let (facts, decision) = file.decide_again().unwrap_or_else(|e| panic!("{e}"));
    assert!(!decision.plan.moves().is_empty());
    insta::assert_snapshot!(
        "decided_again",
        decided_again(&facts, &decision.plan, &decision.report)
    );
}

/// Without sentences, which may be long.
fn table_of(text: &str) -> String {
    let table = text.lines().filter(|l| l.starts_with([' ', '-']));
    table.collect::<Vec<_>>().join("\n")
}

#[test]
fn tables_fit_a_terminal() {
    let p = views::plan(12);
    let texts = [
        status(&views::status()),
        top(&views::tiers(), &views::volumes(), None),
        to_apply(&p, &p.moves.iter().collect::<Vec<_>>(), NOW),
        diff(&p),
        jobs(&views::jobs()),
        outcomes(&views::outcomes(), NOW),
        history(&views::history(), NOW),
        table_of(&place(&views::place(), NOW)),
    ];
    for line in texts.iter().flat_map(|t| t.lines()) {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

/// Names come from other machines.
#[test]
fn control_characters_in_names_are_escaped_on_a_terminal() {
    let odd = |text: &mut String| *text = format!("a\x1b[31m\n{text}");
    let mut s = views::status();
    odd(&mut s.problems[0].what);
    odd(&mut s.strategy);
    odd(&mut s.hosts[0].name);
    s.hosts[0].state = HostState::Late;
    let mut p = views::plan(12);
    for m in &mut p.moves {
        for name in [&mut m.volume, &mut m.from, &mut m.to, &mut m.from_tier] {
            odd(name);
        }
        odd(&mut m.reason);
        if let MoveState::Proposed { why } | MoveState::Ended { why } = &mut m.state {
            odd(why);
        }
    }
    odd(&mut p.host);
    odd(&mut p.strategy);
    odd(&mut p.held[0].why);
    odd(&mut p.notes[0]);
    let mut w = views::why();
    for name in [&mut w.volume.name, &mut w.volume.device, &mut w.outcome] {
        odd(name);
    }
    odd(&mut w.options[0].verdict);
    w.evidence.insert("x\x1b[31m\ny".into(), 1.0);
    let mut n = views::why_not();
    odd(&mut n.why);
    let mut all = views::jobs();
    for j in &mut all {
        odd(&mut j.volume);
        j.why.iter_mut().for_each(odd);
    }
    let mut e = views::events();
    odd(&mut e[0].text);
    odd(&mut e[0].actor);
    let (mut t, mut v) = (views::tiers(), views::volumes());
    odd(&mut t[0].name);
    odd(&mut v[0].name);
    let lines = |text: &str| text.lines().count();
    let texts = [
        (status(&s), lines(&status(&views::status()))),
        (plan(&p, NOW, PlanDetail::Reasons), 0),
        (diff(&p), 0),
        (diff_plans(&p, &views::plan(11)), 0),
        (why(&w, NOW), lines(&why(&views::why(), NOW)) + 1),
        (why_not(&n), 1),
        (jobs(&all), lines(&jobs(&views::jobs()))),
        (job_line(&all[0]), 1),
        (event_line(&e[0]), 1),
        (top(&t, &v, None), 0),
    ];
    for (text, count) in &texts {
        assert!(
            !text.contains('\x1b') && text.contains('\u{fffd}'),
            "{text}"
        );
        // No name makes a line of its own.
        assert!(*count == 0 || lines(text) == *count, "{count}: {text}");
    }
}

#[test]
fn ages_are_not_negative() {
    // The answers of two calls: something may have happened between them.
    let early = Nanos(NOW.0 - 7000 * views::S);
    assert!(plan(&views::plan(12), early, PlanDetail::Moves).contains("0 s ago"));
}
