//! Qualification: a test of the host's own QEMU, on its own storage and under its own confinement, for lost writes in copies.
//!
//! ```text
//!   for each storage in turn, until all have enough copies, the time is over, or a write is lost:
//!     QEMU with a new image ─▶ writes ─▶ copy, with writes to both images ─▶ pivot | cancel | kill ─▶ check of the image ─▶ rest
//! ```
//!
//! Under libvirt every second round starts the same program without libvirt. QEMU 10.0.2, which loses writes at starts, did so in one of
//! three of these rounds, and in none of 32 under libvirt, so rounds under libvirt alone prove nothing.
//!
//! Safety: it opens only files that it created in a new directory, starts only its own QEMU or transient domains named
//! `terrace-qualify-UUID` without network, and kills only that QEMU. At most one copy runs, at a limited rate. After a
//! round it rests as long as the round took, at most [`REST_MAX`]. The next qualification removes the files of a killed
//! one.

mod machine;
mod place;
pub mod record;
mod round;
mod writer;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::statvfs;
use vmhost::builds::{Build, CopyInitiator, Qualification};

use crate::error::{AgentError, Result, file_error};
use place::Place;
use record::{PIVOTS_NEEDED, Record, STARTS_NEEDED, StorageCounts};
use round::{End, Outcome};

/// Largest number of bytes that a qualification occupies on a storage: base, source, target, and a raw copy for the
/// check.
const BYTES_MAX: u64 = 4 * writer::DISK_BYTES;
/// Divisor of the free space: a qualification may take at most this fraction.
const FREE_SHARE: u64 = 10;
/// Time that is reserved for the last check and the cleanup.
const RESERVE: Duration = Duration::from_secs(10);
/// Longest rest between two rounds.
const REST_MAX: Duration = Duration::from_secs(5);
/// Number of rounds without any result after which a storage is abandoned.
const UNPROVEN_MAX: u32 = 3;
/// Ends of copies, in turn.
const ENDS: [End; 5] = [End::Pivot, End::Cancel, End::Pivot, End::Kill, End::Pivot];

/// Program that orders the copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// libvirt at this URI, or virsh's own default.
    Libvirt(Option<String>),
    /// Terrace, to this program of QEMU.
    Qemu(PathBuf),
}

impl Way {
    fn by(&self) -> CopyInitiator {
        match self {
            Way::Libvirt(_) => CopyInitiator::Libvirt,
            Way::Qemu(_) => CopyInitiator::Us,
        }
    }
}

/// Settings of a qualification.
#[derive(Debug, Clone)]
pub struct Settings {
    pub way: Way,
    /// Directories of images, one for each kind of storage.
    pub storages: Vec<PathBuf>,
    /// Time limit, including the cleanup.
    pub time: Duration,
}

/// Result of a qualification.
pub struct Finding {
    pub record: Record,
    /// File of the record, or the reason why there is none.
    pub kept: Result<PathBuf>,
}

/// Build and program of the first round, which must be the same in all later rounds.
struct TestedBuild {
    build: Build,
    /// Program of the QEMU that ran.
    program: PathBuf,
}

/// Runs a qualification. It ends early when `stops` returns true; `tell` receives lines of progress.
///
/// # Errors
/// Qualification is impossible on this host. All its files are removed.
pub fn qualify(
    settings: &Settings,
    stops: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&str),
) -> Result<Finding> {
    let began = Instant::now();
    let mut storages: Vec<(Place, StorageCounts)> = vec![];
    for path in &settings.storages {
        for dir in place::clean(path, end_left_behind)? {
            tell(&format!(
                "removed {}, left behind by a killed qualification",
                dir.display()
            ));
        }
        check_space(path)?;
        let place = Place::create(path, &settings.way)?;
        round::prepare(&place)?;
        let counts = StorageCounts {
            path: path.display().to_string(),
            ..StorageCounts::default()
        };
        storages.push((place, counts));
    }
    let mut tested: Option<TestedBuild> = None;
    let mut longest = Duration::ZERO;
    let mut n = 0;
    let ends_early = |longest: Duration| began.elapsed() + longest + RESERVE >= settings.time;
    while !stops() && !ends_early(longest) {
        let Some((place, counts)) = next(&mut storages) else {
            break;
        };
        let program = tested.as_ref().map(|t| t.program.clone());
        let since = Instant::now();
        let end = ENDS[counts.rounds() as usize % ENDS.len()];
        let way = match &program {
            Some(program) if counts.rounds() % 2 == 1 => Way::Qemu(program.clone()),
            _ => settings.way.clone(),
        };
        let result = round::run(&way, place, end, (n, counts.rounds()), &mut tested, stops)?;
        // A stop may break a round, but it never causes a lost write.
        if !stops() || matches!(result, Outcome::Checked { lost: 1.., .. }) {
            counts.add(end, &result);
        }
        n += 1;
        let took = since.elapsed();
        longest = longest.max(took);
        tell(&counts.line(end, &result));
        if counts.lost > 0 || !counts.faults.is_empty() {
            break;
        }
        if let (Outcome::Unproven(why), 0, UNPROVEN_MAX..) =
            (&result, counts.starts, counts.unproven)
        {
            return Err(AgentError::Unsupported(format!(
                "{}: no copy under writes is possible: {why}",
                counts.path
            )));
        }
        rest(took.min(REST_MAX), stops);
    }
    let too_short =
        "stopped before the first copy, or the time was too short: repeat it with more --minutes";
    let tested = tested.ok_or_else(|| AgentError::Unknown(too_short.into()))?;
    let build = tested.build;
    let id = build.id.clone();
    let nameless = "the QEMU program has no build-id, so its result cannot be recorded";
    let id = id.ok_or_else(|| AgentError::Unsupported(nameless.into()))?;
    let counts = storages.iter().map(|(_, counts)| counts.clone()).collect();
    let record = Record::new(&id, build.to_string(), settings.way.by(), counts);
    drop(storages);
    let kept = record::write(&record);
    Ok(Finding { record, kept })
}

/// Returns the storage with the fewest rounds among those without enough copies; `None` if all have enough.
fn next(storages: &mut [(Place, StorageCounts)]) -> Option<(&Place, &mut StorageCounts)> {
    let open = storages.iter_mut().filter(|(_, c)| !c.is_enough());
    open.min_by_key(|(_, c)| c.rounds()).map(|(p, c)| (&*p, c))
}

impl StorageCounts {
    fn rounds(&self) -> u32 {
        self.starts + self.unproven
    }

    fn is_enough(&self) -> bool {
        self.starts >= STARTS_NEEDED && self.pivots >= PIVOTS_NEEDED
    }

    fn add(&mut self, end: End, result: &Outcome) {
        match result {
            Outcome::Unproven(_) => self.unproven += 1,
            Outcome::Fault(why) => {
                self.starts += 1;
                self.faults.push(why.clone());
            }
            Outcome::Checked { writes, lost } => {
                self.starts += 1;
                self.writes += writes;
                self.lost += lost;
                match end {
                    End::Pivot => self.pivots += 1,
                    End::Cancel => self.cancels += 1,
                    End::Kill => self.kills += 1,
                }
            }
        }
    }

    /// Returns the state after a round as one line.
    fn line(&self, end: End, result: &Outcome) -> String {
        let what = match result {
            Outcome::Unproven(why) => format!("{end}: not counted: {why}"),
            Outcome::Fault(why) => format!("{end}: FAULT: {why}"),
            Outcome::Checked { writes, lost } => {
                format!("{end}: {writes} writes verified, {lost} lost")
            }
        };
        format!("{}: round {}, {what}", self.path, self.rounds())
    }
}

fn check_space(storage: &Path) -> Result<()> {
    let found = statvfs(storage).map_err(file_error("", storage))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if free / FREE_SHARE < BYTES_MAX {
        return Err(AgentError::Unsuitable(format!(
            "{}: {} MiB free, {} MiB needed: a qualification takes at most 10 % of the free space",
            storage.display(),
            free >> 20,
            (FREE_SHARE * BYTES_MAX) >> 20
        )));
    }
    Ok(())
}

/// Ends the QEMU of a killed qualification.
fn end_left_behind(way: &Way, uuid: &str) -> Result<()> {
    if let Way::Libvirt(uri) = way {
        machine::end(&machine::virsh(uri.as_ref()), uuid)?;
    }
    for pid in machine::processes(uuid) {
        machine::kill(pid, uuid)?;
    }
    Ok(())
}

fn rest(time: Duration, stops: &dyn Fn() -> bool) {
    let until = Instant::now() + time;
    while Instant::now() < until && !stops() {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the word for a result.
pub fn word(qualified: Qualification) -> &'static str {
    match qualified {
        Qualification::Passed => "qualified",
        Qualification::Undecided => "undecided",
        Qualification::Failed => "failed",
    }
}
