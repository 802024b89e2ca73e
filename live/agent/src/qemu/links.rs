//! Sessions with the QEMU processes of a host, one per socket.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vmhost::builds::{Build, CopyInitiator, Version};
use vmhost::qemu::{self, Machine, Options};
use vmhost::{
    DiskFacts, Domain, DomainStats, HostError, ImageLocation, Metadata, RunningDomain, StayReason,
};

use super::monitor::{MissingSession, Monitor, refused};
use crate::error::{AgentError, Result, file_error, in_context};
use crate::images;
use crate::life::Life;
use crate::moves::Refusal;
use crate::program;

/// Pause after a failed use of a socket. Looks for moves ignore it.
const AGAIN: Duration = Duration::from_secs(10);
/// Endings of the sockets' names.
const ENDINGS: [&str; 2] = [".qmp", ".sock"];

/// Socket of a machine that may run, and the session with it.
pub(super) struct Link {
    path: PathBuf,
    monitor: Option<Monitor>,
    /// Process at the last look.
    life: Option<Life>,
    /// Time and reason of the last failure.
    failed: Option<(Instant, String)>,
    /// Disks without available histograms.
    uncountable: Vec<String>,
}

/// State of a machine.
pub(super) enum MachineState {
    /// Not running.
    Off,
    /// Running.
    On(Machine),
    /// Unknown, with the reason.
    Unknown(AgentError),
}

/// Running machine, as an inventory has it.
pub(super) struct Read {
    pub known: RunningDomain,
    pub stats: DomainStats,
}

pub(super) struct Links {
    dir: PathBuf,
    links: BTreeMap<String, Link>,
}

impl Links {
    pub(super) fn new(dir: PathBuf) -> Self {
        let links = BTreeMap::new();
        Self { dir, links }
    }

    /// Finds the sockets. Returns the names of their machines.
    ///
    /// # Errors
    /// The directory cannot be read; the error has the reason.
    pub(super) fn find(&mut self) -> Result<Vec<String>> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&self.dir).map_err(file_error("", &self.dir))? {
            let path = entry.map_err(file_error("", &self.dir))?.path();
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
            let stem = ENDINGS.iter().find_map(|e| name.strip_suffix(e));
            if let Some(stem) = stem.filter(|s| !s.is_empty()) {
                // One session per machine: the first of two sockets is used.
                found
                    .entry(stem.to_owned())
                    .and_modify(|p: &mut PathBuf| *p = p.clone().min(path.clone()))
                    .or_insert(path);
            }
        }
        // A machine whose socket was removed may still run.
        self.links.retain(|name, link| match found.get(name) {
            Some(path) => *path == link.path,
            None => link.life.is_some_and(Life::goes_on),
        });
        for (name, path) in &found {
            self.links
                .entry(name.clone())
                .or_insert_with(|| Link::new(path.clone()));
        }
        Ok(found.into_keys().collect())
    }

    /// Returns the session with a machine, even if its socket is missing.
    pub(super) fn link(&mut self, name: &str) -> &mut Link {
        let path = self.dir.join(format!("{name}{}", ENDINGS[0]));
        self.links
            .entry(name.into())
            .or_insert_with(|| Link::new(path))
    }

    /// Returns the present state of a machine, provided that it is in the life of the given domain.
    ///
    /// # Errors
    /// The machine no longer runs, or its state cannot be determined.
    pub(super) fn machine(&mut self, domain: &Domain) -> Result<Machine> {
        let link = self.link(&domain.name);
        match link.look() {
            MachineState::On(machine) if link.life() == domain.id => Ok(machine),
            MachineState::On(_) | MachineState::Off => Err(AgentError::Changed(
                "the machine is no longer running".into(),
            )),
            MachineState::Unknown(why) => Err(why),
        }
    }

    /// Disables the histograms that this agent enabled.
    pub(super) fn give_back(&mut self) {
        for link in self.links.values_mut().filter(|l| l.monitor.is_some()) {
            if let MachineState::On(machine) = link.look() {
                for id in machine.counted() {
                    // A device that no longer exists has no histogram either.
                    let _ = link.order("block-latency-histogram-set", json!({ "id": id }));
                }
            }
        }
    }
}

impl Link {
    fn new(path: PathBuf) -> Self {
        Self {
            path,
            monitor: None,
            life: None,
            failed: None,
            uncountable: vec![],
        }
    }

    fn monitor(&mut self) -> Result<&mut Monitor, MissingSession> {
        if self.monitor.is_none() {
            let opened = Monitor::open(&self.path);
            let opened = opened.map_err(|missing| match (missing, self.life) {
                (MissingSession::Nobody, Some(life)) if life.goes_on() => {
                    MissingSession::Unknown(AgentError::Changed(format!(
                        "{}: the socket no longer exists, but its QEMU is running",
                        self.path.display()
                    )))
                }
                (missing, _) => missing,
            })?;
            self.life = opened.life;
            self.uncountable.clear();
            self.monitor = Some(opened);
        }
        match &mut self.monitor {
            Some(monitor) => Ok(monitor),
            None => Err(MissingSession::Nobody),
        }
    }

    /// Returns the present state of the machine.
    pub(super) fn look(&mut self) -> MachineState {
        let mut why = AgentError::Silent(String::new());
        // The session may be that of an earlier QEMU process: connect again once.
        for _ in 0..2 {
            let monitor = match self.monitor() {
                Ok(monitor) => monitor,
                Err(MissingSession::Nobody) => return MachineState::Off,
                Err(MissingSession::Unknown(why)) => return MachineState::Unknown(why),
            };
            let queries = qemu::queries();
            let answers = match monitor.ask(&queries) {
                Ok(answers) => answers,
                Err(e) => {
                    self.monitor = None;
                    why = in_context(self.path.display())(e);
                    continue;
                }
            };
            let said = |e: AgentError| MachineState::Unknown(in_context(self.path.display())(e));
            let mut values: [Value; 7] = Default::default();
            for ((value, answer), (name, _)) in values.iter_mut().zip(answers).zip(&queries) {
                match answer {
                    Ok(answer) => *value = answer,
                    Err(e) => return said(refused(name, &e)),
                }
            }
            return match Machine::of(&values) {
                Ok(machine) => {
                    self.failed = None;
                    MachineState::On(machine)
                }
                Err(e) => said(e.into()),
            };
        }
        MachineState::Unknown(why)
    }

    /// Carries out one command.
    pub(super) fn order(&mut self, name: &'static str, arguments: Value) -> Result<Value, Refusal> {
        let said = |missing| match missing {
            MissingSession::Nobody => AgentError::Changed("the machine is not running".into()),
            MissingSession::Unknown(why) => why,
        };
        // A command that was not sent cannot be carried out later.
        let monitor = self.monitor().map_err(|m| Refusal::Said(said(m)))?;
        let result = monitor.order(name, arguments);
        if matches!(result, Err(Refusal::Silent(_))) {
            self.monitor = None;
        }
        result
    }

    /// Returns the options of the nodes of a disk's image, as far as they are known.
    pub(super) fn options(&self, machine: &Machine, target: &str) -> Options {
        let line = self.monitor.as_ref().map(|m| &*m.command_line);
        let names = machine.names_of(target);
        names.map_or(Options::default(), |names| {
            Options::of(line.unwrap_or_default(), names)
        })
    }

    /// Returns the number of the process's life; `None` if the process is not visible to the agent.
    pub(super) fn life(&self) -> Option<u32> {
        let monitor = self.monitor.as_ref();
        monitor.and_then(|m| m.life).map(Life::number)
    }

    /// Returns the user and group of QEMU, if there is a session.
    pub(super) fn owner(&self) -> Option<(u32, u32)> {
        self.monitor.as_ref().map(|m| m.owner)
    }

    /// Returns the machine for an inventory; `None` if it does not run. `counts` enables its histograms.
    ///
    /// # Errors
    /// The state cannot be determined; the error has the reason.
    pub(super) fn read(&mut self, name: &str, counts: bool) -> Result<Option<Read>> {
        if let Some((at, why)) = &self.failed
            && at.elapsed() < AGAIN
        {
            return Err(AgentError::Silent(why.clone()));
        }
        self.failed = None;
        let mut machine = match self.look() {
            MachineState::Off => return Ok(None),
            MachineState::On(machine) => machine,
            MachineState::Unknown(why) => {
                self.failed = Some((Instant::now(), why.to_string()));
                return Err(why);
            }
        };
        if counts
            && self.count(&machine)
            && let MachineState::On(again) = self.look()
        {
            machine = again;
        }
        let Some(monitor) = &self.monitor else {
            return Ok(None);
        };
        let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let version = &monitor.version;
        let numbers = [version.major, version.minor, version.micro].map(number);
        let [major, minor, micro] = numbers;
        let build = Build {
            id: monitor.build_id.clone(),
            ..Build::new(Version::new(major, minor, micro), &version.package)
        };
        let id = monitor.life.map_or(0, Life::number);
        let options = |target: &str| self.options(&machine, target);
        let (domain, stats) = machine.domain(name, id, &version.package, options);
        let facts = domain.disks.iter().filter_map(|disk| {
            let at = disk.source.at(|_| None);
            let info = match at.as_ref().and_then(ImageLocation::file) {
                Some(path) => images::plain(path),
                None => Ok(()),
            };
            let seen = machine.info_of(&disk.target)?.clone();
            let facts = DiskFacts {
                info: info.map(|()| seen).map_err(HostError::unread),
                named_by: None,
                renamable: at.as_ref().is_none_or(images::is_renamable),
                storage: at
                    .as_ref()
                    .and_then(ImageLocation::device)
                    .map(|_| StayReason::BlockDevice),
            };
            Some((disk.target.clone(), facts))
        });
        let disks = facts.collect();
        let known = RunningDomain {
            domain,
            id,
            build: program::with_record(&build, CopyInitiator::Us).map_err(HostError::unread),
            metadata: Ok(Metadata::default()),
            disks,
        };
        Ok(Some(Read { known, stats }))
    }

    /// Enables the latency histograms of disks that have none. Returns true if any was enabled.
    fn count(&mut self, machine: &Machine) -> bool {
        let mut any = false;
        for id in machine.uncounted() {
            if self.uncountable.contains(&id) {
                continue;
            }
            let arguments = json!({ "id": id, "boundaries": qemu::bounds() });
            match self.order("block-latency-histogram-set", arguments) {
                Ok(_) => any = true,
                Err(_) => self.uncountable.push(id),
            }
        }
        any
    }
}
