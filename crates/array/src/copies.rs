//! The copies of a map: every commit goes to all that are members, and is over when all of them have it.
//!
//! ```text
//!                 ┌──▶ first   ARRAY/map.redb ─────┐ both durable ─────────▶ done
//!   commit ───────┤                                ├ one failed, or took longer than a second
//!                 └──▶ second  on another device ──┘  ─▶ it is dropped; done, once the others are told (membership)
//!                                                    neither: opened again and read back, which says whether it is durable
//! ```
//!
//! So no commit is in doubt for whoever waits for it: it is durable, or it never was, or the answer comes later, when one of the
//! copies can be read again ([`CommitError::InDoubt`]).
//!
//! A copy that was dropped is made anew in the background ([`Copies::rebuild`]) and becomes a member again with the next membership.
//!
//! # What it is not
//!
//! No membership: whoever drives it stamps the devices between [`Change::Propose`] and [`Change::Confirm`]
//! (`datapath::members` does). It knows no clock but the wait for a copy that hangs.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use units::{Bytes, VolumeId};
use volume::Location;

use crate::commit::Change;
use crate::create::sync_dir;
use crate::membership::{CopyId, MapState, Members};
use crate::problem::CheckReport;
use crate::record::{DeviceRecord, Extent, MoveRecord, TierRecord, VolumeRecord};
use crate::{Array, ArrayError, ArrayId, DeviceStamp};

/// A copy that has not made a commit durable for so long is dropped. Bounds how long guests that need a new extent wait for a disk
/// that hangs; measured from when it was asked.
pub const HANG_MAX: Duration = Duration::from_millis(900);

/// Commits that are kept for a copy that is being rebuilt; if there are more meanwhile, it is begun anew. Bounds memory.
const REBUILD_LOG_MAX: usize = 100_000;

/// Where a copy of a map is.
pub trait CopyPlace: Send + Sync + Debug {
    /// How it is called in messages.
    fn name(&self) -> String;

    /// Opens it.
    ///
    /// # Errors
    /// [`ArrayError::Missing`] where there is none, and whatever else is wrong with it.
    fn open(&self) -> Result<Array, ArrayError>;

    /// Begins a new map there, aside of what is there if that can be.
    ///
    /// # Errors
    /// [`ArrayError`].
    fn begin(&self, id: ArrayId, extent: Bytes) -> Result<Array, ArrayError>;

    /// Puts the new map in the place of what was there.
    ///
    /// # Errors
    /// [`ArrayError`].
    fn replace(&self) -> Result<(), ArrayError>;
}

/// A copy in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePlace(pub PathBuf);

impl FilePlace {
    fn fresh(&self) -> PathBuf {
        let mut name = self.0.file_name().unwrap_or_default().to_os_string();
        name.push(".new");
        self.0.with_file_name(name)
    }
}

impl CopyPlace for FilePlace {
    fn name(&self) -> String {
        self.0.display().to_string()
    }

    fn open(&self) -> Result<Array, ArrayError> {
        Array::open_file(&self.0)
    }

    fn begin(&self, id: ArrayId, extent: Bytes) -> Result<Array, ArrayError> {
        Array::create_file(&self.fresh(), id, extent)
    }

    fn replace(&self) -> Result<(), ArrayError> {
        std::fs::rename(self.fresh(), &self.0).map_err(ArrayError::io("replace", &self.0))?;
        let dir = self.0.parent().filter(|d| *d != Path::new(""));
        sync_dir(dir.unwrap_or(Path::new(".")))
    }
}

/// Why a commit is not acknowledged.
#[derive(Debug)]
pub enum CommitError {
    /// One of its changes is not valid: nothing was done.
    Refused(ArrayError),
    /// No copy could make it durable, and it is certain that none has.
    NotDone(ArrayError),
    /// No copy can say whether it is durable. [`Copies::resolve`] asks again; until then nothing else is committed.
    InDoubt(ArrayError),
}

impl CommitError {
    /// What went wrong.
    pub fn into_error(self) -> ArrayError {
        match self {
            CommitError::Refused(e) | CommitError::NotDone(e) | CommitError::InDoubt(e) => e,
        }
    }
}

/// How a copy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyHealth {
    /// Every commit is in it.
    Member,
    /// It is being made anew.
    Rebuilding,
    /// It is not kept up to date.
    Dropped {
        /// Why.
        why: String,
    },
}

/// How commits reach a copy.
#[derive(Debug)]
enum Runner {
    /// By the caller, one after the other.
    Inline,
    /// By a thread for each copy, at the same time, so that one that hangs can be given up.
    Threads([Option<Sender<Job>>; 2]),
}

struct Job {
    array: Arc<Array>,
    changes: Arc<[Change]>,
    done: Sender<(CopyId, Result<(), ArrayError>)>,
    copy: CopyId,
}

#[derive(Debug)]
struct Slot {
    place: Arc<dyn CopyPlace>,
    /// None while it is not a member, or could not be opened again.
    array: Option<Arc<Array>>,
    member: bool,
    why: String,
}

/// A copy that is being made anew.
struct Rebuild {
    copy: CopyId,
    done: Receiver<Result<(Array, u64), ArrayError>>,
    /// Commits since it was begun, to be made up for.
    log: Vec<Arc<[Change]>>,
    /// Number of the first of them.
    first: u64,
    overflow: bool,
}

/// A map with its copies. All methods are for one thread.
pub struct Copies {
    id: ArrayId,
    extent: Bytes,
    slots: [Option<Slot>; 2],
    /// As the last commit left it.
    state: MapState,
    runner: Runner,
    /// The commit of which no copy can say whether it is durable.
    doubt: Option<Arc<[Change]>>,
    rebuild: Option<Rebuild>,
}

impl Debug for Copies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Copies({}, {:?})", self.id, self.state)
    }
}

impl Copies {
    /// A map of one copy, already open. `other` is the place of the other, which may be one later.
    ///
    /// # Errors
    /// [`ArrayError`], if it does not say what it is.
    pub fn new(copy: CopyId, place: Box<dyn CopyPlace>, array: Array) -> Result<Self, ArrayError> {
        let state = array.state()?;
        let (id, extent) = (array.id(), array.extent());
        let mut copies = Self {
            id,
            extent,
            slots: [None, None],
            state,
            runner: Runner::Inline,
            doubt: None,
            rebuild: None,
        };
        copies.slots[copy.index()] = Some(Slot {
            place: place.into(),
            array: Some(Arc::new(array)),
            member: true,
            why: String::new(),
        });
        Ok(copies)
    }

    /// Adds the other copy: as a member, if it is open and holds the same; else as one that is to be rebuilt.
    pub fn add(
        &mut self,
        copy: CopyId,
        place: Box<dyn CopyPlace>,
        current: Option<Array>,
        why: impl Into<String>,
    ) {
        self.slots[copy.index()] = Some(Slot {
            place: place.into(),
            member: current.is_some(),
            array: current.map(Arc::new),
            why: why.into(),
        });
    }

    /// Forgets a copy that is no member.
    pub fn forget(&mut self, copy: CopyId) {
        if !self.is_member(copy) {
            self.slots[copy.index()] = None;
            self.rebuild.take_if(|r| r.copy == copy);
        }
    }

    /// Lets a thread for each copy make commits, so that one that hangs is dropped.
    pub fn run_in_threads(&mut self) {
        self.runner = Runner::Threads([None, None]);
    }

    /// The array's id.
    pub fn id(&self) -> ArrayId {
        self.id
    }

    /// Size of an extent.
    pub fn extent(&self) -> Bytes {
        self.extent
    }

    /// What the map says of itself.
    pub fn state(&self) -> &MapState {
        &self.state
    }

    /// The copies that commits go to.
    pub fn members(&self) -> Members {
        Members {
            first: self.is_member(CopyId::First),
            second: self.is_member(CopyId::Second),
        }
    }

    /// Whether the copies that commits go to are those of the membership that was confirmed. If not, nothing may be acknowledged before
    /// there is another membership.
    pub fn confirmed(&self) -> bool {
        self.members() == self.state.confirmed.members
    }

    /// Whether no copy can say if the last commit is durable.
    pub fn in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    fn is_member(&self, copy: CopyId) -> bool {
        let slot = self.slots[copy.index()].as_ref();
        slot.is_some_and(|s| s.member)
    }

    /// The copies, where they are, and how.
    pub fn health(&self) -> Vec<(CopyId, String, CopyHealth)> {
        let of = |copy: CopyId| {
            let slot = self.slots[copy.index()].as_ref()?;
            let health = match &self.rebuild {
                _ if slot.member => CopyHealth::Member,
                Some(r) if r.copy == copy => CopyHealth::Rebuilding,
                _ => CopyHealth::Dropped {
                    why: slot.why.clone(),
                },
            };
            Some((copy, slot.place.name(), health))
        };
        CopyId::ALL.into_iter().filter_map(of).collect()
    }

    /// A copy to read from.
    ///
    /// # Errors
    /// While none is open.
    pub fn array(&self) -> Result<&Array, ArrayError> {
        let members = self.slots.iter().flatten().filter(|s| s.member);
        let open = members.filter_map(|s| s.array.as_deref()).next();
        open.ok_or_else(|| ArrayError::Away {
            why: self.why_away(),
        })
    }

    /// A copy to read from for a while, beside what goes on.
    ///
    /// # Errors
    /// While none is open.
    pub fn reader(&self) -> Result<Arc<Array>, ArrayError> {
        self.array()?;
        let members = self.slots.iter().flatten().filter(|s| s.member);
        Ok(members
            .filter_map(|s| s.array.clone())
            .next()
            .expect("one is open"))
    }

    fn why_away(&self) -> String {
        let slots = self.slots.iter().flatten();
        let whys: Vec<String> = slots
            .map(|s| format!("{}: {}", s.place.name(), s.why))
            .collect();
        whys.join("; ")
    }

    /// Makes all changes in every copy that is a member; or none anywhere.
    ///
    /// If it succeeds and the copies are not those of the confirmed membership any more ([`Copies::confirmed`]), a copy was dropped:
    /// nothing is to be acknowledged before there is another membership.
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

    /// Commits in all members; what each of them says, `None` if it hangs.
    #[expect(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "a copy that hangs is given up by time"
    )]
    fn carry_out(
        &mut self,
        changes: &Arc<[Change]>,
    ) -> Vec<(CopyId, Option<Result<(), ArrayError>>)> {
        let members: Vec<(CopyId, Arc<Array>)> = CopyId::ALL
            .into_iter()
            .filter_map(|copy| {
                let slot = self.slots[copy.index()].as_ref().filter(|s| s.member)?;
                Some((copy, slot.array.clone()?))
            })
            .collect();
        let threads = match &mut self.runner {
            Runner::Threads(threads) if members.len() > 1 => threads,
            _ => {
                let one = |(copy, array): (CopyId, Arc<Array>)| (copy, Some(array.commit(changes)));
                return members.into_iter().map(one).collect();
            }
        };
        let (done, answers) = channel();
        let mut results = vec![];
        for (copy, array) in members {
            let job = Job {
                array,
                changes: changes.clone(),
                done: done.clone(),
                copy,
            };
            if let Err(job) = hand_over(&mut threads[copy.index()], copy, job) {
                // No thread to be had: then here.
                results.push((copy, Some(job.array.commit(changes))));
            } else {
                results.push((copy, None));
            }
        }
        drop(done);
        let mut left = HANG_MAX;
        while results.iter().any(|r| r.1.is_none()) {
            let began = std::time::Instant::now();
            match answers.recv_timeout(left) {
                Ok((copy, result)) => {
                    let own = results.iter_mut().find(|r| r.0 == copy);
                    own.expect("it was asked").1 = Some(result);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
            left = left.saturating_sub(began.elapsed());
        }
        if let Runner::Threads(threads) = &mut self.runner {
            for (copy, result) in &results {
                if result.is_none() {
                    threads[copy.index()] = None; // it ends when the disk answers, if ever
                }
            }
        }
        results
    }

    /// Makes of what the copies say what the caller is told.
    fn settle(
        &mut self,
        changes: Arc<[Change]>,
        results: Vec<(CopyId, Option<Result<(), ArrayError>>)>,
    ) -> Result<(), CommitError> {
        let durable = results.iter().any(|r| matches!(r.1, Some(Ok(()))));
        let (mut refused, mut failed) = (None, vec![]);
        for (copy, result) in results {
            match result {
                Some(Ok(())) => {}
                // One that has it, and another that refuses it, are not alike.
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
            // A store that failed says nothing more before it is opened again.
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
                if let Some(rebuild) = &mut self.rebuild {
                    rebuild.overflow = true; // what it lacks is not known
                }
                Err(CommitError::InDoubt(cause))
            }
        }
    }

    /// A commit is durable.
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
                _ => {}
            }
        }
        if let Some(rebuild) = &mut self.rebuild {
            rebuild.overflow |= rebuild.log.len() == REBUILD_LOG_MAX;
            if !rebuild.overflow {
                rebuild.log.push(changes);
            }
        }
    }

    /// Commits do not go to a copy any more.
    fn drop_copy(&mut self, copy: CopyId, why: String) {
        let slot = self.slots[copy.index()].as_mut();
        let slot = slot.expect("only a member is dropped");
        slot.member = false;
        slot.array = None;
        slot.why = why;
    }

    /// Reads back whether the commit in doubt is durable: `None` if no copy can say so yet, or there is none in doubt.
    ///
    /// Copies that cannot be opened are dropped once another one can.
    pub fn resolve(&mut self) -> Option<bool> {
        self.doubt.as_ref()?;
        let mut found: Vec<(CopyId, MapState)> = vec![];
        for copy in CopyId::ALL {
            let Some(slot) = self.slots[copy.index()].as_mut().filter(|s| s.member) else {
                continue;
            };
            if slot.array.is_none() {
                match slot.place.open() {
                    Ok(array) => slot.array = Some(Arc::new(array)),
                    Err(error) => slot.why = explain(&error),
                }
            }
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

    /// Begins to make a copy anew that is no member, in the background; nothing, if one is being made.
    ///
    /// # Errors
    /// When there is no thread for it. What else goes wrong [`Copies::health`] says.
    pub fn begin_rebuild(&mut self, copy: CopyId) -> Result<(), ArrayError> {
        if self.rebuild.is_some() || self.is_member(copy) || self.in_doubt() {
            return Ok(());
        }
        let from = self.slots[copy.other().index()].as_ref();
        let from = from.and_then(|s| s.array.clone());
        let (Some(from), Some(slot)) = (from, &self.slots[copy.index()]) else {
            return Ok(());
        };
        let (place, id, extent) = (slot.place.clone(), self.id, self.extent);
        let (sender, done) = channel();
        let fill = move || {
            let filled = place.begin(id, extent).and_then(|made| {
                let commits = from.copy_into(&made)?;
                Ok((made, commits))
            });
            drop(from); // it may have to be opened again
            let _ = sender.send(filled);
        };
        match &self.runner {
            Runner::Inline => fill(),
            Runner::Threads(_) => {
                let spawned = std::thread::Builder::new()
                    .name("terrace-map-copy".into())
                    .spawn(fill);
                spawned.map_err(ArrayError::io(
                    "start a thread for",
                    Path::new("a map copy"),
                ))?;
            }
        }
        self.rebuild = Some(Rebuild {
            copy,
            done,
            log: vec![],
            first: self.state.commits,
            overflow: false,
        });
        Ok(())
    }

    /// Takes a copy that has been made anew, brings it up to date and makes it one that commits go to. Whether there is one: then there
    /// has to be another membership.
    pub fn end_rebuild(&mut self) -> bool {
        let Some(rebuild) = &self.rebuild else {
            return false;
        };
        let filled = match rebuild.done.try_recv() {
            Ok(filled) => filled,
            Err(std::sync::mpsc::TryRecvError::Empty) => return false,
            Err(std::sync::mpsc::TryRecvError::Disconnected) => Err(ArrayError::Away {
                why: "the thread that copied it has ended".into(),
            }),
        };
        let Rebuild {
            copy,
            log,
            first,
            overflow,
            ..
        } = self.rebuild.take().expect("just looked at");
        if overflow || self.in_doubt() {
            self.say(copy, "too much changed while it was copied");
            return false;
        }
        let caught_up = filled.and_then(|(array, commits)| {
            let missed = commits.saturating_sub(first) as usize;
            for changes in log.iter().skip(missed) {
                array.commit(changes)?;
            }
            let (own, of_map) = (array.state()?, &self.state);
            if own != *of_map {
                return Err(ArrayError::Away {
                    why: "it is not like the map that it was copied from".into(),
                });
            }
            let slot = self.slots[copy.index()].as_ref();
            slot.expect("it is being rebuilt").place.replace()?;
            Ok(array)
        });
        let slot = self.slots[copy.index()].as_mut().expect("as above");
        match caught_up {
            Ok(array) => {
                slot.array = Some(Arc::new(array));
                slot.member = true;
                true
            }
            Err(error) => {
                slot.why = explain(&error);
                false
            }
        }
    }

    fn say(&mut self, copy: CopyId, why: impl Into<String>) {
        if let Some(slot) = &mut self.slots[copy.index()] {
            slot.why = why.into();
        }
    }

    /// Drops a copy on an operator's word, or because the membership without it could not be told to the devices.
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

    /// [`Array::extents`].
    pub fn extents(&self, volume: VolumeId) -> Result<Vec<Extent>, ArrayError> {
        self.array()?.extents(volume)
    }

    /// [`Array::check`].
    pub fn check(&self) -> Result<CheckReport, ArrayError> {
        self.array()?.check()
    }
}

/// Gives a copy's thread something to do, and starts one if there is none.
fn hand_over(thread: &mut Option<Sender<Job>>, copy: CopyId, job: Job) -> Result<(), Job> {
    let sender = match thread {
        Some(sender) => sender,
        None => {
            let (sender, jobs) = channel::<Job>();
            let work = move || {
                for job in jobs {
                    let Job {
                        array,
                        changes,
                        done,
                        copy,
                    } = job;
                    let result = array.commit(&changes);
                    drop(array); // before it is told: it may be opened again at once
                    let _ = done.send((copy, result));
                }
            };
            let spawned = std::thread::Builder::new()
                .name(format!("terrace-map-{}", copy.index()))
                .spawn(work);
            match spawned {
                Ok(_) => thread.insert(sender),
                Err(_) => return Err(job),
            }
        }
    };
    sender.send(job).map_err(|e| e.0)
}

/// Whether a commit that ended with this error may be durable: the store failed, and not a check of what was to be changed.
fn in_doubt(error: &ArrayError) -> bool {
    matches!(error, ArrayError::Store { .. })
}

fn explain(error: &ArrayError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
