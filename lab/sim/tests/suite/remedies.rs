//! Remedies on an array of disks that is too slow for two volumes. Each remedy is taken if it is predicted to help, has
//! about the predicted effect, and ends when it is no longer needed.

use sim::{Evidence, VolumeEvidence};
use slo::ladder::taken;

use crate::support::run_with_evidence;

/// A database with a peak, and a second volume that reads all over its data.
struct Setting {
    remedy: &'static str,
    data_disks: u32,
    cache: &'static str,
    db: &'static str,
    peak: &'static str,
    /// Start and end of the peak.
    peak_s: (u32, u32),
    search: &'static str,
    promised: &'static str,
    duration_s: u32,
}

impl Setting {
    fn text(&self) -> String {
        format!(
            r#"
seed = 3
duration = "{duration}s"
window = "10s"
[[tiers]]
name = "group"
preset = "disk-15k"
members = [{{ name = "disks", capacity = "1 TiB" }}]
[disks.group]
preset = "disk-15k"
count = {count}
raid = "raid4"
chunk = "1 MiB"
positioning = "3.4ms"
spread = 0.6
bandwidth = "100 MB/s"
write_back = "1ms"
{cache}
[[classes]]
name = "db"
[[classes]]
name = "search"
[[volumes]]
name = "db"
class = "db"
size = "14 GiB"
[[volumes]]
name = "search"
class = "search"
size = "14 GiB"
[[clients]]
volume = "db"
habits = {{ outstanding = 16, {db}, rate = "120 IOPS" }}
phases = [
  {{ duration = "{calm}s" }},
  {{ duration = "{peak}s", habits = {{ {peak_habits} }} }},
  {{ duration = "9000s" }},
]
[[clients]]
volume = "search"
habits = {{ outstanding = 16, {search} }}
bursts = {{ every = "70s", length = "30s", factor = 1.1 }}
[response]
remedies = ["{remedy}"]
iops_min = {{ {promised} }}
[response.workflow]
detect = {{ samples = 12, violating_min = 12, clear_below = 0.2 }}
"#,
            duration = self.duration_s,
            count = self.data_disks + 1,
            cache = self.cache,
            db = self.db,
            calm = self.peak_s.0,
            peak = self.peak_s.1 - self.peak_s.0,
            peak_habits = self.peak,
            search = self.search,
            remedy = self.remedy,
            promised = self.promised,
        )
    }
}

/// Returns the mean utilization of the disks from `from_s` to `to_s`.
fn disks(evidence: &Evidence, from_s: usize, to_s: usize) -> f64 {
    let one = |of: &VolumeEvidence| {
        let windows = &of.windows[from_s / 10..to_s / 10];
        let busy = windows
            .iter()
            .map(|w| w.sample.busy[0].expect("it is measured"));
        busy.map(|b| b.reads + b.writes).sum::<f64>() / windows.len() as f64
    };
    evidence.volumes.iter().map(one).sum()
}

/// Checks the effect of the first remedy against its prediction. `before` is a time without the remedy, `after` one
/// with its effect. Returns the recorded events with their times.
fn does_as_predicted(
    setting: &Setting,
    before: (usize, usize),
    after: (usize, usize),
) -> Vec<String> {
    let (_, evidence) = run_with_evidence(&setting.text());
    let line = |(at, what): &(units::Nanos, String)| format!("{:.0} {what}", at.as_secs_f64());
    let told: Vec<String> = evidence.events.iter().map(line).collect();
    let remedy = taken(&evidence.decisions[0].remedies)
        .unwrap_or_else(|| panic!("{:#?}", evidence.decisions[0].remedies));
    let predicted = remedy.prediction.as_ref().unwrap().uses[0];
    let (then, measured) = (
        disks(&evidence, before.0, before.1),
        disks(&evidence, after.0, after.1),
    );
    println!("predicted {predicted:.3}, before {then:.3}, measured {measured:.3}\n{told:#?}");
    assert!(then > 0.9, "the disks are the bottleneck: {then}");
    assert!(measured < then - 0.1, "{then} {measured}");
    assert!(
        (measured - predicted).abs() < 0.1 * predicted,
        "{predicted} {measured}"
    );
    for volume in &evidence.volumes {
        let late = &volume.windows[after.0 / 10..after.1 / 10];
        let violates = late.iter().filter(|w| w.standing.violates()).count();
        assert!(violates * 20 <= late.len(), "{}: {violates}", volume.name);
    }
    told
}

#[test]
fn throttle_restores_the_objective_without_oscillation() {
    let setting = Setting {
        remedy: "throttle",
        data_disks: 5,
        cache: "",
        db: "read_share = 0.95, sizes = [{ size = \"16 KiB\", share = 1.0 }]",
        peak: "rate = \"850 IOPS\"",
        peak_s: (400, 1200),
        search: "rate = \"700 IOPS\", sizes = [{ size = \"16 KiB\", share = 1.0 }]",
        promised: "db = \"850 IOPS\"",
        duration_s: 3000,
    };
    let told = does_as_predicted(&setting, (460, 520), (700, 1200));
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("search: throttled to"), "{told:?}");
    assert!(told[1].contains("search: throttle removed"), "{told:?}");
}

#[test]
fn memory_share_is_filled_restores_the_objective_and_is_returned() {
    // Small requests to a set that is read repeatedly, and larger ones that evict it.
    let setting = Setting {
        remedy: "memory-share",
        data_disks: 4,
        cache: "[cache]\nsize = \"320 MiB\"\npage = \"4 KiB\"\nwrites = \"write-around\"\n",
        db: "read_share = 0.98, skew = 0.2, footprint = 0.0218",
        peak: "rate = \"1100 IOPS\"",
        peak_s: (1000, 2000),
        search: "rate = \"500 IOPS\", sizes = [{ size = \"28 KiB\", share = 1.0 }]",
        promised: "db = \"1100 IOPS\", search = \"450 IOPS\"",
        duration_s: 2700,
    };
    let told = does_as_predicted(&setting, (1060, 1120), (1400, 2000));
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("of the cache reserved"), "{told:?}");
    assert!(told[1].contains("of the cache released"), "{told:?}");
}
