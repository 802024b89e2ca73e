//! Volumes that move to and from SSDs with tenants. All freed frames are returned.

use super::*;

/// Two tenants whose volumes leave and return repeatedly, and a volume without a tenant that stays.
fn scenario(isolation: &str, discard: bool) -> String {
    let mut text = format!(
        r#"
seed = 5
duration = "50s"
window = "1s"
copy_chunk = "1 MiB"
[[tiers]]
name = "ssd"
preset = "nvme-tlc"
capacity = "2 GiB"
[[tiers]]
name = "disk"
preset = "sata-ssd"
capacity = "4 GiB"
[flash.ssd]
preset = "tlc-nvme"
spare = 0.15
age = 1.0
discard = {discard}
isolation = "{isolation}"
[[flash.ssd.tenants]]
name = "log"
volumes = ["log"]
[[flash.ssd.tenants]]
name = "db"
volumes = ["db"]
[[volumes]]
name = "log"
size = "700 MiB"
tier = "ssd"
[[volumes]]
name = "db"
size = "601 MiB"
tier = "ssd"
[[volumes]]
name = "web"
size = "500 MiB"
tier = "ssd"
[[clients]]
volume = "log"
habits = {{ outstanding = 2, read_share = 0.0, random_share = 0.0, rate = "400 IOPS", sizes = [{{ size = "128 KiB", share = 1.0 }}] }}
[[clients]]
volume = "db"
habits = {{ outstanding = 4, read_share = 0.2, random_share = 1.0, rate = "6000 IOPS", sizes = [{{ size = "4 KiB", share = 1.0 }}] }}
[[clients]]
volume = "web"
habits = {{ outstanding = 2, read_share = 0.5, rate = "1000 IOPS" }}
[policy]
monitor_epoch = "1s"
migration_epoch = "2s"
copy_bandwidth = "800 MiB/s"
copy_share = 1.0
concurrent_moves = 2
concurrent_moves_per_device = 2
"#
    );
    for (at, log, db) in [
        (1, "disk", "disk"),
        (10, "ssd", "disk"),
        (20, "disk", "ssd"),
        (30, "ssd", "ssd"),
        (40, "disk", "disk"),
    ] {
        text.push_str(&format!(
            "[[operator]]\nat = \"{at}s\"\npins = {{ log = \"{log}\", db = \"{db}\" }}\n"
        ));
    }
    text
}

/// Checks that the used frames are those of extents on the device, and of slots that moves hold there.
fn check_frames(sim: &mut Simulation) {
    let frames = sim.model.flash[0].as_ref().unwrap().frames;
    let mut known = 0;
    for map in &sim.world.maps {
        let here = (0..map.extents())
            .filter(|e| map.location(*e).is_some_and(|l| l.device == DeviceId(0)));
        known += here.map(|e| frames.of_bytes(map.bytes_of(e))).sum::<u64>();
    }
    let moves = sim.moving.iter().flatten();
    let places = moves.flat_map(|m| m.places());
    let held = places.filter(|p| p.device == DeviceId(0)).count() as u64 * frames.in_extent;
    let (_, taken) = sim.world.devices[0].flash().unwrap().inside();
    let taken = taken as u64;
    // Slots of a batch get frames as they are written.
    assert!(taken <= known + held, "{taken} of {known} and {held}");
    assert!(taken >= known, "{taken} of {known}");
}

#[test]
fn leaving_tenant_returns_frames_pages_and_blocks() {
    for isolation in ["one-pool", "isolated", "handles-persistently"] {
        for discard in [true, false] {
            let model = ScenarioFile::parse("tenants.toml", &scenario(isolation, discard));
            let model = model.and_then(|f| f.build(vec![]));
            let model = model.unwrap_or_else(|e| panic!("{e}"));
            let strategy = planner::build("noop", Default::default()).unwrap();
            let options = RunOptions {
                series: false,
                decisions: false,
                optimum: None,
            };
            let mut sim = Simulation::new(&model, strategy, options);
            sim.foresee();
            while sim.agenda.first_time() <= sim.end_ns {
                sim.run_requests(sim.agenda.first_time());
                let (now, event) = sim.agenda.pop().unwrap();
                sim.handle_alone(now, event);
                check_frames(&mut sim);
                if matches!(event, Event::Window) {
                    check_space(&sim);
                    let (drive, _) = sim.world.devices[0].flash().unwrap().inside();
                    assert_eq!(drive.ftl().verify(), Ok(()), "{isolation}");
                }
            }
            let done = sim
                .host
                .jobs()
                .iter()
                .filter(|j| j.state.name() == "done")
                .count();
            assert!(done >= 6, "{isolation}: {done} moves");
            assert_eq!(sim.world.maps[0].sole_device(), Some(DeviceId(1)));
            assert_eq!(sim.world.maps[1].sole_device(), Some(DeviceId(1)));
            let ids = &model.flash[0].as_ref().unwrap().ids;
            let (drive, taken) = sim.world.devices[0].flash().unwrap().inside();
            assert_eq!(taken, 125, "those of 500 MiB");
            let mapped = |t: usize| drive.ftl().counts(ids[t]).mapped;
            if discard {
                assert_eq!((mapped(0), mapped(1)), (0, 0), "{isolation}");
                assert!(mapped(2) > 0);
            } else {
                assert!(mapped(0) + mapped(1) > 0, "nobody told the drive");
            }
            if isolation == "isolated" && discard {
                for t in [0, 1] {
                    assert_eq!(drive.ftl().spare_blocks(ids[t]), Ok(0));
                }
                let blocks = drive.ftl().config().blocks;
                let own = drive.ftl().spare_blocks(ids[2]).unwrap();
                let data = (mapped(2) as u32).div_ceil(drive.ftl().config().data_pages());
                assert_eq!(own + data + drive.ftl().unowned_blocks(), blocks);
            }
        }
    }
}
