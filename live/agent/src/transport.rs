//! Thread that exchanges messages with the controller.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use client::{Client, ClientError};
use manager::agent::Message;
use manager::wire::{Orders, Welcome, WireRefusal};

/// Time between two attempts to reach a controller that does not answer.
const RETRY: Duration = Duration::from_millis(500);

/// Result of a message to the controller.
pub(crate) enum Reply {
    /// Reply to a registration.
    Welcome(Welcome),
    /// Reply to a report.
    Orders(Box<Orders>),
    /// The controller refused the message.
    Refused(WireRefusal),
    /// There was no reply; the text has the reason.
    Lost(String),
}

/// Agent's end of the channels to the thread.
pub(crate) struct ControllerTransport {
    out: Sender<Message>,
    back: Receiver<Reply>,
}

impl ControllerTransport {
    pub(crate) fn start(
        host: String,
        mut controller: Client,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (out, messages) = channel();
        let (replies, back) = channel();
        let thread = std::thread::Builder::new()
            .name("terrace-sender".into())
            .spawn(move || {
                for message in messages {
                    if replies
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

    /// Returns the next reply, if one arrives in time.
    pub(crate) fn receive(&self, time: Duration) -> Option<Reply> {
        match self.back.recv_timeout(time) {
            Ok(reply) => Some(reply),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(time);
                None
            }
        }
    }
}

fn carry(controller: &mut Client, host: &str, message: &Message) -> Reply {
    let answer = match message {
        Message::Register(register) => controller.register(host, register).map(Reply::Welcome),
        Message::Report(report) => {
            let orders = controller.report(host, report);
            orders.map(|o| Reply::Orders(Box::new(o)))
        }
        Message::JobsEnded(jobs) => {
            let orders = controller.jobs_ended(host, jobs);
            orders.map(|o| Reply::Orders(Box::new(o)))
        }
    };
    match answer {
        Ok(reply) => reply,
        Err(ClientError::Wire(refusal)) => Reply::Refused(refusal),
        Err(error) => {
            std::thread::sleep(RETRY);
            Reply::Lost(datapath::explain(&error))
        }
    }
}
