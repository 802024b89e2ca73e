//! Permitted results of reads, before and after a crash: all versions of every sector that have not ended.
//!
//! A version is the effect of one request on a sector. For readers it ends when a later version is acknowledged that
//! began after this one was completed. For power losses it ends when such a later version is durable. If a failed
//! flush told a guest that a version may be lost, no later flush makes that version durable.

use std::collections::BTreeMap;

use volume::Location;

/// Unit that a disk writes atomically.
pub const SECTOR: usize = 512;

const MAGIC: u32 = 0x7e55_ace5;

/// Fills a buffer at `offset` of a volume with the data that request `seq` writes there.
pub fn fill(volume: u32, offset: u64, seq: u64, out: &mut [u8]) {
    for (at, sector) in (offset / SECTOR as u64..).zip(out.chunks_mut(SECTOR)) {
        let mut tag = [0; 16];
        tag[..4].copy_from_slice(&(MAGIC ^ volume).to_le_bytes());
        tag[4..8].copy_from_slice(&(at as u32).to_le_bytes());
        tag[8..].copy_from_slice(&seq.to_le_bytes());
        for part in sector.chunks_mut(16) {
            part.copy_from_slice(&tag);
        }
    }
}

/// Returns the request that wrote a sector; 0 for zeroes.
fn seq_of(volume: u32, at: u64, sector: &[u8]) -> Result<u64, String> {
    if sector.iter().all(|b| *b == 0) {
        return Ok(0);
    }
    let word = |i: usize| u32::from_le_bytes(sector[i..i + 4].try_into().expect("four bytes"));
    let seq = u64::from_le_bytes(sector[8..16].try_into().expect("eight bytes"));
    let whole = sector.chunks(16).all(|part| part == &sector[..16]);
    let (of, place) = (word(0) ^ MAGIC, word(4));
    if (of, u64::from(place)) != (volume, at) || !whole {
        return Err(format!(
            "bytes of volume {of:#x}, sector {place}, request {seq} (whole: {whole})"
        ));
    }
    Ok(seq)
}

#[derive(Debug, Clone)]
struct Version {
    /// Number of the request.
    op: u64,
    /// Content: the request's number, or zero.
    value: u64,
    /// True for a trim. It leaves the earlier content or zeroes, so it ends no version.
    trim: bool,
    began: u64,
    answered: Option<u64>,
    acknowledged: bool,
    durable: bool,
    /// True if a guest knows that the version may be lost.
    suspect: bool,
    /// Time at which a later version replaced it for readers.
    replaced: Option<u64>,
    /// True if a power loss may bring the version back.
    returns: bool,
}

impl Version {
    fn settled(value: u64, at: u64, durable: bool) -> Self {
        Self {
            op: 0,
            value,
            trim: false,
            began: at,
            answered: Some(at),
            acknowledged: true,
            durable,
            suspect: false,
            replaced: None,
            returns: true,
        }
    }

    fn described(&self) -> String {
        let Self {
            op,
            value,
            began,
            answered,
            replaced,
            ..
        } = self;
        let is = |yes: bool, what: &'static str| if yes { what } else { "" };
        format!(
            "request {op} leaves {value}, {began} to {answered:?}{}{}{}{}{}, replaced at {replaced:?}",
            is(self.trim, ", a trim"),
            is(!self.acknowledged, ", not acknowledged"),
            is(self.durable, ", durable"),
            is(self.suspect, ", suspect"),
            is(self.returns, ", returns"),
        )
    }

    fn before(&self, began: u64) -> bool {
        self.answered.is_some_and(|a| a < began)
    }
}

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// All executed writes are present.
    Kill {
        /// True if a device has lost data, and the process may have died before it reported that.
        lossy: bool,
    },
    /// Only flushed writes are certain.
    Power,
}

/// Versions of all sectors of one volume.
#[derive(Debug)]
pub struct Oracle {
    volume: u32,
    sectors: Vec<Vec<Version>>,
    clock: u64,
    /// Start times of reads in flight.
    reads: Vec<u64>,
    /// Sectors on missing devices.
    absent: BTreeMap<usize, Absence>,
}

#[derive(Debug, Clone, Copy)]
struct Absence {
    since: u64,
    place: Location,
    /// True if cached data of the device may not be on the medium, and no flush will report that again.
    lossy: bool,
}

/// Location of a sector.
#[derive(Debug, Clone, Copy)]
pub enum Whereabouts {
    /// On a present device, or without a place.
    There(Option<Location>),
    /// On a missing device.
    Absent(Location),
}

impl Oracle {
    /// Creates the oracle of a volume that was never written.
    pub fn new(volume: u32, size: u64) -> Self {
        let empty = vec![Version::settled(0, 0, true)];
        Self {
            volume,
            sectors: vec![empty; size as usize / SECTOR],
            clock: 1,
            reads: vec![],
            absent: BTreeMap::new(),
        }
    }

    /// Declares initial content of sectors.
    pub fn holds(&mut self, sectors: &[bool], value: u64) {
        for (versions, holds) in self.sectors.iter_mut().zip(sectors) {
            if *holds {
                *versions = vec![Version::settled(value, 0, true)];
            }
        }
    }

    /// Adds never written sectors.
    pub fn grow(&mut self, size: u64) {
        let sectors = (size as usize / SECTOR).max(self.sectors.len());
        let empty = || vec![Version::settled(0, 0, true)];
        self.sectors.resize_with(sectors, empty);
    }

    fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn range(offset: u64, length: u64) -> std::ops::Range<usize> {
        offset as usize / SECTOR..(offset + length) as usize / SECTOR
    }

    /// Registers the start of a change. `value` is its result: its number, or zero.
    pub fn change(&mut self, op: u64, offset: u64, length: u64, value: u64, trim: bool) {
        let began = self.now();
        let oldest = self.reads.iter().copied().min().unwrap_or(u64::MAX);
        for sector in &mut self.sectors[Self::range(offset, length)] {
            sector.retain(|v| v.returns || v.replaced.is_none_or(|at| at > oldest));
            sector.push(Version {
                op,
                value,
                trim,
                answered: None,
                acknowledged: false,
                ..Version::settled(value, began, false)
            });
        }
    }

    /// Registers the completion of a change.
    pub fn changed(&mut self, op: u64, offset: u64, length: u64, done: bool, fua: bool) {
        let now = self.now();
        for sector in &mut self.sectors[Self::range(offset, length)] {
            let own = sector.iter_mut().find(|v| v.op == op);
            let own = own.expect("it began");
            own.answered = Some(now);
            own.acknowledged = done;
            let (began, trim) = (own.began, own.trim);
            if done && !trim {
                for v in sector.iter_mut().filter(|v| v.before(began)) {
                    v.replaced.get_or_insert(now);
                }
                if fua {
                    endure(sector, op);
                }
            }
        }
    }

    /// Registers the start of a flush or a read. The caller passes the result to the completion.
    pub fn begin(&mut self, reads: bool) -> u64 {
        let now = self.now();
        if reads {
            self.reads.push(now);
        }
        now
    }

    /// Registers the completion of a flush.
    pub fn flushed(&mut self, began: u64, done: bool) {
        for (at, sector) in self.sectors.iter_mut().enumerate() {
            // A flush does not cover data on a missing device.
            let there_since = self.absent.get(&at).map_or(0, |a| a.since);
            let covered = |v: &Version| {
                let there = !done || v.began > there_since;
                v.acknowledged && !v.durable && !v.suspect && v.before(began) && there
            };
            if sector.iter().all(|v| !covered(v)) {
                continue;
            }
            if !done {
                for v in sector.iter_mut().filter(|v| covered(v)) {
                    v.suspect = true;
                }
                continue;
            }
            let ops: Vec<u64> = sector.iter().filter(|v| covered(v)).map(|v| v.op).collect();
            for op in ops {
                endure(sector, op);
            }
        }
    }

    /// Checks a completed read; `bytes` is the returned data, if any.
    pub fn read(&mut self, began: u64, offset: u64, bytes: Option<&[u8]>) -> Result<(), String> {
        let at = self.reads.iter().position(|r| *r == began);
        self.reads.swap_remove(at.expect("it began"));
        let Some(bytes) = bytes else { return Ok(()) };
        let now = self.now();
        let first = offset / SECTOR as u64;
        for (at, sector) in (first..).zip(bytes.chunks(SECTOR)) {
            let value = seq_of(self.volume, at, sector)
                .map_err(|e| self.described("a read", at, &e, true))?;
            let versions = &mut self.sectors[at as usize];
            let visible = |v: &Version| v.replaced.is_none_or(|r| r > began);
            if !versions.iter().any(|v| v.value == value && visible(v)) {
                return Err(self.described("a read", at, &format!("request {value}"), true));
            }
            // One of several concurrent writes has won by now, and stays.
            let over = |v: &Version| v.acknowledged && !v.trim && v.before(began);
            let current = |v: &Version| v.replaced.is_none();
            if versions.iter().filter(|v| current(v)).all(over)
                && versions.iter().any(|v| v.value == value && current(v))
            {
                for v in versions.iter_mut().filter(|v| v.value != value) {
                    v.replaced.get_or_insert(now);
                }
            }
        }
        Ok(())
    }

    /// Marks all acknowledged writes as durable, after an orderly stop.
    pub fn closed(&mut self) {
        for sector in &mut self.sectors {
            let over = |v: &Version| v.acknowledged && !v.durable && !v.suspect;
            let ops: Vec<u64> = sector.iter().filter(|v| over(v)).map(|v| v.op).collect();
            for op in ops {
                endure(sector, op);
            }
        }
    }

    /// Checks the content of the volume after a crash. The content of missing devices is unknown yet. Some requests
    /// may still be in flight: those of guests that outlived the process.
    pub fn crashed(
        &mut self,
        crash: Crash,
        bytes: &[u8],
        whereabouts: &dyn Fn(usize) -> Whereabouts,
        goes_on: &dyn Fn(u64) -> bool,
    ) -> Result<(), String> {
        let now = self.now();
        self.reads.clear();
        for (at, found) in bytes.chunks(SECTOR).enumerate() {
            let place = match whereabouts(at) {
                Whereabouts::There(place) => place,
                Whereabouts::Absent(place) => {
                    // Absent since now: the device may have been absent before, while the extent was elsewhere.
                    let before = self.absent.get(&at).is_some_and(|a| a.lossy);
                    let lossy = match crash {
                        Crash::Power => false,
                        Crash::Kill { lossy } => lossy || before,
                    };
                    let since = now;
                    let absence = Absence {
                        since,
                        place,
                        lossy,
                    };
                    self.absent.insert(at, absence);
                    for v in self.sectors[at].iter_mut().filter(|v| !goes_on(v.op)) {
                        v.answered.get_or_insert(now);
                    }
                    continue;
                }
            };
            let back = self.absent.remove(&at).filter(|a| Some(a.place) == place);
            // For a device that comes back, only its flushed data is certain.
            let live = crash != Crash::Power && back.is_none();
            let what = if live {
                "after a kill"
            } else {
                "after a power loss"
            };
            let value = seq_of(self.volume, at as u64, found)
                .map_err(|e| self.described(what, at as u64, &e, live))?;
            let versions = &mut self.sectors[at];
            let possible = |v: &Version| match live {
                true => v.replaced.is_none(),
                false => v.returns,
            };
            let same = |v: &&Version| v.value == value && possible(v);
            if versions.iter().find(same).is_none() {
                return Err(self.described(what, at as u64, &format!("request {value}"), live));
            }
            let Crash::Kill { lossy } = crash else {
                *versions = vec![Version::settled(value, now, true)];
                continue;
            };
            let suspect = lossy
                || back.is_some_and(|a| a.lossy)
                || versions.iter().filter(same).any(|v| v.suspect);
            let in_flight: Vec<Version> = versions.extract_if(.., |v| goes_on(v.op)).collect();
            // A guest that outlived the process flushes this version, because it saw it. Among several versions with
            // one value, it was the last one at the latest.
            let candidates = || {
                let same = |v: &&Version| v.value == value && possible(v);
                versions.iter().filter(same)
            };
            let known =
                candidates().all(|v| v.answered.is_some()) && candidates().any(|v| v.acknowledged);
            let last = |of: fn(&Version) -> Option<u64>| candidates().filter_map(of).max();
            let since = last(|v| Some(v.began)).zip(last(|v| v.answered));
            let since = since.filter(|_| known);
            found_cached(versions, value, suspect, now);
            if let (Some((began, answered)), Some(found)) = (since, versions.last_mut()) {
                (found.began, found.answered) = (began, Some(answered));
            }
            versions.extend(in_flight);
        }
        self.clock += 2;
        Ok(())
    }

    /// Checks a sector of a device that is back.
    pub fn back(&mut self, at: usize, found: &[u8]) -> Result<(), String> {
        let Some(absence) = self.absent.remove(&at) else {
            return Ok(()); // the sector was first written while the device was absent
        };
        let now = self.now();
        let value = seq_of(self.volume, at as u64, found)
            .map_err(|e| self.described("on a device that is back", at as u64, &e, false))?;
        if !self.sectors[at]
            .iter()
            .any(|v| v.value == value && v.returns)
        {
            let found = format!("request {value}");
            return Err(self.described("on a device that is back", at as u64, &found, false));
        }
        // Requests in flight may still change it.
        let versions = &mut self.sectors[at];
        let in_flight: Vec<Version> = versions.extract_if(.., |v| v.answered.is_none()).collect();
        // The device was flushed when it was lost.
        match absence.lossy {
            true => found_cached(versions, value, true, now),
            false => *versions = vec![Version::settled(value, now, true)],
        }
        versions.extend(in_flight);
        Ok(())
    }

    /// Checks a sector of a volume without requests in flight, read without its engine. Returns true if it is certain
    /// to last.
    pub fn is_now(&self, at: usize, sector: &[u8]) -> Result<bool, String> {
        let found = seq_of(self.volume, at as u64, sector);
        let value = found.map_err(|e| self.described("at rest", at as u64, &e, true))?;
        let now = |v: &Version| v.value == value && v.replaced.is_none();
        let mut found = self.sectors[at].iter().filter(|v| now(v)).peekable();
        if found.peek().is_none() {
            return Err(self.described("at rest", at as u64, &format!("request {value}"), true));
        }
        Ok(found.all(|v| v.acknowledged && !v.suspect))
    }

    /// Sets the content of the volume to that of a restored snapshot.
    pub fn restored(&mut self, bytes: &[u8]) -> Result<(), String> {
        let inside = bytes.len() / SECTOR;
        self.sectors[..inside].iter_mut().for_each(Vec::clear);
        // The sectors after its end may be added again by growth.
        self.sectors.truncate(inside);
        self.may_be_restored(bytes)
    }

    pub fn may_be_restored(&mut self, bytes: &[u8]) -> Result<(), String> {
        let now = self.now();
        for (at, sector) in bytes.chunks(SECTOR).enumerate() {
            let value = seq_of(self.volume, at as u64, sector)?;
            self.sectors[at].push(Version::settled(value, now, true));
        }
        Ok(())
    }

    fn described(&self, when: &str, at: u64, found: &str, live: bool) -> String {
        let all: Vec<String> = self.sectors[at as usize]
            .iter()
            .map(Version::described)
            .collect();
        let all = all.join("\n  ");
        format!(
            "volume {}, sector {at} (extent {}): {when} it holds {found}; {} are\n  {all}",
            self.volume,
            at * SECTOR as u64 / super::plan::EXTENT,
            if live {
                "its versions, those not replaced,"
            } else {
                "its versions, those that return,"
            },
        )
    }
}

/// Records a found value that may only be cached.
fn found_cached(versions: &mut Vec<Version>, value: u64, suspect: bool, now: u64) {
    versions.retain(|v| v.returns);
    for v in versions.iter_mut() {
        v.answered.get_or_insert(now);
        v.replaced.get_or_insert(now);
        v.acknowledged = false; // flushes from here on make the found version durable
    }
    let now = now + 1;
    let mut found = Version::settled(value, now, false);
    found.suspect = suspect;
    versions.push(found);
    // The only version is the content, and no other one is possible.
    if versions.iter().all(|v| v.value == value) {
        *versions = vec![Version::settled(value, now, true)];
    }
}

/// Makes a version durable: versions that had completed before its start cannot come back.
fn endure(sector: &mut [Version], op: u64) {
    let own = sector.iter_mut().rfind(|v| v.op == op);
    let own = own.expect("it is one of them");
    own.durable = true;
    let (began, trim) = (own.began, own.trim);
    if !trim {
        for v in sector.iter_mut().filter(|v| v.before(began)) {
            v.returns = false;
        }
    }
}
