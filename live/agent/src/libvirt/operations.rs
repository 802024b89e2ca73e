//! Commands of libvirt for a move.
//!
//! The copy is a mirror with writes to both images from the start (`--synchronous-writes`). A guest's write is
//! acknowledged after both images have it. Once all data is copied, the images agree in every acknowledged write, even
//! if a process is killed then. `--transient-job` permits the copy for persistent domains; the move itself changes
//! their definition.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};

use vmhost::moving::{Definition, Intent, LiveDomain};
use vmhost::{
    Disk, Domain, Image, ImageLocation, Pool, copy_target, directory_of, listed, quoted, with_image,
};

use super::AT_ONCE;
use super::running::RunningProcesses;
use crate::error::{AgentError, Result, file_error};
use crate::images::is_same;
use crate::moves::{MoveOperations, Refusal, Rest, Sight, TEXT};
use crate::virsh::{Answer, Virsh, incomplete};

/// Operations of a move through `virsh`.
pub(super) struct LibvirtOperations<'a> {
    pub virsh: &'a Virsh,
    pub pools: &'a [Pool],
    pub running: &'a RunningProcesses,
}

impl LibvirtOperations<'_> {
    pub(super) fn directory_of(&self, pool: &str) -> Option<&str> {
        directory_of(self.pools, pool)
    }

    fn order(&self, words: &[&str]) -> Result<()> {
        self.virsh.order(words)?;
        Ok(())
    }

    /// Returns libvirt's state of the domain with its reason; `None` if the domain does not run.
    fn state(&self, intent: &Intent) -> Result<Option<String>> {
        let answers = self.virsh.ask(&[
            "list --all --uuid".into(),
            format!("domstate --reason {}", quoted(&intent.uuid)),
        ]);
        let answers = answers?;
        let gone = answers[0]
            .some()
            .is_some_and(|all| !names(all, &intent.uuid));
        match answers[1].some() {
            Some(state) if state.starts_with("shut off") || state.starts_with("crashed") => {
                Ok(None)
            }
            Some(state) => Ok(Some(state.into())),
            None if gone => Ok(None),
            None => Err(AgentError::Unknown(
                "libvirt does not report whether the domain is running".into(),
            )),
        }
    }

    /// Returns all domains, in their running and their persistent definitions.
    pub(super) fn everybody(&self) -> Result<Vec<Domain>> {
        let answers = self.virsh.ask(&["list --all --uuid --id --name".into()])?;
        let all = listed(answers[0].text()?)?;
        let mut found = vec![];
        for some in all.chunks(AT_ONCE) {
            let ask: Vec<String> = some
                .iter()
                .flat_map(|l| {
                    let uuid = quoted(&l.uuid);
                    [
                        format!("dumpxml {uuid}"),
                        format!("dumpxml --inactive {uuid}"),
                    ]
                })
                .collect();
            for answer in self.virsh.ask(&ask)? {
                found.push(Domain::of_xml(answer.text()?)?);
            }
        }
        Ok(found)
    }

    /// Runs an order that reads this text from a file.
    fn with_text(
        &self,
        text: &str,
        order: impl FnOnce(&str) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        // Each name is used once, so a late process cannot read the text of another order.
        static ORDERS: AtomicU64 = AtomicU64::new(0);
        let order_number = ORDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{TEXT}{}-{order_number}.xml", std::process::id());
        let orders = self.virsh.orders.as_ref();
        let none = "the agent has no directory for the input of virsh";
        let none = || Refusal::Said(AgentError::Unsupported(none.into()));
        let path = orders.ok_or_else(none)?.dir.join(name);
        // A definition may contain passwords.
        let mut file = OpenOptions::new();
        file.create(true).write(true).truncate(true).mode(0o600);
        let written = file
            .open(&path)
            .and_then(|mut f| f.write_all(text.as_bytes()));
        let written = written.map_err(file_error("cannot write", &path));
        written.map_err(Refusal::Said)?;
        let done = order(&path.to_string_lossy());
        let _ = fs::remove_file(&path);
        done
    }
}

impl MoveOperations for LibvirtOperations<'_> {
    fn look(&mut self, intent: &Intent) -> Result<Sight> {
        let uuid = quoted(&intent.uuid);
        let ask = [
            "list --all --uuid".to_owned(),
            format!("dominfo {uuid}"),
            format!("dumpxml {uuid}"),
            format!("dumpxml --inactive {uuid}"),
            format!("domstate {uuid}"),
            format!("blockjob {uuid} {} --raw --bytes", quoted(&intent.target)),
        ];
        let answers = self.virsh.ask(&ask)?;
        let [all, info, live, inactive, state, job] = &answers[..] else {
            return Err(incomplete());
        };
        // An empty list may be an answer that is missing.
        let all = all.text()?;
        let info = info.some();
        if info.is_none() && !names(all, &intent.uuid) {
            return match self.virsh.ask(&["list --all --uuid".into()])?[0].text()? {
                again if names(again, &intent.uuid) => Err(AgentError::Changed(
                    "its domain starts and stops repeatedly".into(),
                )),
                _ => Ok(Sight::without_job(LiveDomain::Off, Definition::None)),
            };
        }
        let directory_of = |pool: &str| self.directory_of(pool);
        let read = |answer: &Answer| answer.some().map(Domain::of_xml);
        let live = match read(live).transpose()? {
            None => LiveDomain::Unknown,
            // For a domain that does not run, libvirt returns the persistent definition.
            Some(domain) if domain.id.is_none() => LiveDomain::Off,
            Some(domain) => LiveDomain::of(
                &self.running.with_life(domain),
                &intent.target,
                directory_of,
            ),
        };
        let mut lines = info.unwrap_or("").lines();
        let persistent = lines.find_map(|l| l.strip_prefix("Persistent:"));
        let definition = match (persistent.map(str::trim), read(inactive).transpose()?) {
            (Some("yes"), Some(domain)) => Definition::of(&domain, intent, directory_of),
            (Some("no"), _) => Definition::None,
            _ => Definition::Unknown,
        };
        let runs = state.some() == Some("running");
        let job = job.some().unwrap_or("");
        let number = |key: &str| {
            let mut lines = job.lines().filter_map(|l| l.trim().strip_prefix(key));
            lines.next()?.parse::<u64>().ok()
        };
        let progress = number("cur=").zip(number("end="));
        Ok(Sight {
            live,
            definition,
            runs,
            progress: progress.map(|(cur, end)| (cur, end.saturating_sub(cur))),
            failed: None,
        })
    }

    fn begin(&mut self, intent: &Intent) -> Result<(), Refusal> {
        let rate = intent.rate_bytes_per_s.to_string();
        self.with_text(&copy_target(&intent.to), |path| {
            let words = [
                "blockcopy",
                &intent.uuid,
                &intent.target,
                "--xml",
                path,
                "--transient-job",
                "--synchronous-writes",
                "--bandwidth",
                &rate,
                "--bytes",
                "--reuse-external",
            ];
            self.virsh.order(&words).map(|_| ())
        })
    }

    fn set_rate(&mut self, intent: &Intent, rate_bytes_per_s: u64) -> Result<()> {
        let rate = rate_bytes_per_s.to_string();
        let (uuid, target) = (&intent.uuid, &intent.target);
        self.order(&["blockjob", uuid, target, "--bandwidth", &rate, "--bytes"])
    }

    fn pause(&mut self, intent: &Intent) -> Result<Rest> {
        match self.state(intent)?.as_deref() {
            None => Ok(Rest::Off),
            Some(state) if state.starts_with("running") => {
                // After a successful command the domain is paused.
                self.order(&["suspend", &intent.uuid])?;
                Ok(Rest::Ours)
            }
            Some("paused (user)") if intent.held => Ok(Rest::Ours),
            Some(state) if state.starts_with("paused") => Ok(Rest::Others),
            Some(state) => Err(AgentError::Changed(format!("the domain is {state}"))),
        }
    }

    fn resume(&mut self, intent: &Intent, just_now: bool) -> Result<()> {
        if just_now && self.order(&["resume", &intent.uuid]).is_ok() {
            return Ok(());
        }
        if self.state(intent)?.as_deref() != Some("paused (user)") {
            return Ok(()); // it runs, is off, or is paused for another reason
        }
        self.order(&["resume", &intent.uuid])
    }

    fn user_of(&mut self, image: &ImageLocation) -> Result<Option<String>> {
        let all = self.everybody()?;
        let names_it = |d: &&Domain| {
            let at = |disk: &Disk| disk.source.at(|pool| self.directory_of(pool));
            let below = d.below.iter().cloned().map(ImageLocation::File);
            let mut images = d.disks.iter().filter_map(at).chain(below);
            images.any(|other| is_same(&other, image))
        };
        Ok(all.iter().find(names_it).map(|d| d.name.clone()))
    }

    fn abort(&mut self, intent: &Intent) -> Result<()> {
        self.order(&["blockjob", &intent.uuid, &intent.target, "--abort"])
    }

    fn pivot(&mut self, intent: &Intent) -> Result<LiveDomain, Refusal> {
        let (uuid, target) = (quoted(&intent.uuid), quoted(&intent.target));
        // Use one process for both commands, because the guest is paused.
        let order = format!("blockjob {uuid} {target} --pivot");
        let answer = self
            .virsh
            .order_and_ask(&order, &format!("dumpxml {uuid}"))?;
        let domain = Domain::of_xml(&answer).map_err(|e| Refusal::Silent(e.into()))?;
        let directory_of = |pool: &str| self.directory_of(pool);
        Ok(LiveDomain::of(
            &self.running.with_life(domain),
            &intent.target,
            directory_of,
        ))
    }

    fn define(&mut self, intent: &Intent, seen: &Definition, image: &Image) -> Result<()> {
        let dump = ["dumpxml", "--inactive", "--security-info", &intent.uuid];
        let text = self.virsh.order(&dump)?;
        let domain = Domain::of_xml(text.trim())?;
        if Definition::of(&domain, intent, |pool| self.directory_of(pool)) != *seen {
            return Err(AgentError::Changed(
                "the domain's definition has just been changed".into(),
            ));
        }
        let text = with_image(text.trim(), &intent.target, image)?;
        let define = |path: &str| self.virsh.order(&["define", path]).map(|_| ());
        Ok(self.with_text(&text, define)?)
    }
}

/// Returns true if a list of UUIDs contains this one.
fn names(list: &str, uuid: &str) -> bool {
    list.lines().any(|l| l.trim() == uuid)
}
