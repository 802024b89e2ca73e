//! Array of disks that is overloaded in a peak, and a caching appliance that takes over reads: its start, its effect
//! and its end.

use sim::Evidence;
use slo::Sample;
use units::Nanos;

use crate::support::run_with_evidence as run;

/// Four data disks and one parity disk; a database with a peak from second 400 to 1200, and a volume that reads all
/// over its data.
fn scenario(more: &str) -> String {
    format!(
        r#"
seed = 3
duration = "25m"
window = "10s"
[[tiers]]
name = "group"
preset = "disk-15k"
members = [{{ name = "disks", capacity = "1 TiB" }}]
[disks.group]
preset = "disk-15k"
count = 5
raid = "raid4"
chunk = "1 MiB"
positioning = "3.4ms"
spread = 0.6
bandwidth = "100 MB/s"
write_back = "1ms"
[cache]
size = "64 MiB"
page = "16 KiB"
writes = "write-around"
[hosts.one]
cpus = 4
memory = "8 GiB"
[hosts.two]
cpus = 4
memory = "8 GiB"
[[classes]]
name = "db"
[[classes]]
name = "search"
[[volumes]]
name = "db"
class = "db"
size = "14 GiB"
host = "one"
[[volumes]]
name = "search"
class = "search"
size = "14 GiB"
host = "one"
[[clients]]
volume = "db"
habits = {{ outstanding = 16, read_share = 0.95, rate = "120 IOPS", skew = 0.6, footprint = 0.065, sizes = [{{ size = "16 KiB", share = 1.0 }}] }}
phases = [
  {{ duration = "400s" }},
  {{ duration = "800s", habits = {{ rate = "850 IOPS" }} }},
  {{ duration = "800s" }},
]
[[clients]]
volume = "search"
habits = {{ outstanding = 16, rate = "500 IOPS", sizes = [{{ size = "16 KiB", share = 1.0 }}] }}
bursts = {{ every = "70s", length = "30s", factor = 1.2 }}
[response]
remedies = ["appliance"]
iops_min = {{ db = "800 IOPS", search = "450 IOPS" }}
[response.appliance]
per_request = "320us"
hit = "150us"
ssd = "64 GiB"
ssd_hit = "500us"
page = "16 KiB"
[response.workflow]
detect = {{ samples = 12, violating_min = 12, clear_below = 0.2 }}
removal = {{ spare_samples = 18, low_samples = 18 }}
{more}
"#
    )
}

/// Number of windows in which a volume violated its objective.
fn broken(evidence: &Evidence, volume: usize) -> usize {
    let windows = evidence.volumes[volume].windows.iter();
    windows.filter(|w| w.standing.violates()).count()
}

#[test]
fn appliance_is_created_helps_and_is_removed() {
    let (_, nothing) = run(&scenario("").replace("\"appliance\"]", "]"));
    let (result, helped) = run(&scenario(""));
    assert!(nothing.events.is_empty(), "{:?}", nothing.events);
    let (without, with) = (broken(&nothing, 0), broken(&helped, 0));
    assert!(without >= 60, "{without}");
    assert!(with <= without / 2, "{with} of {without}");
    let told: Vec<&str> = helped.events.iter().map(|e| e.1.as_str()).collect();
    let want = [
        "db: caching appliance ordered on one: cache ",
        "db goes through its appliance",
        "db: caching appliance to be removed: its workload has low load",
        "appliance of db was removed",
    ];
    assert_eq!(told.len(), want.len(), "{told:?}");
    for (told, want) in told.iter().zip(want) {
        assert!(told.starts_with(want), "{told} {want}");
    }
    let response = result.response.unwrap();
    assert_eq!(response.appliances.len(), 1);
    assert_eq!(response.remedies.len(), helped.decisions.len());
    assert_eq!(
        run(&scenario("")).1,
        helped,
        "the same seed, the same evidence"
    );
}

#[test]
fn samples_report_the_slot_limit_and_the_tail() {
    let (_, evidence) = run(&scenario("").replace("\"appliance\"]", "]"));
    let samples: Vec<&Sample> = evidence.volumes[0]
        .windows
        .iter()
        .map(|w| &w.sample)
        .collect();
    let (calm, peak) = (&samples[10..39], &samples[50..110]);
    // 120 requests per second seldom fill sixteen slots; 850 are more than four disks can serve.
    assert!(calm.iter().all(|s| s.limited < 0.3 && !s.backlogged()));
    assert!(peak.iter().all(|s| s.limited > 0.9 && s.backlogged()));
    for sample in samples {
        let (p50, p99) = (sample.p50_us.unwrap(), sample.p99_us.unwrap());
        assert!(0.0 < p50 && p50 < p99 && sample.latency_us.unwrap() < p99);
        assert!(sample.limited <= sample.occupied);
    }
}

#[test]
fn slot_limit_is_reported_on_links_with_turns() {
    let turns = "link = \"1 GB/s\"\nsharing = \"by-turns\"\n";
    let text = scenario("").replace("\"appliance\"]", "]");
    let text = text.replace("[hosts.one]\n", &format!("[hosts.one]\n{turns}"));
    let (_, evidence) = run(&text);
    let windows = &evidence.volumes[0].windows;
    let limited = |from: usize, to: usize| {
        let of: Vec<f64> = windows[from..to].iter().map(|w| w.sample.limited).collect();
        of.iter().sum::<f64>() / of.len() as f64
    };
    assert!(limited(10, 39) < 0.1, "{}", limited(10, 39));
    assert!(limited(50, 110) > 0.9, "{}", limited(50, 110));
}

#[test]
fn evidence_is_complete() {
    let (result, evidence) = run(&scenario(""));
    let db = &evidence.volumes[0];
    // The last window is not reported.
    assert_eq!(db.windows.len(), 149);
    let issued: u64 = db.windows.iter().map(|w| w.issued).sum();
    let latencies = db.windows.iter().flat_map(|w| &w.latencies);
    let completed: u64 = latencies.map(|b| b.1).sum();
    assert!(completed <= issued && issued < completed + 100);
    assert!(issued < result.total().all.ios);
    let at: Vec<Nanos> = db.curves.iter().map(|c| c.0).collect();
    let every = [300, 600, 900, 1200].map(Nanos::from_secs);
    assert_eq!(at, every);
    assert!(db.curves[1].1.is_some() && !db.zones[1].1.is_empty());
    // The log ends at the requested time.
    let log = &db.accesses;
    assert_eq!(log.ends.len(), 60);
    assert_eq!(log.ends.last(), Some(&log.accesses.len()));
    let wrote = log
        .accesses
        .iter()
        .filter(|a| **a & sim::AccessLog::WROTE > 0);
    let share = wrote.count() as f64 / log.accesses.len() as f64;
    assert!((share - 0.05).abs() < 0.01, "{share}");
    let backend: Vec<&str> = evidence
        .backend
        .resources
        .iter()
        .map(|r| r.name.as_str())
        .collect();
    assert_eq!(backend, ["disks"]);
}

/// A limited fill rate is slower and has an end, and data beyond the budget is not read again.
#[test]
fn limited_fill_rate_helps_later() {
    let with = |fill: &str| {
        let appliance = format!("[response.appliance]\n{fill}\n");
        run(&scenario("").replace("[response.appliance]\n", &appliance))
    };
    let ((_, quick), (result, slow)) = (with(""), with("fill_max = \"1 MiB/s\""));
    let (quickly, slowly) = (broken(&quick, 0), broken(&slow, 0));
    assert!(slowly > quickly, "{slowly} {quickly}");
    let asked = |e: &Evidence| -> (f64, f64) {
        let samples = e.volumes[0].windows.iter().map(|w| &w.sample);
        samples.fold((0.0, 0.0), |(reads, past), s| {
            (reads + s.reads_per_s, past + s.backend_reads_per_s)
        })
    };
    let (reads, past) = asked(&slow);
    assert!(past <= reads + 16.0, "{past} of {reads}");
    assert!(past > asked(&quick).1, "more is not found");
    assert!(result.response.unwrap().appliances[0].ended_s.is_some());
}

/// Ten zones of 64 MiB without cached data are read at once, and in pieces of any size.
#[test]
fn warm_up_covers_all_zones_at_any_read_size() {
    let peak = |read: &str| {
        let zones: Vec<String> = (0..14).map(|z| format!("[{z}, 0.05]")).collect();
        let text = scenario(&format!(
            "warm = {{ rate_min_per_s = 1e6 }}\n[[response.peaks]]\nvolume = \"db\"\nat = \"400s\"\nlead = \"350s\"\n\
             [response.peaks.recorded]\niops = \"850 IOPS\"\nwrite_share = 0.05\nread_size = \"16 KiB\"\n\
             misses = [[\"512 MiB\", 0.4], [\"1 GiB\", 0.02]]\nheavy = [{}]\n\
             [response.peaks.recorded.costs]\ndisks = [\"900us\", \"250us\"]\n",
            zones.join(", ")
        ));
        run(&text.replace(
            "page = \"16 KiB\"\n[response.workflow]",
            &format!("page = \"16 KiB\"\n{read}[response.workflow]"),
        ))
    };
    for read in ["", "warm_read = \"256 KiB\"\n"] {
        let (result, evidence) = peak(read);
        let response = result.response.unwrap();
        let first = &response.appliances[0];
        assert_eq!(first.ordered_s, 50.0, "so long before the peak");
        // The warm-up serves all reads except the first ones after the re-routing and those of pages that writes
        // invalidated.
        let late = &evidence.volumes[0].windows[25..39];
        let past: f64 = late.iter().map(|w| w.sample.backend_reads_per_s).sum();
        let reads: f64 = late.iter().map(|w| w.sample.reads_per_s).sum();
        assert!(past < 0.1 * reads, "{read}: {past} of {reads}");
        assert!(
            broken(&evidence, 0) <= 6,
            "{read}: {}",
            broken(&evidence, 0)
        );
    }
}

#[test]
fn invalid_peaks_are_refused_with_their_key() {
    let peak = "[[response.peaks]]\nvolume = \"db\"\nat = \"10m\"\n";
    let recorded = "lead = \"5m\"\n[response.peaks.recorded]\niops = \"850 IOPS\"\nwrite_share = 0.05\nread_size = \"16 KiB\"\nmisses = [[\"1 GiB\", 0.1]]\n";
    let whole = format!("{peak}{recorded}");
    for (more, key, why) in [
        (
            peak.replace("\"db\"", "\"dp\""),
            "peaks[0].volume",
            "did you mean",
        ),
        (peak.to_string(), "peaks[0].lead", "before the run"),
        (
            format!("{peak}lead = \"1m\"\niops = \"0 IOPS\""),
            "peaks[0].iops",
            "not above 0",
        ),
        (
            whole.replace("write_share = 0.05", "write_share = 5.0"),
            "recorded.write_share",
            "0 to 1",
        ),
        (
            whole.replace("[\"1 GiB\", 0.1]", ""),
            "recorded.misses",
            "must have at least one entry",
        ),
        (
            whole.replace("0.1]", "1.1]"),
            "recorded.misses[0]",
            "0 to 1",
        ),
        (
            format!("{whole}heavy = [[3, 2.0]]"),
            "recorded.heavy[0]",
            "0 to 1",
        ),
        (
            format!("{whole}costs = {{ disk = [\"1ms\", \"1ms\"] }}"),
            "recorded.costs",
            "did you mean",
        ),
    ] {
        let why_not = crate::support::refusal("peaks.toml", &scenario(&more));
        assert!(
            why_not.contains(key) && why_not.contains(why),
            "{more}: {why_not}"
        );
    }
    for (read, why) in [("24 KiB", "not a multiple"), ("1 GiB", "more than")] {
        let text = scenario("").replace(
            "page = \"16 KiB\"\n[response.workflow]",
            &format!("page = \"16 KiB\"\nwarm_read = \"{read}\"\n[response.workflow]"),
        );
        let why_not = crate::support::refusal("peaks.toml", &text);
        assert!(
            why_not.contains("response.appliance.warm_read") && why_not.contains(why),
            "{why_not}"
        );
    }
}
