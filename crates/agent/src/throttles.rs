//! Limits of disks for a time: what a hypervisor kept them to before is written down, and given back.
//!
//! A hypervisor's limits have no end and no owner. So a file says, before anything is changed, what there was and what is set: whatever is killed
//! then, the next agent gives it back, unless somebody else has set other limits meanwhile, or the domain has begun anew with those of its definition.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use manager::agent::Snapshot;
use manager::limited::Limited;
use manager::wire::Throttle;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use vmhost::{Disk, Domain, Limits, volume_name};

use crate::machines::{AllLimits, Hypervisor};
use crate::moves::{boot, read_kept, remove_durably, save_durably};

/// Ends the names of the files.
pub(crate) const ENDING: &str = ".throttle.json";
const FORM: u32 = 1;
/// What is over for so long, of a domain that is not seen any more, is forgotten.
const FORGOTTEN_NS: u64 = 86_400_000_000_000;

/// What a disk is limited to, and was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Lent {
    form: u32,
    volume: String,
    uuid: String,
    target: String,
    /// The domain's life, and the host's.
    life: u32,
    boot: String,
    before: Limits,
    /// What may be set, the newest last.
    set: Vec<Limits>,
    /// By the host's clock since it was started.
    #[serde(flatten)]
    limited: Limited,
}

/// A disk of a domain, whatever they are called now.
type Key = (String, String);

/// All of them, in a directory that one agent has.
pub(crate) struct Throttles {
    dir: PathBuf,
    boot: String,
    lent: BTreeMap<Key, Lent>,
    /// Those whose limits were seen to be what was ordered.
    seen: BTreeSet<Key>,
    /// Disks of domains that run in the life of their limit, by the names of their volumes.
    named: BTreeMap<String, Key>,
}

impl Throttles {
    /// Those that are written down in a directory, which is there and this agent's.
    ///
    /// # Errors
    /// One cannot be read: what it says would not be given back.
    pub(crate) fn open(dir: &Path) -> Result<Self, String> {
        let boot = boot().ok_or("the host has no boot ID")?;
        let mut lent = BTreeMap::new();
        for entry in fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))? {
            let path = entry.map_err(|e| format!("{}: {e}", dir.display()))?.path();
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
            if name.ends_with(ENDING) {
                let so = "it records the limits of a disk, which could not be restored";
                let found: Lent = read_kept(&path, FORM, so)?;
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

    /// Domains and disks may be called anything: so what is no letter becomes its number.
    fn file(&self, lent: &Lent) -> PathBuf {
        let of = format!("{} {}", lent.uuid, lent.target);
        let name = of.chars().map(|c| match c.is_ascii_alphanumeric() {
            true => c.to_string(),
            false => format!("-{:x}-", u32::from(c)),
        });
        self.dir.join(name.collect::<String>() + ENDING)
    }

    /// Says in a snapshot what is limited.
    pub(crate) fn tell(&self, snapshot: &mut Snapshot) {
        let now_ns = now_ns();
        for v in &mut snapshot.volumes {
            let key = self.named.get(&v.name).filter(|k| self.seen.contains(*k));
            let lent = key.and_then(|k| self.lent.get(k));
            v.throttle = lent.and_then(|l| l.limited.left(now_ns));
        }
    }

    /// Limits a disk in place of what was ordered for it before.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) fn begin(
        &mut self,
        hypervisor: &mut dyn Hypervisor,
        (domain, disk): (&Domain, &Disk),
        volume: &str,
        to: Throttle,
    ) -> Result<(), String> {
        if let Some(platform) = domain.platform {
            return Err(format!(
                "{platform} owns its domain: limit the disk with the tools of that platform"
            ));
        }
        if let Some(why) = &disk.stays {
            return Err(why.clone());
        }
        let life = domain.id.filter(|id| *id != 0);
        let life = life.ok_or("its process is not visible to the agent")?;
        let limits = hypervisor.limits(domain)?;
        let now = of(&limits, &disk.target)?;
        let mut others = limits.iter().filter(|(target, _)| **target != disk.target);
        let shares = |l: &Result<Limits, String>| l.as_ref().is_ok_and(|l| l.is_shared_with(now));
        if let Some((other, _)) = others.find(|(_, l)| shares(l)) {
            return Err(format!("it shares its limits with {other}"));
        }
        let key = (domain.uuid.clone(), disk.target.clone());
        let earlier = self.lent.get(&key);
        let earlier = earlier.filter(|l| l.life == life && l.boot == self.boot && l.is_ours(now));
        let before = earlier.map_or(now, |l| &l.before).clone();
        let set = before.lowered(to.iops, to.bandwidth_bytes_per_s);
        let mut all = earlier.map_or(vec![], |l| l.set.clone());
        all.push(set.clone());
        let mut lent = Lent {
            form: FORM,
            volume: volume.into(),
            uuid: domain.uuid.clone(),
            target: disk.target.clone(),
            life,
            boot: self.boot.clone(),
            before,
            set: all,
            limited: Limited::of(to, now_ns()),
        };
        self.seen.remove(&key);
        self.save(&lent)?;
        let limited = hypervisor.limit(domain, &disk.target, &set);
        // It may have begun anew since it was looked at: then that life has what was for this one, and what there was is what its definition says.
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
                // What was refused, or is not known to have come about, is not said to be in force; and given back at the next look.
                lent.limited.until_ns = 0;
                lent.life = now.unwrap_or(life);
                self.save(&lent)?;
                limited?;
                Err("its machine was restarted at that moment".into())
            }
        }
    }

    fn save(&mut self, lent: &Lent) -> Result<(), String> {
        save_durably(&self.file(lent), lent)?;
        self.lent.insert(lent.key(), lent.clone());
        Ok(())
    }

    /// Has a disk's limits given back at the next look.
    ///
    /// # Errors
    /// That cannot be written down.
    pub(crate) fn end(&mut self, volume: &str) -> Result<(), String> {
        let lent = self.named.get(volume).and_then(|k| self.lent.get(k));
        let Some(mut lent) = lent.cloned() else {
            return Ok(());
        };
        lent.limited.until_ns = 0;
        self.save(&lent)
    }

    /// Has all given back.
    pub(crate) fn end_all(&mut self) {
        for lent in self.lent.values_mut() {
            lent.limited.until_ns = 0;
        }
    }

    /// Gives back what is over. News for operators, and what does not go as it should.
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

    /// Gives one back that is over, and looks whether one is so that was not looked at yet.
    fn look_after(
        &mut self,
        hypervisor: &mut dyn Hypervisor,
        domain: Option<&Domain>,
        lent: &Lent,
        news: &mut Vec<String>,
    ) -> Result<(), String> {
        let now_ns = now_ns();
        let over = lent.limited.until_ns <= now_ns;
        if lent.boot != self.boot {
            return self.forget(lent);
        }
        let Some(domain) = domain else {
            // It has ended, as far as anybody knows: what is seen next is looked at anew.
            self.seen.remove(&lent.key());
            return match lent.limited.until_ns.saturating_add(FORGOTTEN_NS) <= now_ns {
                true => self.forget(lent),
                false => Ok(()),
            };
        };
        match domain.id.filter(|id| *id != 0) {
            None if over => return Err("its process is not visible to the agent".into()),
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

    fn forget(&mut self, lent: &Lent) -> Result<(), String> {
        remove_durably(&self.file(lent))?;
        self.lent.remove(&lent.key());
        self.seen.remove(&lent.key());
        Ok(())
    }
}

impl Lent {
    fn key(&self) -> Key {
        (self.uuid.clone(), self.target.clone())
    }

    /// Whether limits are those that it knows of.
    fn is_ours(&self, now: &Limits) -> bool {
        self.before.is_as(now) || self.set.iter().any(|set| set.is_as(now))
    }
}

/// What an operator should know of it, when that is done.
fn give_back(
    hypervisor: &mut dyn Hypervisor,
    domain: &Domain,
    lent: &Lent,
) -> Result<Option<String>, String> {
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

fn of<'a>(limits: &'a AllLimits, target: &str) -> Result<&'a Limits, String> {
    let limits = limits.get(target);
    let limits = limits.ok_or("the hypervisor does not report its limits")?;
    limits.as_ref().map_err(Clone::clone)
}

/// Time since the host was started, that in which it slept included.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
