//! Capacity of a tier for volumes that are already on it.

use model::*;
use serde_json::json;
use units::*;

use super::super::AutoTiering;
use super::super::config::AutoTieringConfig;
use super::{facts, topology};
use crate::{Context, Strategy};

/// Returns volumes with writes at 4.66 K IOPS each, all on the first tier, which has 19 K (planned: 15.2 K).
fn writers(n: usize) -> Facts {
    let latency_us = 1e6 / 4_660.0;
    let mut facts = facts(
        topology([(200, 19e3, 100), (300, 1e5, 100)]),
        10,
        4_660.0,
        latency_us,
    );
    let mut writer = facts.volumes.remove(0);
    writer.device = DeviceId(0);
    let measured = writer.measured.as_mut().expect("measured");
    measured.writes = std::mem::take(&mut measured.reads);
    facts.volumes = (0..n)
        .map(|i| VolumeFacts {
            name: format!("w{i}"),
            ..writer.clone()
        })
        .collect();
    facts.devices[0].used = Bytes::gib(10 * n as u64);
    facts.devices[1].used = Bytes::ZERO;
    facts
}

#[test]
fn literal_form_relieves_an_overloaded_tier_and_exempt_form_does_not() {
    let facts = writers(4);
    let policy = Policy::default();
    let stay = |config: serde_json::Value| {
        let config: AutoTieringConfig = serde_json::from_value(config).unwrap();
        let strategy = AutoTiering::new(config).unwrap();
        let context = Context {
            facts: &facts,
            policy: &policy,
            seed: 1,
        };
        let mut draft = crate::Draft::default();
        strategy.plan(&context, &Default::default(), &mut draft);
        let first = |w: &&crate::Wish| w.tier == TierId(0);
        draft.wishes.iter().filter(first).count()
    };
    assert_eq!(stay(json!({ "form": "literal" })), 3, "14.0 K of 15.2 K");
    let exempt = json!({ "form": "literal", "staying": "exempt" });
    assert_eq!(stay(exempt), 4, "18.6 K of 15.2 K");
}
