//! The live configuration that a trial runs, and the file that it leaves for `terrace serve`.

use std::collections::BTreeMap;
use std::fmt::Write;

use config::{ClassConfig, ModesConfig, PolicyConfig, TierConfig};
use manager::settings::{ControllerConfig, ManagerConfig};
use model::{Mode, SloStatistic};
use report::trial::{EPOCH_WINDOWS, TrialTier};
use serde_json::json;
use toml_edit::Value;
use units::Nanos;

/// Windows of a trial.
const WINDOWS: u64 = 60;
/// The class of all disks.
const CLASS: &str = "all";

/// Read and write latency of a tier whose devices were probed: by the probe, or those of the preset that was named. Without a probe
/// predictions use only the preset, and the controller doubts them.
fn latencies(tier: &TrialTier) -> Option<(Nanos, Nanos)> {
    let preset = model::PRESETS.iter().find(|p| p.name == tier.preset)?;
    let probed = tier.found.iter().any(|f| f.read_us.is_some());
    let times = tier.latency_times.or(probed.then_some(1.0))?;
    let spec = preset.spec();
    // Two or three digits: what little is read of a disk is no more certain.
    let scaled = |ns: Nanos| {
        let us = ns.as_micros_f64() * times;
        Nanos::from_micros_f64(match us {
            us if us >= 10.0 => us.round(),
            // The factor is that of reads.
            us => ((us * 10.0).round() / 10.0).max(model::LATENCY_MIN_US),
        })
    };
    Some((scaled(spec.read_latency), scaled(spec.write_latency)))
}

/// A live configuration in which nothing is ever done without somebody saying so, and there is nobody to say so.
pub fn of_trial(
    uri: Option<&String>,
    time: Nanos,
    latency: Nanos,
    tiers: &[TrialTier],
) -> ManagerConfig {
    let window_s = (time.0 / 1_000_000_000 / WINDOWS).max(1);
    let tier = |t: &TrialTier| {
        let latencies = latencies(t);
        TierConfig {
            name: t.name.clone(),
            preset: Some(t.preset.clone()),
            read_latency: latencies.map(|l| l.0),
            write_latency: latencies.map(|l| l.1),
            // By directory: what a pool's name is may change.
            pools: t.places.iter().map(|(_, path)| path.clone()).collect(),
            ..TierConfig::default()
        }
    };
    let mut libvirt = json!({
        "host": "trial",
        "moves": false,
        "classes": [{ "disks": "*", "class": CLASS }],
    });
    if let Some(uri) = uri {
        libvirt["uri"] = uri.as_str().into();
    }
    ManagerConfig {
        controller: ControllerConfig {
            state: "state".into(),
            ..ControllerConfig::default()
        },
        platforms: BTreeMap::from([("libvirt".into(), libvirt)]),
        window: Nanos::from_secs(window_s),
        tiers: tiers.iter().map(tier).collect(),
        classes: vec![ClassConfig {
            name: CLASS.into(),
            weight: 1.0,
            latency: Some(latency),
            statistic: SloStatistic::Mean,
            max_slowdown: None,
        }],
        policy: PolicyConfig {
            monitor_epoch: Some(Nanos::from_secs(window_s * EPOCH_WINDOWS as u64)),
            migration_epoch: Some(Nanos::from_secs(window_s * WINDOWS)),
            hold: Some(1),
            cooldown: Some(Nanos::ZERO),
            margin: Some(0.0),
            ..PolicyConfig::default()
        },
        modes: ModesConfig {
            drain: Mode::Recommend,
            rules: Mode::Recommend,
            space: Mode::Recommend,
            latency: Mode::Recommend,
        },
        ..ManagerConfig::default()
    }
}

/// A text as TOML has it.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A file for `terrace serve` with the same tiers and objective, which recommends and moves nothing.
pub fn for_keeps(uri: Option<&String>, latency: Nanos, tiers: &[TrialTier]) -> String {
    let mut out = String::from(
        "# Tiers of a trial, for `terrace serve --config FILE`. This configuration only recommends moves.\n\
         strategy = \"terrace\"\n\n\
         [controller]\n\
         state = \"terrace-libvirt\"        # below this file's directory\n\n\
         [libvirt]\n",
    );
    if let Some(uri) = uri {
        let _ = writeln!(out, "uri = {}", quoted(uri));
    }
    out += "moves = false                    # true: carry out approved moves; needs permission to change libvirt and the images\n\
            keep_source = \"1d\"               # time for which the old image of a moved disk is kept\n\n\
            [[libvirt.classes]]              # the first matching entry applies, such as disks = \"db-*\" above this one\n\
            disks = \"*\"\n";
    let _ = writeln!(out, "class = {}", quoted(CLASS));
    for tier in tiers {
        let _ = writeln!(out, "\n[[tiers]]\nname = {}", quoted(&tier.name));
        let _ = writeln!(out, "preset = {}", quoted(&tier.preset));
        if let Some((read, write)) = latencies(tier) {
            let [of_reads, of_writes] = match tier.latency_times {
                Some(_) => ["as probed", "the preset's, by the same factor"],
                None => ["that of the preset, which was named"; 2],
            };
            let _ = writeln!(
                out,
                "read_latency = {}            # {of_reads}",
                quoted(&read.to_string())
            );
            let _ = writeln!(
                out,
                "write_latency = {}           # {of_writes}",
                quoted(&write.to_string())
            );
        }
        let places: Vec<String> = tier.places.iter().map(|(_, path)| quoted(path)).collect();
        let _ = writeln!(out, "pools = [{}]", places.join(", "));
    }
    let latency = quoted(&latency.to_string());
    let _ = writeln!(
        out,
        "\n[[classes]]\nname = {}\nlatency = {latency}\nstatistic = \"mean\"",
        quoted(CLASS)
    );
    out += "\n[modes]                          # \"auto\": moves start without `terrace apply`\n";
    for goal in ["drain", "rules", "space", "latency"] {
        let _ = writeln!(out, "{goal} = \"recommend\"");
    }
    out
}

#[cfg(test)]
mod tests {
    use manager::settings::Settings;
    use report::trial::PlaceSeen;

    use super::*;

    #[test]
    fn the_file_is_the_trials_own_tiers_and_objective_and_moves_nothing() {
        let tier = |name: &str, path: &str, times| TrialTier {
            name: name.into(),
            preset: "sata-ssd".into(),
            latency_times: times,
            places: vec![("pool".into(), path.into())],
            found: vec![PlaceSeen::default()],
        };
        let odd = "/srv/a \"b\"\\c[x]";
        let tiers = [tier("fast", "/fast", Some(0.5)), tier("slow", odd, None)];
        let uri = "qemu:///system".to_owned();
        let text = for_keeps(Some(&uri), Nanos::from_millis(2), &tiers);
        let (words, text) = config::read::<ManagerConfig>("kvm.toml", &text).unwrap();
        let settings = Settings::new(text, words).unwrap();
        let words = &settings.words;
        let libvirt = &words.platforms["libvirt"];
        assert_eq!(libvirt["moves"], false);
        assert_eq!(libvirt["uri"], "qemu:///system");
        assert_eq!(words.tiers[1].pools, [odd]);
        assert_eq!(words.tiers[0].read_latency, Some(Nanos::from_micros(70)));
        assert_eq!(words.tiers[0].write_latency, Some(Nanos::from_micros(25)));
        assert_eq!(words.tiers[1].read_latency, None);
        // A preset that was named is kept, and the probe shows that its device was measured.
        let mut named = tier("named", "/named", None);
        named.found[0].read_us = Some(20.0);
        let preset = (Nanos::from_micros(140), Nanos::from_micros(50));
        assert_eq!(latencies(&named), Some(preset));
        // Writes are not scaled below what a device can do.
        named.latency_times = Some(0.05);
        let least = Nanos::from_micros_f64(model::LATENCY_MIN_US);
        assert_eq!(latencies(&named).unwrap().1, least);
        assert_eq!(words.classes[0].latency, Some(Nanos::from_millis(2)));
        assert_eq!(words.classes[0].statistic, SloStatistic::Mean);
        // What was tried is what is kept.
        let tried = of_trial(
            Some(&uri),
            Nanos::from_secs(300),
            Nanos::from_millis(2),
            &tiers,
        );
        assert_eq!(tried.platforms["libvirt"]["classes"], libvirt["classes"]);
        for (tried, kept) in tried.tiers.iter().zip(&words.tiers) {
            let of = |t: &TierConfig| {
                (
                    t.name.clone(),
                    t.preset.clone(),
                    t.read_latency,
                    t.pools.clone(),
                )
            };
            assert_eq!(of(tried), of(kept));
        }
    }
}
