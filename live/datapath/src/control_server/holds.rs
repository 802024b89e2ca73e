//! Held volumes, for readers of all their data: the data is that of one moment.
//!
//! ```text
//!  hold ──▶ claimed, not exported ──▶ no guest connected ──▶ no request in flight ──▶ exported for reading, as NAME@@held
//!  release ──▶ not exported ──▶ readers disconnected ──▶ exported as before
//! ```
//!
//! A hold belongs to its control connection and ends with it: a reader that is killed does not block the volume.

use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use array::Health;
use nbd::{Export, ExportFlags, Exports as _};

use super::claims::VolumeClaim;
use super::volumes::not_importing;
use super::{ControlAnswer, ControlServer, DatapathError, Result, home_of, not_served};
use crate::registry::Home;
use crate::worker::{HoldRefusal, HoldState, Inbox, Message, NoReply};

/// Time limit for requests of disconnected guests. Devices answer or fail earlier.
const STILL: Duration = Duration::from_secs(60);

/// Interval of checks for them.
const LOOK: Duration = Duration::from_millis(5);

/// Hold of a volume or a snapshot, which does not change until this is dropped.
pub(crate) struct Hold {
    /// None for a snapshot.
    _volume: Option<HeldVolume>,
}

struct HeldVolume {
    control_server: Weak<ControlServer>,
    /// Export for guests, to be restored.
    offered: (Export, Home),
    _claim: VolumeClaim,
}

impl ControlServer {
    /// Holds a volume, and returns the export for reading it.
    ///
    /// # Errors
    /// [`DatapathError`]; the volume is unchanged.
    pub(crate) fn hold(self: &Arc<Self>, name: &str) -> Result<(Hold, ControlAnswer)> {
        let _inside = self.gate.enter()?;
        let record = self.volume(name)?;
        let not_offered = || not_offered(name);
        let server = self.server.as_ref().ok_or_else(not_served)?;
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let registry = server.shared.registry.clone();
        let sockets = server.unix_sockets().to_vec();
        let worker = server.workers[home_of(record.id, server.workers.len())].clone();
        drop(server);
        if record.snapshot.is_some() {
            sound(name, record.health)?;
            let export = registry.find(name).ok_or_else(not_offered)?.name;
            let answer = ControlAnswer::Held { export, sockets };
            return Ok((Hold { _volume: None }, answer));
        }
        let claim = self.changing.claim(record.id, name)?;
        let record = self.volume(name)?; // the claim excludes further changes
        sound(name, record.health)?;
        not_importing(&record)?;
        // The export is removed before connections are counted, so that no new guest is missed.
        let offered = registry.remove(name).ok_or_else(not_offered)?;
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
        while hold(name, &worker, &home)? != HoldState::Still {
            if Instant::now() > until {
                return Err(DatapathError::Busy(format!(
                    "a request of a guest of volume {name:?} is still in progress: try again"
                )));
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

/// Returns the name of the export of a held volume, which no volume or snapshot can have.
fn export_of(name: &str) -> String {
    format!("{name}@@held")
}

fn sound(name: &str, health: Health) -> Result<()> {
    match health {
        Health::Whole => Ok(()),
        Health::Damaged => Err(DatapathError::Refused(format!(
            "volume {name} is damaged: `terrace volume check` describes the damage"
        ))),
    }
}

fn hold(name: &str, worker: &Inbox, home: &Home) -> Result<HoldState> {
    match worker.ask(|answer| Message::Hold(home.volume, answer)) {
        Ok(held) => held.map_err(|why| refused(name, why)),
        Err(NoReply::Ended) => Err(refused(name, HoldRefusal::NotServed)),
        Err(why) => {
            if why.may_take_effect() {
                worker.send(Message::Release(home.volume, channel().0));
            }
            Err(DatapathError::from(why).of_volume(name))
        }
    }
}

fn not_offered(name: &str) -> DatapathError {
    DatapathError::NotServed(format!("{name} is not served by this server"))
}

fn refused(name: &str, why: HoldRefusal) -> DatapathError {
    match why {
        HoldRefusal::NotServed => not_offered(name),
        HoldRefusal::Connected(connections) => DatapathError::InUse {
            volume: name.into(),
            connections,
            consequence: format!(
                ", so a copy would not be consistent; create a snapshot first: `terrace volume snapshot create {name} NAME`"
            ),
        },
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
    use crate::control::{CONTROL_SOCKET, VolumeHold};
    use crate::serving::one_volume;

    #[test]
    fn held_volume_is_readable_and_other_guests_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (serving, listen) = one_volume(dir.path());
        let control = dir.path().join("array").join(CONTROL_SOCKET);
        let connect = |name: &str| Client::connect(&listen.uri(name).parse().unwrap());
        let mut guest = connect("data").unwrap();
        guest.write(0, &[3; 512]).unwrap();
        let refused = VolumeHold::begin(&control, "data").unwrap_err().to_string();
        assert!(
            refused.contains("1 connection of a guest is open"),
            "{refused}"
        );
        // The volume is exported and served as before.
        assert_eq!(connect("data").unwrap().read(0, 512).unwrap(), [3; 512]);
        guest.write(512, &[4; 512]).unwrap();
        guest.disconnect().unwrap();

        let began = || {
            let until = Instant::now() + Duration::from_secs(120);
            loop {
                match VolumeHold::begin(&control, "data") {
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
        let again = VolumeHold::begin(&control, "data").unwrap_err().to_string();
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

        // A released hold is free when the release returns, and the hold of a killed process soon after.
        for _ in 0..20 {
            drop(began());
            connect("data").unwrap().disconnect().unwrap();
        }
        serving.stop().unwrap();
    }

    #[test]
    fn number_of_holds_is_limited() {
        let dir = tempfile::tempdir().unwrap();
        let (serving, _) = one_volume(dir.path());
        let path = dir.path().join("array").join(CONTROL_SOCKET);
        let take = crate::control_server::ControlRequest::TakeSnapshot {
            volume: "data".into(),
            name: "s".into(),
        };
        serving.control_server().ask(take).unwrap();
        let begin = || VolumeHold::begin(&path, "data@s");
        let mut held: Vec<VolumeHold> = (0..8).map(|_| begin().unwrap()).collect();
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
