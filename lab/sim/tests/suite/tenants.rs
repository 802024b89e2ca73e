//! Tenants of a tier's SSDs in whole runs: benefit and cost of isolation, volumes that move, and shares that change.

use sim::{RunResult, TenantWear};

use crate::support::{refusal, run_text};

/// Three volumes on one tier of flash: one with sequential writes, one with random overwrites, one with reads. A slower
/// tier is available.
fn scenario(flash: &str, rest: &str) -> String {
    format!(
        r#"
seed = 5
duration = "60s"
warmup = "20s"
window = "1s"
copy_chunk = "1 MiB"
[[tiers]]
name = "ssd"
preset = "nvme-tlc"
capacity = "4 GiB"
[[tiers]]
name = "disk"
preset = "sata-ssd"
capacity = "8 GiB"
[flash.ssd]
preset = "tlc-nvme"
spare = 0.15
{flash}
[[classes]]
name = "cold"
[[volumes]]
name = "log"
class = "cold"
size = "1536 MiB"
tier = "ssd"
[[volumes]]
name = "db"
size = "1536 MiB"
tier = "ssd"
[[volumes]]
name = "web"
size = "960 MiB"
tier = "ssd"
[[clients]]
volume = "log"
habits = {{ outstanding = 4, read_share = 0.0, random_share = 0.0, rate = "1200 IOPS", sizes = [{{ size = "128 KiB", share = 1.0 }}] }}
[[clients]]
volume = "db"
habits = {{ outstanding = 16, read_share = 0.2, random_share = 1.0, rate = "30000 IOPS", sizes = [{{ size = "4 KiB", share = 1.0 }}] }}
[[clients]]
volume = "web"
habits = {{ outstanding = 4, read_share = 1.0, rate = "2000 IOPS" }}
[policy]
monitor_epoch = "1s"
migration_epoch = "5s"
copy_bandwidth = "800 MiB/s"
copy_share = 1.0
{rest}
"#
    )
}

const TENANTS: &str = "[[flash.ssd.tenants]]\nname = \"log\"\nclass = \"cold\"\n\
                       [[flash.ssd.tenants]]\nname = \"db\"\nvolumes = [\"db\"]\n";

fn with(isolation: &str) -> String {
    format!("isolation = \"{isolation}\"\n{TENANTS}")
}

fn run(text: &str) -> RunResult {
    run_text(text, "noop")
}

fn tenant<'a>(result: &'a RunResult, name: &str) -> &'a TenantWear {
    let tenants = &result.wear.as_ref().unwrap().tenants;
    tenants.iter().find(|t| t.tenant == name).unwrap()
}

#[test]
fn isolation_protects_a_sequential_writer_from_other_tenants() {
    let pool = run(&scenario(&with("one-pool"), ""));
    let isolated = run(&scenario(&with("isolated"), ""));
    let waf = |result: &RunResult, name: &str| tenant(result, name).waf.unwrap();
    assert!(waf(&pool, "log") > 1.3, "{}", waf(&pool, "log"));
    assert!(waf(&isolated, "log") < 1.05, "{}", waf(&isolated, "log"));
    assert_eq!(tenant(&pool, "log").over_provisioned_share, None);
    let wear = isolated.wear.as_ref().unwrap();
    let foreign = |t: &TenantWear| t.moved_foreign_bytes + t.moved_by_others_bytes;
    assert_eq!(wear.tenants.iter().map(foreign).sum::<u64>(), 0);
    assert_eq!(
        wear.tenants
            .iter()
            .map(|t| t.tenant.as_str())
            .collect::<Vec<_>>(),
        ["log", "db", "others"]
    );
    // Without configured shares, space is divided by the size of the data.
    let share = |name: &str| tenant(&isolated, name).over_provisioned_share.unwrap();
    assert!((share("log") - 0.38).abs() < 0.04, "{}", share("log"));
    assert!((share("others") - 0.24).abs() < 0.04, "{}", share("others"));
    for result in [&pool, &isolated] {
        let wear = result.wear.as_ref().unwrap();
        let device = &wear.devices[0];
        let sum = |of: fn(&TenantWear) -> u64| wear.tenants.iter().map(of).sum::<u64>();
        assert_eq!(sum(|t| t.guest_bytes), device.guest_bytes);
        assert_eq!(sum(|t| t.copied_bytes), device.copied_bytes);
        let programmed = sum(|t| t.flash_bytes) as f64 / device.flash_bytes as f64;
        assert!((programmed - 1.0).abs() < 1e-3, "{programmed}");
        let vms: u64 = wear.vms.iter().map(|v| v.flash_bytes).sum();
        assert!((vms as f64 / device.flash_bytes as f64 - 1.0).abs() < 1e-3);
    }
}

#[test]
fn handle_modes_are_between_one_pool_and_isolation() {
    let pool = run(&scenario(&with("one-pool"), ""));
    let handles = run(&scenario(&with("handles-persistently"), ""));
    let moved = |result: &RunResult| tenant(result, "log").moved_by_others_bytes;
    assert!(
        moved(&handles) < moved(&pool),
        "{} {}",
        moved(&handles),
        moved(&pool)
    );
    // The tenant still causes garbage collection of other tenants' data.
    assert!(tenant(&handles, "log").moved_foreign_bytes > 0);
}

#[test]
fn tenants_in_one_pool_are_counted_separately_without_effect() {
    let mut told = run(&scenario(&with("one-pool"), ""));
    let mut untold = run(&scenario("", ""));
    assert_eq!(untold.wear.as_ref().unwrap().tenants, []);
    let explicit = run(&scenario("isolation = \"one-pool\"\n", ""));
    assert_eq!(untold, explicit);
    let device = |r: &RunResult| r.wear.as_ref().unwrap().devices.clone();
    assert_eq!(device(&told), device(&untold));
    // All other results are equal to the byte.
    (told.wear, untold.wear) = (None, None);
    assert_eq!(told, untold);
}

/// A move away and back, while both other volumes write.
const AWAY_AND_BACK: &str = "[[operator]]\nat = \"22s\"\npins = { log = \"disk\" }\n\
                             [[operator]]\nat = \"40s\"\npins = { log = \"ssd\" }\n";

#[test]
fn tenant_that_moves_away_frees_its_blocks_and_regains_its_share() {
    let away = "[[operator]]\nat = \"5s\"\npins = { log = \"disk\" }\n";
    let gone = run(&scenario(&with("isolated"), away));
    assert_eq!(gone.moves.done, 1);
    // The copy ends before the measured time, so the tenant's blocks were freed.
    let log = tenant(&gone, "log");
    assert_eq!((log.guest_bytes, log.copied_bytes), (0, 0));
    let there = |r: &RunResult, name: &str| tenant(r, name).over_provisioned_bytes.unwrap();
    assert_eq!(there(&gone, "log"), 0);
    let stays = run(&scenario(&with("isolated"), ""));
    // The place of its data is spare space for all tenants now.
    assert!(there(&gone, "db") > 2 * there(&stays, "db"));
    let waf = |r: &RunResult, name: &str| tenant(r, name).waf.unwrap();
    assert!(waf(&gone, "db") < 0.8 * waf(&stays, "db"));

    let back = run(&scenario(&with("isolated"), AWAY_AND_BACK));
    assert_eq!(back.moves.done, 2);
    let log = tenant(&back, "log");
    assert!(log.copied_bytes >= 1536 << 20, "{}", log.copied_bytes);
    assert!(log.guest_bytes > 0 && log.over_provisioned_bytes.unwrap() > 0);
    // The tenant pays only as a donor, while it leaves.
    assert!(waf(&back, "log") < 1.1, "{}", waf(&back, "log"));
}

#[test]
fn over_provisioning_share_and_its_change_take_effect() {
    let shares = |log: f64, db: f64| {
        let flash = with("isolated").replacen(
            "class = \"cold\"",
            &format!("class = \"cold\"\nops_share = {log}"),
            1,
        );
        flash.replacen(
            "volumes = [\"db\"]",
            &format!("volumes = [\"db\"]\nops_share = {db}"),
            1,
        )
    };
    let few = run(&scenario(&shares(0.6, 0.2), ""));
    let share = |r: &RunResult, name: &str| tenant(r, name).over_provisioned_share.unwrap();
    assert!((share(&few, "log") - 0.6).abs() < 0.04);
    assert!((share(&few, "db") - 0.2).abs() < 0.04);
    let order =
        "[[operator]]\nat = \"2s\"\nover_provisioning = { ssd = { log = 0.2, db = 0.6 } }\n";
    let many = run(&scenario(&shares(0.6, 0.2), order));
    assert!(
        (share(&many, "db") - 0.6).abs() < 0.06,
        "{}",
        share(&many, "db")
    );
    let waf = |r: &RunResult| tenant(r, "db").waf.unwrap();
    assert!(waf(&many) < 0.8 * waf(&few), "{} {}", waf(&many), waf(&few));
    let told: Vec<&str> = many.events.iter().map(|e| e.text.as_str()).collect();
    assert!(
        told.contains(&"tenant \"db\" has 60.0 % of the over-provisioning of tier \"ssd\""),
        "{told:?}"
    );
}

#[test]
fn identical_scenarios_give_identical_bytes() {
    let order = format!(
        "{AWAY_AND_BACK}[[operator]]\nat = \"30s\"\nover_provisioning = {{ ssd = {{ db = 0.7 }} }}\n"
    );
    let text = scenario(&with("isolated"), &order);
    let [first, second] = [(); 2].map(|()| serde_json::to_string(&run(&text)).unwrap());
    assert_eq!(first, second);
}

fn refused(flash: &str, rest: &str) -> String {
    refusal("tenants.toml", &scenario(flash, rest))
}

#[test]
fn faults_name_the_key() {
    let one = |words: &str| {
        format!("isolation = \"isolated\"\n[[flash.ssd.tenants]]\nname = \"a\"\n{words}\n")
    };
    let second = |words: &str| {
        let first = one("volumes = [\"db\"]\nops_share = 0.6");
        format!("{first}[[flash.ssd.tenants]]\n{words}\n")
    };
    for (flash, want) in [
        (
            TENANTS.into(),
            "flash.ssd.tenants: tenants require flash.ssd.isolation",
        ),
        (
            "isolation = \"isolated\"\n".into(),
            "flash.ssd.isolation: isolation requires tenants",
        ),
        (
            "isolation = \"alone\"\n".into(),
            "unknown variant `alone`, expected one of `one-pool`",
        ),
        (
            one("volumes = [\"dbb\"]"),
            "flash.ssd.tenants[0].volumes: unknown name \"dbb\", did you mean \"db\"",
        ),
        (
            one("class = \"old\""),
            "flash.ssd.tenants[0].class: unknown name \"old\"",
        ),
        (
            one(""),
            "flash.ssd.tenants[0].volumes: tenant \"a\" requires volumes or a class",
        ),
        (
            one("volumes = [\"db\"]\nclass = \"cold\""),
            "flash.ssd.tenants[0].class: give either",
        ),
        (
            one("volumes = [\"db\", \"db\"]"),
            "volume \"db\" is listed twice",
        ),
        (
            one("volumes = [\"db\"]\nops_share = 1.5"),
            "flash.ssd.tenants[0].ops_share: must be a share from 0 to 1, not 1.5",
        ),
        (
            one("volumes = [\"db\"]\nops_share = 0.5").replace("\"isolated\"", "\"one-pool\""),
            "flash.ssd.tenants[0].ops_share: requires isolation = \"isolated\"",
        ),
        (one("volumes = [\"db\"]\nsharee = 0.5"), "sharee"),
        (
            second("name = \"b\"\nvolumes = [\"log\", \"db\"]"),
            "flash.ssd.tenants[1].volumes: volume \"db\" already belongs to tenant \"a\"",
        ),
        (
            second("name = \"a\"\nvolumes = [\"log\"]"),
            "flash.ssd.tenants[1].name: tenant \"a\" is listed twice",
        ),
        (
            second("name = \"b\"\nvolumes = [\"log\"]\nops_share = 0.5"),
            "flash.ssd.tenants: the sum of ops_share is 1.1",
        ),
        (
            second("name = \"others\"\nvolumes = [\"log\"]"),
            "flash.ssd.tenants[1].name: \"others\" stands for the volumes without a tenant",
        ),
        (
            format!("scale = 64\n{}", with("isolated")),
            "flash.ssd: device \"ssd\": ",
        ),
    ] {
        let why = refused(&flash, "");
        assert!(
            why.starts_with("tenants.toml:") && why.contains(want),
            "{why}"
        );
    }
    let isolated = with("isolated");
    for (flash, orders, want) in [
        (
            &isolated,
            "{ ssd = { dbb = 0.5 } }",
            "operator[0].over_provisioning.ssd: unknown name \"dbb\"",
        ),
        (
            &isolated,
            "{ sdd = { db = 0.5 } }",
            "operator[0].over_provisioning: in flash: unknown name \"sdd\"",
        ),
        (
            &isolated,
            "{ ssd = { db = 2 } }",
            "operator[0].over_provisioning.ssd.db: must be a share from 0 to 1, not 2",
        ),
        (
            &isolated,
            "{ ssd = { db = 0.7, log = 0.6 } }",
            "operator[0].over_provisioning.ssd: the sum of all shares becomes 1.2",
        ),
        (
            &with("one-pool"),
            "{ ssd = { db = 0.5 } }",
            "operator[0].over_provisioning.ssd: its SSDs have no over-provisioning per tenant",
        ),
    ] {
        let orders = format!("[[operator]]\nat = \"1s\"\nover_provisioning = {orders}\n");
        let why = refused(flash, &orders);
        assert!(why.contains(want), "{why}");
    }
}
