//! Commands of QEMU for a move.
//!
//! The copy is a mirror with writes to both images from the start (`copy-mode=write-blocking`). It stops if its target
//! fails. After its end the job remains until it is dismissed (`auto-dismiss=false`). The names of job, nodes and
//! filter derive from the move, so a restarted agent finds them.
//!
//! Plain QEMU has no definition of a machine: a script of the operator names the file with which the machine starts.
//! The *name* of the file therefore stands for the definition. After the pivot, and before the guest continues, the old
//! image is renamed to the name under which it is kept, so a start with the old image fails. It is not renamed before
//! the pivot: QEMU may then open the old image once more by its name (`auto-read-only`, which every `-drive` has), and
//! the pivot would fail.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use vmhost::moving::{Definition, Intent, LiveDomain, Phase};
use vmhost::qemu::{Machine, Names, add_nodes, mirror};
use vmhost::{Image, ImageLocation};

use super::links::{Link, Links, MachineState};
use crate::error::{AgentError, Result, in_context, system_error};
use crate::images::is_same;
use crate::kernel;
use crate::moves::{MoveOperations, Refusal, Rest, Sight};
use crate::storage::{id_of, may_be_there, rename_durably};

/// Longest wait for a pivot, which takes some milliseconds.
const PIVOT_MAX: Duration = Duration::from_secs(2);

/// Operations of a move through QMP.
pub(super) struct QmpOperations<'a> {
    pub links: &'a mut Links,
}

/// Returns the state that stands for the definition; see the module comment.
fn definition(intent: &Intent) -> Definition {
    let (Some(from), Some(kept)) = (intent.from.at.file(), &intent.kept_as) else {
        return Definition::None;
    };
    match (&intent.phase, may_be_there(from)) {
        // The name has not been changed yet.
        (Phase::Blocking, true) => Definition::None,
        (_, true) => Definition::Names(Some(intent.from.clone())),
        // Only an operator can change the start to the new image.
        (Phase::Pivoted | Phase::Kept(_), false) => Definition::None,
        (_, false) if may_be_there(kept) => Definition::Unsettled,
        (_, false) => Definition::None,
    }
}

/// Renames the old image, so a start with it fails.
fn block(intent: &Intent) -> Result<()> {
    match (intent.from.at.file(), &intent.kept_as) {
        (Some(from), Some(kept)) if may_be_there(from) => rename_durably(from, kept),
        _ => Ok(()),
    }
}

/// Removes the remaining job and nodes after the outcome of the move is recorded.
fn tidy(link: &mut Link, machine: &Machine, intent: &Intent, names: &Names, live: &LiveDomain) {
    let LiveDomain::On {
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
        return; // the reason for its end is not recorded yet
    }
    if machine.is_concluded(names) {
        let _ = link.order("job-dismiss", json!({ "id": names.job() }));
    }
    let unused = match moved {
        true => machine.unused_on(&intent.from.at),
        false => machine.unused_of(names),
    };
    for node in unused {
        // QEMU refuses to remove a node in use. The nodes of a drive disappear by themselves.
        let _ = link.order("blockdev-del", json!({ "node-name": node }));
    }
}

impl QmpOperations<'_> {
    fn link(&mut self, intent: &Intent) -> &mut Link {
        self.links.link(&intent.uuid)
    }

    /// Checks that no other machine uses one of the images.
    ///
    /// # Errors
    /// Another machine uses an image, or its images are unknown.
    fn others_have(&mut self, intent: &Intent, images: &[&ImageLocation]) -> Result<()> {
        for name in self.links.find()? {
            if name == intent.uuid {
                continue;
            }
            let machine = match self.links.link(&name).look() {
                MachineState::On(machine) => machine,
                MachineState::Off => continue,
                MachineState::Unknown(why) => {
                    let unknown = format!("the images of machine {name} are unknown");
                    return Err(in_context(unknown)(why));
                }
            };
            let has =
                |image: &&&ImageLocation| machine.images().any(|other| is_same(&other, image));
            if let Some(image) = images.iter().find(has) {
                let why = format!("machine {name} also uses {image}");
                return Err(AgentError::InUse(why));
            }
        }
        Ok(())
    }

    fn machine(&mut self, intent: &Intent) -> Result<(&mut Link, Machine)> {
        let link = self.link(intent);
        match link.look() {
            MachineState::On(machine) => Ok((link, machine)),
            MachineState::Off => {
                let why = format!("{} is not running", intent.uuid);
                Err(AgentError::Changed(why))
            }
            MachineState::Unknown(why) => Err(why),
        }
    }
}

/// Returns the reason for which a copy would lose a property of the disk's image, if there is one.
fn would_be_lost(machine: &Machine, intent: &Intent) -> Option<String> {
    let why = machine.would_be_lost(&intent.target)?;
    Some(why.to_string())
}

/// Gives the target the owner and mode of its source, so QEMU may open it.
fn give(intent: &Intent, owner: Option<(u32, u32)>) -> Result<()> {
    let Some(path) = intent.to.at.file() else {
        return Ok(());
    };
    let said = system_error(format!("cannot pass {path} to its QEMU"));
    // Another user may be able to replace the file: do not follow links.
    let mut options = OpenOptions::new();
    let nofollow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = options.read(true).custom_flags(nofollow).open(path);
    let file = file.map_err(&said)?;
    let found = file.metadata().map_err(&said)?;
    if intent.made != Some(id_of(&found).into()) {
        return Err(AgentError::Changed(format!(
            "{path} is not the file that was created for this move"
        )));
    }
    let like = intent.from.at.file().and_then(|p| fs::metadata(p).ok());
    let (uid, gid) = match &like {
        Some(like) => (like.uid(), like.gid()),
        None => owner.unwrap_or((found.uid(), found.gid())),
    };
    if (uid, gid) != (found.uid(), found.gid()) {
        fchown(&file, Some(uid), Some(gid)).map_err(&said)?;
    }
    if let Some(like) = like {
        let mode = fs::Permissions::from_mode(like.mode() & 0o777);
        file.set_permissions(mode).map_err(said)?;
    }
    Ok(())
}

impl MoveOperations for QmpOperations<'_> {
    fn look(&mut self, intent: &Intent) -> Result<Sight> {
        let names = Names::of(intent);
        let definition = definition(intent);
        let link = self.link(intent);
        let machine = match link.look() {
            MachineState::On(machine) => machine,
            MachineState::Off => {
                // The socket may have been removed or replaced while its QEMU still runs.
                let images = [
                    intent.from.at.file(),
                    intent.kept_as.as_deref(),
                    intent.to.at.file(),
                ];
                for path in images.into_iter().flatten().filter(|p| may_be_there(p)) {
                    if kernel::is_locked(Path::new(path))? {
                        return Err(AgentError::InUse(format!(
                            "its socket no longer exists, and another process has {path} open"
                        )));
                    }
                }
                return Ok(Sight::without_job(LiveDomain::Off, definition));
            }
            MachineState::Unknown(why) => return Err(why),
        };
        let live = machine.live(&intent.target, &names, link.life());
        tidy(link, &machine, intent, &names, &live);
        let mut failed = machine.failure(&names).or_else(|| machine.goes_away());
        failed = failed.or_else(|| would_be_lost(&machine, intent));
        if intent.phase == Phase::Blocking && failed.is_none() {
            // Another machine may have started to take over this one's image.
            let others = self.others_have(intent, &[&intent.from.at]);
            failed = others.err().map(|e| e.to_string());
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
        let gone = "its disk has another image than before";
        let gone = || Refusal::Said(AgentError::Changed(gone.into()));
        let tree = machine.tree(&intent.target).ok_or_else(gone)?;
        if tree.image().as_ref() != Some(&intent.from) {
            return Err(gone());
        }
        let lost = would_be_lost(&machine, intent);
        if let Some(why) = lost.or_else(|| machine.goes_away()) {
            return Err(Refusal::Said(AgentError::Refused(why)));
        }
        if machine.images().any(|other| is_same(&other, &intent.to.at)) {
            let why = "its machine uses the target".into();
            return Err(Refusal::Said(AgentError::InUse(why)));
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

    fn set_rate(&mut self, intent: &Intent, rate_bytes_per_s: u64) -> Result<()> {
        let names = Names::of(intent);
        let order = json!({ "device": names.job(), "speed": rate_bytes_per_s });
        self.link(intent).order("block-job-set-speed", order)?;
        Ok(())
    }

    fn pause(&mut self, intent: &Intent) -> Result<Rest> {
        let link = self.link(intent);
        let status = |link: &mut Link| match link.look() {
            MachineState::On(machine) => Ok(Some(machine.status)),
            MachineState::Off => Ok(None),
            MachineState::Unknown(why) => Err(why),
        };
        match status(link)?.as_deref() {
            None => return Ok(Rest::Off),
            Some("running") => {}
            Some("paused") if intent.held => return Ok(Rest::Ours),
            Some(_) => return Ok(Rest::Others),
        }
        link.order("stop", json!({}))?;
        match status(link)?.as_deref() {
            None => Ok(Rest::Off),
            Some("paused") => Ok(Rest::Ours),
            Some(status) => Err(AgentError::Refused(format!(
                "the machine did not pause: its status is {status}"
            ))),
        }
    }

    fn resume(&mut self, intent: &Intent, _: bool) -> Result<()> {
        let link = self.link(intent);
        match link.look() {
            MachineState::On(machine) if machine.status == "paused" => {
                link.order("cont", json!({}))?;
                Ok(())
            }
            MachineState::On(_) | MachineState::Off => Ok(()),
            MachineState::Unknown(why) => Err(why),
        }
    }

    fn abort(&mut self, intent: &Intent) -> Result<()> {
        let names = Names::of(intent);
        let (link, machine) = self.machine(intent)?;
        // A job that is ready ends gracefully, with two images that agree. Before that, or after a failure, it is
        // cancelled by force.
        let force = !machine.is_ready(&names);
        let order = json!({ "device": names.job(), "force": force });
        link.order("block-job-cancel", order)?;
        Ok(())
    }

    fn pivot(&mut self, intent: &Intent) -> Result<LiveDomain, Refusal> {
        let names = Names::of(intent);
        let (link, machine) = self.machine(intent).map_err(Refusal::Said)?;
        let said = |why: String| Refusal::Said(AgentError::Refused(why));
        let silent = |why: &str| Refusal::Silent(AgentError::Silent(why.into()));
        if !machine.is_ready(&names) {
            return Err(said("the copy is no longer ready".into()));
        }
        if let Some(why) = machine.goes_away() {
            return Err(said(why));
        }
        link.order("job-complete", json!({ "id": names.job() }))?;
        let until = Instant::now() + PIVOT_MAX;
        while Instant::now() < until {
            match link.look() {
                MachineState::On(machine) if machine.is_concluded(&names) => {
                    return match machine.failure(&names) {
                        None => block(intent)
                            .map(|()| machine.live(&intent.target, &names, link.life()))
                            .map_err(Refusal::Silent),
                        Some(why) => Err(said(why)),
                    };
                }
                MachineState::On(_) => {}
                MachineState::Off => return Err(silent("QEMU has ended")),
                MachineState::Unknown(why) => return Err(Refusal::Silent(why)),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(silent("QEMU does not finish its pivot"))
    }

    fn user_of(&mut self, image: &ImageLocation) -> Result<Option<String>> {
        for name in self.links.find()? {
            if let MachineState::On(machine) = self.links.link(&name).look()
                && machine.images().any(|other| is_same(&other, image))
            {
                return Ok(Some(name));
            }
        }
        Ok(None) // machines that do not answer hold a lock on the file
    }

    fn define(&mut self, intent: &Intent, _: &Definition, image: &Image) -> Result<()> {
        let (Some(from), Some(kept)) = (intent.from.at.file(), &intent.kept_as) else {
            return Ok(());
        };
        match &image.at {
            at if *at == intent.from.at => rename_durably(kept, from),
            _ => block(intent),
        }
    }
}
