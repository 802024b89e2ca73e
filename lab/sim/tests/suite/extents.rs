//! Extents in the queueing simulation: moves end as planned, and no data is lost.

use planner::AnyStrategy;
use sim::{GroupKind, Model, RunOptions, RunResult, ScenarioFile};

/// Smallest array that fits condition D: 87 GiB of pages, of which a tenth fits the fast tier.
fn scenario(hours: u32, generator: &str) -> String {
    format!(
        "duration = \"{hours}h\"\nwindow = \"10m\"\nextent = \"10 MiB\"\ncopy_chunk = \"1 MiB\"\n\
         [policy]\nmonitor_epoch = \"30m\"\nmigration_epoch = \"1h\"\ncopy_share = 0.5\nheadroom_space = 0.9\n\
         [[tiers]]\nname = \"fast\"\npreset = \"pm953\"\ncapacity = \"10 GiB\"\n\
         [[tiers]]\nname = \"slow\"\npreset = \"pm863\"\ncapacity = \"100 GiB\"\n\
         [[volumes]]\nname = \"a\"\nsize = \"44 GiB\"\ntier = \"slow\"\n\
         [[volumes]]\nname = \"b\"\nsize = \"44 GiB\"\ntier = \"slow\"\n\
         [[generators]]\nvolumes = [\"a\", \"b\"]\n{generator}\n"
    )
}

fn model(text: &str) -> (ScenarioFile, Model) {
    let file = ScenarioFile::parse("x.toml", text).unwrap();
    let model = file.build(vec![]).unwrap();
    (file, model)
}

fn run(model: &Model, strategy: Box<dyn AnyStrategy>) -> RunResult {
    let options = RunOptions {
        series: true,
        decisions: true,
        optimum: None,
    };
    sim::run(model, strategy, Default::default(), options, &mut |_| {}).unwrap()
}

fn tier<'a>(result: &'a RunResult, name: &str) -> &'a sim::GroupSummary {
    let mut tiers = result.of_kind(GroupKind::Tier);
    tiers.find(|t| t.name == name).unwrap()
}

#[test]
fn hot_extents_are_served_by_the_fast_tier_after_the_first_period() {
    let text = scenario(6, "condition = \"D-not-move\"")
        + "[strategies.hourly]\nuses = \"period\"\nperiod = \"1h\"\n";
    let (file, model) = model(&text.replacen("window", "warmup = \"2h\"\nwindow", 1));
    let hourly = run(&model, file.strategy("hourly").unwrap());
    let noop = run(&model, file.strategy("noop").unwrap());
    let share = |r: &RunResult| tier(r, "fast").all.ios as f64 / r.total().all.ios as f64;
    assert_eq!(share(&noop), 0.0);
    // A tenth of the pages is fast. With locality 7 they get half of the requests, less the loss by noise within an
    // hour.
    assert!((0.4..0.52).contains(&share(&hourly)), "{}", share(&hourly));
    assert_eq!(
        noop.total().all.ios,
        hourly.total().all.ios,
        "the same requests"
    );
    assert!(hourly.total().all.mean_us < noop.total().all.mean_us);
    // Every hour except the last has a plan, and each move of extents records it.
    assert!(hourly.moves.done >= 8, "{:?}", hourly.moves);
    assert!(
        hourly
            .move_log
            .iter()
            .all(|m| m.extents.is_some_and(|n| n > 0))
    );
    let copied: u64 = hourly.move_log.iter().map(|m| m.bytes).sum();
    assert_eq!(copied, hourly.moves.bytes);
    // The fast device reaches its limit and never exceeds it.
    let series = &hourly.series.as_ref().unwrap().devices[0];
    let most = (0.9 * (10_u64 << 30) as f64) as u64;
    let full = *series.used_bytes.iter().max().unwrap();
    assert!(full <= 10 << 30 && full > most - (10 << 20), "{full}");
    let last = *series.used_bytes.last().unwrap();
    assert!(last <= most, "{last}");
    // No data is lost: the rest is on the slow device.
    let slow = *hourly.series.as_ref().unwrap().devices[1]
        .used_bytes
        .last()
        .unwrap();
    assert_eq!(last + slow, 88 << 30);
}

/// The long half of dual-period alone equals the single period, also with queues and copies. Both periods end together
/// here: copies start with the hottest extents of the shortest period, so another period would change the order of the
/// same extents.
#[test]
fn dual_period_without_a_short_share_is_the_single_period() {
    let text = scenario(5, "condition = \"G-1h\"")
        + "[strategies.single]\nuses = \"period\"\nperiod = \"2h\"\n\
           [strategies.dual]\nuses = \"dual-period\"\nlong = \"2h\"\nshort = \"2h\"\nshare = 0.0\n";
    let (file, model) = model(&text);
    let [single, dual] = ["single", "dual"].map(|name| run(&model, file.strategy(name).unwrap()));
    assert!(single.moves.bytes > 1 << 30);
    assert_eq!(single.groups, dual.groups);
    assert_eq!(single.series, dual.series);
    assert_eq!(single.move_log, dual.move_log);
}

#[test]
fn faults_of_generators_and_periods_name_their_line() {
    let fault = |generator: &str| {
        let text = scenario(1, generator);
        let file = ScenarioFile::parse("x.toml", &text).unwrap();
        file.build(vec![]).err().unwrap().to_string()
    };
    let unknown = fault("condition = \"B-2h\"");
    assert!(unknown.contains("generators[0].condition: unknown condition; known: A, B-1h"));
    let small = fault("condition = \"A\"\npage = \"20 MiB\"");
    assert!(
        small.contains("generators[0].volumes: volume \"a\" of 44 GiB is too small"),
        "{small}"
    );
    let odd = fault("condition = \"A\"\nrequest = \"3 KiB\"");
    assert!(
        odd.contains("generators[0].page: must be at most 1 GiB and a multiple"),
        "{odd}"
    );
    let share = fault("condition = \"A\"\nread_share = 1.5");
    assert!(
        share.contains("generators[0].read_share: must be between 0 and 1"),
        "{share}"
    );
    let text = scenario(1, "condition = \"A\"") + "[strategies.period]\nperiod = \"90m\"\n";
    let file = ScenarioFile::parse("x.toml", &text).unwrap();
    let late = file.strategy("period").err().unwrap();
    assert!(late.line.is_some());
    assert!(
        late.to_string()
            .contains("strategies.period.period: 90m must be a multiple of the migration epoch"),
        "{late}"
    );
}
