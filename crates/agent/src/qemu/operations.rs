//! What QEMU does for a move.
//!
//! Its copy is a mirror with writes to both images from the start (`copy-mode=write-blocking`), which stops where its target fails and stays, when it is over,
//! until that was seen (`auto-dismiss=false`). Its job, nodes and filter have names that follow from the move, so whoever finds the move
//! finds them.
//!
//! Plain QEMU has no definition: what a start would read is in somebody's script, and names a file. So the file's *name* stands for the definition: after
//! the pivot, and before the guest goes on, the old image gets the name that it is kept under, and a start of it fails. Not before the pivot: QEMU may
//! open the old image once more by its name then (`auto-read-only`, which every `-drive` has), and would not pivot.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use vmhost::moving::{Definition, Intent, Live, Phase};
use vmhost::qemu::{Machine, Names, add_nodes, mirror};
use vmhost::{At, Image};

use super::links::{Link, Links, Reached};
use crate::images::is_same;
use crate::kernel;
use crate::moves::{MoveOperations, Refusal, Rest, Sight};
use crate::storage::{id_of, may_be_there, rename_durably};

/// A pivot takes some milliseconds.
const PIVOT_MAX: Duration = Duration::from_secs(2);

/// By QEMU's own protocol.
pub(super) struct QmpOperations<'a> {
    pub links: &'a mut Links,
}

/// What a start would read: see above.
fn definition(intent: &Intent) -> Definition {
    let (Some(from), Some(kept)) = (intent.from.at.file(), &intent.kept_as) else {
        return Definition::None;
    };
    match (&intent.phase, may_be_there(from)) {
        // There is nothing to be done about a start yet.
        (Phase::Blocking, true) => Definition::None,
        (_, true) => Definition::Names(Some(intent.from.clone())),
        // Nobody but an operator can have a start read the new image.
        (Phase::Pivoted | Phase::Kept(_), false) => Definition::None,
        (_, false) if may_be_there(kept) => Definition::Unsettled,
        (_, false) => Definition::None,
    }
}

/// Has a start of the old image fail.
fn block(intent: &Intent) -> Result<(), String> {
    match (intent.from.at.file(), &intent.kept_as) {
        (Some(from), Some(kept)) if may_be_there(from) => rename_durably(from, kept),
        _ => Ok(()),
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

impl QmpOperations<'_> {
    fn link(&mut self, intent: &Intent) -> &mut Link {
        self.links.link(&intent.uuid)
    }

    /// Looks at all other machines.
    ///
    /// # Errors
    /// One has an image too, or may have.
    fn others_have(&mut self, intent: &Intent, images: &[&At]) -> Result<(), String> {
        for name in self.links.find()? {
            if name == intent.uuid {
                continue;
            }
            let machine = match self.links.link(&name).look() {
                Reached::On(machine) => machine,
                Reached::Off => continue,
                Reached::Unknown(why) => {
                    return Err(format!("the images of machine {name} are unknown: {why}"));
                }
            };
            let has = |image: &&&At| machine.images().any(|other| is_same(&other, image));
            if let Some(image) = images.iter().find(has) {
                return Err(format!("machine {name} also uses {image}"));
            }
        }
        Ok(())
    }

    fn machine(&mut self, intent: &Intent) -> Result<(&mut Link, Machine), String> {
        let link = self.link(intent);
        match link.look() {
            Reached::On(machine) => Ok((link, machine)),
            Reached::Off => Err(format!("{} is not running", intent.uuid)),
            Reached::Unknown(why) => Err(why),
        }
    }
}

/// Why a copy of the disk's image would not be what the image is.
fn would_be_lost(machine: &Machine, intent: &Intent) -> Option<String> {
    let why = machine.would_be_lost(&intent.target)?;
    Some(why.to_string())
}

/// Gives a target to whom its source belongs, so that QEMU may open it.
fn give(intent: &Intent, owner: Option<(u32, u32)>) -> Result<(), String> {
    let Some(path) = intent.to.at.file() else {
        return Ok(());
    };
    let said = |e: std::io::Error| format!("cannot pass {path} to its QEMU: {e}");
    // Somebody else may be able to put another file there.
    let mut options = OpenOptions::new();
    let nofollow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = options.read(true).custom_flags(nofollow).open(path);
    let file = file.map_err(said)?;
    let found = file.metadata().map_err(said)?;
    if intent.made != Some(id_of(&found).into()) {
        return Err(format!(
            "{path} is not the file that was created for this move"
        ));
    }
    let like = intent.from.at.file().and_then(|p| fs::metadata(p).ok());
    let (uid, gid) = match &like {
        Some(like) => (like.uid(), like.gid()),
        None => owner.unwrap_or((found.uid(), found.gid())),
    };
    if (uid, gid) != (found.uid(), found.gid()) {
        fchown(&file, Some(uid), Some(gid)).map_err(said)?;
    }
    if let Some(like) = like {
        let mode = fs::Permissions::from_mode(like.mode() & 0o777);
        file.set_permissions(mode).map_err(said)?;
    }
    Ok(())
}

impl MoveOperations for QmpOperations<'_> {
    fn look(&mut self, intent: &Intent) -> Result<Sight, String> {
        let names = Names::of(intent);
        let definition = definition(intent);
        let link = self.link(intent);
        let machine = match link.look() {
            Reached::On(machine) => machine,
            Reached::Off => {
                // A socket may be gone, or be elsewhere now, and its QEMU go on.
                let images = [
                    intent.from.at.file(),
                    intent.kept_as.as_deref(),
                    intent.to.at.file(),
                ];
                for path in images.into_iter().flatten().filter(|p| may_be_there(p)) {
                    if kernel::is_locked(Path::new(path))? {
                        return Err(format!(
                            "its socket no longer exists, and another process has {path} open"
                        ));
                    }
                }
                return Ok(Sight::without_job(Live::Off, definition));
            }
            Reached::Unknown(why) => return Err(why),
        };
        let live = machine.live(&intent.target, &names, link.life());
        tidy(link, &machine, intent, &names, &live);
        let mut failed = machine.failure(&names).or_else(|| machine.goes_away());
        failed = failed.or_else(|| would_be_lost(&machine, intent));
        if intent.phase == Phase::Blocking && failed.is_none() {
            // Somebody may have begun to take the machine to another QEMU.
            failed = self.others_have(intent, &[&intent.from.at]).err();
            let from = intent.from.at.file().map(Path::new);
            if from.is_some_and(|path| !kernel::may_rename(path)) {
                failed = Some("the old image could not be renamed".into());
            }
        }
        Ok(Sight {
            live,
            definition,
            runs: machine.status == "running",
            progress: machine.progress(&names),
            failed,
        })
    }

    fn begin(&mut self, intent: &Intent) -> Result<(), Refusal> {
        let names = Names::of(intent);
        self.others_have(intent, &[&intent.from.at, &intent.to.at])
            .map_err(Refusal::Said)?;
        let (link, machine) = self.machine(intent).map_err(Refusal::Said)?;
        let gone = || Refusal::Said("its disk has another image than before".into());
        let tree = machine.tree(&intent.target).ok_or_else(gone)?;
        if tree.image().as_ref() != Some(&intent.from) {
            return Err(gone());
        }
        let lost = would_be_lost(&machine, intent);
        if let Some(why) = lost.or_else(|| machine.goes_away()) {
            return Err(Refusal::Said(why));
        }
        if machine.images().any(|other| is_same(&other, &intent.to.at)) {
            return Err(Refusal::Said("its machine uses the target".into()));
        }
        let options = link.options(&machine, &intent.target);
        let nodes = add_nodes(&machine, intent, &names, options).ok_or_else(gone)?;
        let order = mirror(&machine, intent, &names, options).ok_or_else(gone)?;
        give(intent, link.owner()).map_err(Refusal::Said)?;
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
            Some(status) => Err(format!("the machine did not pause: its status is {status}")),
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
            return Err(Refusal::Said("the copy is no longer ready".into()));
        }
        if let Some(why) = machine.goes_away() {
            return Err(Refusal::Said(why));
        }
        link.order("job-complete", json!({ "id": names.job() }))?;
        let until = Instant::now() + PIVOT_MAX;
        while Instant::now() < until {
            match link.look() {
                Reached::On(machine) if machine.is_concluded(&names) => {
                    return match machine.failure(&names) {
                        None => block(intent)
                            .map(|()| machine.live(&intent.target, &names, link.life()))
                            .map_err(Refusal::Silent),
                        Some(why) => Err(Refusal::Said(why)),
                    };
                }
                Reached::On(_) => {}
                Reached::Off => return Err(Refusal::Silent("QEMU has ended".into())),
                Reached::Unknown(why) => return Err(Refusal::Silent(why)),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let why = "QEMU does not finish its pivot".into();
        Err(Refusal::Silent(why))
    }

    fn user_of(&mut self, image: &At) -> Result<Option<String>, String> {
        for name in self.links.find()? {
            if let Reached::On(machine) = self.links.link(&name).look()
                && machine.images().any(|other| is_same(&other, image))
            {
                return Ok(Some(name));
            }
        }
        Ok(None) // of those that do not say the file itself does
    }

    fn define(&mut self, intent: &Intent, _: &Definition, image: &Image) -> Result<(), String> {
        let (Some(from), Some(kept)) = (intent.from.at.file(), &intent.kept_as) else {
            return Ok(());
        };
        match &image.at {
            at if *at == intent.from.at => rename_durably(kept, from),
            _ => block(intent),
        }
    }
}
