//! Preparation of new images for a copy, and flushes.

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::{Command, Stdio};

use vmhost::{Image, ImageLocation, Layout};

use crate::error::{AgentError, Result, file_error, system_error};
use crate::process::run;
use crate::storage::sync_parent;
use crate::{images, kernel};

/// Returns the kernel's id of the present boot; `None` if the kernel does not report it.
pub(crate) fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().into())
}

/// Formats an empty file as an image with the options of `layout`, and checks the result.
///
/// # Errors
/// The image cannot be created, or lacks an option.
pub(super) fn prepare(image: &Image, bytes: u64, layout: Option<&Layout>) -> Result<()> {
    let path = match &image.at {
        ImageLocation::File(path) => path,
        ImageLocation::Block { path, bytes: slice } => return check_device(path, *slice, bytes),
        ImageLocation::Nbd { .. } | ImageLocation::Network { .. } => return Ok(()),
    };
    if image.format == "raw" {
        let sized = OpenOptions::new().write(true).open(path);
        return sized
            .and_then(|f| f.set_len(bytes))
            .map_err(system_error(format_args!(
                "cannot grow {path} to the size of its disk"
            )));
    }
    let mut command = Command::new("qemu-img");
    command.args(["create", "-q", "-f", &image.format]);
    if let Some(layout) = layout {
        let options = layout.create_options();
        let options = options.map_err(|why| AgentError::Unsuitable(why.to_string()))?;
        command.args(["-o", &options]);
    }
    command
        .arg(path)
        .arg(bytes.to_string())
        .stdin(Stdio::null());
    run(command, "qemu-img")?.text("qemu-img")?;
    let made = images::info(path)?;
    if made.virtual_size != Some(bytes) {
        return Err(wrong_size(path, made.virtual_size.unwrap_or(0), bytes));
    }
    let differs = layout.and_then(|l| match &made.layout {
        Some(made) => l.difference(made),
        None => Some("unknown options".into()),
    });
    match differs {
        None => Ok(()),
        Some(option) => Err(AgentError::Unsuitable(format!(
            "{path} has {option}: qemu-img cannot create a copy with all options of the image"
        ))),
    }
}

/// Returns the error for a target of another size than its disk.
fn wrong_size(path: &str, size: u64, bytes: u64) -> AgentError {
    AgentError::Unsuitable(format!("{path} has {size} bytes, and its disk has {bytes}"))
}

/// Checks that a device has the size that the disk needs, and that it is unused.
fn check_device(path: &str, slice: Option<u64>, bytes: u64) -> Result<()> {
    let device = kernel::block_device(Path::new(path))?;
    let fits = match slice {
        Some(slice) => slice == bytes && device.size >= bytes,
        None => device.size == bytes,
    };
    if !fits {
        return Err(wrong_size(path, device.size, bytes));
    }
    check_unused(path)
}

/// Checks that a device is unused, as far as this process may see.
///
/// # Errors
/// The user of the device, or the reason for which it is unknown.
pub(crate) fn check_unused(path: &str) -> Result<()> {
    match user_of_device(path)? {
        None => Ok(()),
        Some(user) => Err(AgentError::InUse(format!("{path} is in use: {user}"))),
    }
}

/// Returns the user of a device; `None` if it is unused, as far as this process may see.
pub(super) fn user_of_device(path: &str) -> Result<Option<String>> {
    let path = Path::new(path);
    datapath::device::user_of_device(path).map_err(kernel::use_unknown(path))
}

/// Makes all writes to an image durable. Images that are neither files nor devices rely on QEMU's own flush.
pub(super) fn flush(image: &Image) -> Result<()> {
    let Some(path) = image.at.file().or(image.at.device()) else {
        return Ok(());
    };
    let flushed = File::open(path).and_then(|f| f.sync_all());
    flushed.map_err(file_error("cannot flush", path))?;
    match image.at.file() {
        Some(path) => sync_parent(Path::new(path)),
        None => Ok(()),
    }
}
