//! The thread that talks to the controller.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use client::{Client, ClientError};
use manager::agent::Message;
use manager::wire::{Orders, Welcome, WireRefusal};

/// Time between two attempts to reach a controller that is not there.
const RETRY: Duration = Duration::from_millis(500);

/// What came back.
pub(crate) enum Letter {
    /// To a registration.
    Welcome(Welcome),
    /// To a report.
    Orders(Box<Orders>),
    /// The message was not taken.
    Refused(WireRefusal),
    /// Nobody answered; why.
    Lost(String),
}

/// One end of the thread.
pub(crate) struct Courier {
    out: Sender<Message>,
    back: Receiver<Letter>,
}

impl Courier {
    pub(crate) fn start(
        host: String,
        mut controller: Client,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (out, messages) = channel();
        let (letters, back) = channel();
        let thread = std::thread::Builder::new()
            .name("terrace-courier".into())
            .spawn(move || {
                for message in messages {
                    if letters
                        .send(carry(&mut controller, &host, &message))
                        .is_err()
                    {
                        return;
                    }
                }
            })?;
        Ok((Self { out, back }, thread))
    }

    pub(crate) fn send(&self, message: Message) -> Result<(), SendError<Message>> {
        self.out.send(message)
    }

    /// The next letter, if one comes in time.
    pub(crate) fn receive(&self, time: Duration) -> Option<Letter> {
        match self.back.recv_timeout(time) {
            Ok(letter) => Some(letter),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(time);
                None
            }
        }
    }
}

fn carry(controller: &mut Client, host: &str, message: &Message) -> Letter {
    let answer = match message {
        Message::Register(register) => controller.register(host, register).map(Letter::Welcome),
        Message::Report(report) => {
            let orders = controller.report(host, report);
            orders.map(|o| Letter::Orders(Box::new(o)))
        }
        Message::JobsEnded(jobs) => {
            let orders = controller.jobs_ended(host, jobs);
            orders.map(|o| Letter::Orders(Box::new(o)))
        }
    };
    match answer {
        Ok(letter) => letter,
        Err(ClientError::Wire(refusal)) => Letter::Refused(refusal),
        Err(error) => {
            std::thread::sleep(RETRY);
            Letter::Lost(datapath::explain(&error))
        }
    }
}
