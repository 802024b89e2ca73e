use std::fs::File;
use std::sync::mpsc;

use super::*;

/// Runs `work` on its own thread, because a ring belongs to its thread. Fails after a minute.
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        let _ = ended.send(());
    });
    if end.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("the ring makes no progress");
    }
    thread.join().unwrap();
}

fn file_of(bytes: &[u8]) -> Arc<File> {
    let file = tempfile::tempfile().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).unwrap();
    Arc::new(file)
}

fn read(file: &Arc<File>, at: u64, to: &Arc<Buf>) -> Op {
    let at_byte = at as usize;
    Op::Read {
        file: file.clone(),
        at,
        to: to.target(at_byte..at_byte + 1),
        urgency: Urgency::Guest,
    }
}

fn kicks() -> Arc<OwnedFd> {
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    Arc::new(rustix::event::eventfd(0, flags).unwrap())
}

fn kick(event: &OwnedFd) {
    rustix::io::write(event, &1u64.to_ne_bytes()).unwrap();
}

/// A ring that watches `count` event counters. These operations do not complete by themselves.
fn watching(entries: u32, count: usize) -> (Ring, Vec<Arc<OwnedFd>>) {
    let mut ring = Ring::with_entries(entries).unwrap();
    let events: Vec<_> = (0..count).map(|_| kicks()).collect();
    for (token, event) in events.iter().enumerate() {
        let event = event.clone();
        ring.start(token as u64, Op::Kicks { event });
    }
    (ring, events)
}

/// Starts more reads than the submission queue has entries. Each completes once and with its byte.
fn reads_complete(entries: u32, take: fn(&mut Ring, &mut Vec<(u64, Outcome)>)) {
    in_time(move || {
        let bytes: Vec<u8> = (0..200).collect();
        let file = file_of(&bytes);
        let mut ring = Ring::with_entries(entries).unwrap();
        let to = Buf::new(bytes.len());
        let mut done = vec![];
        // Twice, because a ring must work after a burst as before it.
        for _ in 0..2 {
            done.clear();
            for at in 0..bytes.len() as u64 {
                ring.start(at, read(&file, at, &to));
            }
            while done.len() < bytes.len() {
                take(&mut ring, &mut done);
            }
            assert_eq!(done.len(), bytes.len());
            assert!(done.iter().all(|(_, outcome)| *outcome == Ok(1)));
            let mut tokens: Vec<u64> = done.iter().map(|(token, _)| *token).collect();
            tokens.sort_unstable();
            assert!(tokens.into_iter().eq(0..bytes.len() as u64));
            assert_eq!(to.with(0..bytes.len(), <[u8]>::to_vec), bytes);
            assert!(ring.backlog.is_empty() && ring.slots.is_empty());
        }
    });
}

#[test]
fn more_operations_than_entries_complete_by_poll() {
    for entries in [1, 4, 64] {
        reads_complete(entries, |ring, done| ring.poll(done).unwrap());
    }
}

#[test]
fn more_operations_than_entries_complete_by_wait() {
    for entries in [1, 4, 64] {
        reads_complete(entries, |ring, done| ring.wait(None, done).unwrap());
    }
}

#[test]
fn more_operations_than_entries_complete_by_turns_of_poll_and_wait() {
    reads_complete(2, |ring, done| {
        ring.poll(done).unwrap();
        if done.is_empty() {
            ring.wait(Some(Duration::from_secs(10)), done).unwrap();
        }
    });
}

/// Operations that do not complete by themselves fill the queue several times. The operation after them must be
/// submitted before the ring sleeps.
#[test]
fn poll_submits_the_entire_backlog() {
    in_time(|| {
        let (mut ring, events) = watching(4, 50);
        assert!(!ring.backlog.is_empty());
        let mut done = vec![];
        ring.poll(&mut done).unwrap();
        assert!(ring.backlog.is_empty() && done.is_empty());
        kick(&events[49]);
        ring.wait(None, &mut done).unwrap();
        assert_eq!(done, [(49, Ok(1))]);
    });
}

#[test]
fn wait_submits_the_entire_backlog_before_it_sleeps() {
    in_time(|| {
        let (mut ring, events) = watching(4, 50);
        kick(&events[49]);
        let mut done = vec![];
        // Event 49 is behind 45 other entries in the backlog that do not complete.
        ring.wait(None, &mut done).unwrap();
        assert_eq!(done, [(49, Ok(1))]);
    });
}

#[test]
fn cancellation_in_the_backlog_ends_its_operation() {
    in_time(|| {
        let (mut ring, _events) = watching(4, 20);
        for token in 0..20 {
            ring.cancel(token);
        }
        let mut done = vec![];
        while done.len() < 20 {
            ring.wait(None, &mut done).unwrap();
        }
        assert!(done.iter().all(|(_, o)| *o == Err(Errno::CANCELED)));
        assert!(ring.slots.is_empty());
    });
}

/// Starts a flush with a flag that is invalid for flushes: the kernel refuses the entry when it is submitted.
fn start_refused(ring: &mut Ring, token: u64, file: &Arc<File>) {
    let slot = ring.slots.insert(PendingEntry {
        token,
        _memory: Memory::None,
        owned: OwnedDescriptor::File(file.clone()),
    });
    let entry = opcode::Fsync::new(Fd(file.as_raw_fd())).build();
    ring.push(entry.flags(Flags::BUFFER_SELECT).user_data(slot as u64));
}

/// The kernel stops submitting at an entry that it refuses at once. The entries behind it must not wait for another
/// submission.
#[test]
fn entries_behind_a_refused_one_are_submitted() {
    in_time(|| {
        let bytes: Vec<u8> = (0..40).collect();
        let file = file_of(&bytes);
        let to = Buf::new(bytes.len());
        let mut ring = Ring::with_entries(8).unwrap();
        let mut done = vec![];
        for at in 0..bytes.len() as u64 {
            if at % 3 == 0 {
                start_refused(&mut ring, 1000 + at, &file);
            }
            ring.start(at, read(&file, at, &to));
        }
        let (mut reads, mut refused) = (0, 0);
        while reads < bytes.len() || refused < 14 {
            done.clear();
            ring.wait(None, &mut done).unwrap();
            for (token, outcome) in &done {
                match *token < 1000 {
                    true => {
                        assert_eq!(*outcome, Ok(1));
                        reads += 1;
                    }
                    false => {
                        assert!(outcome.is_err());
                        refused += 1;
                    }
                }
            }
        }
        assert_eq!(to.with(0..bytes.len(), <[u8]>::to_vec), bytes);
    });
}

/// Completions beyond the capacity of the completion queue must arrive too.
#[test]
fn completions_beyond_the_queue_capacity_arrive() {
    in_time(|| {
        let (mut ring, events) = watching(1, 100);
        let mut done = vec![];
        ring.poll(&mut done).unwrap();
        events.iter().for_each(|event| kick(event));
        while done.len() < 100 {
            ring.poll(&mut done).unwrap();
        }
        let mut tokens: Vec<u64> = done.iter().map(|(token, _)| *token).collect();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 100);
    });
}
