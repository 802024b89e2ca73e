//! Volumes that are held for who reads all of them: what is read is what the volume was at one moment.
//!
//! ```text
//!  hold ──▶ claimed, not offered ──▶ no guest is there, none comes ──▶ nothing is under way ──▶ offered to read, as NAME@@held
//!  release ──▶ not offered ──▶ readers are cut off ──▶ offered as before
//! ```
//!
//! A hold is its control connection's, and ends with it: a reader that is killed keeps nobody out for longer.

use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use array::Health;
use nbd::{Export, ExportFlags, Exports as _};

use super::claims::VolumeClaim;
use super::volumes::not_importing;
use super::{ControlAnswer, ControlServer, NOT_SERVED, Result, home_of};
use crate::registry::Home;
use crate::worker::{Held, HoldRefusal, Inbox, Message, NoReply};

/// Requests of guests who are gone get this long to end: devices answer, or fail, sooner.
const STILL: Duration = Duration::from_secs(60);

/// Time between two looks whether they have.
const LOOK: Duration = Duration::from_millis(5);

/// A volume, or a snapshot, that does not change until this is dropped.
pub(crate) struct Hold {
    /// None for a snapshot.
    _volume: Option<HeldVolume>,
}

struct HeldVolume {
    control_server: Weak<ControlServer>,
    /// What was offered to guests.
    offered: (Export, Home),
    _claim: VolumeClaim,
}

impl ControlServer {
    /// Holds a volume; how it can be read.
    ///
    /// # Errors
    /// A sentence that says what is wrong; it is as before then.
    pub(crate) fn hold(self: &Arc<Self>, name: &str) -> Result<(Hold, ControlAnswer)> {
        let _inside = self.gate.enter()?;
        let record = self.volume(name)?;
        let not_served = || format!("{name} is not served by this server");
        let server = self.server.as_ref().ok_or(NOT_SERVED)?;
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let registry = server.shared.registry.clone();
        let sockets = server.unix_sockets().to_vec();
        let worker = server.workers[home_of(record.id, server.workers.len())].clone();
        drop(server);
        if record.snapshot.is_some() {
            sound(name, record.health)?;
            let export = registry.find(name).ok_or_else(not_served)?.name;
            let answer = ControlAnswer::Held { export, sockets };
            return Ok((Hold { _volume: None }, answer));
        }
        let claim = self.changing.claim(record.id, name)?;
        let record = self.volume(name)?; // nobody changes it any more
        sound(name, record.health)?;
        not_importing(&record)?;
        // First nobody new gets in, then those are counted who are in.
        let offered = registry.remove(name).ok_or_else(not_served)?;
        if let Err(why) = hold(name, &worker, &offered.1) {
            registry.restore(name, Some(offered));
            return Err(why);
        }
        let (mut export, home) = offered.clone();
        let volume = HeldVolume {
            control_server: Arc::downgrade(self),
            offered,
            _claim: claim,
        };
        let held = Hold {
            _volume: Some(volume),
        };
        let until = Instant::now() + STILL;
        while hold(name, &worker, &home)? != Held::Still {
            if Instant::now() > until {
                return Err(format!(
                    "a request of a guest of volume {name:?} is still in progress: try again"
                ));
            }
            std::thread::sleep(LOOK);
        }
        export.name = export_of(name);
        export.flags = export.flags.with(ExportFlags::READ_ONLY);
        let answer = ControlAnswer::Held {
            export: export.name.clone(),
            sockets,
        };
        registry.insert(export, home);
        Ok((held, answer))
    }
}

/// No volume and no snapshot has such a name.
fn export_of(name: &str) -> String {
    format!("{name}@@held")
}

fn sound(name: &str, health: Health) -> Result<()> {
    match health {
        Health::Whole => Ok(()),
        Health::Damaged => Err(format!(
            "volume {name} is damaged: `terrace volume check` describes the damage"
        )),
    }
}

fn hold(name: &str, worker: &Inbox, home: &Home) -> Result<Held> {
    match worker.ask(|answer| Message::Hold(home.volume, answer)) {
        Ok(held) => held.map_err(|why| refused(name, why)),
        Err(NoReply::Ended) => Err(refused(name, HoldRefusal::NotServed)),
        Err(why) => {
            if why.may_take_effect() {
                worker.send(Message::Release(home.volume, channel().0));
            }
            Err(format!("volume {name:?}: {why}"))
        }
    }
}

fn refused(name: &str, why: HoldRefusal) -> String {
    match why {
        HoldRefusal::NotServed => format!("{name} is not served by this server"),
        HoldRefusal::Connected(guests) => {
            let open = match guests {
                1 => "1 connection of a guest is".into(),
                n => format!("{n} connections of guests are"),
            };
            format!(
                "volume {name:?} is in use: {open} open, so a copy would not be consistent; create a snapshot first: `terrace volume snapshot create {name} NAME`"
            )
        }
    }
}

impl Drop for HeldVolume {
    fn drop(&mut self) {
        let Some(control_server) = self.control_server.upgrade() else {
            return; // the server ends
        };
        let Some(server) = &control_server.server else {
            return;
        };
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let registry = server.shared.registry.clone();
        let (export, home) = self.offered.clone();
        let worker = server.workers[home.worker].clone();
        drop(server);
        registry.remove(&export_of(&export.name));
        // Fails if the worker has ended. A stalled worker releases the volume when it recovers.
        let _ = worker.insist(|answer| Message::Release(home.volume, answer));
        registry.insert(export, home);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::control::{CONTROL_SOCKET, Holding};
    use crate::serving::one_volume;

    #[test]
    fn a_held_volume_is_read_and_nobody_else_gets_in() {
        let dir = tempfile::tempdir().unwrap();
        let (serving, listen) = one_volume(dir.path());
        let control = dir.path().join("array").join(CONTROL_SOCKET);
        let connect = |name: &str| Client::connect(&listen.uri(name).parse().unwrap());
        let mut guest = connect("data").unwrap();
        guest.write(0, &[3; 512]).unwrap();
        let refused = Holding::begin(&control, "data").unwrap_err().to_string();
        assert!(
            refused.contains("1 connection of a guest is open"),
            "{refused}"
        );
        // It is offered and served as before.
        assert_eq!(connect("data").unwrap().read(0, 512).unwrap(), [3; 512]);
        guest.write(512, &[4; 512]).unwrap();
        guest.disconnect().unwrap();

        let began = || {
            let until = Instant::now() + Duration::from_secs(120);
            loop {
                match Holding::begin(&control, "data") {
                    Ok(holding) => return holding,
                    Err(why) => assert!(Instant::now() < until, "{why}"),
                }
            }
        };
        let holding = began();
        assert_eq!(holding.export, "data@@held");
        assert!(connect("data").is_err());
        let mut reader = connect(&holding.export).unwrap();
        assert_eq!(reader.read(512, 512).unwrap(), [4; 512]);
        assert!(reader.write(0, &[9; 512]).is_err());
        let again = Holding::begin(&control, "data").unwrap_err().to_string();
        assert!(again.contains("is changing or saving"), "{again}");
        let delete = crate::control_server::ControlRequest::Delete {
            volume: "data".into(),
            force: true,
        };
        assert!(serving.control_server().ask(delete).is_err());
        holding.end().unwrap();
        assert!(reader.read(0, 512).is_err());
        assert!(connect("data@@held").is_err());
        let mut guest = connect("data").unwrap();
        assert_eq!(guest.read(0, 512).unwrap(), [3; 512]);
        guest.write(0, &[5; 512]).unwrap();
        guest.disconnect().unwrap();

        // Who gives it up does not come back before it is free; one that is killed holds nothing either, soon.
        for _ in 0..20 {
            drop(began());
            connect("data").unwrap().disconnect().unwrap();
        }
        serving.stop().unwrap();
    }

    #[test]
    fn so_many_holds_leave_room_for_who_asks() {
        let dir = tempfile::tempdir().unwrap();
        let (serving, _) = one_volume(dir.path());
        let path = dir.path().join("array").join(CONTROL_SOCKET);
        let take = crate::control_server::ControlRequest::TakeSnapshot {
            volume: "data".into(),
            name: "s".into(),
        };
        serving.control_server().ask(take).unwrap();
        let begin = || Holding::begin(&path, "data@s");
        let mut held: Vec<Holding> = (0..8).map(|_| begin().unwrap()).collect();
        let refused = begin().unwrap_err().to_string();
        assert!(refused.contains("8 volumes are being saved"), "{refused}");
        let volumes = crate::control::ask(&path, &crate::control_server::ControlRequest::Volumes);
        assert!(volumes.is_ok());
        held.pop().unwrap().end().unwrap();
        held.push(begin().unwrap());
        drop(held);
        serving.stop().unwrap();
    }
}
