//! Which copies of the map, and which devices, belong together: what a start may believe.
//!
//! ```text
//!   a change of membership (a copy is dropped or comes back, a device comes or goes, the array is served):
//!
//!    propose ──────────▶ superblocks ─────────────▶ confirm ──────────▶ what was waiting is acknowledged
//!    durable in every    of every reachable device  durable in every
//!    copy that stays     carry the new stamp        copy that stays
//! ```
//!
//! A [`Stamp`] is the generation of a membership and a random number, so that two memberships with one generation, made by two
//! copies that did not see each other, are told apart. Nothing is acknowledged between proposal and confirmation: a
//! copy that has only proposed knows nothing that others do not.
//!
//! # What a start believes
//!
//! A copy is *stale* if the superblock of a reachable device has a stamp that the copy neither has confirmed nor proposed, and
//! that is not older. Of the copies that are not stale the one with the highest confirmed generation, and then the most
//! commits, is the map. If a copy is missing that belonged to that membership, it might have gone on alone. It cannot have if enough
//! devices are there that know nothing of it: whoever goes on alone stamps them first. For the first copy half of the
//! devices are enough, for the second it takes more than half; so two copies can never go on alone on both sides of a divide.
//!
//! # What it is not
//!
//! No I/O, no clock, no randomness: stamps and superblocks are handed in.

use std::fmt;

use thiserror::Error;
use units::DeviceId;

use crate::Superblock;
use crate::record::LeaseRecord;

/// Names a membership. Later ones have a higher generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Stamp {
    /// Counts memberships; 0 is that of arrays and devices from before there were any.
    pub generation: u64,
    /// Chosen at random with the generation.
    pub nonce: u64,
}

impl Stamp {
    /// Of devices that were never stamped.
    pub const NONE: Stamp = Stamp {
        generation: 0,
        nonce: 0,
    };

    /// Whether whoever has this stamp knows of something that one with `other` does not.
    pub fn supersedes(self, other: Stamp) -> bool {
        self.generation > other.generation
            || self.generation == other.generation && self.nonce != other.nonce
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.generation)
    }
}

/// One of the copies of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopyId {
    /// The one in the array's directory.
    First,
    /// The one on another device.
    Second,
}

impl CopyId {
    /// Both.
    pub const ALL: [CopyId; 2] = [CopyId::First, CopyId::Second];

    pub fn other(self) -> CopyId {
        match self {
            CopyId::First => CopyId::Second,
            CopyId::Second => CopyId::First,
        }
    }

    /// 0 or 1.
    pub fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for CopyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CopyId::First => "first",
            CopyId::Second => "second",
        })
    }
}

/// The copies that commits go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Members {
    /// Whether the first copy is one.
    pub first: bool,
    /// Whether the second copy is one.
    pub second: bool,
}

impl Members {
    /// None: of a backup.
    pub const NONE: Members = Members {
        first: false,
        second: false,
    };

    /// The first copy alone, as it is in a new array.
    pub const FIRST: Members = Members {
        first: true,
        second: false,
    };

    /// Whether a copy is one.
    pub fn contains(self, copy: CopyId) -> bool {
        match copy {
            CopyId::First => self.first,
            CopyId::Second => self.second,
        }
    }
}

/// A membership: its stamp and its copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// Its name.
    pub stamp: Stamp,
    /// The copies that every commit of it is in.
    pub members: Members,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecondCopy {
    /// Nobody has said: beside the first device that has a file system of its own.
    Auto,
    /// There is to be none.
    Off,
    /// In this file, chosen by an operator or by default.
    At(String),
}

/// What a copy of the map says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapState {
    /// Number of commits up to now. Of two copies with one confirmed membership the one with more has all that the other has.
    pub commits: u64,
    /// The membership in which everything was acknowledged up to now.
    pub confirmed: Membership,
    /// One that was proposed; it may be on some devices.
    pub pending: Option<Membership>,
    /// Stamps of proposals before that one, since the last confirmation: they may be on some devices too.
    pub earlier: Vec<Stamp>,
    pub second: SecondCopy,
    /// The controller that took the lease last.
    pub lease: Option<LeaseRecord>,
}

impl Default for MapState {
    fn default() -> Self {
        Self {
            commits: 0,
            confirmed: Membership {
                stamp: Stamp::NONE,
                members: Members::FIRST,
            },
            pending: None,
            earlier: vec![],
            second: SecondCopy::Auto,
            lease: None,
        }
    }
}

impl MapState {
    /// Whether a device with this stamp knows of a membership that this copy has not been part of.
    fn is_stale_beside(&self, found: Stamp) -> bool {
        found.supersedes(self.confirmed.stamp) && !self.has_proposed(found)
    }

    fn has_proposed(&self, stamp: Stamp) -> bool {
        Some(stamp) == self.pending.map(|p| p.stamp) || self.earlier.contains(&stamp)
    }

    /// Copies that may be members of a membership that was proposed, or that holds: each of them may know that it was confirmed.
    pub fn may_be_members(&self) -> Members {
        let pending = self.pending.map_or(Members::NONE, |p| p.members);
        let confirmed = self.confirmed.members;
        Members {
            first: confirmed.first || pending.first,
            second: confirmed.second || pending.second,
        }
    }

    /// A membership is proposed.
    pub(crate) fn propose(&mut self, membership: Membership) {
        let before = self.pending.replace(membership);
        let before = before.filter(|b| b.stamp != membership.stamp);
        self.earlier.extend(before.map(|b| b.stamp));
    }

    /// What was proposed holds; what, if anything was.
    pub(crate) fn confirm(&mut self) -> Option<Membership> {
        let confirmed = self.pending.take()?;
        self.confirmed = confirmed;
        self.earlier.clear();
        Some(confirmed)
    }

    /// The highest generation that it knows of.
    pub fn generation(&self) -> u64 {
        let proposed = self.earlier.iter().map(|s| s.generation);
        let proposed = proposed.chain(self.pending.map(|p| p.stamp.generation));
        proposed.fold(self.confirmed.stamp.generation, u64::max)
    }
}

/// What the map expects of a device's superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceStamp {
    pub device: DeviceId,
    pub now: Stamp,
    /// Stamps that it may carry instead, because writing `now` was interrupted. The last one that was certainly written comes first.
    pub was: Vec<Stamp>,
}

/// Why a device that is there is not taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotJoined {
    /// It is from another time.
    #[error(
        "its superblock is of generation {found}, but the map expects {expected}: an older copy of the device or of the map was restored"
    )]
    Generation {
        /// In the superblock.
        found: Stamp,
        /// In the map.
        expected: Stamp,
    },
    /// Writes to it may be lost that their guests were never told of.
    #[error("it was in use when it was lost, and its last writes may not have been flushed")]
    Unflushed,
}

/// Whether a device that is there belongs to the array as the map knows it. `boot` is the present boot of this host.
///
/// One that missed a membership has to have been flushed when it left: its superblock says so, or the host has been started since,
/// after which nobody expects more of it than what was flushed.
///
/// # Errors
/// [`NotJoined`].
pub fn joins(
    state: &MapState,
    expected: Option<&DeviceStamp>,
    found: &Superblock,
    boot: u128,
) -> Result<(), NotJoined> {
    let stamp = found.stamp;
    let known = match expected {
        None => stamp == Stamp::NONE,
        Some(e) => stamp == e.now || e.was.contains(&stamp),
    };
    if !known {
        return Err(NotJoined::Generation {
            found: stamp,
            expected: expected.map_or(Stamp::NONE, |e| e.now),
        });
    }
    let belongs = |s: Stamp| s == state.confirmed.stamp || state.has_proposed(s);
    let present = expected.is_some_and(|e| {
        // Of the one before a proposal that did not come to its end. After a confirmation this is a device that was left behind.
        let before = e.was.contains(&stamp) && state.has_proposed(e.now);
        belongs(stamp) && (stamp == e.now || before)
    });
    if present || stamp == Stamp::NONE || found.flushed || found.boot != boot {
        return Ok(());
    }
    Err(NotJoined::Unflushed)
}

/// A copy that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub copy: CopyId,
    /// What it says of itself.
    pub state: MapState,
    /// The devices that it knows, but for those that are gone for good.
    pub devices: Vec<DeviceId>,
    /// True if the last commit that was begun is missing ([`crate::Array::is_rolled_back`]).
    pub rolled_back: bool,
}

/// A device's superblock, as far as the choice of the map is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub device: DeviceId,
    pub stamp: Stamp,
    /// The number of commits with which the array was closed, everything flushed, after its last use; `None` if it was not.
    pub closed_at: Option<u64>,
    /// True if the host has restarted since the device was last used, without an orderly stop.
    pub lost_power: bool,
}

/// Proposals of which none could be confirmed, at most; more are refused. Bounds what every commit writes.
pub(crate) const PROPOSALS_MAX: usize = 64;

/// Which copy is the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    pub copy: CopyId,
    /// Whether the other copy is there, belongs to the membership and holds the same.
    pub other_is_current: bool,
    /// A generation above all that were seen.
    pub next_generation: u64,
}

/// Why none of the copies may be the map.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotChosen {
    #[error("the array has no copy of the map")]
    None,
    /// A device knows better.
    #[error(
        "the {copy} copy of the map is of generation {generation}, but device {device} is of generation {found}: the array was used with another copy since then, or an old copy was restored"
    )]
    Stale {
        /// The best of the copies.
        copy: CopyId,
        generation: u64,
        /// The device that knows better.
        device: u16,
        /// Its generation.
        found: u64,
    },
    /// It was no member of the last membership that it knows of: others went on without it.
    #[error(
        "the {copy} copy of the map was no longer kept up to date when it was last written, in generation {generation}"
    )]
    NoMember { copy: CopyId, generation: u64 },
    /// A device was closed when the map had more commits.
    #[error(
        "the {copy} copy of the map has {commits} commits, but device {device} was closed with {closed}: an old copy was restored"
    )]
    Older {
        copy: CopyId,
        commits: u64,
        /// The device with the later close.
        device: u16,
        /// Number of commits when it was closed.
        closed: u64,
    },
    /// The last commit of the copy is damaged.
    #[error(
        "the last commit in the {copy} copy of the map cannot be read, although the host has not lost power since that commit (device {device})"
    )]
    RolledBack {
        copy: CopyId,
        /// A device that was closed, or whose host has not restarted since its last use.
        device: u16,
    },
    /// A backup, and the array was in use since, or may have been.
    #[error(
        "the {copy} copy of the map is a backup with {commits} commits of generation {generation}, and the devices do not confirm that the array was closed then and not used since"
    )]
    OldBackup {
        copy: CopyId,
        generation: u64,
        commits: u64,
    },
    /// The copy that is missing may have gone on alone.
    #[error(
        "only the {copy} copy of the map is available, and the other copy may be newer: {there} of {all} devices are available to decide that, and {needed} are needed"
    )]
    NotVouched {
        copy: CopyId,
        /// Devices that are there.
        there: usize,
        /// Devices of the array.
        all: usize,
        /// Devices that are needed.
        needed: usize,
    },
}

/// How many of `all` devices must carry a stamp before the given copy goes on alone, and must be there to say that the other one did not.
pub fn devices_needed(copy: CopyId, all: usize) -> usize {
    match copy {
        CopyId::First => all.div_ceil(2),
        CopyId::Second => all / 2 + 1,
    }
}

/// Chooses the map among the copies that were found, beside the superblocks of the devices that were.
///
/// # Errors
/// [`NotChosen`].
pub fn choose(candidates: &[Candidate], superblocks: &[Seen]) -> Result<Choice, NotChosen> {
    let fit = |c: &&Candidate| unfit(c, superblocks).is_none();
    let Some(best) = best_of(candidates.iter().filter(fit)) else {
        let best = best_of(candidates.iter()).ok_or(NotChosen::None)?;
        return Err(unfit(best, superblocks).expect("no copy is usable"));
    };
    let missing = best.copy.other();
    // One that is there has been looked at: had it gone on alone it would say so. (An old image in its place would not; it takes the
    // loss of the right one and of most devices to be misled by it.)
    let other = candidates.iter().find(|c| c.copy == missing);
    if other.is_none() && best.state.may_be_members().contains(missing) {
        // A device that is older than the copy, as an image of it that was put back, has not seen what came after either.
        let knows = |s: &&Seen| {
            let own = s.stamp == best.state.confirmed.stamp || best.state.has_proposed(s.stamp);
            own && best.devices.contains(&s.device)
        };
        let there = superblocks.iter().filter(knows);
        let (there, all) = (there.count(), best.devices.len());
        let needed = devices_needed(best.copy, all);
        if there < needed {
            return Err(NotChosen::NotVouched {
                copy: best.copy,
                there,
                all,
                needed,
            });
        }
    }
    Ok(chosen(best, candidates, superblocks))
}

/// Why a copy cannot be the map, whatever the other one says.
fn unfit(candidate: &Candidate, superblocks: &[Seen]) -> Option<NotChosen> {
    let Candidate {
        copy,
        state,
        devices,
        rolled_back,
    } = candidate;
    let (copy, generation) = (*copy, state.confirmed.stamp.generation);
    let belongs = |s: &Seen| {
        let known = s.stamp == state.confirmed.stamp || state.has_proposed(s.stamp);
        known && devices.contains(&s.device)
    };
    // A loss of power may interrupt the last commit. It was acknowledged if the array was closed
    // after it, and cannot have been interrupted if the host has not lost power.
    let has_last_commit = |s: &&Seen| {
        belongs(s)
            && match s.closed_at {
                Some(closed) => closed > state.commits,
                None => !s.lost_power && s.stamp != Stamp::NONE,
            }
    };
    if *rolled_back && let Some(seen) = superblocks.iter().find(has_last_commit) {
        let device = seen.device.0;
        return Some(NotChosen::RolledBack { copy, device });
    }
    if let Some(newer) = superblocks.iter().find(|s| state.is_stale_beside(s.stamp)) {
        return Some(NotChosen::Stale {
            copy,
            generation,
            device: newer.device.0,
            found: newer.stamp.generation,
        });
    }
    let closed_later = |s: &&Seen| {
        let belongs = devices.contains(&s.device) && s.stamp == state.confirmed.stamp;
        belongs && s.closed_at.is_some_and(|closed| closed > state.commits)
    };
    if state.confirmed.members != Members::NONE
        && let Some(seen) = superblocks.iter().find(closed_later)
    {
        return Some(NotChosen::Older {
            copy,
            commits: state.commits,
            device: seen.device.0,
            closed: seen.closed_at.unwrap_or(0),
        });
    }
    if state.confirmed.members == Members::NONE {
        let commits = state.commits;
        let agrees = |s: &&Seen| {
            devices.contains(&s.device)
                && s.stamp == state.confirmed.stamp
                && s.closed_at == Some(commits)
        };
        let agreeing = superblocks.iter().filter(agrees).count();
        // Half of the devices at least; of an array without any nothing can be lost but names.
        return (agreeing < devices_needed(CopyId::First, devices.len())).then_some(
            NotChosen::OldBackup {
                copy,
                generation,
                commits,
            },
        );
    }
    (!state.may_be_members().contains(copy)).then_some(NotChosen::NoMember { copy, generation })
}

/// The best copy all the same, for an operator who accepts what is lost with it.
pub fn choose_anyway(candidates: &[Candidate], superblocks: &[Seen]) -> Option<Choice> {
    let best = best_of(candidates.iter())?;
    Some(Choice {
        other_is_current: false,
        ..chosen(best, candidates, superblocks)
    })
}

fn chosen(best: &Candidate, candidates: &[Candidate], superblocks: &[Seen]) -> Choice {
    let other = candidates.iter().find(|c| c.copy != best.copy);
    let seen = candidates.iter().map(|c| c.state.generation());
    let seen = seen.chain(superblocks.iter().map(|s| s.stamp.generation));
    Choice {
        copy: best.copy,
        other_is_current: other.is_some_and(|o| {
            o.state == best.state && best.state.confirmed.members.contains(o.copy)
        }),
        next_generation: seen.max().unwrap_or(0) + 1,
    }
}

fn best_of<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> Option<&'a Candidate> {
    candidates.max_by_key(|c| {
        let first = c.copy == CopyId::First;
        (c.state.confirmed.stamp.generation, c.state.commits, first)
    })
}
