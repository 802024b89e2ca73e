//! What `qemu-img` says of images.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use vmhost::{At, Image};

use crate::kernel;
use crate::process::run;

/// Whether two images are one, by whatever paths.
pub(crate) fn is_same(a: &At, b: &At) -> bool {
    let file = |a: &str, b: &str| a == b || kernel::same_file(Path::new(a), Path::new(b));
    match (a, b) {
        (At::File(a), At::File(b)) => file(a, b),
        (
            At::Nbd { socket, export },
            At::Nbd {
                socket: other,
                export: name,
            },
        ) => export == name && file(socket, other),
        (At::File(_), At::Nbd { .. }) | (At::Nbd { .. }, At::File(_)) => false,
    }
}

/// Whether an export has nothing in it, as far as its server tells.
///
/// # Errors
/// It has something, or nobody can say.
pub(crate) fn check_empty(uri: &str) -> Result<(), String> {
    let said = qemu_img(&["map", "--output=json", "-f", "raw", uri])?;
    let parts = said.as_array().ok_or("qemu-img map says no list")?;
    match parts.iter().all(|p| p["zero"] == true) {
        true => Ok(()),
        false => Err(format!(
            "{uri} is not empty; it is written over if its tier says `overwrite = true`"
        )),
    }
}

/// What a qcow2 image has that its copy would not have; the size of its clusters.
///
/// # Errors
/// What it has, or why nobody can say.
pub(crate) fn check_qcow2(image: &Image) -> Result<Option<u64>, String> {
    let said = qemu_img(&[
        "info",
        "--output=json",
        "-U",
        "-f",
        "qcow2",
        &image.at.to_string(),
    ])?;
    let data = &said["format-specific"]["data"];
    let lists = [
        ("internal snapshots", &said["snapshots"]),
        ("bitmaps", &data["bitmaps"]),
    ];
    for (what, list) in lists {
        if list.as_array().is_some_and(|l| !l.is_empty()) {
            return Err(format!(
                "its image has {what}, which a new one would not have"
            ));
        }
    }
    for (what, value) in [
        ("another image below it", &said["backing-filename"]),
        ("its data in another file", &data["data-file"]),
        ("encryption", &data["encrypt"]),
    ] {
        if !value.is_null() {
            return Err(format!(
                "its image has {what}, which no move was tested with"
            ));
        }
    }
    Ok(said["cluster-size"].as_u64())
}

/// Bytes of an NBD export.
///
/// # Errors
/// Why nobody can say.
pub(crate) fn size_of_export(uri: &str) -> Result<u64, String> {
    let said = qemu_img(&["info", "--output=json", "-f", "raw", uri])?;
    let size = said["virtual-size"].as_u64();
    size.ok_or_else(|| format!("{uri}: qemu-img does not say its size"))
}

fn qemu_img(words: &[&str]) -> Result<Value, String> {
    let mut command = Command::new("qemu-img");
    command.args(words).stdin(Stdio::null());
    let said = run(command, "qemu-img")?;
    if !said.success {
        return Err(format!("qemu-img: {}", said.error("it did not say why")));
    }
    serde_json::from_str(&said.out).map_err(|e| format!("qemu-img: {e}"))
}
