//! The live manager as an operator runs it: the real binary, an array, guests, kill -9.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use client::{Address, Client, TlsTrust};
use manager::question::{Choice, PlaceQuestion};
use manager::view::{HostState, JobView, PlanView};
use model::JobStatus;

use crate::live::{Bench, RunningServer, fill, signal, verify, wait};

/// Deadline that only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(180);

/// Configuration with two tiers in plain directories, declared as two devices of paper 0's Table IV.
const CONFIG: &str = r#"
strategy = "idt"
window = "500ms"
[array]
dir = "terrace-array"
host = "here"
[[tiers]]
name = "fast"
preset = "pm953"
[[tiers]]
name = "slow"
preset = "pm863"
[[classes]]
name = "default"
[policy]
monitor_epoch = "1s"
migration_epoch = "2s"
hold = 1
cooldown = "0s"
margin = 0.0
copy_bandwidth = "8 MiB/s"
copy_share = 1.0
"#;

/// Creates volume `data` on the slow tier and a configuration, without a server.
fn bench(extra: &str) -> Bench {
    let bench = Bench::new();
    bench.ok(&[
        "volume", "create", "data", "--size", "64 MiB", "--tier", "slow",
    ]);
    let mut file = std::fs::File::create(bench.path().join("live.toml")).unwrap();
    write!(file, "{CONFIG}{extra}").unwrap();
    bench
}

fn serve(bench: &Bench) -> RunningServer {
    let running = bench.start(&["serve", "--config", "live.toml"], 3);
    assert!(
        running.lines[0].starts_with("volume data nbd+unix:///data"),
        "{:?}",
        running.lines
    );
    assert!(
        running.lines[1].starts_with("controller unix:"),
        "{:?}",
        running.lines
    );
    assert_eq!(running.lines[2].trim(), "ready");
    running
}

fn uri(running: &RunningServer) -> nbd::Uri {
    let uri = running.lines[0]
        .split(' ')
        .nth(2)
        .expect("volume, name, URI");
    uri.trim().parse().unwrap()
}

fn socket(bench: &Bench) -> PathBuf {
    bench.path().join("terrace-state/controller.sock")
}

fn asking(bench: &Bench) -> Client {
    Client::new(Address::Unix(socket(bench)), None, TlsTrust::Nothing).unwrap()
}

/// Guest that reads one page after the other until it is dropped.
struct Guest {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Guest {
    fn on(uri: nbd::Uri) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let until = over.clone();
        let thread = std::thread::spawn(move || {
            let mut client = datapath::Client::connect(&uri).unwrap();
            let mut reads = 0;
            while !until.load(Ordering::Acquire) {
                let page = reads * 7919 % (64 * 256);
                if client.read(page * 4096, 4096).is_err() {
                    return reads; // its server was killed
                }
                reads += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            reads
        });
        Self {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the plan that moves the volume up.
fn plan(bench: &Bench) -> PlanView {
    wait(PATIENCE, "a plan", || {
        let plan = asking(bench).plan(None).ok()?;
        let moves = plan
            .moves
            .iter()
            .any(|m| m.volume == "data" && m.to_tier == "fast");
        moves.then_some(plan)
    })
}

fn job(bench: &Bench) -> Option<JobView> {
    let jobs = asking(bench).jobs(None).ok()?;
    jobs.into_iter().find(|j| j.started_ns.is_some())
}

fn approve(bench: &Bench) {
    wait(PATIENCE, "an approval", || {
        // A newer plan may replace this one at any time.
        let plan = plan(bench);
        let choice = Choice {
            host: None,
            generation: plan.generation,
            moves: None,
        };
        asking(bench).apply(&choice).ok()
    });
}

#[test]
fn plan_waits_for_approval_and_its_move_survives_a_kill() {
    let bench = bench("");
    let server = serve(&bench);
    let mut filler = datapath::Client::connect(&uri(&server)).unwrap();
    fill(&mut filler, 64);
    let guest = Guest::on(uri(&server));
    let seen = plan(&bench);
    assert!(seen.moves[0].reason.contains("IOPS"), "{seen:?}");
    std::thread::sleep(Duration::from_secs(3));
    assert!(job(&bench).is_none(), "nobody has approved anything");

    approve(&bench);
    let begun = wait(PATIENCE, "a copy", || {
        job(&bench).filter(|j| j.state == JobStatus::Active && j.copied_bytes > 0)
    });
    drop(filler);
    server.kill_9();
    drop(guest);

    let server = serve(&bench);
    let status = wait(PATIENCE, "a live host", || {
        let status = asking(&bench).status().ok()?;
        (status.hosts.first()?.state == HostState::Live).then_some(status)
    });
    assert_eq!(status.problems, []);
    let done = wait(PATIENCE, "the end of the move", || {
        job(&bench).filter(|j| j.state == JobStatus::Done)
    });
    assert_eq!(
        (done.job, done.generation),
        (begun.job, begun.generation),
        "the same job, not another one"
    );
    let mut client = datapath::Client::connect(&uri(&server)).unwrap();
    verify(&mut client, 64);
    let show = bench.show();
    assert_eq!(show["tiers"], serde_json::json!([["fast", "64 MiB"]]));
    let events = asking(&bench).events(None, Some(1000)).unwrap();
    let count = |text: &str| events.iter().filter(|e| e.text.contains(text)).count();
    assert_eq!(count("move of data to fast started"), 1, "{events:?}");
    assert_eq!(count("data is on fast"), 1, "{events:?}");
    assert!(
        events
            .iter()
            .any(|e| e.text.contains("is approved") && e.actor.starts_with("uid ")),
        "{events:?}"
    );
    server.stop();
    assert!(!socket(&bench).exists(), "it leaves no socket behind");
}

#[test]
fn live_server_is_taken_over_while_a_guest_is_connected() {
    let bench = bench("");
    let server = serve(&bench);
    let guest_uri = uri(&server);
    let mut guest = datapath::Client::connect(&guest_uri).unwrap();
    fill(&mut guest, 16);
    // A start recreates a copy of the map; only then can a successor take over.
    let current = |bench: &Bench| {
        let copies = bench.json(&["array", "copies"]);
        let all = copies["copies"].as_array().unwrap().clone();
        all.iter().all(|c| c["state"] == "current").then_some(())
    };
    wait(PATIENCE, "both copies of the map", || current(&bench));
    let next = bench.start(&["serve", "--config", "live.toml", "--take-over"], 3);
    assert_eq!(next.lines[2].trim(), "ready");
    server.ends();
    verify(&mut guest, 16);
    fill(&mut guest, 16);
    guest.flush().unwrap();
    // The successor's controller responds, and its agent reports.
    wait(PATIENCE, "a report", || {
        let status = bench.run(&[
            "status",
            "--controller",
            &format!("unix:{}", socket(&bench).display()),
        ]);
        status.status.success().then_some(())
    });
    verify(&mut guest, 16);
    // The signal starts one more successor, as a child process.
    wait(PATIENCE, "both copies of the map", || current(&bench));
    let successor = next.is_succeeded();
    next.ends();
    verify(&mut guest, 16);
    guest.disconnect().unwrap();
    wait(PATIENCE, "an answer", || {
        let copies = bench.run(&["array", "copies"]);
        copies.status.success().then_some(())
    });
    signal(successor, "-TERM");
    wait(PATIENCE, "the end", || {
        (!socket(&bench).exists()).then_some(())
    });
}

#[test]
fn score_parts_are_shown_for_a_live_volume() {
    let bench = bench("");
    let file = bench.path().join("live.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let config = config.replace("strategy = \"idt\"", "strategy = \"autotiering\"");
    std::fs::write(&file, config).unwrap();
    let server = serve(&bench);
    let guest = Guest::on(uri(&server));
    let why = wait(PATIENCE, "a decision that scores tiers", || {
        let why = asking(&bench).why("data").ok()?;
        let scored = !why.options.is_empty() && why.options.iter().all(|o| o.parts.is_some());
        scored.then_some(why)
    });
    assert_eq!(why.options.len(), 2);
    for option in &why.options {
        let made = option.parts.map(|p| p.score());
        assert_eq!(made, option.score, "{option:?}");
    }
    // The command shows the decision as text and as JSON; a later decision may exist by now.
    let text = wait(PATIENCE, "a decision in words", || {
        let text = bench.ok(&["why", "data"]);
        text.contains("parts of the scores").then_some(text)
    });
    for words in ["move cost", "match = performance", "score = "] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let data = wait(PATIENCE, "a decision as data", || {
        let data = bench.json(&["why", "data"]);
        data["options"][0]["parts"].is_object().then_some(data)
    });
    assert_eq!(data["options"][0]["parts"]["formula"], "match", "{data:#}");
    drop(guest);
    server.stop();
}

#[test]
fn new_volume_is_placed_on_the_recommended_tier() {
    let bench = bench("");
    let file = bench.path().join("live.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    // The fast tier can meet the objective; the slow one cannot.
    let config = config
        .replace("strategy = \"idt\"", "strategy = \"terrace\"")
        .replace(
            "name = \"default\"",
            "name = \"default\"\nlatency = \"100us\"",
        );
    std::fs::write(&file, &config).unwrap();
    let server = serve(&bench);
    let mut filler = datapath::Client::connect(&uri(&server)).unwrap();
    fill(&mut filler, 64);
    let guest = Guest::on(uri(&server));
    let ask = [
        "place", "--size", "8M", "--class", "default", "--like", "data",
    ];
    wait(PATIENCE, "a load that is known", || {
        let place = asking(&bench)
            .place(&PlaceQuestion {
                size: units::Bytes(8 << 20),
                class: None,
                like: Some("data".into()),
                host: None,
            })
            .ok()?;
        (place.load.reads_per_s > 0.0).then_some(())
    });
    let data = bench.json(&ask);
    assert_eq!(data["schema"], "terrace.place/1");
    let advised = data["tier"].as_str().unwrap().to_owned();
    assert_eq!(data["tiers"][0]["tier"], advised);
    assert!(bench.ok(&ask).contains("note: load assumed: that of data"));

    let created = bench.run(&["volume", "create", "new", "--size", "8M", "--like", "data"]);
    let said = String::from_utf8(created.stderr).unwrap();
    assert!(created.status.success(), "{said}");
    let tier = said.strip_prefix("tier ").unwrap().split(',').next();
    let tier = tier.unwrap().to_owned();
    assert!(["fast", "slow"].contains(&tier.as_str()), "{said}");
    assert!(said.contains("controller.sock for here: "), "{said}");
    let new = bench.json(&["volume", "show", "new"]);
    assert_eq!(new["home"], tier, "{new:#}");
    drop(guest);
    drop(filler);
    server.stop();

    // A strategy without a model gives no advice.
    let config = config.replace("\"terrace\"", "\"idt\"");
    std::fs::write(&file, &config).unwrap();
    let server = bench.start(&["serve", "--config", "live.toml"], 4);
    let refused = wait(PATIENCE, "a decision", || {
        let refused = bench.refused(&["volume", "create", "other", "--size", "8M"]);
        refused.contains("idt does not advise").then_some(refused)
    });
    assert!(refused.contains("give --tier"), "{refused}");
    server.stop();
}

#[test]
fn second_server_on_an_array_or_a_store_is_refused() {
    let bench = bench("");
    let server = serve(&bench);
    // Warnings come before the error.
    let second = |file: &str| {
        let out = bench.run(&["serve", "--config", file]);
        assert_eq!(out.status.code(), Some(1), "{file}");
        String::from_utf8(out.stderr).unwrap()
    };
    let said = second("live.toml");
    assert!(said.contains("served by another process"), "{said}");
    let alone = CONFIG.replace("[array]\ndir = \"terrace-array\"\nhost = \"here\"\n", "");
    std::fs::write(bench.path().join("alone.toml"), alone).unwrap();
    let said = second("alone.toml");
    let why = "terrace-state/terrace.db is in use by another controller";
    assert!(said.contains(why), "{said}");
    // A port and a store in use by the configuration's own server are no error.
    bench.ok(&["config", "check", "live.toml"]);
    server.stop();
}

#[test]
fn damaged_store_leaves_volumes_served_and_status_available() {
    let bench = bench("");
    serve(&bench).stop();
    let store = bench.path().join("terrace-state/terrace.db");
    let file = std::fs::OpenOptions::new().write(true).open(store).unwrap();
    file.write_all_at(&[0x55; 4096], 0).unwrap();
    let why = "the store cannot be read";
    let checked = bench.refused(&["config", "check", "live.toml"]);
    assert!(checked.contains(why), "{checked}");
    let server = serve(&bench);
    let mut guest = datapath::Client::connect(&uri(&server)).unwrap();
    fill(&mut guest, 1);
    verify(&mut guest, 1);
    for asked in [&["array", "status"][..], &["status"]] {
        let said = bench.ok(asked);
        assert!(said.contains(why), "{asked:?}: {said}");
    }
    let paused = bench.refused(&["pause"]);
    assert!(paused.contains("nothing is decided or ordered"), "{paused}");
    server.stop();
}

#[test]
fn config_check_names_faults_that_keep_the_port_closed() {
    let bench = bench("");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap();
    let config = std::fs::read_to_string(bench.path().join("live.toml")).unwrap();
    let listening = format!("{config}[controller]\nlisten = \"{port}\"\ntokens = \"tokens\"\n");
    std::fs::write(bench.path().join("live.toml"), &listening).unwrap();
    let check = || bench.refused(&["config", "check", "live.toml"]);
    let missing = check();
    let why = "live.toml:25: controller.tokens: cannot read HERE/tokens";
    assert!(missing.starts_with(why), "{missing}");
    std::fs::write(bench.path().join("tokens"), "operate me 0123456789abcdef\n").unwrap();
    let mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(bench.path().join("tokens"), mode).unwrap();
    };
    mode(0o644);
    let open = check();
    assert!(
        open.contains("is open to other users (mode 0644): run `chmod 600 "),
        "{open}"
    );
    mode(0o600);
    let busy = check();
    assert!(busy.contains("is in use by another program"), "{busy}");
    drop(taken);
    bench.ok(&["config", "check", "live.toml"]);
    assert!(!bench.path().join("terrace-state").exists(), "it was made");
    let server = bench.start(&["serve", "--config", "live.toml"], 4);
    assert!(
        server.lines[2].starts_with(&format!("page https://{port}/ sha256:")),
        "{:?}",
        server.lines
    );
    server.stop();
}

#[test]
fn faults_of_the_configuration_name_file_line_and_key() {
    let bench = bench("[modes]\nlatency = \"always\"\n");
    let fault = bench.refused(&["config", "check", "live.toml"]);
    assert!(
        fault.starts_with("live.toml:24: ") && fault.contains("always"),
        "{fault}"
    );
    let typo = CONFIG.replace("cooldown", "cooldwon");
    std::fs::write(bench.path().join("live.toml"), typo).unwrap();
    let fault = bench.refused(&["config", "check", "live.toml"]);
    assert_eq!(
        fault,
        "live.toml:19: policy.cooldwon: unknown key, did you mean \"cooldown\"?"
    );
    let odd = CONFIG.replace("window = \"500ms\"", "window = \"300ms\"");
    std::fs::write(bench.path().join("live.toml"), odd).unwrap();
    let fault = bench.refused(&["config", "check", "live.toml"]);
    assert_eq!(
        fault,
        "live.toml:16: policy.monitor_epoch: 1s is not a multiple of the window of 300ms"
    );
    // Volumes are served in spite of the error.
    let server = serve(&bench);
    let said = bench.ok(&["array", "status"]);
    assert!(said.contains("policy.monitor_epoch"), "{said}");
    server.stop();
}

#[test]
fn separate_agent_reports_to_a_remote_controller() {
    let bench = bench("");
    let config = CONFIG.replace("[array]\ndir = \"terrace-array\"\nhost = \"here\"\n", "");
    std::fs::write(bench.path().join("live.toml"), config).unwrap();
    let controller = bench.start(&["serve", "--config", "live.toml"], 2);
    let export = bench.export();
    let address = format!("unix:{}", socket(&bench).display());
    let agent = bench.start(&["agent", "--host", "there", "--controller", &address], 0);
    let host = wait(PATIENCE, "a report", || {
        let status = asking(&bench).status().ok()?;
        status
            .hosts
            .into_iter()
            .find(|h| h.state == HostState::Live)
    });
    assert_eq!(host.name, "there");
    agent.kill_9();
    wait(PATIENCE, "a lost host", || {
        let status = asking(&bench).status().ok()?;
        (status.hosts.first()?.state == HostState::Lost).then_some(())
    });
    export.stop();
    controller.stop();
}

/// The array knows a new class at once, before the next report of its agent.
#[test]
fn reloaded_class_is_known_to_the_array_at_once() {
    let bench = bench("");
    let file = bench.path().join("live.toml");
    // The interval of the agent's reports is longer than the test.
    let slow = CONFIG
        .replace("\"500ms\"", "\"600s\"")
        .replace("_epoch = \"1s\"", "_epoch = \"600s\"");
    let slow = slow.replace("_epoch = \"2s\"", "_epoch = \"1200s\"");
    std::fs::write(&file, &slow).unwrap();
    let running = serve(&bench);
    let controller = format!("unix:{}", socket(&bench).display());
    let create = [
        "volume", "create", "fresh", "--size", "1M", "--tier", "slow", "--class", "new",
    ];
    let refused = bench.refused(&create);
    assert!(refused.contains("new"), "{refused}");
    std::fs::write(&file, slow + "[[classes]]\nname = \"new\"\n").unwrap();
    bench.ok(&["reload", "--controller", &controller]);
    wait(PATIENCE, "a class that is known", || {
        bench.run(&create).status.success().then_some(())
    });
    running.stop();
}

/// A tier that was just added, and a change without a restart, by command and by signal.
#[test]
fn configuration_is_reloaded_completely_or_not_at_all() {
    let bench = bench("");
    let file = bench.path().join("live.toml");
    let undescribed = CONFIG.replace("[[tiers]]\nname = \"slow\"\npreset = \"pm863\"\n", "");
    std::fs::write(&file, &undescribed).unwrap();
    let running = serve(&bench);
    let controller = format!("unix:{}", socket(&bench).display());
    let problems = || {
        let status = asking(&bench).status().ok()?;
        status.hosts.iter().find(|h| h.generation > 0)?;
        Some(status.problems)
    };
    let said = wait(PATIENCE, "a plan", problems);
    let kinds: Vec<_> = said.iter().map(|t| (t.kind.name(), &*t.subject)).collect();
    assert_eq!(kinds, [("undescribed-tier", "slow")], "{said:?}");
    let typo = undescribed.replace("cooldown", "cooldwon");
    std::fs::write(&file, typo).unwrap();
    let refused = bench.refused(&["reload", "--controller", &controller]);
    assert!(
        refused.contains("live.toml:16: policy.cooldwon: unknown key")
            && refused.contains("nothing has changed"),
        "{refused}"
    );
    std::fs::write(&file, CONFIG).unwrap();
    bench.ok(&["reload", "--controller", &controller]);
    wait(PATIENCE, "no trouble", || problems().filter(Vec::is_empty));
    // A change by the signal; the audit contains its origin.
    std::fs::write(&file, CONFIG.replace("margin = 0.0", "margin = 0.1")).unwrap();
    running.hang_up();
    wait(PATIENCE, "the change in the audit", || {
        let events = asking(&bench).events(None, None).ok()?;
        let noted = |e: &&manager::view::EventView| {
            e.actor == "SIGHUP" && e.text == "configuration reloaded: changed policy.margin"
        };
        events.iter().any(|e| noted(&e)).then_some(())
    });
    running.stop();
}

/// The record covers several runs of the controller, with an operator's approval and a kill between them. A replay with
/// the same inputs gives the same decisions.
#[test]
fn recorded_decisions_are_reproduced_by_replay() {
    let extra = "[controller]\nrecord = \"recorded.jsonl\"\n";
    let bench = bench(extra);
    let running = serve(&bench);
    fill(&mut datapath::Client::connect(&uri(&running)).unwrap(), 64);
    let guest = Guest::on(uri(&running));
    plan(&bench);
    approve(&bench);
    wait(PATIENCE, "the move", || {
        job(&bench).filter(|j| j.state == JobStatus::Active && j.copied_bytes > 0)
    });
    running.kill_9();
    drop(guest);
    let running = serve(&bench);
    let guest = Guest::on(uri(&running));
    wait(PATIENCE, "the end of the move", || {
        job(&bench).filter(|j| j.state == JobStatus::Done)
    });
    let generation = asking(&bench).plan(None).unwrap().generation;
    drop(guest);
    running.stop();
    let again = bench.json(&["sim", "replay", "recorded.jsonl"]);
    let plans = again.as_array().unwrap();
    assert!(plans.len() as u64 >= generation, "{again}");
    assert!(plans.iter().all(|p| p["same"] == true), "{again}");
    assert!(plans.iter().any(|p| p["moves"].as_u64() > Some(0)));
    let table = bench.ok(&["sim", "replay", "recorded.jsonl"]);
    let said = format!("{n} of {n} plans are the same", n = plans.len());
    assert!(table.contains(&said), "{table}");
    // The replay finds a changed plan and a line of unknown origin.
    let recorded = std::fs::read_to_string(bench.path().join("recorded.jsonl")).unwrap();
    let other = recorded.replacen("\"strategy\":\"idt\"", "\"strategy\":\"other\"", 1);
    assert_ne!(recorded, other);
    std::fs::write(bench.path().join("other.jsonl"), other).unwrap();
    let output = bench.run(&["sim", "replay", "other.jsonl"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("ANOTHER ONE"));
    // A run whose record was cut off in the middle of a line, followed by another run.
    let cut = &recorded[..recorded.len() - 20];
    std::fs::write(
        bench.path().join("lives.jsonl"),
        format!("{cut}\n{recorded}"),
    )
    .unwrap();
    let twice = bench.json(&["sim", "replay", "lives.jsonl"]);
    assert!(
        twice.as_array().unwrap().len() + 2 > 2 * plans.len(),
        "{twice}"
    );
    std::fs::write(bench.path().join("cut.jsonl"), cut).unwrap();
    let lines = cut.lines().count();
    let said = bench.refused(&["sim", "replay", "cut.jsonl"]);
    assert!(said.contains(&format!("cut.jsonl:{lines}: ")), "{said}");
}
