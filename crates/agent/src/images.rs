//! What `qemu-img` says of images.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use vmhost::Image;

/// An image, or the server of one, that is not understood by then is not.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a qcow2 image has that its copy would not have; the size of its clusters.
///
/// # Errors
/// What it has, or why nobody can say.
pub(crate) fn check_qcow2(image: &Image) -> Result<Option<u64>, String> {
    let said = qemu_img_info(&["-U", "-f", "qcow2", &image.at.to_string()])?;
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
    let said = qemu_img_info(&["-f", "raw", uri])?;
    let size = said["virtual-size"].as_u64();
    size.ok_or_else(|| format!("{uri}: qemu-img does not say its size"))
}

fn qemu_img_info(words: &[&str]) -> Result<Value, String> {
    let mut command = Command::new("qemu-img");
    command.args(["info", "--output=json"]).args(words);
    let said = |e: std::io::Error| {
        format!("qemu-img cannot be started, which says what an image has beside its data: {e}")
    };
    let pipes = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::piped()).spawn().map_err(said)?;
    let until = Instant::now() + PATIENCE;
    while child.try_wait().map_err(said)?.is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!(
                "qemu-img has not said within {} s what an image is",
                PATIENCE.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().map_err(said)?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        let why = why.lines().next().unwrap_or("it did not say why");
        return Err(format!("qemu-img: {why}"));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("qemu-img: {e}"))
}
