//! The interpreter is a shell script that runs the file of the strategy as another one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use model::{Facts, Policy, Topology};
use tempfile::TempDir;

use super::*;

/// First line of a strategy that is loaded.
const READY: &str = concat!(
    "echo '{\"ready\":{\"version\":\"",
    env!("CARGO_PKG_VERSION"),
    "\",\"every_epoch\":false,\"source\":\"abc\"}}'\n"
);

/// Script with a line for each start of a process.
const STARTED: &str = "echo started >>\"${0%/*}/starts\"\n";

struct Bench {
    dir: TempDir,
    source: Source,
    facts: Facts,
    policy: Policy,
}

impl Bench {
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("python");
        fs::write(&program, "#!/bin/sh\nexec sh \"${4%:*}\" \"$@\"\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.path().join("my.py"), script).unwrap();
        let source = Source {
            program: program.into(),
            ..Source::new("my.py:Mine", dir.path())
        };
        let facts = Facts {
            at: Nanos::ZERO,
            epoch: 1,
            placement_due: true,
            generation: 0,
            topology: Topology {
                tiers: vec![],
                devices: vec![],
            },
            classes: vec![],
            vms: vec![],
            volumes: vec![],
            devices: vec![],
            moves: vec![],
            failed: vec![],
            nodes: Default::default(),
        };
        Self {
            dir,
            source,
            facts,
            policy: Policy::default(),
        }
    }

    fn start(&self) -> Result<PythonStrategy, InterpreterError> {
        PythonStrategy::start(self.source.clone()).map(|(strategy, _)| strategy)
    }

    fn live(&self, decision: Duration) -> PythonStrategy {
        let limits = Limits {
            decision,
            memory: 1 << 30,
        };
        PythonStrategy::live(self.source.clone(), limits)
    }

    fn decide(&self, strategy: &PythonStrategy, state: Value) -> Result<Option<Value>, String> {
        let context = Context {
            facts: &self.facts,
            policy: &self.policy,
            seed: 7,
        };
        let decided = strategy.decide(&context, &state);
        let decided = decided.map_err(|e| e.to_string())?;
        Ok(decided.map(|d| d.state))
    }

    /// Decides until the strategy is loaded.
    fn decide_live(&self, strategy: &PythonStrategy) -> Result<Option<Value>, String> {
        let starting = [InterpreterError::Starting, InterpreterError::NoTime];
        let starting = starting.map(|e| e.to_string());
        for _ in 0..1000 {
            match self.decide(strategy, Value::Null) {
                Err(why) if starting.contains(&why) => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                decided => return decided,
            }
        }
        panic!("the strategy was not loaded");
    }

    fn starts(&self) -> usize {
        let starts = fs::read_to_string(self.dir.path().join("starts"));
        starts.unwrap_or_default().lines().count()
    }
}

/// Script that replies to each request with the same line, in which `NUMBER` is the number of the request.
fn replies(line: &str) -> String {
    let line = line.replace("NUMBER", "'$n'");
    format!("{READY}n=0; while read -r request; do n=$((n+1)); echo '{line}'; done\n")
}

#[test]
fn decision_has_the_state_of_the_process() {
    let bench = Bench::new(&replies(
        r#"{"decided":{"number":NUMBER,"moves":[],"state":{"seen":1.1}}}"#,
    ));
    let strategy = bench.start().unwrap();
    let state = serde_json::json!({ "seen": 1.1 });
    for _ in 0..3 {
        assert_eq!(
            bench.decide(&strategy, Value::Null),
            Ok(Some(state.clone()))
        );
    }
}

#[test]
fn request_has_facts_policy_seed_and_state() {
    let script = format!("{READY}read -r request; echo \"$request\" >>\"${{0%/*}}/starts\"\n");
    let bench = Bench::new(&script);
    let strategy = bench.start().unwrap();
    let ended = bench
        .decide(&strategy, serde_json::json!([0.1]))
        .unwrap_err();
    assert!(
        ended.starts_with("its process ended (exit status: 0)"),
        "{ended}"
    );
    let written = fs::read_to_string(bench.dir.path().join("starts")).unwrap();
    let request: DecisionRequest<'_> =
        serde_json::from_str(written.lines().next().unwrap()).unwrap();
    assert_eq!(*request.facts, bench.facts);
    assert_eq!(*request.policy, bench.policy);
    assert_eq!((request.number, request.seed), (1, 7));
    assert_eq!(*request.state, serde_json::json!([0.1]));
}

#[test]
fn exception_has_its_position_and_traceback() {
    let line = r#"{"failed":{"error":"my.py:3: KeyError: 1","traceback":"Traceback of Python"}}"#;
    let bench = Bench::new(&replies(line));
    let strategy = bench.start().unwrap();
    assert_eq!(
        bench.decide(&strategy, Value::Null),
        Err("my.py:3: KeyError: 1\nTraceback of Python".into())
    );
}

#[test]
fn different_decisions_under_other_hash_seeds_are_refused() {
    let script = format!(
        "{READY}while read -r request; do\n\
         echo '{{\"decided\":{{\"number\":1,\"moves\":[],\"state\":'\"$PYTHONHASHSEED\"'}}}}'; done\n"
    );
    let bench = Bench::new(&script);
    let strategy = bench.start().unwrap();
    let why = bench.decide(&strategy, Value::Null).unwrap_err();
    assert!(
        why.contains("two interpreters with different hash seeds differ in their states"),
        "{why}"
    );
}

#[test]
fn missing_package_is_named_with_its_installation() {
    let bench = Bench::new("exit 1\n");
    let why = bench.start().err().unwrap().to_string();
    assert!(why.contains("ended (exit status: 1)"), "{why}");
    assert!(why.contains("pip install ./python"), "{why}");
    let mut none = Bench::new("");
    none.source.program = none.dir.path().join("none").into();
    let why = none.start().err().unwrap().to_string();
    assert!(why.contains("TERRACE_PYTHON"), "{why}");
}

#[test]
fn package_of_another_version_is_refused() {
    let bench = Bench::new(&READY.replace(env!("CARGO_PKG_VERSION"), "0.0.9"));
    let why = bench.start().err().unwrap().to_string();
    assert!(why.contains("has version 0.0.9"), "{why}");
}

#[test]
fn invalid_replies_and_unknown_volumes_are_refused() {
    let bench = Bench::new(&replies("42 moves"));
    let why = bench.decide(&bench.start().unwrap(), Value::Null);
    assert!(why.unwrap_err().contains("invalid reply"));
    let line = r#"{"decided":{"number":NUMBER,"moves":[{"volume":"a","tier":"b"}],"state":null}}"#;
    let bench = Bench::new(&replies(line));
    assert_eq!(
        bench.decide(&bench.start().unwrap(), Value::Null),
        Err("move 0: unknown volume \"a\"".into())
    );
}

#[test]
fn late_strategy_is_stopped_and_restarted_after_a_delay() {
    let script = format!("{STARTED}{READY}read -r request; exec sleep 600\n");
    let mut bench = Bench::new(&script);
    let strategy = bench.live(Duration::from_millis(100));
    let late = "no reply within 100 ms; its process was stopped";
    assert_eq!(bench.decide_live(&strategy), Err(late.into()));
    assert_eq!(bench.starts(), 2);
    // Until the wait is over nothing starts, and the failure remains.
    assert_eq!(bench.decide(&strategy, Value::Null), Err(late.into()));
    assert_eq!(bench.starts(), 2);
    let epoch = bench.policy.epochs.monitor;
    bench.facts.at = epoch;
    assert_eq!(bench.decide_live(&strategy), Err(late.into()));
    assert_eq!(bench.starts(), 4);
    // The wait has doubled.
    bench.facts.at = epoch + epoch;
    assert_eq!(bench.decide(&strategy, Value::Null), Err(late.into()));
    assert_eq!(bench.starts(), 4);
}

#[test]
fn live_strategy_decides_again_after_a_crash() {
    let script = format!(
        "{STARTED}{READY}read -r request\n\
         [ $(wc -l <\"${{0%/*}}/starts\") -ge 4 ] || kill -9 $$\n\
         n=0; while n=$((n+1)); do echo '{{\"decided\":{{\"number\":'$n',\"moves\":[],\"state\":5}}}}'; read -r request || exit; done\n"
    );
    let mut bench = Bench::new(&script);
    let strategy = bench.live(Duration::from_secs(30));
    let why = bench.decide_live(&strategy).unwrap_err();
    assert!(why.contains("SIGKILL"), "{why}");
    // In epochs without placement it is started, and has not recovered.
    bench.facts.at = bench.policy.epochs.monitor;
    bench.facts.placement_due = false;
    assert_eq!(bench.decide(&strategy, Value::Null), Err(why));
    bench.facts.placement_due = true;
    assert_eq!(bench.decide_live(&strategy), Ok(Some(5.into())));
}

#[test]
fn failure_on_one_array_does_not_affect_another() {
    let raised = r#"{"failed":{"error":"KeyError","traceback":""}}"#;
    let stay = r#"{"decided":{"number":NUMBER,"moves":[],"state":null}}"#;
    let fails = format!("case $request in *'\"fail\"'*) echo '{raised}'; exit;; esac; echo");
    let mut bench = Bench::new(&replies(stay).replace("echo '{\"dec", &(fails + " '{\"dec")));
    let strategy = bench.live(Duration::from_secs(30));
    bench.decide_live(&strategy).unwrap();
    strategy.next_array("a");
    let failed = bench.decide(&strategy, "fail".into());
    assert_eq!(failed, Err("KeyError".into()));
    strategy.next_array("b");
    assert_eq!(bench.decide_live(&strategy), Ok(Some(Value::Null)));
    strategy.next_array("a");
    let waits = bench.decide(&strategy, Value::Null);
    assert_eq!(waits, Err("KeyError".into()));
    bench.facts.at = bench.policy.epochs.monitor;
    let again = bench.decide(&strategy, Value::Null);
    assert_eq!(again, Ok(Some(Value::Null)));
}

#[test]
fn late_decision_on_one_array_delays_all() {
    let script = format!("{STARTED}{READY}read -r request; exec sleep 600\n");
    let bench = Bench::new(&script);
    let strategy = bench.live(Duration::from_millis(100));
    strategy.next_array("a");
    let late = bench.decide_live(&strategy);
    strategy.next_array("b");
    assert_eq!(bench.decide(&strategy, Value::Null), late);
    assert_eq!(bench.starts(), 2);
}

#[test]
fn slow_decisions_of_many_arrays_leave_half_of_the_time() {
    let limit = Duration::from_secs(5);
    let (mut budget, mut decided) = (Budget::default(), vec![]);
    let began = Instant::now();
    // Seven arrays decide at once, in each window of 10 s.
    for window in 0..4 {
        let mut now = began + 2 * limit * window;
        for _ in 0..7 {
            if budget.is_left(now, limit) {
                budget.spend(now, Duration::from_secs(4));
                decided.push(window);
                now += Duration::from_secs(4);
            }
        }
    }
    assert_eq!(decided, [0, 0, 2, 2]);
}

/// Waits until the condition holds.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn descendants_of_a_stopped_process_end_with_it() {
    let script =
        format!("sleep 600 & echo $! >>\"${{0%/*}}/starts\"\n{READY}read -r request; wait\n");
    let bench = Bench::new(&script);
    let strategy = bench.live(Duration::from_millis(100));
    bench.decide_live(&strategy).unwrap_err();
    let written = fs::read_to_string(bench.dir.path().join("starts")).unwrap();
    let pids: Vec<&str> = written.lines().collect();
    assert_eq!(pids.len(), 2);
    // A killed process may wait for its new parent.
    let has_ended = |pid: &&str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    wait_until("descendants live", || pids.iter().all(has_ended));
}

#[test]
fn process_outside_the_group_holds_no_thread() {
    let script = format!("setsid sleep 60 2>/dev/null &\n{READY}read -r request; exit 3\n");
    let bench = Bench::new(&script);
    let strategy = bench.live(Duration::from_millis(100));
    bench.decide_live(&strategy).unwrap_err();
    let named = |name: &str| {
        let threads = fs::read_dir("/proc/self/task").unwrap();
        let names = threads.filter_map(|t| fs::read_to_string(t.ok()?.path().join("comm")).ok());
        names.filter(|n| n.trim() == name).count()
    };
    wait_until("threads live", || named(crate::process::THREAD) == 0);
}

#[test]
fn second_reply_to_a_request_is_not_the_next_decision() {
    let line = r#"{"decided":{"number":NUMBER,"moves":[],"state":null}}"#;
    let script = replies(line).replace(
        "; done",
        "; echo '{\"decided\":{\"number\":'$n',\"moves\":[],\"state\":1}}'; done",
    );
    let bench = Bench::new(&script);
    let strategy = bench.start().unwrap();
    assert_eq!(bench.decide(&strategy, Value::Null), Ok(Some(Value::Null)));
    let why = bench.decide(&strategy, Value::Null).unwrap_err();
    assert!(why.contains("replied to request 1 instead of 2"), "{why}");
}

#[test]
fn large_state_is_refused_live_but_not_in_simulations() {
    let grow = "s=x; i=0; while [ $i -lt 20 ]; do s=$s$s; i=$((i+1)); done\n";
    let line = r#"{"decided":{"number":NUMBER,"moves":[],"state":"'$s'"}}"#;
    let bench = Bench::new(&(grow.to_owned() + &replies(line)));
    let simulated = bench.decide(&bench.start().unwrap(), Value::Null);
    assert_eq!(simulated, Ok(Some("x".repeat(1 << 20).into())));
    let strategy = bench.live(Duration::from_secs(30));
    let why = bench.decide_live(&strategy).unwrap_err();
    assert!(why.contains("its state has 1048578 bytes"), "{why}");
}
