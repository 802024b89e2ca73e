//! Measurements of the scripts in `bench/`, in one program that is built once for all of them.
//!
//! `cargo run --release -p bench -- NAME [ARGUMENTS]` runs a measurement; without a name it lists all of them. Speeds depend on the
//! machine and on the build profile. The first line on standard error names the profile.

mod boot_sector;
mod cache_speed;
mod cached_time;
mod control_cycle;
mod cpu;
mod csv_rows;
mod drive_check;
mod drive_speed;
mod engine_time;
mod extent_plan_speed;
mod extents_speed;
mod ftl_speed;
mod heat_time;
mod host_speed;
mod map_speed;
mod month;
mod mrc_corrections;
mod mrc_native;
mod mrc_speed;
mod native_read;
mod nbd_client;
mod nbd_crowd;
mod passive_sensitivity;
mod plan_speed;
mod replay_speed;
mod reuse_time;
mod sample_time;
mod speed;
mod vhost_client;
mod waf;

use std::process::ExitCode;

/// Result of a measurement.
type BenchResult = Result<(), Box<dyn std::error::Error>>;

/// Message for missing or unknown arguments.
const WRONG: &str = "it needs other arguments";

/// Measurement: its name, its arguments and its function.
struct Bench(&'static str, &'static str, fn(&[String]) -> BenchResult);

const BENCHES: &[Bench] = &[
    Bench(
        "boot-sector",
        "FILE REQUESTS_PER_TICK BLOCKS",
        boot_sector::main,
    ),
    Bench(
        "cache-speed",
        "generate FILE OBJECTS REFERENCES THETA | run FILE SHARE [NAME…]",
        cache_speed::main,
    ),
    Bench("cached-time", "[PAGES]", cached_time::main),
    Bench("control-cycle", "[VOLUMES [MINUTES]]", control_cycle::main),
    Bench("csv-rows", "generate FILE ROWS | read FILE", csv_rows::main),
    Bench("drive-check", "", drive_check::main),
    Bench("drive-speed", "[REQUESTS [RUNS]]", drive_speed::main),
    Bench("engine-time", "", engine_time::main),
    Bench(
        "extent-plan-speed",
        "[VOLUMES [EXTENTS]]",
        extent_plan_speed::main,
    ),
    Bench("extents-speed", "[EXTENTS]", extents_speed::main),
    Bench("ftl-speed", "[BLOCKS PAGES SPARE RUNS]", ftl_speed::main),
    Bench("heat-time", "EXTENTS", heat_time::main),
    Bench("host-speed", "[SECONDS]", host_speed::main),
    Bench(
        "map-speed",
        "DIRECTORY EXTENTS [SECOND-DIRECTORY]",
        map_speed::main,
    ),
    Bench("month", "DAYS VOLUMES FILE", month::main),
    Bench("mrc-corrections", "[reads] FILE…", mrc_corrections::main),
    Bench(
        "mrc-native",
        "generate FILE.trc MILLION_REQUESTS THOUSAND_PAGES | measure FILE.trc RATE RUNS PAGES METHOD…",
        mrc_native::main,
    ),
    Bench(
        "mrc-speed",
        "[MILLION_REFERENCES [THOUSAND_BLOCKS [RUNS]]]",
        mrc_speed::main,
    ),
    Bench(
        "native-read",
        "[RECORDS [RUNS [DIRECTORY [json]]]]",
        native_read::main,
    ),
    Bench(
        "nbd-client",
        "SOCKET EXPORT read|write DEPTH SECONDS sleep|spin",
        nbd_client::main,
    ),
    Bench(
        "nbd-crowd",
        "SOCKET EXPORT CONNECTIONS DEPTH SECONDS",
        nbd_crowd::main,
    ),
    Bench("passive-sensitivity", "[--json]", passive_sensitivity::main),
    Bench("plan-speed", "[VOLUMES [TIERS [RUNS]]]", plan_speed::main),
    Bench(
        "plan-objectives",
        "[VOLUMES [TIERS [RUNS [DEVICES [IN_USE]]]]]",
        plan_speed::objectives,
    ),
    Bench("replay-speed", "[REQUESTS [KIND…]]", replay_speed::main),
    Bench("reuse-time", "", reuse_time::main),
    Bench("sample-time", "VOLUMES", sample_time::main),
    Bench(
        "vhost-client",
        "SOCKET fill | SOCKET read|write DEPTH SECONDS sleep|spin",
        vhost_client::main,
    ),
    Bench("waf", "", waf::main),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, args)) = args.split_first() else {
        eprintln!("usage: terrace-bench NAME [ARGUMENTS]");
        for Bench(name, arguments, _) in BENCHES {
            eprintln!("  {name} {arguments}");
        }
        return ExitCode::from(2);
    };
    let Some(Bench(_, arguments, run)) = BENCHES.iter().find(|b| b.0 == name) else {
        eprintln!("terrace-bench: {name:?} is no measurement; without arguments it lists them");
        return ExitCode::from(2);
    };
    eprintln!("profile: {}", env!("TERRACE_PROFILE"));
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("terrace-bench {name}: {error}\nusage: terrace-bench {name} {arguments}");
            ExitCode::FAILURE
        }
    }
}
