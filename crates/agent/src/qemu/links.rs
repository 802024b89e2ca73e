//! The machines of a host, by their sockets.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vmhost::builds::{Build, By, Version};
use vmhost::qemu::{self, Machine, Options};
use vmhost::{At, DiskFacts, Domain, DomainStats, Fixed, Known, Metadata};

use super::monitor::{Missing, Monitor, short};
use crate::images;
use crate::life::Life;
use crate::moves::Refusal;
use crate::program;

/// A socket that could not be used is tried again after this time, unless something moves there and is looked at before.
const AGAIN: Duration = Duration::from_secs(10);
/// Endings of sockets' names.
const ENDINGS: [&str; 2] = [".qmp", ".sock"];

/// One that may run.
pub(super) struct Link {
    path: PathBuf,
    monitor: Option<Monitor>,
    /// The process that was seen last.
    life: Option<Life>,
    /// When it was found not to be usable, and why.
    failed: Option<(Instant, String)>,
    /// Disks whose histograms cannot be had.
    uncountable: Vec<String>,
}

/// How a machine is.
pub(super) enum Reached {
    /// It does not run.
    Off,
    /// It runs.
    On(Machine),
    /// Nobody can say.
    Unknown(String),
}

/// A machine that runs, as an inventory has it.
pub(super) struct Read {
    pub known: Known,
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

    /// Which sockets there are, by the names of their machines.
    ///
    /// # Errors
    /// Why the directory cannot be read.
    pub(super) fn find(&mut self) -> Result<Vec<String>, String> {
        let said = |e| format!("{}: {e}", self.dir.display());
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&self.dir).map_err(said)? {
            let path = entry.map_err(said)?.path();
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
            let stem = ENDINGS.iter().find_map(|e| name.strip_suffix(e));
            if let Some(stem) = stem.filter(|s| !s.is_empty()) {
                // Of two the first: there is one session with each machine.
                found
                    .entry(stem.to_owned())
                    .and_modify(|p: &mut PathBuf| *p = p.clone().min(path.clone()))
                    .or_insert(path);
            }
        }
        // One whose socket was removed while it runs has not ended.
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

    /// The session with a machine, whether its socket is there or not.
    pub(super) fn link(&mut self, name: &str) -> &mut Link {
        let path = self.dir.join(format!("{name}{}", ENDINGS[0]));
        self.links
            .entry(name.into())
            .or_insert_with(|| Link::new(path))
    }

    /// A machine as it is now, in the life of a domain that was seen.
    ///
    /// # Errors
    /// It does not run any more, or nobody can say.
    pub(super) fn machine(&mut self, domain: &Domain) -> Result<Machine, String> {
        let link = self.link(&domain.name);
        match link.look() {
            Reached::On(machine) if link.life() == domain.id => Ok(machine),
            Reached::On(_) | Reached::Off => Err("the machine is no longer running".into()),
            Reached::Unknown(why) => Err(why),
        }
    }

    /// Takes back all that was set.
    pub(super) fn give_back(&mut self) {
        for link in self.links.values_mut().filter(|l| l.monitor.is_some()) {
            if let Reached::On(machine) = link.look() {
                for id in machine.counted() {
                    // One that is gone has no histogram either.
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

    fn monitor(&mut self) -> Result<&mut Monitor, Missing> {
        if self.monitor.is_none() {
            let opened = Monitor::open(&self.path);
            let opened = opened.map_err(|missing| match (missing, self.life) {
                (Missing::Nobody, Some(life)) if life.goes_on() => Missing::Unknown(format!(
                    "{}: the socket no longer exists, but its QEMU is running",
                    self.path.display()
                )),
                (missing, _) => missing,
            })?;
            self.life = opened.life;
            self.uncountable.clear();
            self.monitor = Some(opened);
        }
        match &mut self.monitor {
            Some(monitor) => Ok(monitor),
            None => Err(Missing::Nobody),
        }
    }

    /// The machine now.
    pub(super) fn look(&mut self) -> Reached {
        let mut why = String::new();
        // A session may be of a QEMU that was there before.
        for _ in 0..2 {
            let monitor = match self.monitor() {
                Ok(monitor) => monitor,
                Err(Missing::Nobody) => return Reached::Off,
                Err(Missing::Unknown(why)) => return Reached::Unknown(why),
            };
            let queries = qemu::queries();
            let answers = match monitor.ask(&queries) {
                Ok(answers) => answers,
                Err(e) => {
                    self.monitor = None;
                    why = format!("{}: {e}", self.path.display());
                    continue;
                }
            };
            let said = |e: String| Reached::Unknown(format!("{}: {e}", self.path.display()));
            let mut values: [Value; 7] = Default::default();
            for ((value, answer), (name, _)) in values.iter_mut().zip(answers).zip(&queries) {
                match answer {
                    Ok(answer) => *value = answer,
                    Err(e) => return said(format!("{name}: {}", short(&e.desc))),
                }
            }
            return match Machine::of(&values) {
                Ok(machine) => {
                    self.failed = None;
                    Reached::On(machine)
                }
                Err(e) => said(e.to_string()),
            };
        }
        Reached::Unknown(why)
    }

    /// Carries out one command.
    pub(super) fn order(&mut self, name: &'static str, arguments: Value) -> Result<Value, Refusal> {
        let said = |missing| match missing {
            Missing::Nobody => "the machine is not running".to_owned(),
            Missing::Unknown(why) => why,
        };
        // What could not be sent cannot be carried out.
        let monitor = self.monitor().map_err(|m| Refusal::Said(said(m)))?;
        let result = monitor.order(name, arguments);
        if matches!(result, Err(Refusal::Silent(_))) {
            self.monitor = None;
        }
        result
    }

    /// What is known of the nodes of a disk's image.
    pub(super) fn options(&self, machine: &Machine, target: &str) -> Options {
        let line = self.monitor.as_ref().map(|m| &*m.command_line);
        let names = machine.names_of(target);
        names.map_or(Options::default(), |names| {
            Options::of(line.unwrap_or_default(), names)
        })
    }

    /// A number of its process; none where it cannot be seen from here.
    pub(super) fn life(&self) -> Option<u32> {
        let monitor = self.monitor.as_ref();
        monitor.and_then(|m| m.life).map(Life::number)
    }

    /// Whose files QEMU's are, if a session is there.
    pub(super) fn owner(&self) -> Option<(u32, u32)> {
        self.monitor.as_ref().map(|m| m.owner)
    }

    /// The machine as an inventory has it; none if it does not run. `counts` switches its histograms on.
    ///
    /// # Errors
    /// Why nobody can say.
    pub(super) fn read(&mut self, name: &str, counts: bool) -> Result<Option<Read>, String> {
        if let Some((at, why)) = &self.failed
            && at.elapsed() < AGAIN
        {
            return Err(why.clone());
        }
        self.failed = None;
        let mut machine = match self.look() {
            Reached::Off => return Ok(None),
            Reached::On(machine) => machine,
            Reached::Unknown(why) => {
                self.failed = Some((Instant::now(), why.clone()));
                return Err(why);
            }
        };
        if counts
            && self.count(&machine)
            && let Reached::On(again) = self.look()
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
            let info = match at.as_ref().and_then(At::file) {
                Some(path) => images::plain(path),
                None => Ok(()),
            };
            let seen = machine.info_of(&disk.target)?.clone();
            let facts = DiskFacts {
                info: info.map(|()| seen),
                named_by: None,
                renamable: at.as_ref().is_none_or(images::is_renamable),
                storage: at.as_ref().and_then(At::device).map(|_| Fixed::BlockDevice),
            };
            Some((disk.target.clone(), facts))
        });
        let disks = facts.collect();
        let known = Known {
            domain,
            id,
            build: program::with_record(&build, By::Us),
            metadata: Ok(Metadata::default()),
            disks,
        };
        Ok(Some(Read { known, stats }))
    }

    /// Has the latencies of disks counted that nobody counts; whether any was not before.
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
