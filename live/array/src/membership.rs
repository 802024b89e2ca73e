//! Membership: the copies of the map and the devices that belong together, and the rules by which a start trusts them.
//!
//! ```text
//!   a change of membership (a copy is dropped or returns, a device is added or removed, the array is served):
//!
//!    propose ──────────▶ superblocks ─────────────▶ confirm ──────────▶ pending requests are acknowledged
//!    durable in every    of every reachable device  durable in every
//!    remaining copy      carry the new stamp        remaining copy
//! ```
//!
//! A [`Stamp`] is the generation of a membership and a random number. The number distinguishes two memberships of the
//! same generation that two copies made without contact. Nothing is acknowledged between proposal and confirmation, so
//! a copy that has only proposed a membership has no change that the others lack.
//!
//! # Choice of the map at a start
//!
//! A copy is *stale* if the superblock of a reachable device has a stamp that is not older than the copy's and that the
//! copy has neither confirmed nor proposed. Among the copies that are not stale, the map is the one with the highest
//! confirmed generation, and then the most commits. If a copy of that membership is missing, it may have continued
//! alone. That is impossible if enough devices without its stamp are present, because a copy that continues alone
//! stamps them first. The first copy needs half of the devices, the second more than half. So two copies can never both
//! continue alone after a network partition.
//!
//! # Limits
//!
//! No I/O, no clock, no randomness: the caller passes stamps and superblocks.

use std::fmt;

use thiserror::Error;
use units::DeviceId;

use crate::Superblock;
use crate::record::LeaseRecord;

/// Identifier of a membership. Later memberships have a higher generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Stamp {
    /// Number of the membership. Generation 0 stands for arrays and devices that never had one.
    pub generation: u64,
    /// Random number, chosen with the generation.
    pub nonce: u64,
}

impl Stamp {
    /// Stamp of devices that were never stamped.
    pub const NONE: Stamp = Stamp {
        generation: 0,
        nonce: 0,
    };

    /// Returns true if the holder of this stamp knows a membership that the holder of `other` does not.
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
    /// Copy in the array's directory.
    First,
    /// Copy on another device.
    Second,
}

impl CopyId {
    /// Both copies.
    pub const ALL: [CopyId; 2] = [CopyId::First, CopyId::Second];

    pub fn other(self) -> CopyId {
        match self {
            CopyId::First => CopyId::Second,
            CopyId::Second => CopyId::First,
        }
    }

    /// Returns 0 or 1.
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

/// Copies that get commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Members {
    /// True if the first copy is a member.
    pub first: bool,
    /// True if the second copy is a member.
    pub second: bool,
}

impl Members {
    /// No members, for a backup.
    pub const NONE: Members = Members {
        first: false,
        second: false,
    };

    /// Only the first copy, as in a new array.
    pub const FIRST: Members = Members {
        first: true,
        second: false,
    };

    /// Returns true if the copy is a member.
    pub fn contains(self, copy: CopyId) -> bool {
        match copy {
            CopyId::First => self.first,
            CopyId::Second => self.second,
        }
    }
}

/// Membership: its stamp and its copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// Identifier.
    pub stamp: Stamp,
    /// Copies that have every commit.
    pub members: Members,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecondCopy {
    /// Not chosen yet: on the first device with a file system of its own.
    Auto,
    /// No second copy.
    Off,
    /// Copy in this file, chosen by an operator or by default.
    At(String),
}

/// State record of a copy of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapState {
    /// Number of commits. If two copies have the same confirmed membership, the one with more commits has all commits
    /// of the other.
    pub commits: u64,
    /// Membership in which all changes were acknowledged so far.
    pub confirmed: Membership,
    /// Proposed membership; some devices may have its stamp.
    pub pending: Option<Membership>,
    /// Stamps of older proposals since the last confirmation. Some devices may have them too.
    pub earlier: Vec<Stamp>,
    pub second: SecondCopy,
    /// Controller that took the lease last.
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
    /// Returns true if a device with this stamp knows a membership that this copy was not part of.
    fn is_stale_beside(&self, found: Stamp) -> bool {
        found.supersedes(self.confirmed.stamp) && !self.has_proposed(found)
    }

    fn has_proposed(&self, stamp: Stamp) -> bool {
        Some(stamp) == self.pending.map(|p| p.stamp) || self.earlier.contains(&stamp)
    }

    /// Copies that may be members of the confirmed or of a proposed membership. Each of them may have recorded its
    /// confirmation.
    pub fn may_be_members(&self) -> Members {
        let pending = self.pending.map_or(Members::NONE, |p| p.members);
        let confirmed = self.confirmed.members;
        Members {
            first: confirmed.first || pending.first,
            second: confirmed.second || pending.second,
        }
    }

    /// Proposes a membership.
    pub(crate) fn propose(&mut self, membership: Membership) {
        let before = self.pending.replace(membership);
        let before = before.filter(|b| b.stamp != membership.stamp);
        self.earlier.extend(before.map(|b| b.stamp));
    }

    /// Confirms the proposed membership and returns it, if there is one.
    pub(crate) fn confirm(&mut self) -> Option<Membership> {
        let confirmed = self.pending.take()?;
        self.confirmed = confirmed;
        self.earlier.clear();
        Some(confirmed)
    }

    /// Returns the highest generation that the copy knows.
    pub fn generation(&self) -> u64 {
        let proposed = self.earlier.iter().map(|s| s.generation);
        let proposed = proposed.chain(self.pending.map(|p| p.stamp.generation));
        proposed.fold(self.confirmed.stamp.generation, u64::max)
    }
}

/// Stamp that the map expects in a device's superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceStamp {
    pub device: DeviceId,
    pub now: Stamp,
    /// Stamps that the device may carry instead, because the write of `now` was interrupted. The last stamp that was
    /// certainly written comes first.
    pub was: Vec<Stamp>,
}

/// Reason an available device is not used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JoinError {
    /// Its superblock has another generation.
    #[error(
        "its superblock is of generation {found}, but the map expects {expected}: an older copy of the device or of the map was restored"
    )]
    Generation {
        /// Stamp in the superblock.
        found: Stamp,
        /// Stamp in the map.
        expected: Stamp,
    },
    /// Writes to the device may be lost, and guests got no error for them.
    #[error("it was in use when it was lost, and its last writes may not have been flushed")]
    Unflushed,
}

/// Checks that an available device belongs to the array as the map knows it. `boot` is the present boot of this host.
///
/// A device that missed a membership must have been flushed when it left. Its superblock records the flush. A restart
/// of the host since then is accepted as well, because after it guests expect only flushed data.
///
/// # Errors
/// [`JoinError`].
pub fn joins(
    state: &MapState,
    expected: Option<&DeviceStamp>,
    found: &Superblock,
    boot: u128,
) -> Result<(), JoinError> {
    let stamp = found.stamp;
    let known = match expected {
        None => stamp == Stamp::NONE,
        Some(e) => stamp == e.now || e.was.contains(&stamp),
    };
    if !known {
        return Err(JoinError::Generation {
            found: stamp,
            expected: expected.map_or(Stamp::NONE, |e| e.now),
        });
    }
    let belongs = |s: Stamp| s == state.confirmed.stamp || state.has_proposed(s);
    let present = expected.is_some_and(|e| {
        // The stamp before an unfinished proposal. After a confirmation, such a stamp means that the device was left
        // out.
        let before = e.was.contains(&stamp) && state.has_proposed(e.now);
        belongs(stamp) && (stamp == e.now || before)
    });
    if present || stamp == Stamp::NONE || found.flushed || found.boot != boot {
        return Ok(());
    }
    Err(JoinError::Unflushed)
}

/// Copy that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub copy: CopyId,
    /// Its state record.
    pub state: MapState,
    /// Devices that it knows, except those that are gone for good.
    pub devices: Vec<DeviceId>,
    /// True if the last commit that was begun is missing ([`crate::Array::is_rolled_back`]).
    pub rolled_back: bool,
}

/// Part of a device's superblock that matters for the choice of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuperblockInfo {
    pub device: DeviceId,
    pub stamp: Stamp,
    /// Number of commits at the last orderly close with everything flushed; `None` if there was none after the last
    /// use.
    pub closed_at: Option<u64>,
    /// True if the host has restarted since the device was last used, without an orderly stop.
    pub lost_power: bool,
}

/// Maximum number of proposals without a confirmation; more are refused. Bounds the size of every commit.
pub(crate) const PROPOSALS_MAX: usize = 64;

/// Copy chosen as the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    pub copy: CopyId,
    /// True if the other copy is available, belongs to the membership and has the same content.
    pub other_is_current: bool,
    /// Generation above all that were seen.
    pub next_generation: u64,
}

/// Reason no copy can be the map.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MapChoiceError {
    #[error("the array has no copy of the map")]
    None,
    /// A device has a newer stamp.
    #[error(
        "the {copy} copy of the map is of generation {generation}, but device {device} is of generation {found}: the array was used with another copy since then, or an old copy was restored"
    )]
    Stale {
        /// Best of the copies.
        copy: CopyId,
        generation: u64,
        /// Device with the newer stamp.
        device: u16,
        /// Its generation.
        found: u64,
    },
    /// The copy was no member of the last membership that it knows, so others continued without it.
    #[error(
        "the {copy} copy of the map was no longer kept up to date when it was last written, in generation {generation}"
    )]
    NoMember { copy: CopyId, generation: u64 },
    /// A device was closed at a later commit of the map.
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
    /// The copy is a backup, and the array was, or may have been, in use since then.
    #[error(
        "the {copy} copy of the map is a backup with {commits} commits of generation {generation}, and the devices do not confirm that the array was closed then and not used since"
    )]
    OldBackup {
        copy: CopyId,
        generation: u64,
        commits: u64,
    },
    /// The missing copy may have continued alone.
    #[error(
        "only the {copy} copy of the map is available, and the other copy may be newer: {there} of {all} devices are available to decide that, and {needed} are needed"
    )]
    NotVouched {
        copy: CopyId,
        /// Number of available devices.
        there: usize,
        /// Number of devices of the array.
        all: usize,
        /// Number of devices needed.
        needed: usize,
    },
}

/// Number of devices, out of `all`, that must carry a stamp before the given copy continues alone. As many must be
/// available to prove that the other copy did not.
pub fn devices_needed(copy: CopyId, all: usize) -> usize {
    match copy {
        CopyId::First => all.div_ceil(2),
        CopyId::Second => all / 2 + 1,
    }
}

/// Chooses the map among the copies found, with the superblocks of the devices found.
///
/// # Errors
/// [`MapChoiceError`].
pub fn choose(
    candidates: &[Candidate],
    superblocks: &[SuperblockInfo],
) -> Result<Choice, MapChoiceError> {
    let fit = |c: &&Candidate| unfit(c, superblocks).is_none();
    let Some(best) = best_of(candidates.iter().filter(fit)) else {
        let best = best_of(candidates.iter()).ok_or(MapChoiceError::None)?;
        return Err(unfit(best, superblocks).expect("no copy is usable"));
    };
    let missing = best.copy.other();
    // An available copy was checked above: if it had continued alone, its state would show it. (An old image in its
    // place would not. That is a risk only if the right copy and most devices are lost as well.)
    let other = candidates.iter().find(|c| c.copy == missing);
    if other.is_none() && best.state.may_be_members().contains(missing) {
        // A device that is older than the copy, such as a restored image, has not seen later memberships either.
        let knows = |s: &&SuperblockInfo| {
            let own = s.stamp == best.state.confirmed.stamp || best.state.has_proposed(s.stamp);
            own && best.devices.contains(&s.device)
        };
        let there = superblocks.iter().filter(knows);
        let (there, all) = (there.count(), best.devices.len());
        let needed = devices_needed(best.copy, all);
        if there < needed {
            return Err(MapChoiceError::NotVouched {
                copy: best.copy,
                there,
                all,
                needed,
            });
        }
    }
    Ok(chosen(best, candidates, superblocks))
}

/// Reason a copy cannot be the map, independent of the other copy.
fn unfit(candidate: &Candidate, superblocks: &[SuperblockInfo]) -> Option<MapChoiceError> {
    let Candidate {
        copy,
        state,
        devices,
        rolled_back,
    } = candidate;
    let (copy, generation) = (*copy, state.confirmed.stamp.generation);
    let belongs = |s: &SuperblockInfo| {
        let known = s.stamp == state.confirmed.stamp || state.has_proposed(s.stamp);
        known && devices.contains(&s.device)
    };
    // A loss of power may interrupt the last commit. It was acknowledged if the array was closed
    // after it, and cannot have been interrupted if the host has not lost power.
    let has_last_commit = |s: &&SuperblockInfo| {
        belongs(s)
            && match s.closed_at {
                Some(closed) => closed > state.commits,
                None => !s.lost_power && s.stamp != Stamp::NONE,
            }
    };
    if *rolled_back && let Some(seen) = superblocks.iter().find(has_last_commit) {
        let device = seen.device.0;
        return Some(MapChoiceError::RolledBack { copy, device });
    }
    if let Some(newer) = superblocks.iter().find(|s| state.is_stale_beside(s.stamp)) {
        return Some(MapChoiceError::Stale {
            copy,
            generation,
            device: newer.device.0,
            found: newer.stamp.generation,
        });
    }
    let closed_later = |s: &&SuperblockInfo| {
        let belongs = devices.contains(&s.device) && s.stamp == state.confirmed.stamp;
        belongs && s.closed_at.is_some_and(|closed| closed > state.commits)
    };
    if state.confirmed.members != Members::NONE
        && let Some(seen) = superblocks.iter().find(closed_later)
    {
        return Some(MapChoiceError::Older {
            copy,
            commits: state.commits,
            device: seen.device.0,
            closed: seen.closed_at.unwrap_or(0),
        });
    }
    if state.confirmed.members == Members::NONE {
        let commits = state.commits;
        let agrees = |s: &&SuperblockInfo| {
            devices.contains(&s.device)
                && s.stamp == state.confirmed.stamp
                && s.closed_at == Some(commits)
        };
        let agreeing = superblocks.iter().filter(agrees).count();
        // At least half of the devices. An array without devices can lose only names.
        return (agreeing < devices_needed(CopyId::First, devices.len())).then_some(
            MapChoiceError::OldBackup {
                copy,
                generation,
                commits,
            },
        );
    }
    (!state.may_be_members().contains(copy))
        .then_some(MapChoiceError::NoMember { copy, generation })
}

/// Returns the best copy in spite of the checks, for an operator who accepts the loss of data.
pub fn choose_anyway(candidates: &[Candidate], superblocks: &[SuperblockInfo]) -> Option<Choice> {
    let best = best_of(candidates.iter())?;
    Some(Choice {
        other_is_current: false,
        ..chosen(best, candidates, superblocks)
    })
}

fn chosen(best: &Candidate, candidates: &[Candidate], superblocks: &[SuperblockInfo]) -> Choice {
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
