//! One worker without its thread. Each test performs steps of the worker loop.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;

use nbd::{Command, Exports, RequestFlags, RequestHeader, Session};
use units::{Bytes, Iops, VolumeId};
use volume::{Limits, VolumeMap};

use super::budget::{ALL_BYTES_MAX, STALLED_NS};
use super::guests::Stage;
use super::timers::TimerAction;
use super::volumes::may_retry;
use super::*;
use crate::engine::EngineLimits;
use crate::io::IoChoice;
use crate::pulse::STALLED_AFTER;
use crate::registry::{Access, Home};
use crate::stages::StagesSetup;
use crate::stages::throttle::Share;

/// Returns a worker without volumes, and its inbox.
fn idle_worker() -> (Worker, Inbox) {
    worker_of(Io::new(IoChoice::Threads).unwrap().0)
}

fn worker_of(io: Io) -> (Worker, Inbox) {
    let (sender, messages) = channel();
    let beats = Arc::new(Beats::new(1, STALLED_AFTER));
    let inbox = Inbox::new(&io, sender, 0, beats.clone());
    let shared = SharedState {
        registry: Arc::default(),
        connections: Arc::default(),
        bytes: Arc::default(),
        keeper: None,
        slack: Arc::new(SlackBoard::new(1, SLACK_OLD_NS)),
        pollers: Arc::new(Pollers::new(1)),
        beats,
    };
    let worker = Worker::new(0, io, messages, shared, Duration::ZERO);
    (worker, inbox)
}

#[test]
fn inbox_with_many_messages_is_emptied_in_several_turns() {
    let (mut worker, inbox) = idle_worker();
    let (answer, answers) = channel();
    for _ in 0..2 * MESSAGES_MAX + 1 {
        inbox.send(Message::HowStill(answer.clone()));
    }
    worker.completed(Token::Inbox, Ok(8));
    for taken in [MESSAGES_MAX, MESSAGES_MAX, 1] {
        assert_eq!(
            worker.sleep_for(),
            None,
            "it does not sleep before the rest"
        );
        worker.take_messages();
        assert_eq!(answers.try_iter().count(), taken);
    }
    assert_eq!(worker.sleep_for(), Some(None));
}

#[test]
fn messages_after_a_stop_message_are_not_processed() {
    let (mut worker, inbox) = idle_worker();
    let (answer, answers) = channel();
    inbox.send(Message::HowStill(answer.clone()));
    inbox.send(Message::Stop);
    inbox.send(Message::HowStill(answer));
    worker.completed(Token::Inbox, Ok(8));
    worker.take_messages();
    assert!(worker.stopping);
    assert_eq!(answers.try_iter().count(), 1);
}

/// Bytes of a request that has to wait for an exhausted budget.
const LARGE: u32 = 1 << 20;

/// Attaches a volume of 64 unallocated extents. Reads need no device.
fn attach_volume(worker: &mut Worker, share: Arc<Share>) {
    let home = Home {
        worker: 0,
        volume: VolumeId(0),
    };
    let (size, extent) = (Bytes::mib(64), Bytes::mib(1));
    let registry = &worker.shared.registry;
    registry.add("data", size.0, 512, Access::ReadWrite, home);
    let setup = VolumeSetup {
        id: home.volume,
        name: "data".into(),
        class: String::new(),
        map: VolumeMap::at(size, extent, vec![None; 64]),
        limits: EngineLimits::default(),
        resume: None,
        import: None,
        stages: StagesSetup {
            throttle: share,
            ..StagesSetup::default()
        },
        objective: Arc::default(),
        cached: None,
        lost: vec![],
    };
    worker.message(Message::Attach(Box::new(setup)));
}

fn worker_with_volume() -> (Worker, Arc<Share>) {
    let (mut worker, _) = idle_worker();
    let share: Arc<Share> = Arc::default();
    attach_volume(&mut worker, share.clone());
    (worker, share)
}

/// Connects a guest that sends `requests` large requests. Returns its number and its end of the socket.
fn connect(worker: &mut Worker, command: Command, requests: u64) -> (u32, UnixStream) {
    let (guest, socket) = UnixStream::pair().unwrap();
    guest.set_nonblocking(true).unwrap();
    let session = Session {
        export: worker.shared.registry.find("data").unwrap(),
        structured: false,
        allocation_context: None,
        dirty: vec![],
    };
    let requests = (0..requests).map(|cookie| {
        nbd::encode_request(&RequestHeader {
            flags: RequestFlags(0),
            command,
            cookie,
            offset: 0,
            length: LARGE,
        })
    });
    let sent: Vec<u8> = requests.flatten().collect();
    let connection = worker.connections.vacant_key() as u32;
    worker.shared.connections.fetch_add(1, Ordering::Relaxed);
    worker.take_over(socket.into(), None, Box::new(session), 0, &sent, vec![]);
    (connection, guest)
}

/// Waits for completed operations and processes them.
fn complete_some(worker: &mut Worker) {
    let mut done = vec![];
    while done.is_empty() {
        worker.io.wait(None, &mut done).unwrap();
    }
    for (token, outcome) in done {
        worker.completed(Token::unpack(token), outcome);
    }
}

/// Returns the number of a connection's requests that were started.
fn begun(worker: &Worker, connection: u32) -> u32 {
    worker.connections[connection as usize].requests
}

fn is_serving(worker: &Worker, connection: u32) -> bool {
    let found = worker.connections.get(connection as usize);
    found.is_some_and(|c| matches!(c.stage, Stage::Serving { .. }))
}

#[test]
fn requests_that_wait_for_the_budget_resume_in_order_before_new_ones() {
    let (mut worker, _) = worker_with_volume();
    let (large, all) = (u64::from(LARGE), worker.shared.bytes.clone());
    all.store(ALL_BYTES_MAX, Ordering::Relaxed);
    let [a, b] = [2, 1].map(|requests| connect(&mut worker, Command::Read, requests));
    worker.resume_paused();
    assert_eq!([&a, &b].map(|c| begun(&worker, c.0)), [0, 0]);
    assert!(!worker.may_resume());

    // Room for one request: the first guest gets it, and its second request queues behind the others.
    all.fetch_sub(large, Ordering::Relaxed);
    assert_eq!(worker.sleep_for(), None, "the worker does not sleep");
    let c = connect(&mut worker, Command::Read, 1);
    assert_eq!(begun(&worker, c.0), 0, "others wait already");
    worker.resume_paused();
    assert_eq!([&a, &b, &c].map(|c| begun(&worker, c.0)), [1, 0, 0]);
    assert_eq!(all.load(Ordering::Relaxed), ALL_BYTES_MAX);
    let order: Vec<PausedGuest> = worker.paused.iter().map(|(who, _)| *who).collect();
    assert_eq!(order, [b.0, c.0, a.0].map(PausedGuest::Connection));

    all.fetch_sub(3 * large, Ordering::Relaxed);
    worker.resume_paused();
    assert_eq!([&a, &b, &c].map(|c| begun(&worker, c.0)), [2, 1, 1]);
    assert!(worker.paused.is_empty());
}

#[test]
fn guest_that_accepts_no_replies_is_disconnected_without_budget() {
    let (mut worker, _) = worker_with_volume();
    let all = worker.shared.bytes.clone();
    let (stalled, _guest) = connect(&mut worker, Command::Read, 8);
    worker.send_answers();
    assert!(worker.connections[stalled as usize].waiting_writable);
    worker.now_ns += STALLED_NS;
    worker.cut_stalled();
    assert!(is_serving(&worker, stalled), "there is room for others");

    let held = all.swap(ALL_BYTES_MAX, Ordering::Relaxed);
    worker.now_ns -= 1;
    worker.cut_stalled();
    assert!(is_serving(&worker, stalled), "it has some time left");
    worker.now_ns += 1;
    worker.cut_stalled();
    assert!(!is_serving(&worker, stalled));
    assert_eq!(all.load(Ordering::Relaxed), ALL_BYTES_MAX - held);
}

#[test]
fn guest_that_sends_no_write_data_is_disconnected_without_budget() {
    let (mut worker, _) = worker_with_volume();
    let all = worker.shared.bytes.clone();
    let (stalled, mut guest) = connect(&mut worker, Command::Write, 1);
    assert_eq!(all.load(Ordering::Relaxed), u64::from(LARGE));
    all.store(ALL_BYTES_MAX, Ordering::Relaxed);
    worker.now_ns += STALLED_NS - 1;
    worker.cut_stalled();
    assert!(is_serving(&worker, stalled), "it has some time left");
    guest.write_all(&[0]).unwrap();
    complete_some(&mut worker);
    worker.now_ns += STALLED_NS - 1;
    worker.cut_stalled();
    assert!(is_serving(&worker, stalled), "it has sent a byte");
    worker.now_ns += 1;
    worker.cut_stalled();
    assert!(!is_serving(&worker, stalled));
    complete_some(&mut worker);
    let left = ALL_BYTES_MAX - u64::from(LARGE);
    assert_eq!(all.load(Ordering::Relaxed), left);
}

fn limit(share: &Share, iops: Option<f64>) {
    share.limit(Limits {
        iops: iops.map(Iops),
        bandwidth: None,
    });
}

#[test]
fn throttled_requests_follow_a_raised_or_removed_limit() {
    let (mut worker, share) = worker_with_volume();
    limit(&share, Some(0.001));
    let (guest, _socket) = connect(&mut worker, Command::Read, 6);
    let answered = |worker: &Worker| worker.connections[guest as usize].out.len();
    assert_eq!(
        (worker.timers.held_back(1), answered(&worker)),
        (vec![5], 1)
    );
    worker.readmit_throttled(0);
    assert_eq!(worker.timers.held_back(1), [5], "the limit is what it was");

    limit(&share, Some(10.0));
    worker.readmit_throttled(0);
    assert_eq!(
        (worker.timers.held_back(1), answered(&worker)),
        (vec![4], 2)
    );
    let last_ns = worker.now_ns + 400_000_000;
    let mut due = vec![];
    while let Some(TimerAction::Submit { request, .. }) = worker.timers.pop_due(last_ns) {
        due.push(request);
    }
    assert_eq!(due.len(), 4, "a tenth of a second for each");

    let (_guest, _socket) = connect(&mut worker, Command::Read, 3);
    let held = worker.timers.held_back(1)[0];
    assert_eq!(held, 3);
    limit(&share, None);
    worker.next_tick_ns = 0;
    worker.tick();
    assert_eq!(worker.timers.held_back(1), [0]);
}

#[test]
fn volume_with_throttled_requests_is_detached_at_once() {
    let (mut worker, share) = worker_with_volume();
    limit(&share, Some(0.001));
    let (_guest, _socket) = connect(&mut worker, Command::Read, 6);
    assert_eq!(worker.timers.held_back(1), [5]);
    let (answer, answered) = channel();
    worker.message(Message::Detach(VolumeId(0), OfGuests::All, answer));
    assert_eq!(answered.try_recv(), Ok(Ok(1)));
}

/// Operations in flight outlive their ring.
#[test]
fn guests_of_a_worker_that_ends_are_shut_down() {
    let (io, _) = Io::new(IoChoice::Auto).unwrap();
    let (mut worker, _) = worker_of(io);
    attach_volume(&mut worker, Arc::default());
    let (guest, mut socket) = connect(&mut worker, Command::Read, 0);
    assert!(worker.connections[guest as usize].receiving);
    worker.io.poll(&mut vec![]).unwrap();
    drop(worker);
    assert_eq!(socket.read(&mut [0]).unwrap(), 0);
}

#[test]
fn interrupted_io_is_retried_a_limited_number_of_times() {
    let mut retries = 0;
    let tried = (0..10_000).take_while(|_| may_retry(&mut retries)).count();
    assert_eq!(tried, 1000);
}
