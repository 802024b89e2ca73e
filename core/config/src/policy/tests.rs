//! Tests of policies in TOML.

use super::*;

fn resolve(toml: &str, unknown: UnknownVolumes) -> Result<ResolvedPolicy, String> {
    let (config, text) = crate::read::<PolicyConfig>("x.toml", toml).map_err(|e| e.to_string())?;
    // The file has policy keys only, so errors name no line: no table is above the keys.
    resolve_policy(
        &text,
        "policy",
        &config,
        &["fast", "slow"],
        &["a", "b"],
        unknown,
    )
    .map_err(|e| e.to_string())
}

fn policy(toml: &str) -> Policy {
    resolve(toml, UnknownVolumes::Refuse).unwrap().policy
}

#[test]
fn empty_policy_has_the_defaults() {
    assert_eq!(policy(""), Policy::default());
}

#[test]
fn goals_and_gates_are_parsed() {
    let p = policy(
        "drain = [\"slow\"]\nspace_high = 0.9\nhold = 3\ncooldown = \"1h\"\nmargin = 0.2\nthreshold = \"500us\"\n",
    );
    assert_eq!(p.draining, [TierId(1)]);
    assert!(p.takes_no_data(TierId(1)) && !p.takes_no_data(TierId(0)));
    assert_eq!(p.space_high, Some(0.9));
    let gates = Gates {
        hold: 3,
        cooldown: Nanos::from_secs(3600),
        margin: 0.2,
        threshold: Nanos::from_micros(500),
    };
    assert_eq!(p.gates, gates);
}

#[test]
fn invalid_policy_values_are_refused() {
    for (toml, key) in [
        ("hold = 0", "hold"),
        ("margin = 1.5", "margin"),
        ("margin = -0.1", "margin"),
        ("space_high = 0.0", "space_high"),
        ("overcommit_max = 0.9", "overcommit_max"),
        ("overcommit_max = nan", "overcommit_max"),
        ("overcommit_max = inf", "overcommit_max"),
        ("drain = [\"midle\"]", "drain"),
        ("monitor_epoch = \"1ms\"", "monitor_epoch"),
        (
            "monitor_epoch = \"60s\"\nmigration_epoch = \"90s\"",
            "migration_epoch",
        ),
        (
            "affinity = [{ kind = \"same-tier\", volumes = [\"a\", \"a\"] }]",
            "affinity[0].volumes",
        ),
    ] {
        let fault = resolve(toml, UnknownVolumes::Refuse).unwrap_err();
        assert!(
            fault.starts_with(&format!("x.toml: policy.{key}: ")),
            "{fault}"
        );
    }
}

#[test]
fn rules_for_unknown_volumes_are_refused_or_skipped() {
    let toml = "pins = { a = \"fast\", gone = \"slow\" }\nno_injection = [\"gone\", \"later\"]\n\
        affinity = [{ kind = \"same-tier\", volumes = [\"a\", \"gone\"] }, \
        { kind = \"different-devices\", volumes = [\"a\", \"b\", \"later\"] }]\n";
    let fault = resolve(toml, UnknownVolumes::Refuse).unwrap_err();
    assert!(
        fault.contains("policy.pins: volume: unknown name \"gone\""),
        "{fault}"
    );
    let found = resolve(toml, UnknownVolumes::Skip).unwrap();
    assert_eq!(found.unknown, ["gone", "later"]);
    let pin = Pin {
        volume: VolumeId(0),
        tier: TierId(0),
    };
    assert_eq!(found.policy.pins, [pin]);
    let apart = Affinity {
        kind: AffinityKind::DifferentDevices,
        volumes: vec![VolumeId(0), VolumeId(1)],
    };
    assert_eq!(found.policy.affinity, [apart]);
    assert!(found.policy.no_injection.is_empty());
    // An unknown tier is an error in both modes.
    let fault = resolve("pins = { gone = \"nowhere\" }", UnknownVolumes::Skip).unwrap_err();
    assert!(fault.contains("tier: unknown name"), "{fault}");
}
