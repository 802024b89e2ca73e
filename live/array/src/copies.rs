//! Copies of a map. Every commit goes to all members and is complete when all members have it.
//!
//! ```text
//!                 ┌──▶ first   ARRAY/map.redb ─────┐ both durable ─────────▶ done
//!   commit ───────┤                                ├ one failed, or took longer than a second
//!                 └──▶ second  on another device ──┘  ─▶ dropped; done after the devices are stamped (membership)
//!                                                    both failed: reopened and read back to see if it is durable
//! ```
//!
//! The caller of a commit always learns the outcome: the commit is durable, or it is not and never will be. In the
//! third case ([`CommitError::InDoubt`]) the answer comes later, when one of the copies can be read again.
//!
//! A dropped copy is rebuilt in the background ([`Copies::begin_rebuild`]) and becomes a member again with the next
//! membership.
//!
//! # Limits
//!
//! No membership: the caller (`datapath::keeper`) stamps the devices between [`Change::Propose`] and
//! [`Change::Confirm`]. The only use of a clock is the timeout for a copy that hangs.

use std::fmt::Debug;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use units::{Bytes, VolumeId};
use volume::Location;

use crate::commit::Change;
use crate::file::MapFile;
use crate::membership::{CopyId, MapState, Members};
use crate::problem::CheckReport;
use crate::record::{DeviceRecord, Extent, MoveRecord, TierRecord, VolumeRecord};
use crate::{Array, ArrayError, ArrayId, DeviceStamp};
use rebuild::Rebuild;
use runner::{CommitResult, Runner};

mod check;
mod handed;
mod place;
mod rebuild;
mod runner;

pub use handed::HandedCopy;
pub use place::{CopyPlace, FilePlace, Identity, NewMap};

/// Time after which a copy is dropped if it has not made a commit durable, measured from the start of the commit.
/// Bounds how long guests that need a new extent wait for a disk that hangs.
pub const HANG_MAX: Duration = Duration::from_millis(900);

/// [`HANG_MAX`] for a commit that writes all places of a volume. A snapshot of 1 000 000 extents takes half a second,
/// so 16 times as many fit.
const HANG_MAX_OF_A_VOLUME: Duration = Duration::from_secs(8);

/// Reason a commit is not acknowledged.
#[derive(Debug)]
pub enum CommitError {
    /// A change is invalid. Nothing was changed.
    Refused(ArrayError),
    /// No copy could make the commit durable, and none has it.
    NotDone(ArrayError),
    /// The durability of the commit is unknown. [`Copies::resolve`] tries again; until then no other commit is made.
    InDoubt(ArrayError),
}

impl CommitError {
    /// Returns the cause.
    pub fn into_error(self) -> ArrayError {
        match self {
            CommitError::Refused(e) | CommitError::NotDone(e) | CommitError::InDoubt(e) => e,
        }
    }
}

/// Health of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyHealth {
    /// Has every commit.
    Member,
    /// Has every commit, but its file was removed: it is lost when it is closed.
    Removed,
    /// Is a member, but its file has damaged pages or records, and no other copy is intact.
    Damaged { why: String },
    /// Is being rebuilt.
    Rebuilding { why: String },
    /// Gets no commits.
    Dropped { why: String },
}

#[derive(Debug)]
struct Slot {
    place: Arc<dyn CopyPlace>,
    /// None while the copy is no member, or could not be reopened.
    array: Option<Arc<Array>>,
    /// Identity of the file when the copy was opened.
    identity: Identity,
    /// Result of the thread that opens the copy, while it runs.
    opening: Option<Receiver<Result<Array, ArrayError>>>,
    member: bool,
    /// The file was removed from its path, though it is still open.
    removed: bool,
    /// Damage that a verification found in its open file.
    damaged: Option<String>,
    why: String,
}

impl Slot {
    fn opened(&mut self, opened: Result<Array, ArrayError>) {
        match opened {
            Ok(array) => {
                self.array = Some(Arc::new(array));
                self.identity = self.place.identity();
            }
            Err(error) => self.why = explain(&error),
        }
    }
}

/// Map with its copies. All methods are for one thread.
pub struct Copies {
    id: ArrayId,
    extent: Bytes,
    slots: [Option<Slot>; 2],
    /// State after the last commit.
    state: MapState,
    runner: Runner,
    /// Commit whose durability no copy can report.
    doubt: Option<Arc<[Change]>>,
    rebuild: Option<Rebuild>,
    /// Identities of the members' files, from a thread that reads them.
    looking: Option<Receiver<Vec<(CopyId, Identity)>>>,
    /// Running verification of the members' files.
    check: Option<check::Check>,
}

impl Debug for Copies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Copies({}, {:?})", self.id, self.state)
    }
}

impl Copies {
    /// Creates a map with one copy, which is open. [`Copies::add`] adds the other one.
    ///
    /// # Errors
    /// The state record of the map is unreadable.
    pub fn new(copy: CopyId, place: Box<dyn CopyPlace>, array: Array) -> Result<Self, ArrayError> {
        let state = array.state()?;
        let (id, extent) = (array.id(), array.extent());
        let identity = place.identity();
        let mut copies = Self {
            id,
            extent,
            slots: [None, None],
            state,
            runner: Runner::Inline,
            doubt: None,
            rebuild: None,
            looking: None,
            check: None,
        };
        copies.slots[copy.index()] = Some(Slot {
            place: place.into(),
            array: Some(Arc::new(array)),
            identity,
            opening: None,
            removed: false,
            damaged: None,
            member: true,
            why: String::new(),
        });
        Ok(copies)
    }

    /// Adds the other copy. It becomes a member if it is open and has the same content; otherwise it has to be rebuilt.
    pub fn add(
        &mut self,
        copy: CopyId,
        place: Box<dyn CopyPlace>,
        current: Option<Array>,
        why: impl Into<String>,
    ) {
        self.slots[copy.index()] = Some(Slot {
            identity: match current {
                Some(_) => place.identity(),
                None => Identity::Unknown,
            },
            place: place.into(),
            member: current.is_some(),
            array: current.map(Arc::new),
            opening: None,
            removed: false,
            damaged: None,
            why: why.into(),
        });
    }

    /// Removes a copy that is no member.
    pub fn forget(&mut self, copy: CopyId) {
        if !self.is_member(copy) {
            self.slots[copy.index()] = None;
            self.rebuild.take_if(|r| r.copy == copy);
        }
    }

    /// Runs commits in one thread per copy, so a copy that hangs can be dropped.
    pub fn run_in_threads(&mut self) {
        self.runner = Runner::threads();
    }

    /// The array's id.
    pub fn id(&self) -> ArrayId {
        self.id
    }

    /// Size of an extent.
    pub fn extent(&self) -> Bytes {
        self.extent
    }

    /// Returns the map's own state record.
    pub fn state(&self) -> &MapState {
        &self.state
    }

    /// Returns the copies that get commits.
    pub fn members(&self) -> Members {
        Members {
            first: self.is_member(CopyId::First),
            second: self.is_member(CopyId::Second),
        }
    }

    /// Returns true if the copies that get commits are those of the confirmed membership. If not, nothing may be
    /// acknowledged before a new membership is confirmed.
    pub fn confirmed(&self) -> bool {
        self.members() == self.state.confirmed.members
    }

    /// Returns true if it is unknown whether the last commit is durable.
    pub fn in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    fn is_member(&self, copy: CopyId) -> bool {
        let slot = self.slots[copy.index()].as_ref();
        slot.is_some_and(|s| s.member)
    }

    /// Returns the copies with their places and health.
    pub fn health(&self) -> Vec<(CopyId, String, CopyHealth)> {
        let of = |copy: CopyId| {
            let slot = self.slots[copy.index()].as_ref()?;
            let health = match &self.rebuild {
                _ if slot.member && slot.removed => CopyHealth::Removed,
                _ if slot.member && slot.damaged.is_some() => CopyHealth::Damaged {
                    why: slot.damaged.clone().unwrap_or_default(),
                },
                _ if slot.member => CopyHealth::Member,
                Some(r) if r.copy == copy => CopyHealth::Rebuilding {
                    why: slot.why.clone(),
                },
                _ => CopyHealth::Dropped {
                    why: slot.why.clone(),
                },
            };
            Some((copy, slot.place.name(), health))
        };
        CopyId::ALL.into_iter().filter_map(of).collect()
    }

    /// Returns the members whose file systems are full, with the size of the missing reserve of each.
    pub fn without_reserve(&self) -> Vec<(String, Bytes)> {
        let members = self.slots.iter().flatten().filter(|s| s.member);
        let missing = members.filter_map(|slot| {
            let file = slot.array.as_ref()?.file.as_ref()?;
            (!file.has_reserve()).then(|| (slot.place.name(), file.reserve_bytes()))
        });
        missing.collect()
    }

    /// Returns an open copy for reading.
    ///
    /// # Errors
    /// No copy is open.
    pub fn array(&self) -> Result<&Array, ArrayError> {
        self.open_member().map(|a| &**a)
    }

    /// Returns an open copy for a longer read, parallel to other operations.
    ///
    /// # Errors
    /// No copy is open.
    pub fn reader(&self) -> Result<Arc<Array>, ArrayError> {
        self.open_member().cloned()
    }

    fn open_member(&self) -> Result<&Arc<Array>, ArrayError> {
        let members = self.slots.iter().flatten().filter(|s| s.member);
        let open = members.filter_map(|s| s.array.as_ref()).next();
        open.ok_or_else(|| ArrayError::Away {
            why: self.why_away(),
        })
    }

    fn why_away(&self) -> String {
        let slots = self.slots.iter().flatten();
        let whys: Vec<String> = slots
            .map(|s| format!("{}: {}", s.place.name(), s.why))
            .collect();
        whys.join("; ")
    }

    /// Makes all changes in every member, or in none.
    ///
    /// If it succeeds but [`Copies::confirmed`] is false afterwards, a copy was dropped. Nothing may be acknowledged
    /// before a new membership is confirmed.
    ///
    /// # Errors
    /// [`CommitError`].
    pub fn commit(&mut self, changes: &[Change]) -> Result<(), CommitError> {
        if changes.is_empty() {
            return Ok(());
        }
        if self.in_doubt() {
            return Err(CommitError::NotDone(ArrayError::Away {
                why: self.why_away(),
            }));
        }
        let changes: Arc<[Change]> = changes.into();
        let results = self.carry_out(&changes);
        self.settle(changes, results)
    }

    /// Commits in all members and returns the result of each, `None` if it hangs.
    fn carry_out(&mut self, changes: &Arc<[Change]>) -> Vec<(CopyId, CommitResult)> {
        let members = CopyId::ALL.into_iter().filter_map(|copy| {
            let slot = self.slots[copy.index()].as_ref().filter(|s| s.member)?;
            Some((copy, slot.array.clone()?))
        });
        let members = members.collect();
        self.runner.commit(members, changes)
    }

    /// Combines the results of the copies into one result for the caller.
    fn settle(
        &mut self,
        changes: Arc<[Change]>,
        results: Vec<(CopyId, CommitResult)>,
    ) -> Result<(), CommitError> {
        let durable = results.iter().any(|r| matches!(r.1, Some(Ok(()))));
        let (mut refused, mut failed) = (None, vec![]);
        for (copy, mut result) in results {
            if let Some(Err(ArrayError::NoSpace { place, .. })) = &mut result {
                let slot = self.slots[copy.index()].as_ref();
                *place = slot.expect("it is a member").place.name();
            }
            match result {
                Some(Ok(())) => {}
                // Copies differ if one has the commit and another refuses it.
                Some(Err(e)) if !durable && !in_doubt(&e) => refused = Some(e),
                Some(Err(e)) => failed.push((copy, explain(&e), Some(e))),
                None => failed.push((copy, "it did not answer within a second".into(), None)),
            }
        }
        if durable {
            for (copy, why, _) in failed {
                self.drop_copy(copy, why);
            }
            self.took(changes);
            return Ok(());
        }
        if let Some(refused) = refused {
            for (copy, why, _) in failed {
                self.drop_copy(copy, why);
            }
            return Err(CommitError::Refused(refused));
        }
        let mut cause = None;
        for (copy, why, error) in failed {
            let slot = self.slots[copy.index()].as_mut().expect("it is a member");
            // A failed store must be reopened before further use.
            slot.array = None;
            slot.why = why.clone();
            cause = cause.or(Some(error.unwrap_or(ArrayError::Away { why })));
        }
        let cause = cause.unwrap_or_else(|| ArrayError::Away {
            why: "it has no copy".into(),
        });
        self.doubt = Some(changes);
        match self.resolve() {
            Some(true) => Ok(()),
            Some(false) => Err(CommitError::NotDone(cause)),
            None => {
                // It is unknown which commits the rebuilt copy lacks.
                self.give_up_rebuild("the content of the map was unknown for some time");
                Err(CommitError::InDoubt(cause))
            }
        }
    }

    /// Records a durable commit.
    fn took(&mut self, changes: Arc<[Change]>) {
        self.state.commits += 1;
        for change in changes.iter() {
            match change {
                Change::Propose { membership, .. } => self.state.propose(*membership),
                Change::Confirm { .. } => {
                    let confirmed = self.state.confirm();
                    assert!(confirmed.is_some(), "what is confirmed was proposed");
                }
                Change::SetSecondCopy(second) => self.state.second = second.clone(),
                Change::SetLease(lease) => self.state.lease = Some(lease.clone()),
                _ => {}
            }
        }
        let number = self.state.commits;
        if let Some(rebuild) = &mut self.rebuild
            && !rebuild.commit(number, &changes)
        {
            self.give_up_rebuild("too many changes during the copy");
        }
    }

    /// Stops commits to a copy.
    fn drop_copy(&mut self, copy: CopyId, why: String) {
        let slot = self.slots[copy.index()].as_mut();
        let slot = slot.expect("only a member is dropped");
        slot.member = false;
        slot.array = None;
        slot.opening = None;
        slot.why = why;
    }

    /// Reads back if the commit in doubt is durable. Returns `None` if no copy can tell yet, or if no commit is in
    /// doubt.
    ///
    /// Copies that cannot be opened are dropped as soon as another one can.
    pub fn resolve(&mut self) -> Option<bool> {
        self.doubt.as_ref()?;
        self.check = None; // it has the files open
        self.open_members();
        let mut found: Vec<(CopyId, MapState)> = vec![];
        for copy in CopyId::ALL {
            let Some(slot) = self.slots[copy.index()].as_mut().filter(|s| s.member) else {
                continue;
            };
            let state = slot.array.as_ref().map(|a| a.state());
            match state {
                Some(Ok(state)) => found.push((copy, state)),
                Some(Err(error)) => {
                    slot.array = None;
                    slot.why = explain(&error);
                }
                None => {}
            }
        }
        let most = found.iter().map(|f| f.1.commits).max()?;
        for copy in CopyId::ALL {
            let behind = !found.iter().any(|f| f.0 == copy && f.1.commits == most);
            if behind && self.is_member(copy) {
                let slot = self.slots[copy.index()].as_ref().expect("it is a member");
                let why = slot.why.clone();
                self.drop_copy(copy, why);
            }
        }
        let changes = self.doubt.take()?;
        let durable = most > self.state.commits;
        if durable {
            self.took(changes);
        }
        Some(durable)
    }

    /// Opens the members that are closed. Copies with threads get at most [`HANG_MAX`].
    fn open_members(&mut self) {
        let threaded = self.runner.has_threads();
        self.looking = None; // its results may be outdated
        let members = self.slots.iter_mut().flatten();
        let closed: Vec<&mut Slot> = members.filter(|s| s.member && s.array.is_none()).collect();
        let mut waiting = vec![];
        for slot in closed {
            if threaded && slot.opening.is_none() {
                slot.opening = open_in_thread(slot.place.clone());
            }
            match slot.opening.take() {
                Some(opening) => waiting.push((slot, opening)),
                None => slot.opened(slot.place.open()),
            }
        }
        let mut left = HANG_MAX;
        for (slot, opening) in waiting {
            match runner::wait(&opening, &mut left) {
                Ok(opened) => slot.opened(opened),
                Err(RecvTimeoutError::Timeout) => {
                    slot.why = "it cannot be opened within a second".into();
                    slot.opening = Some(opening);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    slot.why = "the thread that opens it has ended".into();
                }
            }
        }
    }

    /// Starts to rebuild a copy that is no member, in the background. Does nothing while a rebuild runs.
    ///
    /// # Errors
    /// A thread could not be started. [`Copies::health`] reports later errors.
    pub fn begin_rebuild(&mut self, copy: CopyId) -> Result<(), ArrayError> {
        if self.rebuild.is_some() || self.is_member(copy) || self.in_doubt() {
            return Ok(());
        }
        let from = self.slots[copy.other().index()].as_ref();
        let from = from.and_then(|s| s.array.clone());
        let (Some(from), Some(slot)) = (from, &self.slots[copy.index()]) else {
            return Ok(());
        };
        let plan = rebuild::Plan {
            place: slot.place.clone(),
            from,
        };
        let threaded = self.runner.has_threads();
        let begun = Rebuild::begin(copy, plan, self.state.commits, threaded)?;
        self.rebuild = Some(begun);
        Ok(())
    }

    /// Takes a copy whose rebuild is complete and makes it a member, which requires a new membership. Returns true if
    /// there was one. Waits at most [`HANG_MAX`].
    pub fn end_rebuild(&mut self) -> bool {
        let Some(rebuild) = self.rebuild.take_if(|r| r.is_near_its_end()) else {
            return false;
        };
        let copy = rebuild.copy;
        self.looking = None; // its results may be outdated
        let ended = rebuild.end(&self.state);
        let slot = self.slots[copy.index()].as_mut();
        let slot = slot.expect("it is forgotten with what makes it anew");
        match ended {
            Ok(array) => {
                slot.array = Some(Arc::new(array));
                slot.identity = slot.place.identity();
                slot.removed = false;
                slot.damaged = None;
                slot.member = true;
                true
            }
            Err(error) => {
                slot.why = explain(&error);
                false
            }
        }
    }

    /// Discards the copy that is being rebuilt.
    fn give_up_rebuild(&mut self, why: &str) {
        if let Some(rebuild) = self.rebuild.take() {
            self.say(rebuild.copy, why);
        }
    }

    fn say(&mut self, copy: CopyId, why: impl Into<String>) {
        if let Some(slot) = &mut self.slots[copy.index()] {
            slot.why = why.into();
        }
    }

    /// Verifies in the background that the files of the members are still in place, and allocates missing reserves.
    /// Drops a member whose file was removed or replaced, if another member exists. Does nothing without threads.
    pub fn look_at_places(&mut self) {
        if !self.runner.has_threads() {
            return;
        }
        let seen = match self.looking.as_ref().map(Receiver::try_recv) {
            Some(Ok(seen)) => seen,
            Some(Err(TryRecvError::Empty)) => return,
            Some(Err(TryRecvError::Disconnected)) | None => vec![],
        };
        self.looking = None;
        for (copy, found) in seen {
            let Some(slot) = self.slots[copy.index()].as_mut().filter(|s| s.member) else {
                continue;
            };
            let same = found == slot.identity || found == Identity::Unknown;
            slot.removed = !same && slot.identity != Identity::Unknown;
            if slot.removed && self.is_member(copy.other()) {
                self.drop_copy(copy, "its file was removed or replaced".into());
                break;
            }
        }
        let members = CopyId::ALL.into_iter().filter_map(|copy| {
            let slot = self.slots[copy.index()].as_ref().filter(|s| s.member)?;
            let file = slot.array.as_ref().and_then(|a| a.file.as_ref());
            let file = file.map(Arc::downgrade).unwrap_or_default();
            Some((copy, slot.place.clone(), file))
        });
        let members: Vec<_> = members.collect();
        let (sender, looking) = channel();
        let look = move || {
            let one = |(copy, place, file): (CopyId, Arc<dyn CopyPlace>, Weak<MapFile>)| {
                if let Some(file) = file.upgrade().filter(|f| !f.has_reserve()) {
                    let _ = file.take_reserve(); // it is tried again
                }
                (copy, place.identity())
            };
            let _ = sender.send(members.into_iter().map(one).collect());
        };
        let spawned = std::thread::Builder::new()
            .name("terrace-map-look".into())
            .spawn(look);
        self.looking = spawned.is_ok().then_some(looking);
    }

    /// Drops a copy at an operator's request, or because the devices could not be stamped with a membership that has
    /// it.
    pub fn exclude(&mut self, copy: CopyId, why: impl Into<String>) {
        if self.is_member(copy) {
            self.drop_copy(copy, why.into());
        }
    }

    /// [`Array::tiers`].
    pub fn tiers(&self) -> Result<Vec<TierRecord>, ArrayError> {
        self.array()?.tiers()
    }

    /// [`Array::devices`].
    pub fn devices(&self) -> Result<Vec<DeviceRecord>, ArrayError> {
        self.array()?.devices()
    }

    /// [`Array::volumes`].
    pub fn volumes(&self) -> Result<Vec<VolumeRecord>, ArrayError> {
        self.array()?.volumes()
    }

    /// [`Array::moves`].
    pub fn moves(&self) -> Result<Vec<MoveRecord>, ArrayError> {
        self.array()?.moves()
    }

    /// [`Array::stamps`].
    pub fn stamps(&self) -> Result<Vec<DeviceStamp>, ArrayError> {
        self.array()?.stamps()
    }

    /// [`Array::places`].
    pub fn places(&self, volume: VolumeId) -> Result<Vec<Option<Location>>, ArrayError> {
        self.array()?.places(volume)
    }

    /// [`Array::changed_between`].
    pub fn changed_between(
        &self,
        from: Option<VolumeId>,
        to: VolumeId,
    ) -> Result<Vec<u32>, ArrayError> {
        self.array()?.changed_between(from, to)
    }

    /// [`Array::extents`].
    pub fn extents(&self, volume: VolumeId) -> Result<Vec<Extent>, ArrayError> {
        self.array()?.extents(volume)
    }

    /// [`Array::check`].
    pub fn check(&self) -> Result<CheckReport, ArrayError> {
        self.array()?.check()
    }
}

/// Starts to open a copy in a thread; `None` if no thread could be started.
fn open_in_thread(place: Arc<dyn CopyPlace>) -> Option<Receiver<Result<Array, ArrayError>>> {
    let (sender, opening) = channel();
    let spawned = std::thread::Builder::new()
        .name("terrace-map-open".into())
        .spawn(move || drop(sender.send(place.open())));
    spawned.is_ok().then_some(opening)
}

/// Returns true if a commit that ended with this error may be durable: the store failed, not a check of the changes.
fn in_doubt(error: &ArrayError) -> bool {
    matches!(error, ArrayError::Store { .. } | ArrayError::Damaged { .. })
}

fn explain(error: &ArrayError) -> String {
    if let ArrayError::Away { why } = error {
        return why.clone();
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
