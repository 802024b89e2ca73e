//! Moves that fail each time: frequency of attempts, and problems shown to an operator.

use manager::problem::ProblemKind;
use manager::question::{Answer, Question};
use manager::wire::{JobProgress, JobWindow};

use super::host::Host;
use super::reload::reload;
use super::{AUTO, upside_down, with};

/// Fails all ordered moves for a number of windows. Returns the jobs, oldest first.
fn fail_all(host: &mut Host, why: &str, permanent: bool, windows: u64) -> Vec<u32> {
    let mut failed = vec![];
    for _ in 0..windows {
        host.windows(1);
        for job in host.ordered() {
            if failed.contains(&job) {
                continue;
            }
            failed.push(job);
            host.jobs.push(JobWindow {
                job,
                state: JobProgress::Failed {
                    why: why.into(),
                    copied_bytes: 0,
                },
                failed_io: None,
                permanent,
            });
        }
    }
    failed
}

fn problems(host: &mut Host) -> Vec<String> {
    let problems = host.status().problems.into_iter();
    let failing = problems.filter(|t| t.kind == ProblemKind::MoveFailing);
    failing.map(|t| t.what).collect()
}

/// A migration epoch has four windows.
#[test]
fn repeatedly_failing_move_is_backed_off_and_a_problem() {
    let mut host = Host::new(&with(AUTO), upside_down());
    let failed = fail_all(&mut host, "cannot open the target: EACCES", false, 400);
    // Delays double for each volume and device: 400 windows are 100 epochs.
    assert!((4..=40).contains(&failed.len()), "{failed:?}");
    let problems_now = problems(&mut host);
    assert!(!problems_now.is_empty());
    for what in &problems_now {
        assert!(what.contains("EACCES") && what.contains(" time"), "{what}");
        assert!(
            what.contains("next attempt") || what.contains("no further attempt"),
            "{what}"
        );
    }
    // `why` names them too, even if the next attempt is planned already.
    for what in &problems_now {
        let (_, rest) = what.split_once("the move of ").unwrap();
        let volume = rest.split(' ').next().unwrap().to_owned();
        let Ok(Answer::Why(why)) = host.ask(Question::Why { volume }) else {
            panic!("{what}");
        };
        let is_named = why.notes.iter().any(|n| what.contains(n));
        assert!(is_named, "{:?}: {what}", why.notes);
    }
    // A restarted controller continues with the same delays.
    host.restart_controller();
    host.register();
    host.windows(1);
    assert_eq!(problems(&mut host).len(), problems_now.len());
    let after = fail_all(&mut host, "cannot open the target: EACCES", false, 20);
    assert!(after.len() <= 4, "{after:?}");
    // After a success, the failures are forgotten.
    let mut left = 2_000;
    while !problems(&mut host).is_empty() {
        host.windows(1);
        for job in host.ordered() {
            host.finish(job, 100);
        }
        left -= 1;
        assert!(left > 0, "{:?}", problems(&mut host));
    }
}

#[test]
fn permanent_failure_is_retried_only_after_a_reload() {
    let mut host = Host::new(&with(AUTO), upside_down());
    let why = "only whole disks are moved";
    let failed = fail_all(&mut host, why, true, 400);
    // At most one attempt for each volume on each of the two other devices.
    assert!((1..=4).contains(&failed.len()), "{failed:?}");
    let text = problems(&mut host).remove(0);
    assert!(
        text.contains(why) && text.contains("terrace reload"),
        "{text}"
    );
    let why_view = host.ask(Question::Why {
        volume: "busy".into(),
    });
    let Ok(Answer::Why(view)) = why_view else {
        panic!("{why_view:?}");
    };
    let shown = serde_json::to_string(&view).unwrap();
    assert!(
        shown.contains("move-failed") || shown.contains("move failed"),
        "{shown}"
    );
    reload(&mut host, &with(AUTO)).unwrap();
    assert_eq!(problems(&mut host), [""; 0]);
    assert!(!fail_all(&mut host, why, true, 20).is_empty());
    // Another volume with the same name.
    host.volumes.iter_mut().for_each(|v| v.mib *= 2);
    assert!(!fail_all(&mut host, why, true, 20).is_empty());
}
