//! One worker without its thread: a test does what its loop does, step by step.

use std::sync::mpsc::channel;

use super::*;
use crate::io::IoChoice;

/// A worker without volumes, and how to reach it.
fn idle_worker() -> (Worker, Inbox) {
    let (io, _) = Io::new(IoChoice::Threads).unwrap();
    let (sender, messages) = channel();
    let inbox = Worker::inbox_of(&io, sender);
    let shared = Shared {
        registry: Arc::default(),
        connections: Arc::default(),
        bytes: Arc::default(),
        keeper: None,
        slack: Arc::new(SlackBoard::new(1, SLACK_OLD_NS)),
        pollers: Arc::new(Pollers::new(1)),
        beats: Arc::new(Beats::new(1)),
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
fn messages_behind_the_one_that_stops_a_worker_are_not_taken() {
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
