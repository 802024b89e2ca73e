//! Export of a decision as a scenario: it runs, and its content agrees with the generated loads.

use manager::question::{Answer, Question};
use manager::wire::Throttle;
use sim::{RunOptions, RunResult, ScenarioFile};
use slo::ladder::RemedyKind;
use units::Nanos;

use super::host::{Host, WINDOW};
use super::{upside_down, with};

/// Returns the exported decision of a host with that configuration, and a run of its first half minute.
fn exported(config: &str, throttled: bool) -> (ScenarioFile, RunResult) {
    let mut host = Host::new(&with(config), upside_down());
    if throttled {
        host.volumes[0].throttle = Some(Throttle {
            iops: Some(100),
            bandwidth_bytes_per_s: None,
            lasting_ns: 1000 * WINDOW,
        });
    }
    host.until_plan();
    let asked = host.ask(Question::ExportFacts {
        host: None,
        generation: None,
    });
    let Ok(Answer::Text(text)) = asked else {
        panic!("{asked:?}")
    };
    let mut file = ScenarioFile::parse("exported.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    file.scenario.duration = Some(Nanos::from_secs(30));
    let model = file.build(vec![]).unwrap_or_else(|e| panic!("{e}"));
    let strategy = file.strategy(&file.scenario.strategy).unwrap();
    let options = RunOptions {
        series: false,
        decisions: true,
        optimum: None,
    };
    let result = sim::run(&model, strategy, Default::default(), options, &mut |_| {}).unwrap();
    assert!(result.total().all.ios > 100);
    (file, result)
}

#[test]
fn exported_scenario_has_the_remedies_of_the_host() {
    let modes = "[response]\nmodes = { throttle = \"auto\", mirror = \"off\" }\n\
                 [response.workflow]\nsettle = \"7s\"\n[response.ahead]\n";
    let (file, result) = exported(modes, false);
    let response = file.scenario.response.as_ref().expect("it has objectives");
    assert_eq!(response.remedies, [RemedyKind::Throttle, RemedyKind::Move]);
    assert_eq!(response.workflow.settle, Nanos::from_secs(7));
    assert!(result.response.is_some());
    let about = &file.scenario.about;
    assert!(
        about.contains("only recommended are carried out"),
        "{about}"
    );
    assert!(about.contains("Left out: peaks of seasons"), "{about}");
    assert!(!about.contains("Without a load"), "{about}");
    let off = "[response]\nmodes = { throttle = \"off\", mirror = \"off\", move = \"off\" }\n";
    let (file, _) = exported(off, false);
    assert_eq!(file.scenario.response, None);
    assert!(!file.scenario.about.contains("eft out"));
}

#[test]
fn exported_loads_measured_behind_a_cache_have_no_second_cache() {
    let cache = |host: &str| {
        format!("[array]\ndir = \"a\"\nhost = \"{host}\"\n[array.cache]\nsize = \"64 MiB\"\n")
    };
    let (file, result) = exported(&cache("alpha"), false);
    assert_eq!((file.scenario.cache, file.scenario.response), (None, None));
    assert!(result.cache.is_none() && result.response.is_none());
    let about = &file.scenario.about;
    assert!(about.contains("Left out: the cache of 64 MiB"), "{about}");
    // A cache of another host does not matter.
    let (file, _) = exported(&cache("beta"), false);
    assert!(file.scenario.response.is_some());
    let about = &file.scenario.about;
    assert!(!about.contains("64 MiB"), "{about}");
    assert!(
        about.contains("not known here whether the host has a cache"),
        "{about}"
    );
}

#[test]
fn throttled_volume_is_exported_without_a_load_and_named() {
    let (file, _) = exported("", true);
    let clients = file.scenario.clients.iter();
    let clients: Vec<&str> = clients.map(|c| c.volume.as_str()).collect();
    assert_eq!(clients, ["idle"]);
    let about = &file.scenario.about;
    assert!(about.contains("Without a load"), "{about}");
    assert!(about.contains(": busy. "), "{about}");
}
