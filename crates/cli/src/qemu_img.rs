//! QEMU's program for images: writes and compares those that are not raw.

use std::io::{IsTerminal, Read, stderr};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::live::{Go, Stop};

/// The program.
const QEMU_IMG: &str = "qemu-img";

/// Time between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(50);

/// Writes all of a raw export as an image.
///
/// # Errors
/// With what the program says; also where there is none, and when this one is to stop.
pub fn convert(export: &str, to: &Path, format: &str, stop: &Stop) -> anyhow::Result<()> {
    let mut command = Command::new(QEMU_IMG);
    command.args(["convert", "-f", "raw", "-O", format]);
    command.arg(export).arg(to);
    let (status, said) = run(command, &format!("--format {format}"), stop)?;
    match status.success() {
        true => Ok(()),
        false => bail!(
            "{QEMU_IMG} cannot write {} as {format}: {said}",
            to.display()
        ),
    }
}

/// Fails unless an image, or whatever else the program reads, has what a raw export has; `image` is what it is called in messages, too.
///
/// # Errors
/// As [`convert`].
pub fn compare(export: &str, image: &Path, format: &str, stop: &Stop) -> anyhow::Result<()> {
    let mut command = Command::new(QEMU_IMG);
    command.args(["compare", "-f", "raw", "-F", format]);
    command.arg(export).arg(image);
    let (status, said) = run(command, "--verify", stop)?;
    let image = image.display();
    match status.code() {
        Some(0) => Ok(()),
        Some(1) => bail!("the volume and {image} differ: {said}"),
        _ => bail!("{QEMU_IMG} cannot compare the volume with {image}: {said}"),
    }
}

/// A program that does not go on without this one.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

/// Runs it to its end: how it ended, and what it said. On a terminal its progress is shown, and so is what it says there.
fn run(mut command: Command, needs: &str, stop: &Stop) -> anyhow::Result<(ExitStatus, String)> {
    let shows = stderr().is_terminal();
    if shows {
        // Before what it reads and writes: right behind its own command.
        let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        command = Command::new(QEMU_IMG);
        command.arg(&args[0]).arg("-p").args(&args[1..]);
    }
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command.stdout(match shows {
        true => Stdio::from(stderr()),
        false => Stdio::piped(),
    });
    let spawned = command.spawn();
    let spawned = spawned.with_context(|| {
        format!("{needs} needs the program {QEMU_IMG}: install the package qemu-utils")
    })?;
    let mut running = Running(spawned);
    let status = loop {
        if let Some(status) = running.0.try_wait()? {
            break status;
        }
        if stop.sleep(LOOK) == Go::Stop {
            bail!("stopped");
        }
    };
    // A terminal's signal is for both.
    if !status.success() && stop.sleep(LOOK) == Go::Stop {
        bail!("stopped");
    }
    let mut said = vec![];
    if let Some(mut output) = running.0.stdout.take() {
        output.read_to_end(&mut said)?;
    }
    if let Some(mut output) = running.0.stderr.take() {
        output.read_to_end(&mut said)?;
    }
    let said = datapath::reason(&String::from_utf8_lossy(&said));
    Ok((status, said.unwrap_or_else(|| "no reason given".into())))
}
