//! Sessions with a peer that sends valid or invalid data, in pieces of any size.

use proptest::prelude::*;
use qmp::{CommandError, Event, LINE_MAX, Message, PENDING_MAX, QmpError, Session, fuzzing};
use serde_json::{Value, json};

const GREETING: &str = "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 19, \"minor\": 2, \"major\": 7}, \"package\": \"Debian 1:7.2+dfsg-7+deb12u16\"}, \"capabilities\": [\"oob\"]}}\r\n";

fn all(session: &mut Session) -> Result<Vec<Message>, QmpError> {
    let mut messages = vec![];
    while let Some(message) = session.poll()? {
        messages.push(message);
    }
    Ok(messages)
}

fn ready() -> Session {
    let mut session = Session::default();
    session.feed(GREETING.as_bytes());
    session.feed(b"{\"return\": {}, \"id\": 0}\r\n");
    assert_eq!(all(&mut session).unwrap().len(), 1);
    session.output();
    session
}

/// Returns the error that ends a ready session after this input.
fn fault(sent: &[u8]) -> QmpError {
    let mut session = ready();
    session.feed(sent);
    let fault = all(&mut session).unwrap_err();
    session.feed(b"{\"event\": \"STOP\"}\n");
    assert_eq!(session.poll(), Err(fault.clone()), "it stays so");
    assert_eq!(session.command("stop", None), Err(fault.clone()));
    fault
}

#[test]
fn commands_are_answered_in_any_order_after_negotiation() {
    let mut session = Session::default();
    assert_eq!(session.command("stop", None), Err(QmpError::NotReady));
    session.feed(GREETING.as_bytes());
    assert_eq!(session.poll(), Ok(None));
    assert_eq!(
        serde_json::from_slice::<Value>(&session.output()).unwrap(),
        json!({"execute": "qmp_capabilities", "id": 0})
    );
    session
        .feed(b"{\"timestamp\": {\"seconds\": 1, \"microseconds\": 2}, \"event\": \"RESUME\"}\r\n");
    session.feed(b"{\"return\": {}, \"id\": 0}\r\n");
    let Ok(Some(Message::Ready(version))) = session.poll() else {
        panic!("not ready");
    };
    assert_eq!(version.to_string(), "7.2.19 (Debian 1:7.2+dfsg-7+deb12u16)");
    assert!(version.is_at_least(7, 2) && !version.is_at_least(8, 0));
    let job = json!({"id": "job0", "speed": 1 << 20});
    let first = session.command("block-job-set-speed", Some(job)).unwrap();
    let second = session.command("query-jobs", None).unwrap();
    assert_eq!(
        String::from_utf8(session.output()).unwrap(),
        "{\"arguments\":{\"id\":\"job0\",\"speed\":1048576},\"execute\":\"block-job-set-speed\",\"id\":1}\n{\"execute\":\"query-jobs\",\"id\":2}\n"
    );
    session.feed(format!("{{\"return\": [1], \"id\": {second}}}\r\n\r\n").as_bytes());
    session.feed(format!("{{\"id\": {first}, \"error\": {{\"class\": \"DeviceNotActive\", \"desc\": \"No active block job\"}}}}\n").as_bytes());
    let answers = all(&mut session).unwrap();
    let failed = CommandError {
        class: "DeviceNotActive".into(),
        desc: "No active block job".into(),
    };
    let answer = |id, command, result| Message::Answer {
        id,
        command,
        result,
    };
    assert_eq!(
        answers,
        [
            answer(second, "query-jobs", Ok(json!([1]))),
            answer(first, "block-job-set-speed", Err(failed)),
        ]
    );
}

#[test]
fn events_have_their_time_if_given() {
    let mut session = ready();
    session.feed(b"{\"timestamp\": {\"seconds\": 1700000000, \"microseconds\": 25}, \"event\": \"BLOCK_JOB_READY\", \"data\": {\"device\": \"j\", \"len\": 10}}\r\n");
    session
        .feed(b"{\"timestamp\": {\"seconds\": -1, \"microseconds\": -1}, \"event\": \"STOP\"}\r\n");
    let event = |name: &str, data: Value, at_us| {
        Message::Event(Event {
            name: name.into(),
            data,
            at_us,
        })
    };
    assert_eq!(
        all(&mut session).unwrap(),
        [
            event(
                "BLOCK_JOB_READY",
                json!({"device": "j", "len": 10}),
                Some(1_700_000_000_000_025)
            ),
            event("STOP", Value::Null, None),
        ]
    );
}

#[test]
fn invalid_message_ends_the_session_with_its_position() {
    let place = (GREETING.len() + "{\"return\": {}, \"id\": 0}\r\n".len()) as u64;
    for (sent, said) in [
        ("{\"return\": {}\n", "no JSON: "),
        ("[]\n", "message: it is no object"),
        ("{}\n", "message: it is no greeting, answer or event"),
        (
            "{\"return\": 1, \"error\": {}, \"id\": 1}\n",
            "message: it is no greeting",
        ),
        ("{\"return\": {}, \"id\": 9}\n", "an answer to command 9"),
        ("{\"return\": {}}\n", "id: it is missing"),
        (
            "{\"error\": {\"class\": \"GenericError\", \"desc\": \"JSON parse error\"}}\n",
            "id: it is missing, of an error: GenericError: JSON parse error",
        ),
        ("{\"error\": {\"class\": 3}, \"id\": 0}\n", "error.class: "),
        ("{\"event\": 7}\n", "event: it is no text"),
    ] {
        let said_of = fault(sent.as_bytes()).to_string();
        let begins = format!("offset {place}");
        assert!(
            said_of.starts_with(&begins) && said_of.contains(said),
            "{said_of}"
        );
    }
    let mut session = Session::default();
    session.feed(b"SSH-2.0-OpenSSH\r\n");
    assert!(matches!(
        session.poll(),
        Err(QmpError::Syntax { offset: 0, .. })
    ));
    let mut session = Session::default();
    session.feed(b"{\"QMP\": {\"version\": {\"qemu\": {\"major\": 7}}}}\n");
    let said = session.poll().unwrap_err().to_string();
    assert!(said.contains("QMP.version.qemu.minor"), "{said}");
    let mut session = Session::default();
    session.feed(GREETING.as_bytes());
    session.feed(b"{\"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}, \"id\": 0}\n");
    assert!(matches!(session.poll(), Err(QmpError::Refused { .. })));
}

#[test]
fn lines_and_commands_are_bounded() {
    let mut session = ready();
    let piece = vec![b' '; 1 << 20];
    let mut fed = 0;
    let fault = loop {
        session.feed(&piece);
        fed += piece.len();
        match session.poll() {
            Ok(None) => assert!(fed <= LINE_MAX),
            Ok(Some(message)) => panic!("{message:?}"),
            Err(fault) => break fault,
        }
    };
    assert!(matches!(fault, QmpError::TooLong { max: LINE_MAX, .. }));
    let mut session = ready();
    for _ in 0..PENDING_MAX {
        session.command("query-jobs", None).unwrap();
    }
    let one_more = session.command("query-jobs", None);
    assert_eq!(one_more, Err(QmpError::TooMany(PENDING_MAX)));
}

/// Returns QEMU's output in a session with a new command after each answer.
fn talk() -> Vec<u8> {
    let mut talk = GREETING.to_owned();
    for id in 0..20 {
        talk += &format!("{{\"return\": {{\"n\": [{id}, \"\\u00e9\"]}}, \"id\": {id}}}\r\n");
        talk += "{\"timestamp\": {\"seconds\": 3, \"microseconds\": 4}, \"event\": \"JOB_STATUS_CHANGE\", \"data\": {\"status\": \"ready\"}}\r\n";
    }
    talk.into_bytes()
}

proptest! {
    #[test]
    fn split_input_gives_the_same_messages(cuts in prop::collection::vec(1usize..200, 0..40)) {
        let talk = talk();
        let mut session = Session::default();
        let (mut at, mut answers, mut events) = (0, 0, 0);
        for cut in cuts.into_iter().chain([talk.len()]) {
            let end = (at + cut).min(talk.len());
            session.feed(&talk[at..end]);
            at = end;
            while let Some(message) = session.poll().unwrap() {
                match message {
                    Message::Event(_) => events += 1,
                    _ => {
                        answers += 1;
                        session.command("query-jobs", None).unwrap();
                    }
                }
            }
        }
        prop_assert_eq!((answers, events), (20, 20));
    }

    #[test]
    fn damaged_input_does_not_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), piece in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut talk = talk();
        let at = at.index(talk.len());
        talk[at] = byte;
        talk.truncate(cut.index(talk.len()) + 1);
        fuzzing::session(&[&[piece][..], &talk].concat());
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzzing::session(&bytes);
    }
}
