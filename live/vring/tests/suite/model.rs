//! Model of a correct driver and a device, in any order of steps. Each request is taken once and complete, and each
//! completion arrives. Kicks and interrupts are suppressed only if the other side is not waiting.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use testkit::virtio::Form;
use vring::{Chain, Interrupt, Queue};

use crate::site::{BUFFERS, Site};

#[derive(Debug, Clone)]
enum Step {
    /// Submits a request with these lengths of readable and writable buffers.
    Add(Vec<u32>, Vec<u32>, Form),
    Expose,
    Pop,
    /// Completes one of the requests that were taken.
    Push(usize),
    Publish,
    Arm,
    /// The driver looks for completions and sleeps if there are none.
    Look,
    /// The device is killed and replaced by another one.
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lengths = || proptest::collection::vec(0..700u32, 0..4);
    let form = prop_oneof![Just(Form::Direct), Just(Form::Indirect)];
    let add = (lengths(), lengths(), form);
    let step = prop_oneof![
        4 => add.prop_map(|(r, w, form)| Step::Add(r, w, form)),
        3 => Just(Step::Expose),
        4 => Just(Step::Pop),
        4 => (0..8usize).prop_map(Step::Push),
        3 => Just(Step::Publish),
        2 => Just(Step::Arm),
        3 => Just(Step::Look),
        1 => Just(Step::Kill),
    ];
    proptest::collection::vec(step, 1..200)
}

/// Request in the driver's view.
struct Request {
    number: u32,
    asked: Vec<u8>,
    written_at: Vec<(u64, u32)>,
}

#[derive(Default)]
struct Model {
    number: u32,
    /// Requests by head.
    requests: BTreeMap<u16, Request>,
    /// Heads that are submitted and not exposed, then those that are exposed and not taken.
    hidden: VecDeque<u16>,
    exposed: VecDeque<u16>,
    /// Heads that a killed device had taken.
    again: VecDeque<u16>,
    /// Numbers and chains of taken requests, in order.
    taken: Vec<(u32, Chain)>,
    /// Completions that are not published, then those that are published.
    pushed: VecDeque<u16>,
    published: VecDeque<u16>,
    /// States of the device, which sleeps until a kick, and of the driver, which sleeps until an interrupt.
    device_sleeps: bool,
    driver_sleeps: bool,
}

fn answer_of(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|n| (number as usize * 31 + n) as u8)
        .collect()
}

fn run(steps: Vec<Step>, event_index: bool) {
    let mut site = Site::new(event_index);
    let mut queue: Queue = site.queue_kept();
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Add(read, written, form) => add(&mut site, &mut model, &read, &written, form),
            Step::Expose => {
                let new = !model.hidden.is_empty();
                let kick = site.driver.expose();
                model.exposed.append(&mut model.hidden);
                if model.device_sleeps && new {
                    assert!(kick, "the device sleeps on");
                    model.device_sleeps = false;
                }
            }
            Step::Pop if model.device_sleeps => {}
            Step::Pop => {
                queue.disarm();
                pop(&mut queue, &mut model);
            }
            Step::Push(which) if which < model.taken.len() => {
                let (number, chain) = model.taken.remove(which);
                let bytes = answer_of(number, chain.writable() as usize);
                chain.write(0, &bytes);
                model.pushed.push_back(chain.head());
                queue.push(chain, bytes.len() as u32);
            }
            Step::Push(_) => {}
            Step::Publish => {
                let new = !model.pushed.is_empty();
                let interrupt = queue.publish();
                model.published.append(&mut model.pushed);
                if model.driver_sleeps && new {
                    assert_eq!(interrupt, Interrupt::Wanted, "the driver sleeps on");
                    model.driver_sleeps = false;
                }
            }
            Step::Arm => {
                let more = queue.arm().unwrap();
                assert_eq!(more, !model.exposed.is_empty() || !model.again.is_empty());
                model.device_sleeps = !more;
            }
            Step::Look => look(&mut site, &mut model),
            Step::Kill => {
                // The driver sees only published completions.
                drop(queue);
                queue = site.queue_kept();
                let number = |head: u16| (model.requests[&head].number, head);
                let taken = model.taken.drain(..).map(|(_, chain)| chain.head());
                let left = taken.chain(model.pushed.drain(..));
                let left = left.chain(model.again.drain(..));
                let mut left: Vec<_> = left.map(number).collect();
                left.sort_unstable();
                assert_eq!(queue.resubmitted(), left.len());
                model.again = left.into_iter().map(|(_, head)| head).collect();
                model.device_sleeps = false;
            }
        }
        let in_flight = model.taken.len() + model.again.len();
        assert_eq!(usize::from(queue.in_flight()), in_flight);
    }
}

fn add(site: &mut Site, model: &mut Model, read: &[u32], written: &[u32], form: Form) {
    if read.is_empty() && written.is_empty() {
        return;
    }
    // Each of a few requests has its own place for its buffers.
    let mut at = BUFFERS + u64::from(model.number % 64) * 8192;
    let mut place = |length: &u32| {
        let here = at;
        at += u64::from(*length);
        (here, *length)
    };
    let read: Vec<_> = read.iter().map(&mut place).collect();
    let written: Vec<_> = written.iter().map(&mut place).collect();
    let Some(head) = site.driver.add(&read, &written, form) else {
        return;
    };
    let mut asked = vec![];
    for (at, length) in read {
        let bytes = answer_of(model.number + 7, length as usize);
        site.driver.put(at, &bytes);
        asked.extend(bytes);
    }
    let request = Request {
        number: model.number,
        asked,
        written_at: written,
    };
    assert!(model.requests.insert(head, request).is_none());
    model.hidden.push_back(head);
    model.number += 1;
}

fn pop(queue: &mut Queue, model: &mut Model) {
    let chain = queue.pop().unwrap();
    let Some(chain) = chain else {
        let left = model.exposed.len() + model.again.len();
        return assert_eq!(left, 0, "something was left");
    };
    let next = model.again.pop_front();
    let next = next.or_else(|| model.exposed.pop_front());
    let head = next.expect("nothing was handed in");
    assert_eq!(chain.head(), head);
    let request = &model.requests[&head];
    let mut bytes = vec![0; chain.readable() as usize];
    chain.read(0, &mut bytes);
    assert_eq!(bytes, request.asked);
    // A partial read returns the same bytes.
    let from = bytes.len() / 3;
    let mut part = vec![0; (bytes.len() - from) / 2];
    chain.read(from as u64, &mut part);
    assert_eq!(part, bytes[from..from + part.len()]);
    model.taken.push((request.number, chain));
}

fn look(site: &mut Site, model: &mut Model) {
    while let Some(expected) = model.published.pop_front() {
        let (head, written) = site.driver.next_used().expect("an answer was published");
        assert_eq!(head, expected);
        let request = model.requests.remove(&head).unwrap();
        let mut bytes = vec![];
        for (at, length) in request.written_at {
            let mut part = vec![0; length as usize];
            site.driver.get(at, &mut part);
            bytes.extend(part);
        }
        assert_eq!(written as usize, bytes.len());
        assert_eq!(bytes, answer_of(request.number, bytes.len()));
    }
    assert_eq!(site.driver.next_used(), None);
    assert!(!site.driver.await_used());
    model.driver_sleeps = true;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn requests_arrive_once_and_are_answered(steps in steps(), event_index: bool) {
        run(steps, event_index);
    }
}

/// The 16-bit indices wrap around.
#[test]
fn queue_indices_wrap_around() {
    for event_index in [false, true] {
        let mut site = Site::new(event_index);
        let mut queue = site.queue_kept();
        let mut kicks = 0;
        for n in 0..66_000u32 {
            site.driver.put(BUFFERS, &n.to_le_bytes());
            site.driver.add(&[(BUFFERS, 4)], &[], Form::Direct).unwrap();
            kicks += u32::from(site.driver.expose());
            let chain = queue.pop().unwrap().unwrap();
            let mut bytes = [0; 4];
            chain.read(0, &mut bytes);
            assert_eq!(bytes, n.to_le_bytes());
            queue.push(chain, 0);
            queue.publish();
            site.driver.next_used().unwrap();
            queue.disarm();
        }
        // A device that never slept requests no kicks; an event index that does not change is passed once in 65,536
        // requests.
        assert!(kicks <= 2, "{kicks} kicks");
    }
}
