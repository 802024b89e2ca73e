//! Second controller for one array.

use manager::problem::ProblemKind;
use manager::question::{Choice, Question, Refusal};
use manager::wire::JobProgress;
use model::{ControllerId, JobStatus, LeaseHolder, LeaseStatus};

use super::host::{BASE, Host};
use super::{AUTO, upside_down, with};

fn other() -> LeaseHolder {
    let id = ControllerId {
        store: 0xab,
        epoch: 3,
        start: 9,
    };
    let name = "/run/other.sock".into();
    LeaseHolder { id, name }
}

fn own(host: &Host) -> LeaseHolder {
    let id = host.orders.as_ref().unwrap().controller;
    let name = "/run/own.sock".into();
    LeaseHolder { id, name }
}

fn problem(host: &mut Host) -> Option<String> {
    let mut problems = host.status().problems.into_iter();
    let found = problems.find(|t| t.kind == ProblemKind::TwoControllers);
    found.map(|t| t.what)
}

fn lease(holder: LeaseHolder, refused: Option<LeaseHolder>) -> Option<LeaseStatus> {
    Some(LeaseStatus {
        holder,
        left_ns: 2_000_000_000,
        refused,
    })
}

#[test]
fn controller_without_the_lease_ends_jobs_and_names_the_holder() {
    let mut host = Host::new(&with(AUTO), upside_down());
    host.until_plan();
    host.windows(1);
    let job = host.ordered()[0];
    let copying = JobProgress::Copying {
        copied_bytes: 1,
        left_bytes: 9,
        rate_bytes_per_s: 1,
    };
    host.progress(job, copying);
    let generation = host.plan().unwrap().generation;
    host.lease = lease(other(), None);
    host.windows(1);
    assert_eq!(host.job(job).state, JobStatus::Failed);
    assert_eq!(host.job(job).cause.as_deref(), Some("other-controller"));
    let what = problem(&mut host).expect("it is a problem");
    assert!(
        what.contains("controller /run/other.sock (00000000000000ab, start 3)"),
        "{what}"
    );
    host.jobs.clear();
    host.windows(20);
    assert_eq!(host.plan().unwrap().generation, generation);
    assert!(host.ordered().is_empty());
    let choice = Choice {
        host: None,
        generation,
        moves: None,
    };
    let refused = host.ask(Question::Apply(choice));
    let Err(Refusal::Conflict(why)) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains("/run/other.sock"), "{why}");
    // The other controller has ended.
    host.lease = lease(own(&host), None);
    host.windows(12);
    assert_eq!(problem(&mut host), None);
    assert!(host.plan().unwrap().generation > generation && !host.ordered().is_empty());
}

#[test]
fn lease_holder_names_the_rejected_controller_and_continues() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(1);
    host.lease = lease(own(&host), Some(other()));
    host.windows(1);
    let what = problem(&mut host).expect("it is a problem");
    assert!(
        what.contains("/run/other.sock") && what.contains("is rejected"),
        "{what}"
    );
    host.until_plan();
}

#[test]
fn each_start_on_a_store_has_a_new_identity() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(1);
    let first = own(&host).id;
    host.restart_controller();
    host.register();
    host.windows(1);
    let second = own(&host).id;
    assert_eq!(
        (first.store, first.epoch, second.epoch),
        (second.store, 1, 2)
    );
    assert_ne!(first.start, second.start);
    let of_another_store = Host::new(BASE, upside_down());
    let mut of_another_store = of_another_store;
    of_another_store.windows(1);
    assert_eq!(own(&of_another_store).id.epoch, 1);
}
