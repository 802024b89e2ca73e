//! Tests of all stages; one of them (`probe`) exists only in tests.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;
use units::{Bytes, DeviceId};
use volume::VolumeMap;

use super::probe::{Command as ProbeCommand, Sample};
use super::{Command, DeviceStages, Stages, StagesSample, StagesStatus};
use crate::client::Client;
use crate::control_server::{ControlAnswer, ControlRequest};
use crate::engine::{GuestOp, GuestRequest};
use crate::serving::one_volume;

pub(super) fn request(op: GuestOp, offset: u64, length: u64) -> GuestRequest {
    GuestRequest {
        op,
        offset,
        length,
        fua: false,
    }
}

/// Returns the map of a volume with four extents.
pub(super) fn map() -> VolumeMap {
    VolumeMap::new(Bytes::mib(4), Bytes::mib(1), DeviceId(0))
}

/// Returns the stages of the product.
fn stages() -> impl Iterator<Item = &'static (&'static str, &'static [&'static str])> {
    let probe = |s: &&(&str, &[&str])| s.0 != "probe";
    Stages::ALL.iter().filter(probe)
}

#[test]
fn stage_and_command_names_are_unique_and_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/filters.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut seen = BTreeSet::new();
    for (name, words) in stages() {
        assert!(seen.insert(format!("stage {name}")), "{name} comes twice");
        let row = page
            .lines()
            .find(|l| l.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("the table has no row for {name}"));
        for command in *words {
            assert!(
                seen.insert(format!("word {command}")),
                "{command} comes twice"
            );
            assert!(row.contains(&format!("`{command}`")), "{command} in: {row}");
        }
    }
    for name in DeviceStages::ALL {
        assert!(seen.insert(format!("stage {name}")), "{name} comes twice");
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
}

#[test]
fn each_stage_command_is_parsed_by_its_stage_only() {
    for command in Stages::ALL.iter().flat_map(|s| s.1) {
        let request = json!({ "ask": command });
        let read = Command::read(&request).expect("a stage has it");
        let why = read.expect_err("it has no volume").to_string();
        assert_eq!(why, "missing field `volume`", "{command}");
        // The control server's own commands do not contain it.
        let why = ControlRequest::deserialize(request).expect_err("it has a stage's word");
        assert!(
            why.to_string().contains("unknown variant"),
            "{command}: {why}"
        );
    }
    assert!(Command::read(&json!({ "ask": "volumes" })).is_none());
}

#[test]
fn stage_fields_are_flattened_into_the_volume() {
    let map = map();
    let stages = Stages::new(super::StagesSetup::default(), &map, 0);
    let fields = |value: serde_json::Value| -> Vec<String> {
        let fields = value.as_object().unwrap().keys();
        let fields = fields.filter(|f| !f.starts_with("probe"));
        fields.cloned().collect()
    };
    let status = serde_json::to_value(stages.status(0)).unwrap();
    let names = ["injected", "injecting", "measured", "recording"];
    assert_eq!(fields(status.clone()), names);
    let back: StagesStatus = serde_json::from_value(status).unwrap();
    assert_eq!(back, stages.status(0));
    let sample = serde_json::to_value(stages.sample(0)).unwrap();
    assert_eq!(fields(sample.clone()), ["counts", "injecting"]);
    let back: StagesSample = serde_json::from_value(sample).unwrap();
    assert_eq!(back, stages.sample(0));
    let device = serde_json::to_value(DeviceStages::default().sample()).unwrap();
    assert_eq!(device, json!({ "busy_ns": null }));
}

/// Uses everything that a filter can do, from commands of the control socket to requests of guests, with a filter
/// that no other code knows.
#[test]
fn probe_filter_needs_one_file_and_one_registry_line() {
    let dir = tempfile::tempdir().unwrap();
    let (serving, listen) = one_volume(dir.path());
    let control_server = serving.control_server();

    let hold = |hold_ns| ProbeCommand::ProbeHold {
        volume: "data".into(),
        hold_ns,
    };
    let said = serde_json::to_value(ControlRequest::from(hold(3_000_000))).unwrap();
    let wire = json!({ "ask": "probe-hold", "volume": "data", "hold_ns": 3_000_000 });
    assert_eq!(said, wire);
    let understood: ControlRequest = serde_json::from_value(wire).unwrap();
    assert_eq!(understood, ControlRequest::from(hold(3_000_000)));
    let refused = control_server.ask(hold(u64::MAX).into()).unwrap_err();
    assert_eq!(refused.to_string(), "the delay must be below 1 s");

    let mut guest = Client::connect(&listen.uri("data").parse().unwrap()).unwrap();
    guest.write(0, &[3; 512]).unwrap();
    control_server.ask(understood).unwrap();
    assert_eq!(guest.read(0, 512).unwrap(), [3; 512]);
    guest.flush().unwrap();
    let show = ControlRequest::Show {
        volume: "data".into(),
    };
    let ControlAnswer::Volumes { volumes } = control_server.ask(show).unwrap() else {
        panic!("it answers something else");
    };
    let status = volumes[0].status.as_ref().unwrap();
    let seen = status.stages.probe;
    assert_eq!((seen.probe_arrived, seen.probe_answered), (3, 3));
    assert_eq!(seen.probe_held, 2);
    let measured = status.stages.measure.measured.as_ref().unwrap();
    let reads = measured.directions[0].latency;
    assert!(reads.mean_us >= 6_000.0, "both times count: {reads:?}");
    let json = serde_json::to_value(status).unwrap();
    assert_eq!(json["probe_answered"], 3, "{json}");
    let ControlAnswer::Samples(samples) = control_server.ask(ControlRequest::Samples).unwrap()
    else {
        panic!("it answers something else");
    };
    let sample = Sample {
        probe_latency_ns: 6_000_000,
    };
    assert_eq!(samples.volumes[0].stages.probe, sample);
    serving.stop().unwrap();
}
