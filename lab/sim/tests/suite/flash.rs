//! Devices with flash models in whole runs: write amplification, wear, tail latencies, and invalid scenarios.

use sim::{GroupKind, RunResult};

use crate::support::{refusal, run_text};

/// Two small tiers with one volume each, overwritten at random. The first volume is pinned to the tier `pin`.
fn scenario(flash: &str, pin: &str) -> String {
    format!(
        r#"
seed = 5
duration = "40s"
warmup = "10s"
window = "1s"
copy_chunk = "1 MiB"
[[tiers]]
name = "fast"
preset = "nvme-tlc"
capacity = "4 GiB"
[[tiers]]
name = "slow"
preset = "nvme-qlc"
capacity = "8 GiB"
{flash}
[[volumes]]
name = "a"
vm = "one"
size = "2 GiB"
tier = "fast"
[[volumes]]
name = "b"
vm = "two"
size = "3 GiB"
tier = "slow"
[[clients]]
volume = "a"
habits = {{ outstanding = 16, read_share = 0.3, random_share = 1.0, sizes = [{{ size = "4 KiB", share = 1.0 }}] }}
[[clients]]
volume = "b"
habits = {{ outstanding = 4, read_share = 0.9, rate = "1000 IOPS" }}
[policy]
monitor_epoch = "1s"
migration_epoch = "10s"
copy_bandwidth = "400 MiB/s"
pins = {{ {pin} }}
"#
    )
}

const FLASH: &str = "[flash.fast]\npreset = \"tlc-nvme\"\n";

fn run(text: &str) -> RunResult {
    run_text(text, "noop")
}

fn refused(flash: &str) -> String {
    refusal("flash.toml", &scenario(flash, ""))
}

#[test]
fn wear_is_reported_only_for_devices_with_flash() {
    assert_eq!(run(&scenario("", "")).wear, None);
    let result = run(&scenario(FLASH, ""));
    let wear = result.wear.unwrap();
    assert_eq!(wear.devices.len(), 1);
    let device = &wear.devices[0];
    assert_eq!((device.name.as_str(), device.copied_bytes), ("fast", 0));
    // The guest's bytes are those of its requests, except for requests in flight at the start or the end of the
    // measured time.
    let volume = result.groups.iter();
    let volume = volume
        .clone()
        .find(|g| g.kind == GroupKind::Volume && g.name == "a");
    let bytes = volume.unwrap().writes.bytes as f64;
    assert!((device.guest_bytes as f64 / bytes - 1.0).abs() < 0.01);
    let waf = device.waf.unwrap();
    assert!(waf > 1.0 && waf < 3.0, "half of it is free: {waf}");
    assert!(device.years.unwrap() > 0.0 && device.drive_writes_per_day > 0.0);
    // All bytes belong to one VM.
    assert_eq!(wear.vms.len(), 1);
    assert_eq!(wear.vms[0].guest_bytes, device.guest_bytes);
    let share = wear.vms[0].flash_bytes as f64 / device.flash_bytes as f64;
    assert!((share - 1.0).abs() < 0.01, "{share}");
}

#[test]
fn undiscarded_space_costs_write_amplification() {
    let waf = |flash: &str| {
        run(&scenario(flash, "")).wear.unwrap().devices[0]
            .waf
            .unwrap()
    };
    let trimmed = waf(FLASH);
    let kept = waf(&format!("{FLASH}discard = false\n"));
    let more = waf(&format!("{FLASH}discard = false\nspare = 0.28\n"));
    // Half of the drive is overwritten, and the other half stays valid for ever. Garbage collection separates the two
    // only in part.
    assert!(kept > 1.5 * trimmed, "{kept} {trimmed}");
    assert!(more < 0.8 * kept, "{more} {kept}");
}

#[test]
fn move_wears_its_target_and_frees_space_on_its_source() {
    let both = format!("{FLASH}[flash.slow]\npreset = \"qlc-nvme\"\n");
    let moved = run(&scenario(&both, "a = \"slow\""));
    assert_eq!(moved.moves.done, 1);
    let wear = moved.wear.unwrap();
    let [fast, slow] = &wear.devices[..] else {
        panic!("two devices");
    };
    assert_eq!(fast.copied_bytes, 0);
    // The copy has the whole volume, and the writes during the copy.
    assert!(slow.copied_bytes >= 2 << 30, "{}", slow.copied_bytes);
    assert!(slow.copied_bytes < 3 << 30, "{}", slow.copied_bytes);
    let one = wear.vms.iter().find(|v| v.vm == "one").unwrap();
    assert_eq!(one.copied_bytes, slow.copied_bytes);
    assert!(slow.guest_bytes > 0, "what came after the switch");
}

#[test]
fn reads_with_concurrent_writes_on_flash_have_longer_tails() {
    let tail = |flash: &str| {
        let result = run(&scenario(flash, ""));
        let tier = result.of_kind(GroupKind::Tier).find(|g| g.name == "fast");
        let reads = tier.unwrap().reads;
        reads.p999_us / reads.p50_us
    };
    let (without, with) = (tail(""), tail(FLASH));
    assert!(with > 2.0 * without, "{with} {without}");
}

#[test]
fn partial_page_writes_are_charged_as_full_pages_to_their_writer() {
    // Pages of 16 KiB, with requests of 4 KiB by the first volume.
    let flash = "[flash.fast]\ndrive = { page = \"16 KiB\", channels = 8, packages = 2, pages_per_block = 32, program = \"400us\", \
                 ftl = { spare_share = 0.15 } }\n";
    let both = scenario(flash, "").replace("tier = \"slow\"", "tier = \"fast\"");
    let both = both.replace("size = \"3 GiB\"", "size = \"1 GiB\"");
    let wear = run(&both).wear.unwrap();
    let device = &wear.devices[0];
    let sum: u64 = wear.vms.iter().map(|v| v.flash_bytes).sum();
    assert!((sum as f64 / device.flash_bytes as f64 - 1.0).abs() < 1e-6);
    assert_eq!(wear.waf(), device.waf, "one definition");
    let small = wear.vms.iter().find(|v| v.vm == "one").unwrap();
    assert!(small.flash_bytes >= 4 * small.guest_bytes);
}

#[test]
fn sizes_between_extent_multiples_keep_the_spare_space() {
    let waf = |size: &str| {
        let text = scenario(&format!("{FLASH}discard = false\n"), "");
        let text = text.replace("size = \"2 GiB\"", &format!("size = \"{size}\""));
        run(&text).wear.unwrap().devices[0].waf.unwrap()
    };
    let (even, odd) = (waf("2 GiB"), waf("2047 MiB"));
    assert!((odd / even - 1.0).abs() < 0.03, "{odd} {even}");
    // Seven volumes that end within an extent, on a drive of sixty-four extents.
    let mut many = scenario(FLASH, "");
    for i in 0..7 {
        many.push_str(&format!(
            "[[volumes]]\nname = \"v{i}\"\nsize = \"250 MiB\"\ntier = \"fast\"\n"
        ));
    }
    assert!(run(&many).wear.is_some());
}

#[test]
fn identical_scenarios_give_identical_bytes() {
    let text = scenario(FLASH, "a = \"slow\"");
    let [first, second] = [(); 2].map(|()| serde_json::to_string(&run(&text)).unwrap());
    assert_eq!(first, second);
}

#[test]
fn faults_name_the_key() {
    for (flash, want) in [
        (
            "[flash.fats]\npreset = \"tlc-nvme\"\n",
            "did you mean \"fast\"",
        ),
        (
            "[flash.fast]\npreset = \"tlc-nvmee\"\n",
            "unknown drive \"tlc-nvmee\", did you mean \"tlc-nvme\"",
        ),
        ("[flash.fast]\n", "requires a preset"),
        (
            "[flash.fast]\npreset = \"tlc-nvme\"\nage = -1.0\n",
            "flash.fast.age: -1 is not between 0 and 10",
        ),
        (
            "[flash.fast]\npreset = \"tlc-nvme\"\nspare = 0.0\n",
            "flash.fast: device \"fast\": ",
        ),
        (
            "[flash.fast]\npreset = \"tlc-nvme\"\nscale = 0\n",
            "scale = 0 is outside",
        ),
        (
            "[flash.fast]\ndrive = { ftl = { sharing = \"isolated\" } }\n",
            "the sharing of erase blocks is set in flash.fast.isolation",
        ),
        (
            "[flash.fast]\npreset = \"tlc-nvme\"\nsparee = 0.1\n",
            "did you mean \"spare\"",
        ),
    ] {
        let why = refused(flash);
        assert!(
            why.starts_with("flash.toml:") && why.contains(want),
            "{why}"
        );
    }
}
