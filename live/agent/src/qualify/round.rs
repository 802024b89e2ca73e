//! One copy under verified writes, and the check of the image that must have them.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use vmhost::builds::Version;

use super::machine::{CopyState, Machine};
use super::place::{self, Place};
use super::writer::{DISK_BYTES, RoundWrites, Writer, write_base};
use super::{TestedBuild, Way};
use crate::error::{AgentError, Result, file_error, in_context};
use crate::process::run as run_program;

/// Rate of copies in bytes per second.
const RATE: u64 = 64 << 20;
/// Number of writes that must be acknowledged between the order to copy and the end of the copy, as proof that writes
/// were in flight.
const PROVEN: u32 = 8;
/// Number of writes before the copy.
const BEFORE: u32 = 32;
/// Time limit for a copy, and for the writes before it.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);
/// First version whose starts with `unmap` and cancels are safe while the guest runs. On older versions, copies start here without `unmap`,
/// and the writes pause at the end of a copy, as the agent pauses the guest.
const CAREFUL_BELOW: Version = Version::new(8, 0, 0);

/// Error text of qemu-img for an output that cannot be written, for example on a full file system. It is no evidence
/// about QEMU.
const WRITE_ERROR: &str = "error while writing";

/// End of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Pivot,
    Cancel,
    Kill,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            End::Pivot => "pivot",
            End::Cancel => "cancel",
            End::Kill => "kill",
        })
    }
}

/// Result of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The image was checked.
    Checked { writes: u64, lost: u64 },
    /// The storage was too slow, no writes were in flight, or an order was refused.
    Unproven(String),
    /// QEMU ended by itself, or refused writes.
    Fault(String),
}

/// Creates the image with which every round begins. Its clusters are small, and every other one is allocated.
///
/// # Errors
/// A file cannot be created.
pub(super) fn prepare(place: &Place) -> Result<()> {
    let written = write_base(&place.create_anew(place::RAW)?);
    written.map_err(file_error("", &place.dir))?;
    place.create_anew(place::BASE)?;
    let (raw, base) = (place.path(place::RAW), place.path(place::BASE));
    let mut convert = qemu_img();
    convert.args([
        "convert",
        "-f",
        "raw",
        "-O",
        "qcow2",
        "-o",
        "cluster_size=4k",
    ]);
    convert.arg(&raw).arg(base);
    let done = finish(convert);
    let _ = fs::remove_file(raw);
    done
}

fn qemu_img() -> Command {
    let mut command = Command::new("qemu-img");
    command.stdin(Stdio::null());
    command
}

fn finish(command: Command) -> Result<()> {
    let said = run_program(command, "qemu-img")?;
    match said.success {
        true => Ok(()),
        false => {
            let why = AgentError::Refused(said.error("it gave no reason"));
            Err(in_context("qemu-img")(why))
        }
    }
}

/// Runs one round. The numbers are its index among all rounds and among those of its storage. `tested` is the build of
/// the earlier rounds.
///
/// # Errors
/// Rounds cannot be run on this host.
pub(super) fn run(
    way: &Way,
    place: &Place,
    end: End,
    (n, of_storage): (u64, u32),
    tested: &mut Option<TestedBuild>,
    stops: &dyn Fn() -> bool,
) -> Result<Outcome> {
    // Alternates the format of the target after each cycle of ends.
    let format = if (of_storage / 5).is_multiple_of(2) {
        "raw"
    } else {
        "qcow2"
    };
    let is_careful = tested
        .as_ref()
        .is_some_and(|t| t.build.version < CAREFUL_BELOW);
    let unmap = !is_careful;
    copy_base(place)?;
    create_target(place, format)?;
    let mut machine = Machine::start(way, place, unmap)?;
    let now = TestedBuild {
        build: machine.build()?,
        program: machine.program()?,
    };
    match tested {
        None => {
            let is_old = now.build.version < CAREFUL_BELOW;
            *tested = Some(now);
            if is_old {
                machine.quit()?;
                return run(way, place, end, (n, of_storage), tested, stops);
            }
        }
        Some(TestedBuild { build: first, .. }) if *first != now.build => {
            let now = now.build;
            return Err(AgentError::Changed(format!(
                "QEMU was {first} and is {now} now: repeat the qualification"
            )));
        }
        Some(_) => {}
    }
    let (stream, export) = machine.export(place)?;
    let round = n + 1;
    let writer = Writer::start(stream, &export, round, end == End::Kill)?;
    let copied = copy(
        &mut machine,
        &writer,
        place,
        format,
        end,
        is_careful,
        n,
        stops,
    );
    let is_crash = copied.is_err() && machine.is_gone();
    // The writer ends before QEMU, so the end of QEMU interrupts no writes.
    let written = match end {
        End::Kill if copied.is_ok() => {
            machine.kill(place)?;
            writer.end()
        }
        _ => {
            let written = writer.end();
            // Under libvirt, QEMU may have ended already.
            let _ = machine.quit();
            written
        }
    };
    match (copied, written) {
        (Err(why), _) if is_crash => Ok(Outcome::Fault(format!("QEMU ended by itself: {why}"))),
        (Err(why), _) => Ok(Outcome::Unproven(why.to_string())),
        (Ok(()), Err(why)) => Ok(Outcome::Fault(why.to_string())),
        (Ok(()), Ok(written)) => check(place, end, format, &written),
    }
}

#[expect(clippy::too_many_arguments, reason = "all of one round")]
fn copy(
    machine: &mut Machine,
    writer: &Writer,
    place: &Place,
    format: &str,
    end: End,
    is_careful: bool,
    n: u64,
    stops: &dyn Fn() -> bool,
) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while writer.acknowledged() < BEFORE {
        if Instant::now() > until || stops() {
            return Err(AgentError::Silent("QEMU acknowledges no writes".into()));
        }
        std::thread::sleep(PAUSE);
    }
    let before = writer.acknowledged();
    let began = Instant::now();
    machine.copy(place, format, !is_careful, RATE)?;
    let proven = || writer.acknowledged() - before;
    if end == End::Kill {
        // Kill at varying moments during the copy and shortly after it.
        let moment = Duration::from_millis(100 + n * 389 % 1500);
        while began.elapsed() < moment || (proven() < PROVEN && began.elapsed() < PATIENCE) {
            std::thread::sleep(PAUSE);
        }
    } else {
        loop {
            match machine.copy_state()? {
                CopyState::Ready => break,
                CopyState::Ended => {
                    return Err(AgentError::Changed(
                        "the copy ended before it was ready".into(),
                    ));
                }
                CopyState::Copying if began.elapsed() < PATIENCE && !stops() => {
                    std::thread::sleep(PAUSE);
                }
                CopyState::Copying => {
                    return Err(AgentError::Silent("the copy takes too long".into()));
                }
            }
        }
        // Let writes go to both images for a moment.
        std::thread::sleep(4 * PAUSE);
    }
    if proven() < PROVEN {
        let n = proven();
        return Err(AgentError::Silent(format!("{n} writes during the copy")));
    }
    if end != End::Kill {
        writer.rest(is_careful)?;
        machine.end_copy(end == End::Pivot)?;
        writer.rest(false)?;
        // Let writes after the end go to the image that is checked.
        std::thread::sleep(8 * PAUSE);
    }
    Ok(())
}

fn copy_base(place: &Place) -> Result<()> {
    let mut source = place.create_anew(place::SOURCE)?;
    let copied =
        File::open(place.path(place::BASE)).and_then(|mut b| io::copy(&mut b, &mut source));
    copied.map(|_| ()).map_err(file_error("", &place.dir))
}

fn create_target(place: &Place, format: &str) -> Result<()> {
    let target = place.create_anew(place::TARGET)?;
    if format == "raw" {
        let sized = target.set_len(DISK_BYTES);
        return sized.map_err(file_error("", &place.dir));
    }
    let mut create = qemu_img();
    create.args(["create", "-q", "-f", format]);
    create
        .arg(place.path(place::TARGET))
        .arg(DISK_BYTES.to_string());
    finish(create)
}

/// Checks the image that is the disk's after the end of the copy.
fn check(place: &Place, end: End, format: &str, written: &RoundWrites) -> Result<Outcome> {
    let (image, format) = match end {
        End::Pivot => (place::TARGET, format),
        End::Cancel | End::Kill => (place::SOURCE, "qcow2"),
    };
    let mut path = place.path(image);
    if format != "raw" {
        let raw = place.path(place::RAW);
        place.create_anew(place::RAW)?;
        let mut convert = qemu_img();
        convert.args(["convert", "-f", format, "-O", "raw"]);
        convert.arg(&path).arg(&raw);
        match run_program(convert, "qemu-img") {
            Ok(said) if said.success => path = raw,
            Ok(said) if !said.errors.contains(WRITE_ERROR) => {
                let why = said.error("it gave no reason");
                return Ok(Outcome::Fault(format!("{image} cannot be read: {why}")));
            }
            Ok(said) => return Ok(Outcome::Unproven(said.error(WRITE_ERROR))),
            Err(why) => return Ok(Outcome::Unproven(why.to_string())),
        }
    }
    let lost = written.lost_in(&path);
    let lost = lost.map_err(file_error("", &path))?;
    let _ = fs::remove_file(place.path(place::RAW));
    Ok(Outcome::Checked {
        writes: written.count(),
        lost,
    })
}
