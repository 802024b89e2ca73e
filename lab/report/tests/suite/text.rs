//! Tables, CSV and reasons on a small run.

use std::sync::LazyLock;

use report::{WhyError, by_group, csv, moves, moves_csv, summary, why, why_not};
use sim::{GroupKind, RunResult};

use crate::support::run_all;

const ARRAY: &str = include_str!("support/array.toml");

static RESULTS: LazyLock<Vec<RunResult>> =
    LazyLock::new(|| run_all(ARRAY, &["noop", "idt", "autotiering"]));

fn auto() -> &'static RunResult {
    &RESULTS[2]
}

#[test]
fn summary_compares_with_the_first() {
    insta::assert_snapshot!(summary(&RESULTS));
}

#[test]
fn groups_are_shown_side_by_side() {
    insta::assert_snapshot!("by_volume", by_group(&RESULTS, GroupKind::Volume));
    insta::assert_snapshot!("by_class", by_group(&RESULTS, GroupKind::Class));
}

#[test]
fn wear_is_a_table_for_devices_with_flash() {
    assert_eq!(report::wear(&RESULTS), None);
    let flash = ARRAY.replacen(
        "[[tiers]]",
        "[flash.slow]\npreset = \"tlc-nvme\"\n\n[[tiers]]",
        1,
    );
    let results = run_all(&flash, &["noop", "idt"]);
    insta::assert_snapshot!(report::wear(&results).unwrap());
    let page = report::page(&results, "wear");
    assert!(page.contains("aria-label=\"Wear\""));
}

#[test]
fn ssd_tenants_have_a_separate_table() {
    let flash = ARRAY.replacen(
        "[[tiers]]",
        "[flash.slow]\npreset = \"tlc-nvme\"\nspare = 0.2\nisolation = \"isolated\"\n\
         [[flash.slow.tenants]]\nname = \"loud\"\nvolumes = [\"busy\"]\n\n[[tiers]]",
        1,
    );
    let results = run_all(&flash, &["noop"]);
    let text = report::wear(&results).unwrap();
    let third = text.split("\n\n").nth(2).unwrap();
    for word in [
        "tenant",
        "moved foreign",
        "over-provisioned",
        "loud",
        "others",
    ] {
        assert!(third.contains(word), "{word} in\n{third}");
    }
    let page = report::page(&results, "wear");
    assert!(page.contains("Garbage collection is charged to the tenant"));
}

#[test]
fn moves_show_prediction_and_measurement() {
    insta::assert_snapshot!("moves_autotiering", moves(auto()));
    insta::assert_snapshot!("moves_idt", moves(&RESULTS[1]));
    assert_eq!(moves(&RESULTS[0]), "no moves\n");
}

#[test]
fn why_shows_the_last_decision_and_the_one_that_moved_the_volume() {
    insta::assert_snapshot!(why(auto(), "busy", None).unwrap());
}

#[test]
fn why_shows_remedies_for_the_volume_and_at_its_expense() {
    let answer = |at_s: f64, volume: &str, to: Option<&str>| {
        serde_json::json!({
            "at_s": at_s, "volume": volume, "remedy": to.map(|_| "throttle"), "to": to,
            "effect_after_s": 10.0, "lost_per_s": 120.0, "price_s": 100.0,
            "others": [{ "remedy": "move", "price_s": 700.0, "price": "700 s: 600 s until it helps, 100 s for copies" }],
            "refused": [
                { "remedy": "mirror", "why": "writes are too many" },
                { "remedy": "appliance", "why": "not allowed here" },
            ],
        })
    };
    let mut result = auto().clone();
    let remedies = [
        answer(60.0, "busy", Some("big")),
        answer(90.0, "busy", Some("big")),
        answer(130.0, "big", None),
    ];
    result.response =
        serde_json::from_value(serde_json::json!({ "remedies": remedies, "appliances": [] }))
            .unwrap();
    let of = |volume: &str| {
        let text = why(&result, volume, None).unwrap();
        let remedies = text.split("\n\n").find(|t| t.starts_with("remedies"));
        let data = report::why_data(&result, volume, None).unwrap();
        (remedies.map(String::from), data.remedies.len())
    };
    let (busy, in_data) = of("busy");
    insta::assert_snapshot!(busy.unwrap(), @r"
    remedies for SLO violations
      at 60 s (2 times to 90 s), for busy: throttle to big, other volumes lose 120 requests/s, price 100 s
        rejected: move: price 700 s: 600 s until it helps, 100 s for copies
        rejected: mirror: writes are too many
    ");
    assert_eq!(in_data, 2);
    let (big, in_data) = of("big");
    let big = big.unwrap();
    assert!(big.contains("for busy: throttle to big"), "{big}");
    assert!(big.contains("for big: no remedy is effective"), "{big}");
    assert_eq!(in_data, 3);
    assert_eq!(of("idle"), (None, 0));
}

#[test]
fn why_at_a_time_shows_the_decision_of_that_time() {
    insta::assert_snapshot!(why(auto(), "idle", Some(130.0)).unwrap());
    let Err(early) = why(auto(), "idle", Some(3.0)) else {
        panic!("no decision yet")
    };
    assert_eq!(
        early.to_string(),
        "no decision by 3 s; the first one is at 60 s"
    );
}

#[test]
fn why_not_merges_equal_decisions() {
    insta::assert_snapshot!(
        "why_not_big_fast",
        why_not(auto(), "big", "fast", None).unwrap()
    );
    insta::assert_snapshot!(
        "why_not_busy_slow",
        why_not(auto(), "busy", "slow", None).unwrap()
    );
    insta::assert_snapshot!(
        "why_not_busy_fast",
        why_not(auto(), "busy", "fast", None).unwrap()
    );
    insta::assert_snapshot!(
        "why_not_idle_fast_at",
        why_not(auto(), "idle", "fast", Some(61.0)).unwrap()
    );
}

#[test]
fn unknown_names_get_a_hint() {
    let error = why(auto(), "bsuy", None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no volume \"bsuy\" in this run, did you mean \"busy\"? (known: busy, idle, big)"
    );
    let error = why_not(auto(), "busy", "nvme-over-tape", None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no tier \"nvme-over-tape\" in this run; known: fast, middle, slow"
    );
}

#[test]
fn why_without_decisions_is_an_error() {
    let silent = RunResult {
        decisions: None,
        assignments: vec![],
        ..auto().clone()
    };
    assert_eq!(why(&silent, "busy", None), Err(WhyError::NoDecisions));
    assert_eq!(
        why_not(&silent, "busy", "slow", None),
        Err(WhyError::NoDecisions)
    );
    let empty = RunResult {
        decisions: Some(vec![]),
        assignments: vec![],
        ..auto().clone()
    };
    assert_eq!(why(&empty, "busy", None), Err(WhyError::NoDecisions));
}

#[test]
fn csv_has_a_row_per_group_and_direction() {
    let text = csv(&RESULTS);
    insta::assert_snapshot!(text.lines().take(8).collect::<Vec<_>>().join("\n"));
    let columns = text.lines().next().unwrap().split(',').count();
    // Names of this scenario need no quotes.
    assert!(text.lines().all(|l| l.split(',').count() == columns));
    assert_eq!(
        text.lines().count(),
        1 + 3 * RESULTS.iter().map(|r| r.groups.len()).sum::<usize>()
    );
    assert_eq!(
        moves_csv(&RESULTS).lines().count(),
        1 + RESULTS.iter().map(|r| r.move_log.len()).sum::<usize>()
    );
}

#[test]
fn names_are_quoted_in_csv_and_escaped_on_a_terminal() {
    let mut odd = auto().clone();
    for group in &mut odd.groups {
        group.name = group.name.replace("busy", "a,\"b\"\x1b[31m\nc");
    }
    let all = [odd];
    assert!(csv(&all).contains(",\"a,\"\"b\"\"\x1b[31m\nc\","));
    let table = by_group(&all, GroupKind::Volume);
    assert!(
        !table.contains('\x1b') && table.contains("a,\"b\"\u{fffd}[31m\u{fffd}c"),
        "{table}"
    );
}

#[test]
fn empty_results_give_a_sentence() {
    assert_eq!(summary(&[]), "no results\n");
    assert_eq!(by_group(&[], GroupKind::Tier), "no results\n");
    assert_eq!(csv(&[]).lines().count(), 1);
}

#[test]
fn runs_of_one_strategy_have_distinct_labels() {
    let with = |config: serde_json::Value, seed: u64| {
        let mut r = auto().clone();
        (r.manifest.strategy_config, r.manifest.seed) = (config, seed);
        r
    };
    let null = serde_json::Value::Null;
    let literal = serde_json::json!({ "form": "literal" });
    let labels = |r: &[RunResult]| report::labels(r);
    assert_eq!(
        labels(&[
            with(null.clone(), 1),
            with(literal.clone(), 1),
            RESULTS[0].clone()
        ]),
        [
            "autotiering (defaults)",
            "autotiering ({\"form\":\"literal\"})",
            "noop"
        ]
    );
    assert_eq!(
        labels(&[with(null.clone(), 1), with(null.clone(), 2)]),
        ["autotiering (seed 1)", "autotiering (seed 2)"]
    );
    assert_eq!(
        labels(&[with(null.clone(), 1), with(null, 1)]),
        ["autotiering", "autotiering #2"]
    );
}
