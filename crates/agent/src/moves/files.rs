//! Preparation of new images for a copy, and flushes.

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::{Command, Stdio};

use vmhost::{At, Image, Layout};

use crate::process::run;
use crate::storage::sync_parent;
use crate::{images, kernel};

/// The kernel's name of the host's present life; none where it does not say.
pub(crate) fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().into())
}

/// Makes an image without data of an empty file, with the options of `layout`, and reads it back.
///
/// # Errors
/// Why it cannot be made, or which option it does not have.
pub(super) fn prepare(image: &Image, bytes: u64, layout: Option<&Layout>) -> Result<(), String> {
    let path = match &image.at {
        At::File(path) => path,
        At::Block { path, bytes: slice } => return check_device(path, *slice, bytes),
        At::Nbd { .. } | At::Network { .. } => return Ok(()),
    };
    if image.format == "raw" {
        let sized = OpenOptions::new().write(true).open(path);
        return sized
            .and_then(|f| f.set_len(bytes))
            .map_err(|e| format!("cannot grow {path} to the size of its disk: {e}"));
    }
    let mut command = Command::new("qemu-img");
    command.args(["create", "-q", "-f", &image.format]);
    if let Some(layout) = layout {
        command.args(["-o", &layout.create_options()?]);
    }
    command
        .arg(path)
        .arg(bytes.to_string())
        .stdin(Stdio::null());
    let said = run(command, "qemu-img")?;
    if !said.success {
        return Err(format!("qemu-img: {}", said.error("no reason given")));
    }
    let made = images::info(path)?;
    if made.virtual_size != Some(bytes) {
        let size = made.virtual_size.unwrap_or(0);
        return Err(format!("{path} has {size} bytes, and its disk has {bytes}"));
    }
    let differs = layout.and_then(|l| match &made.layout {
        Some(made) => l.difference(made),
        None => Some("unknown options".into()),
    });
    match differs {
        None => Ok(()),
        Some(option) => Err(format!(
            "{path} has {option}: qemu-img cannot create a copy with all options of the image"
        )),
    }
}

/// Checks that a device has the size that a disk needs, and that nobody uses it.
fn check_device(path: &str, slice: Option<u64>, bytes: u64) -> Result<(), String> {
    let device = kernel::block_device(Path::new(path))?;
    let fits = match slice {
        Some(slice) => slice == bytes && device.size >= bytes,
        None => device.size == bytes,
    };
    if !fits {
        let size = device.size;
        return Err(format!("{path} has {size} bytes, and its disk has {bytes}"));
    }
    match user_of_device(path)? {
        None => Ok(()),
        Some(user) => Err(format!("{path} is in use: {user}")),
    }
}

/// Names the user of a device; none if it is unused, as far as this process may see.
pub(crate) fn user_of_device(path: &str) -> Result<Option<String>, String> {
    let said = |e| format!("cannot find out whether {path} is in use: {e}");
    datapath::device::user_of_device(Path::new(path)).map_err(said)
}

/// Makes all that was written to an image durable; of what is no file QEMU's own flush has to do.
pub(super) fn flush(image: &Image) -> Result<(), String> {
    let Some(path) = image.at.file().or(image.at.device()) else {
        return Ok(());
    };
    let said = |e| format!("cannot flush {path}: {e}");
    File::open(path).and_then(|f| f.sync_all()).map_err(said)?;
    match image.at.file() {
        Some(path) => sync_parent(Path::new(path)),
        None => Ok(()),
    }
}
