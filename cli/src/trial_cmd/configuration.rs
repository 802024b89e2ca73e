//! Live configurations for a discovered host: the configuration of a trial, and the file that `terrace init` writes.

use std::collections::BTreeMap;
use std::fmt::Write;

use config::{ClassConfig, ModesConfig, PolicyConfig, TierConfig};
use manager::settings::{ControllerConfig, ManagerConfig};
use model::{Mode, SloStatistic};
use report::trial::{EPOCH_WINDOWS, TrialTier};
use serde_json::json;
use toml_edit::Value;
use units::Nanos;

use super::host::HostChoice;

/// Number of windows of a trial.
const WINDOWS: u64 = 60;
/// Class of all disks.
const CLASS: &str = "all";

/// Returns read and write latency of a tier whose devices were probed: those of the preset, scaled by the probe unless the user named the
/// preset. Without a probe, the predictions use only the preset, and the controller treats them as doubtful.
fn latencies(tier: &TrialTier) -> Option<(Nanos, Nanos)> {
    let preset = model::PRESETS.iter().find(|p| p.name == tier.preset)?;
    let probed = tier.found.iter().any(|f| f.read_us.is_some());
    let times = tier.latency_times.or(probed.then_some(1.0))?;
    let spec = preset.spec();
    // Two or three digits, because a few reads give no more precision.
    let scaled = |ns: Nanos| {
        let us = ns.as_micros_f64() * times;
        Nanos::from_micros_f64(match us {
            us if us >= 10.0 => us.round(),
            // The factor was measured for reads only.
            us => ((us * 10.0).round() / 10.0).max(model::LATENCY_MIN_US),
        })
    };
    Some((scaled(spec.read_latency), scaled(spec.write_latency)))
}

/// Returns the configuration of a trial. Its plans are never approved.
pub fn of_trial(chosen: &HostChoice, time: Nanos, latency: Nanos) -> ManagerConfig {
    let window_s = (time.0 / 1_000_000_000 / WINDOWS).max(1);
    let tier = |t: &TrialTier| {
        let latencies = latencies(t);
        TierConfig {
            name: t.name.clone(),
            preset: Some(t.preset.clone()),
            read_latency: latencies.map(|l| l.0),
            write_latency: latencies.map(|l| l.1),
            // Places are named by directory, because the name of a pool may change.
            pools: t.places.iter().map(|(_, path)| path.clone()).collect(),
            ..TierConfig::default()
        }
    };
    let mut table = chosen.host.table.clone();
    table["host"] = "trial".into();
    table["moves"] = false.into();
    table["classes"] = json!([{ "disks": "*", "class": CLASS }]);
    ManagerConfig {
        controller: ControllerConfig {
            state: "state".into(),
            ..ControllerConfig::default()
        },
        platforms: BTreeMap::from([(chosen.host.platform.into(), table)]),
        window: Nanos::from_secs(window_s),
        tiers: chosen.tiers.iter().map(tier).collect(),
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

/// Quotes a text for TOML.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns the text of a file for `terrace serve`, with tiers and a class as proposals. It recommends moves and carries out none.
pub fn of_init(chosen: &HostChoice, latency: Nanos) -> String {
    let platform = chosen.host.platform;
    let mut out = format!(
        "# Written by `terrace init`. It only recommends moves. Tiers and classes are proposals: check them.\n\
         strategy = \"terrace\"\n\n\
         [controller]\n\
         state = \"terrace-state\"          # below this file's directory\n\n\
         [{platform}]\n"
    );
    for (key, value) in chosen.host.table.as_object().into_iter().flatten() {
        let _ = writeln!(
            out,
            "{key} = {}",
            quoted(value.as_str().unwrap_or_default())
        );
    }
    let _ = write!(
        out,
        "moves = false                    # true: carry out approved moves\n\
         keep_source = \"1d\"               # time for which the old image of a moved disk is kept\n\n\
         # The first matching entry applies: put more important disks first, for example\n\
         # [[{platform}.classes]]\n\
         # disks = \"db-*\"\n\
         # class = \"databases\"\n\
         [[{platform}.classes]]\n\
         disks = \"*\"\n\
         class = {}\n",
        quoted(CLASS)
    );
    for tier in &chosen.tiers {
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
    out += "\n# [[classes]]\n# name = \"databases\"\n# latency = \"500us\"\n# weight = 4.0                   # a violation counts four times as much\n";
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

    struct Nothing;

    impl agent::Survey for Nothing {
        fn find(&mut self) -> Result<agent::SurveyResult, agent::AgentError> {
            Ok(agent::SurveyResult::default())
        }

        fn left_out(
            &mut self,
            _: &[agent::TierOf],
        ) -> Result<Vec<(String, String)>, agent::AgentError> {
            Ok(vec![])
        }
    }

    #[test]
    fn trial_configuration_has_tiers_of_the_trial_and_no_automatic_moves() {
        let tier = |name: &str, path: &str, times| TrialTier {
            name: name.into(),
            preset: "sata-ssd".into(),
            latency_times: times,
            places: vec![("pool".into(), path.into())],
            found: vec![PlaceSeen::default()],
        };
        let odd = "/srv/a \"b\"\\c[x]";
        let chosen = HostChoice {
            host: agent::Candidate {
                platform: "libvirt",
                table: json!({ "uri": "qemu:///system" }),
                title: "qemu:///system".into(),
                survey: Box::new(Nothing),
            },
            tiers: vec![tier("fast", "/fast", Some(0.5)), tier("slow", odd, None)],
        };
        let text = of_init(&chosen, Nanos::from_millis(2));
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
        assert_eq!(words.classes[0].latency, Some(Nanos::from_millis(2)));
        assert_eq!(words.classes[0].statistic, SloStatistic::Mean);
        assert_eq!(words.modes.latency, Mode::Recommend);
        // A trial runs the same tiers.
        let tried = of_trial(&chosen, Nanos::from_secs(300), Nanos::from_millis(2));
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

    #[test]
    fn named_preset_is_unchanged_and_write_latency_has_a_lower_bound() {
        let mut named = TrialTier {
            name: "named".into(),
            preset: "sata-ssd".into(),
            latency_times: None,
            places: vec![],
            found: vec![PlaceSeen {
                read_us: Some(20.0),
                ..PlaceSeen::default()
            }],
        };
        let preset = (Nanos::from_micros(140), Nanos::from_micros(50));
        assert_eq!(latencies(&named), Some(preset));
        named.latency_times = Some(0.05);
        let least = Nanos::from_micros_f64(model::LATENCY_MIN_US);
        assert_eq!(latencies(&named).unwrap().1, least);
    }
}
