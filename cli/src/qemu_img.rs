//! Calls of `qemu-img`, which writes and compares images that are not raw.

use std::io::{IsTerminal, Read, stderr};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::live::{Go, Stop};

/// Name of the program.
const QEMU_IMG: &str = "qemu-img";

/// Time between two checks for its end.
const LOOK: Duration = Duration::from_millis(50);

/// Writes a raw export as an image of another format.
///
/// # Errors
/// The error output of the program; also if the program does not exist, or after a stop order.
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

/// Compares an image, or another source that the program can read, with a raw export. `image` is also its name in messages.
///
/// # Errors
/// If they differ; else as for [`convert`].
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

/// Running program that is killed on drop.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

/// Runs the program to its end. Returns its exit status and its output. On a terminal its standard output, which has the progress, goes to
/// standard error instead.
fn run(mut command: Command, needs: &str, stop: &Stop) -> anyhow::Result<(ExitStatus, String)> {
    let shows = stderr().is_terminal();
    if shows {
        // The option for progress must follow the subcommand, before the names of the images.
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
    let mut running = ChildGuard(spawned);
    let status = loop {
        if let Some(status) = running.0.try_wait()? {
            break status;
        }
        if stop.sleep(LOOK) == Go::Stop {
            bail!("stopped");
        }
    };
    // A signal of the terminal reaches both processes.
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
