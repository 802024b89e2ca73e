//! Temporary limits of disks. The previous limits are recorded and restored.
//!
//! A hypervisor's limits do not expire and have no owner. The previous and the new limits are therefore written to a
//! file before any change. If an agent is killed, the next one restores the previous limits. It does not if another
//! program has set other limits, or if the domain was restarted with those of its definition.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use manager::agent::Snapshot;
use manager::limited::TimedThrottle;
use manager::wire::Throttle;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use vmhost::{Disk, Domain, Limits, volume_name};

use crate::error::{AgentError, Result, file_error};
use crate::machines::{AllLimits, Hypervisor};
use crate::moves::{boot, read_kept, remove_durably, save_durably};

/// Ending of the files' names.
pub(crate) const ENDING: &str = ".throttle.json";
const FORM: u32 = 1;
/// Time after which an expired limit is forgotten if its domain has disappeared.
const FORGOTTEN_NS: u64 = 86_400_000_000_000;

/// Temporary limit of a disk, and its previous limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TemporaryLimit {
    form: u32,
    volume: String,
    uuid: String,
    target: String,
    /// Life of the domain and boot ID of the host.
    life: u32,
    boot: String,
    before: Limits,
    /// Limits that may be in force, the newest last.
    set: Vec<Limits>,
    /// End of the limit by the host's boot-time clock.
    #[serde(flatten)]
    limited: TimedThrottle,
}

/// UUID of a domain and target of its disk, independent of their present names.
type Key = (String, String);

/// Temporary limits, in a directory that one agent uses.
pub(crate) struct Throttles {
    dir: PathBuf,
    boot: String,
    lent: BTreeMap<Key, TemporaryLimit>,
    /// Disks whose ordered limits were seen in force.
    seen: BTreeSet<Key>,
    /// Disks of running domains in the life of their limit, by the names of their volumes.
    named: BTreeMap<String, Key>,
}

impl Throttles {
    /// Reads the recorded limits of an existing directory that this agent uses.
    ///
    /// # Errors
    /// A file cannot be read, so its limits could not be restored.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let boot = boot().ok_or_else(no_boot)?;
        let mut lent = BTreeMap::new();
        for entry in fs::read_dir(dir).map_err(file_error("", dir))? {
            let path = entry.map_err(file_error("", dir))?.path();
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
            if name.ends_with(ENDING) {
                let so = "it records the limits of a disk, which could not be restored";
                let found: TemporaryLimit = read_kept(&path, FORM, so)?;
                lent.insert(found.key(), found);
            }
        }
        Ok(Self {
            dir: dir.into(),
            boot,
            lent,
            seen: BTreeSet::new(),
            named: BTreeMap::new(),
        })
    }

    /// Returns the path of a limit's file. Names of domains and disks may have any characters, so all but letters and
    /// digits are encoded by their numbers.
    fn file(&self, lent: &TemporaryLimit) -> PathBuf {
        let of = format!("{} {}", lent.uuid, lent.target);
        let name = of.chars().map(|c| match c.is_ascii_alphanumeric() {
            true => c.to_string(),
            false => format!("-{:x}-", u32::from(c)),
        });
        self.dir.join(name.collect::<String>() + ENDING)
    }

    /// Adds the limits in force to a snapshot.
    pub(crate) fn tell(&self, snapshot: &mut Snapshot) {
        let now_ns = now_ns();
        for v in &mut snapshot.volumes {
            let key = self.named.get(&v.name).filter(|k| self.seen.contains(*k));
            let lent = key.and_then(|k| self.lent.get(k));
            v.throttle = lent.and_then(|l| l.limited.left(now_ns));
        }
    }

    /// Limits a disk. It replaces an earlier temporary limit.
    ///
    /// # Errors
    /// The limit was not set; the error has the reason.
    pub(crate) fn begin(
        &mut self,
        hypervisor: &mut dyn Hypervisor,
        (domain, disk): (&Domain, &Disk),
        volume: &str,
        to: Throttle,
    ) -> Result<()> {
        if let Some(platform) = domain.platform {
            return Err(AgentError::Refused(format!(
                "{platform} owns its domain: limit the disk with the tools of that platform"
            )));
        }
        if let Some(why) = &disk.stays {
            return Err(AgentError::Refused(why.clone()));
        }
        let life = domain.id.filter(|id| *id != 0).ok_or_else(no_life)?;
        let limits = hypervisor.limits(domain)?;
        let now = of(&limits, &disk.target)?;
        let mut others = limits.iter().filter(|(target, _)| **target != disk.target);
        let shares = |l: &Result<Limits>| l.as_ref().is_ok_and(|l| l.is_shared_with(now));
        if let Some((other, _)) = others.find(|(_, l)| shares(l)) {
            let why = format!("it shares its limits with {other}");
            return Err(AgentError::InUse(why));
        }
        let key = (domain.uuid.clone(), disk.target.clone());
        let earlier = self.lent.get(&key);
        let earlier = earlier.filter(|l| l.life == life && l.boot == self.boot && l.is_ours(now));
        let before = earlier.map_or(now, |l| &l.before).clone();
        let set = before.lowered(to.iops, to.bandwidth_bytes_per_s);
        let mut all = earlier.map_or(vec![], |l| l.set.clone());
        all.push(set.clone());
        let mut lent = TemporaryLimit {
            form: FORM,
            volume: volume.into(),
            uuid: domain.uuid.clone(),
            target: disk.target.clone(),
            life,
            boot: self.boot.clone(),
            before,
            set: all,
            limited: TimedThrottle::of(to, now_ns()),
        };
        self.seen.remove(&key);
        self.save(&lent)?;
        let limited = hypervisor.limit(domain, &disk.target, &set);
        // If the domain was restarted since the last look, the new limits apply to its new life. Its previous limits
        // are those of its definition then.
        let now = hypervisor.life(domain);
        match (limited, now) {
            (Ok(()), Some(now)) if now == life => {
                lent.set = vec![set];
                self.save(&lent)?;
                self.named.insert(volume.into(), key.clone());
                self.seen.insert(key);
                Ok(())
            }
            (limited, now) => {
                // A limit that was refused or is uncertain is not reported as in force, and is restored at the next
                // look.
                lent.limited.until_ns = 0;
                lent.life = now.unwrap_or(life);
                self.save(&lent)?;
                limited?;
                Err(AgentError::Changed(
                    "its machine was restarted at that moment".into(),
                ))
            }
        }
    }

    fn save(&mut self, lent: &TemporaryLimit) -> Result<()> {
        save_durably(&self.file(lent), lent)?;
        self.lent.insert(lent.key(), lent.clone());
        Ok(())
    }

    /// Marks the limits of a disk for restoration at the next look.
    ///
    /// # Errors
    /// The mark cannot be recorded.
    pub(crate) fn end(&mut self, volume: &str) -> Result<()> {
        let lent = self.named.get(volume).and_then(|k| self.lent.get(k));
        let Some(mut lent) = lent.cloned() else {
            return Ok(());
        };
        lent.limited.until_ns = 0;
        self.save(&lent)
    }

    /// Marks all limits for restoration.
    pub(crate) fn end_all(&mut self) {
        for lent in self.lent.values_mut() {
            lent.limited.until_ns = 0;
        }
    }

    /// Restores expired limits. Returns news for operators, and faults.
    pub(crate) fn beat(
        &mut self,
        hypervisor: &mut dyn Hypervisor,
        domains: &[Domain],
    ) -> (Vec<String>, Vec<String>) {
        let (mut news, mut faults) = (vec![], vec![]);
        self.named.clear();
        for lent in self.lent.values().cloned().collect::<Vec<_>>() {
            let domain = domains.iter().find(|d| d.uuid == lent.uuid);
            if let Err(why) = self.look_after(hypervisor, domain, &lent, &mut news) {
                let volume = &lent.volume;
                faults.push(format!("the limits of {volume} were not restored: {why}"));
            }
        }
        (news, faults)
    }

    /// Restores a limit if it has expired. Otherwise it checks that the limit is in force, if that was not checked yet.
    fn look_after(
        &mut self,
        hypervisor: &mut dyn Hypervisor,
        domain: Option<&Domain>,
        lent: &TemporaryLimit,
        news: &mut Vec<String>,
    ) -> Result<()> {
        let now_ns = now_ns();
        let over = lent.limited.until_ns <= now_ns;
        if lent.boot != self.boot {
            return self.forget(lent);
        }
        let Some(domain) = domain else {
            // The domain has probably ended. If it returns, its limit is checked again.
            self.seen.remove(&lent.key());
            return match lent.limited.until_ns.saturating_add(FORGOTTEN_NS) <= now_ns {
                true => self.forget(lent),
                false => Ok(()),
            };
        };
        match domain.id.filter(|id| *id != 0) {
            None if over => return Err(no_life()),
            None => return Ok(()),
            Some(life) if life != lent.life => return self.forget(lent),
            Some(_) => {}
        }
        let volume = volume_name(&domain.name, &lent.target);
        self.named.insert(volume, lent.key());
        if over {
            news.extend(give_back(hypervisor, domain, lent)?);
            return self.forget(lent);
        }
        if self.seen.contains(&lent.key()) {
            return Ok(());
        }
        let limits = hypervisor.limits(domain)?;
        let is_so = of(&limits, &lent.target)?;
        if lent.set.last().is_some_and(|set| set.is_as(is_so)) {
            self.seen.insert(lent.key());
        }
        Ok(())
    }

    fn forget(&mut self, lent: &TemporaryLimit) -> Result<()> {
        remove_durably(&self.file(lent))?;
        self.lent.remove(&lent.key());
        self.seen.remove(&lent.key());
        Ok(())
    }
}

impl TemporaryLimit {
    fn key(&self) -> Key {
        (self.uuid.clone(), self.target.clone())
    }

    /// Returns true if the limits are the previous ones or were set by this agent.
    fn is_ours(&self, now: &Limits) -> bool {
        self.before.is_as(now) || self.set.iter().any(|set| set.is_as(now))
    }
}

/// Restores the previous limits of a disk. Returns a message for the operator if another program has changed them.
fn give_back(
    hypervisor: &mut dyn Hypervisor,
    domain: &Domain,
    lent: &TemporaryLimit,
) -> Result<Option<String>> {
    let limits = hypervisor.limits(domain)?;
    if !limits.contains_key(&lent.target) {
        return Ok(None); // the disk no longer exists
    }
    let now = of(&limits, &lent.target)?;
    if lent.before.is_as(now) {
        return Ok(None);
    }
    if !lent.is_ours(now) {
        let volume = &lent.volume;
        return Ok(Some(format!(
            "another program has changed the limits of {volume}: they are kept"
        )));
    }
    hypervisor.limit(domain, &lent.target, &lent.before)?;
    Ok(None)
}

fn of<'a>(limits: &'a AllLimits, target: &str) -> Result<&'a Limits> {
    let none = || AgentError::Unknown("the hypervisor does not report its limits".into());
    let limits = limits.get(target).ok_or_else(none)?;
    limits
        .as_ref()
        .map_err(|e| AgentError::Unknown(e.to_string()))
}

/// Returns the error of a host without an identity of its present start.
pub(crate) fn no_boot() -> AgentError {
    AgentError::Unknown("the host has no boot ID".into())
}

/// Returns the error of a domain whose life is unknown.
fn no_life() -> AgentError {
    AgentError::Unknown("its process is not visible to the agent".into())
}

/// Returns the time since the start of the host, including suspended time.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
