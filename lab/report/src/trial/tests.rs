use manager::store::{FlowSummary, HistoryPoint, VolumeSummary};
use manager::view::{MoveState, PlanState, PlanView, PlannedMove};
use model::Goal;

use super::*;

const S: u64 = 1_000_000_000;

/// Windows of a second with these means, and ten requests each; none of those that are nothing.
fn windows(means_us: &[f64]) -> Vec<HistoryPoint> {
    let point = |(i, us): (usize, &f64)| {
        let ios = if *us > 0.0 { 10 } else { 0 };
        HistoryPoint {
            at_ns: (i as u64 + 1) * S,
            window_ns: S,
            summary: VolumeSummary {
                reads: FlowSummary {
                    ios,
                    bytes: ios * 4096,
                    mean_ns: (us * 1e3) as u64,
                    ..FlowSummary::default()
                },
                ..VolumeSummary::default()
            },
        }
    };
    means_us.iter().enumerate().map(point).collect()
}

fn moved(volume: &str, us: (f64, f64), range: Option<(f64, f64)>) -> PlannedMove {
    PlannedMove {
        position: 0,
        job: None,
        volume: volume.into(),
        from_tier: "slow".into(),
        to_tier: "fast".into(),
        from: "/slow".into(),
        to: "/fast".into(),
        extents: None,
        goal: Goal::Latency,
        reason: "it is <slow>".into(),
        bytes: 1 << 30,
        duration_ns: 10 * S,
        before_us: Some(us.0),
        after_us: Some(us.1),
        after_range_us: range,
        after_moves: vec![],
        scored: vec![],
        state: MoveState::Proposed { why: String::new() },
        by_hand: None,
        command: None,
        no_command: None,
        doubt: None,
    }
}

fn plan(moves: Vec<PlannedMove>) -> PlanView {
    PlanView {
        host: "trial".into(),
        generation: 1,
        parent: 0,
        at_ns: 60 * S,
        strategy: "terrace".into(),
        state: PlanState::Current,
        moves,
        held: vec![],
        staying: 0,
        notes: vec![],
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6 * b.abs().max(1.0)
}

#[test]
fn disk_summary_is_weighted_by_requests_and_ends_with_the_plan() {
    let mut means = vec![100.0; 8];
    means.extend([0.0, 400.0, 400.0, 0.0, 0.0, 1000.0]);
    let disk = seen("web:vda", "slow", &windows(&means), 300.0);
    assert!(close(
        disk.mean_us.unwrap(),
        (800.0 + 800.0 + 1000.0) / 11.0
    ));
    assert!(close(disk.reads_per_s, 110.0 / 14.0) && disk.write_mean_us.is_none());
    assert_eq!((disk.windows, disk.windows_above), (14, 3));
    assert_eq!(disk.windows_us, Some((100.0, 1000.0)));
    // Windows 11 to 14: one of 400 and one of 1000.
    assert!(close(disk.last_us.unwrap(), 700.0) && close(disk.last_per_s, 5.0));
    let first = disk.series[0];
    assert_eq!(
        (first.at_s, first.per_s, first.mean_us),
        (0.5, 10.0, Some(100.0))
    );
    assert_eq!(disk.series[8].mean_us, None);
    let idle = seen("idle", "slow", &windows(&[0.0; 8]), 300.0);
    assert_eq!(
        (idle.mean_us, idle.windows_us, idle.last_us),
        (None, None, None)
    );
}

#[test]
fn bounds_of_a_gain_include_prediction_and_disk_variation() {
    let steady = seen("steady", "slow", &windows(&[1000.0; 16]), 500.0);
    assert_eq!(steady.epochs_sigma, Some(0.0));
    let mut changing = vec![500.0; 4];
    changing.extend([2000.0; 4]);
    changing.extend([500.0; 4]);
    changing.extend([1000.0; 4]);
    let changing = seen("changing", "slow", &windows(&changing), 500.0);
    let moves = vec![
        moved("steady", (1000.0, 100.0), Some((50.0, 200.0))),
        moved("changing", (1000.0, 100.0), Some((50.0, 200.0))),
    ];
    let disks = [steady, changing];
    let gain = gain(&plan(moves), &disks, 500.0).unwrap();
    let [steady, changing] = &gain.moves[..] else {
        panic!("{gain:?}")
    };
    assert!(close(steady.gain, 0.9));
    let (low, high) = steady.gain_range.unwrap();
    assert!(close(low, 0.8) && close(high, 0.95), "{low} {high}");
    assert_eq!(changing.after_range_us, Some((50.0, 200.0)));
    let (low, high) = changing.gain_range.unwrap();
    assert!(low < 0.7 && high > 0.96 && low < 0.9, "{low} {high}");
}

#[test]
fn total_gain_is_weighted_by_requests_with_staying_disks_unchanged() {
    let disks = [
        seen("web", "slow", &windows(&[1000.0; 16]), 500.0),
        seen("log", "slow", &windows(&[600.0; 16]), 500.0),
        seen("idle", "fast", &windows(&[0.0; 16]), 500.0),
    ];
    let found = gain(
        &plan(vec![moved("web", (1000.0, 300.0), Some((100.0, 900.0)))]),
        &disks,
        500.0,
    );
    let found = found.unwrap();
    assert!(close(found.before_us, 800.0) && close(found.after_us, 450.0));
    let (low, high) = found.after_range_us.unwrap();
    assert!(close(low, 350.0) && close(high, 750.0), "{low} {high}");
    assert_eq!((found.disks, found.above_now, found.above_after), (2, 2, 1));
    assert_eq!(found.above_after_range, Some((1, 2)));
    // Nothing is told that the strategy does not tell.
    let silent = gain(
        &plan(vec![moved("web", (1000.0, 300.0), None)]),
        &disks,
        500.0,
    );
    let silent = silent.unwrap();
    assert_eq!((silent.gain_range, silent.after_range_us), (None, None));
    assert_eq!(silent.moves[0].gain_range, None);
    assert_eq!(gain(&plan(vec![]), &disks[2..], 500.0), None);
}

fn trial() -> Trial {
    let disks = vec![
        seen("web:vda", "slow", &windows(&[1000.0; 16]), 500.0),
        seen("<b>:vda", "slow", &windows(&[600.0; 16]), 500.0),
    ];
    let plan = plan(vec![moved(
        "web:vda",
        (1000.0, 300.0),
        Some((100.0, 900.0)),
    )]);
    let place = |name: &str, path: &str| (name.to_owned(), path.to_owned());
    let tier = |name: &str, at, found| TrialTier {
        name: name.into(),
        preset: "sata-ssd".into(),
        latency_times: None,
        places: vec![at],
        found: vec![found],
    };
    Trial {
        seconds: 60,
        latency_us: 500.0,
        host: "qemu:///session".into(),
        tiers: vec![
            tier(
                "fast",
                place("nvme", "/pools/nvme"),
                PlaceSeen {
                    device: Some("NVMe".into()),
                    not_read: Some("no image is in it".into()),
                    ..PlaceSeen::default()
                },
            ),
            tier("slow", place("/srv/<i>", "/srv/<i>"), PlaceSeen::default()),
        ],
        tiers_now: vec![],
        volumes: vec![],
        gain: gain(&plan, &disks, 500.0),
        disks,
        plan: Some(plan),
        fixed: vec![("db:vdb".into(), "other domains may <use> it".into())],
        left_out: vec![("db:vdc".into(), "it is in no \u{1b}[31mtier".into())],
        commands: BTreeMap::from([("web:vda".into(), "virsh blockcopy 'web' <&>".into())]),
        no_commands: BTreeMap::from([("log:vda".into(), "its image has <3> bitmaps".into())]),
    }
}

#[test]
fn terminal_shows_the_content_of_the_page() {
    insta::assert_snapshot!(trial().text());
    assert!(!trial().text().contains('\u{1b}'));
}

#[test]
fn page_is_self_contained_and_escapes_external_text() {
    let page = trial().page();
    for outside in [
        "<b>:", "<i>", "<slow>", "<use>", "<&>", "\u{1b}", "src=", "<script",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
    for shown in [
        "&lt;b&gt;:vda",
        "/srv/&lt;i&gt;",
        "objective 500 µs",
        "class=\"plot\"",
        "virsh blockcopy 'web' &lt;&amp;&gt;",
        "terrace init qemu:///session",
        "default-src 'none'",
        "70",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
}
