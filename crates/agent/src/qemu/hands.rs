//! What QEMU does for a move.
//!
//! Its copy is a mirror with writes to both images from the start (`copy-mode=write-blocking`), which stops where its target fails and stays, when it is over,
//! until that was seen (`auto-dismiss=false`). Its job, nodes and filter have names that follow from the move, so whoever finds the move
//! finds them.
//!
//! Plain QEMU has no definition: what a start would read is in somebody's script, and names a file. So the file's *name* stands for the definition: before
//! the pivot is ordered the old image gets the name that it is kept under, which does not concern a QEMU that has it open, and a start in
//! between fails. If the pivot fails it gets its name back.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::time::{Duration, Instant};

use serde_json::json;
use vmhost::moving::{Definition, Intent, Live, Phase};
use vmhost::qemu::{Machine, Names, add_nodes, mirror};
use vmhost::{At, Image};

use super::links::{Link, Links, Reached};
use crate::moves::{Hands, Refusal, Rest, Sight, may_be_there, rename_durably};

/// A pivot takes some milliseconds.
const PIVOT_MAX: Duration = Duration::from_secs(2);

/// By QEMU's own protocol.
pub(super) struct QmpHands<'a> {
    pub links: &'a mut Links,
}

/// What a start would read: see above.
fn definition(intent: &Intent) -> Definition {
    let (Some(from), Some(kept)) = (intent.from.at.file(), &intent.kept_as) else {
        return Definition::None;
    };
    match &intent.phase {
        // Nobody but an operator can have a start read the new image.
        Phase::Pivoted | Phase::Kept(_) => Definition::None,
        _ if may_be_there(from) => Definition::Names(Some(intent.from.clone())),
        _ if may_be_there(kept) => Definition::Unsettled,
        _ => Definition::None,
    }
}

/// Removes what nobody needs of a job that is over, once it is decided what became of the disk.
fn tidy(link: &mut Link, machine: &Machine, intent: &Intent, names: &Names, live: &Live) {
    let Live::On {
        image,
        mirror: None,
        ..
    } = live
    else {
        return;
    };
    let gives_up = matches!(intent.phase, Phase::GivingUp { .. });
    let moved = image.as_ref() == Some(&intent.to);
    if !moved && !gives_up {
        return; // why it is over is not written down yet
    }
    if machine.is_concluded(names) {
        let _ = link.order("job-dismiss", json!({ "id": names.job() }));
    }
    let unused = match moved {
        true => machine.unused_on(&intent.from.at),
        false => machine.unused_of(names),
    };
    for node in unused {
        // QEMU removes none that is in use, and those of a drive go by themselves.
        let _ = link.order("blockdev-del", json!({ "node-name": node }));
    }
}

impl QmpHands<'_> {
    fn link(&mut self, intent: &Intent) -> &mut Link {
        self.links.link(&intent.uuid)
    }

    fn machine(&mut self, intent: &Intent) -> Result<(&mut Link, Machine), String> {
        let link = self.link(intent);
        match link.look() {
            Reached::On(machine) => Ok((link, machine)),
            Reached::Off => Err(format!("{} does not run", intent.uuid)),
            Reached::Unknown(why) => Err(why),
        }
    }
}

/// Gives a target to whom its source belongs, so that QEMU may open it.
fn give(to: &Image, from: &Image, owner: Option<(u32, u32)>) -> Result<(), String> {
    let Some(path) = to.at.file() else {
        return Ok(());
    };
    let said = |e: std::io::Error| format!("{path} cannot be given to its QEMU: {e}");
    let found = fs::metadata(path).map_err(said)?;
    let like = from.at.file().and_then(|p| fs::metadata(p).ok());
    let (uid, gid) = match &like {
        Some(like) => (like.uid(), like.gid()),
        None => owner.unwrap_or((found.uid(), found.gid())),
    };
    if (uid, gid) != (found.uid(), found.gid()) {
        chown(path, Some(uid), Some(gid)).map_err(said)?;
    }
    if let Some(like) = like {
        let mode = fs::Permissions::from_mode(like.mode() & 0o777);
        fs::set_permissions(path, mode).map_err(said)?;
    }
    Ok(())
}

impl Hands for QmpHands<'_> {
    fn look(&mut self, intent: &Intent) -> Result<Sight, String> {
        let names = Names::of(intent);
        let definition = definition(intent);
        let link = self.link(intent);
        let machine = match link.look() {
            Reached::On(machine) => machine,
            Reached::Off => return Ok(Sight::without_job(Live::Off, definition)),
            Reached::Unknown(why) => return Err(why),
        };
        let live = machine.live(&intent.target, &names, link.life());
        tidy(link, &machine, intent, &names, &live);
        Ok(Sight {
            live,
            definition,
            runs: machine.status == "running",
            progress: machine.progress(&names),
            failed: machine.failure(&names),
        })
    }

    fn begin(&mut self, intent: &Intent) -> Result<(), Refusal> {
        let names = Names::of(intent);
        let (link, machine) = self.machine(intent).map_err(Refusal::Said)?;
        let gone = || Refusal::Said("its disk is not what it was".into());
        let tree = machine.tree(&intent.target).ok_or_else(gone)?;
        if tree.image().as_ref() != Some(&intent.from) {
            return Err(gone());
        }
        let options = link.options(&machine, &intent.target);
        let nodes = add_nodes(&machine, intent, &names, options).ok_or_else(gone)?;
        let order = mirror(&machine, intent, &names, options).ok_or_else(gone)?;
        give(&intent.to, &intent.from, link.owner()).map_err(Refusal::Said)?;
        for node in nodes {
            link.order("blockdev-add", node)?;
        }
        link.order("blockdev-mirror", order).map(|_| ())
    }

    fn set_rate(&mut self, intent: &Intent, rate_bytes_per_s: u64) -> Result<(), String> {
        let names = Names::of(intent);
        let order = json!({ "device": names.job(), "speed": rate_bytes_per_s });
        let done = self.link(intent).order("block-job-set-speed", order);
        done.map(|_| ()).map_err(Refusal::why)
    }

    fn pause(&mut self, intent: &Intent) -> Result<Rest, String> {
        let link = self.link(intent);
        let status = |link: &mut Link| match link.look() {
            Reached::On(machine) => Ok(Some(machine.status)),
            Reached::Off => Ok(None),
            Reached::Unknown(why) => Err(why),
        };
        match status(link)?.as_deref() {
            None => return Ok(Rest::Off),
            Some("running") => {}
            Some("paused") if intent.held => return Ok(Rest::Ours),
            Some(_) => return Ok(Rest::Others),
        }
        link.order("stop", json!({})).map_err(Refusal::why)?;
        match status(link)?.as_deref() {
            None => Ok(Rest::Off),
            Some("paused") => Ok(Rest::Ours),
            Some(status) => Err(format!("the machine was to pause, and is {status}")),
        }
    }

    fn resume(&mut self, intent: &Intent, _: bool) -> Result<(), String> {
        let link = self.link(intent);
        match link.look() {
            Reached::On(machine) if machine.status == "paused" => {
                let done = link.order("cont", json!({}));
                done.map(|_| ()).map_err(Refusal::why)
            }
            Reached::On(_) | Reached::Off => Ok(()),
            Reached::Unknown(why) => Err(why),
        }
    }

    fn abort(&mut self, intent: &Intent) -> Result<(), String> {
        let names = Names::of(intent);
        let (link, machine) = self.machine(intent)?;
        // Once it is ready it ends by itself with two images that agree; before, or where it has stopped, it is broken off.
        let force = !machine.is_ready(&names);
        let order = json!({ "device": names.job(), "force": force });
        let done = link.order("block-job-cancel", order);
        done.map(|_| ()).map_err(Refusal::why)
    }

    fn pivot(&mut self, intent: &Intent) -> Result<Live, Refusal> {
        let names = Names::of(intent);
        let (link, machine) = self.machine(intent).map_err(Refusal::Said)?;
        if !machine.is_ready(&names) {
            return Err(Refusal::Said("the copy is not ready any more".into()));
        }
        link.order("job-complete", json!({ "id": names.job() }))?;
        let until = Instant::now() + PIVOT_MAX;
        while Instant::now() < until {
            match link.look() {
                Reached::On(machine) if machine.is_concluded(&names) => {
                    return match machine.failure(&names) {
                        None => Ok(machine.live(&intent.target, &names, link.life())),
                        Some(why) => Err(Refusal::Said(why)),
                    };
                }
                Reached::On(_) => {}
                Reached::Off => return Err(Refusal::Silent("QEMU has ended".into())),
                Reached::Unknown(why) => return Err(Refusal::Silent(why)),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let why = "QEMU does not come to an end with its pivot".into();
        Err(Refusal::Silent(why))
    }

    fn user_of(&mut self, path: &str) -> Result<Option<String>, String> {
        for name in self.links.find()? {
            match self.links.link(&name).look() {
                Reached::On(machine) if machine.uses(path) => return Ok(Some(name)),
                Reached::On(_) | Reached::Off => {}
                Reached::Unknown(why) => return Err(why),
            }
        }
        Ok(None)
    }

    fn define(&mut self, intent: &Intent, _: &Definition, image: &Image) -> Result<(), String> {
        let (Some(from), Some(kept)) = (intent.from.at.file(), &intent.kept_as) else {
            return Ok(());
        };
        match &image.at {
            At::File(path) if *path == intent.unsettled => rename_durably(from, kept),
            at if *at == intent.from.at => rename_durably(kept, from),
            at => Err(format!("no start script can be made to name {at}")),
        }
    }
}
