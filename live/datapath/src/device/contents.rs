//! Detection of data on a device before it is formatted: superblocks of arrays, signatures of file
//! systems and the like, and other data in its first or last MiB. A device that holds data is
//! formatted only with the operator's consent.
//!
//! `wipefs` of util-linux finds the signatures. It knows the formats of the kernel and its tools.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use array::{SUPERBLOCK_BYTES, Superblock, SuperblockError};
use serde::Deserialize;

use super::owner::CLAIMS;
use super::space::STAMP_TIME;
use super::{Device, Medium, file_bytes};
use crate::client;
use crate::error::{DatapathError, Result};

/// Length of each end of a device that must be zero. File systems, partition tables, RAID and
/// volume managers keep their superblocks there.
const EDGE: u64 = 1 << 20;

const PROGRAM: &str = "wipefs";

/// Time limit of the prober. It reads only a few hundred KiB; if it takes longer, the device hangs.
const PROBE_TIME: Duration = Duration::from_secs(10);

/// Data found on a device.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// One noun phrase for each item.
    pub found: Vec<String>,
    /// Reason why more data may exist: the prober failed.
    pub unknown: Option<String>,
}

/// Looks for data on a device.
///
/// # Errors
/// [`DatapathError`]: the device cannot be read.
pub(super) fn look(device: &Device) -> Result<Contents> {
    let edges = edges(device)?;
    let read = |(at, length)| device.read_bytes(at, length, STAMP_TIME);
    let read = edges.map(read).into_iter().collect::<Result<Vec<_>, _>>();
    let read = read.map_err(DatapathError::system("read", &"the device"))?;
    let mut contents = named(device, &read[0]);
    if contents.found.is_empty() {
        for (bytes, which) in read.iter().zip(["first", "last"]) {
            if bytes.iter().any(|b| *b != 0) {
                let text = format!("unknown data (the {which} MiB is not zero)");
                contents.found.push(text);
            }
        }
    }
    Ok(contents)
}

/// Zeroes the first and the last MiB, which removes the data that other programs recognise.
///
/// # Errors
/// [`DatapathError`]: the device cannot be written.
pub(super) fn clear(device: &Device) -> Result<()> {
    let [(first, length), last] = edges(device)?;
    let end = first + length as u64;
    let parts = match device.medium {
        // The claim of this process must stay.
        Medium::Nbd(..) if end > CLAIMS.end => [(first, CLAIMS.start), (CLAIMS.end, end)],
        _ => [(first, end), (end, end)],
    };
    let parts = parts.map(|(from, to)| (from, (to - from) as usize));
    for (at, length) in parts.into_iter().chain([last]).filter(|p| p.1 > 0) {
        let written = device.write_bytes(at, &vec![0; length]);
        written.map_err(DatapathError::system("clear", &"the device"))?;
    }
    Ok(())
}

/// Describes the data on a device whose superblock is not the expected one. `head` holds its first
/// bytes.
pub(super) fn describe(device: &Device, head: &[u8]) -> String {
    let mut found = named(device, head).found;
    let places = head.chunks(SUPERBLOCK_BYTES).zip(["first", "second"]);
    let (good, bad): (Vec<_>, Vec<_>) = places.partition(|p| Superblock::decode(p.0).is_ok());
    if !good.is_empty() {
        let damaged = |(_, which)| format!("unknown data in place of the {which} superblock");
        found.extend(bad.into_iter().map(damaged));
    }
    match found.is_empty() {
        false => found.join(", "),
        true if head.iter().all(|b| *b == 0) => "zeroes".into(),
        true => "unknown data".into(),
    }
}

/// Returns offset and length of the first and the last MiB.
fn edges(device: &Device) -> Result<[(u64, usize); 2]> {
    let size = match &device.medium {
        Medium::File(file, _) => {
            file_bytes(file).map_err(DatapathError::system("determine", &"the size"))?
        }
        Medium::Nbd(uri) => {
            let connected = client::connect(uri).map_err(DatapathError::failed)?;
            connected.session.export.size
        }
        Medium::Lost => return Err(DatapathError::Refused("the device is lost".into())),
    };
    let edge = EDGE.min(size);
    Ok([(0, edge as usize), (size - edge, edge as usize)])
}

/// Finds data with a name: superblocks of arrays and known signatures.
fn named(device: &Device, head: &[u8]) -> Contents {
    let mut contents = Contents::default();
    match Superblock::decode_both(head) {
        Ok(s) => contents.found.push(format!(
            "device {} of Terrace array {} (last stamp: generation {})",
            s.device.0, s.array, s.stamp.generation
        )),
        Err(SuperblockError::Blank | SuperblockError::Magic | SuperblockError::Short { .. }) => {}
        Err(error) => contents
            .found
            .push(format!("a device of a Terrace array ({error})")),
    }
    if let Medium::File(file, _) = &device.medium {
        match signatures(file) {
            Ok(signatures) => contents.found.extend(signatures),
            Err(why) => contents.unknown = Some(why.to_string()),
        }
    }
    contents
}

/// Output of `wipefs --json`.
#[derive(Deserialize)]
struct Answer {
    signatures: Vec<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    #[serde(rename = "type")]
    kind: String,
    label: Option<String>,
}

fn signatures(file: &File) -> Result<Vec<String>> {
    let answer = probe(file)?;
    if answer.trim().is_empty() {
        return Ok(vec![]);
    }
    let answer: Answer = serde_json::from_str(&answer)
        .map_err(|e| DatapathError::Program(format!("cannot read the output of {PROGRAM}: {e}")))?;
    let mut all: Vec<String> = answer.signatures.iter().map(Signature::text).collect();
    all.sort();
    all.dedup();
    Ok(all)
}

impl Signature {
    fn text(&self) -> String {
        let kind = match self.kind.as_str() {
            "gpt" | "PMBR" => "partition table (gpt)".into(),
            "dos" => "partition table (dos)".into(),
            "swap" => "swap space".into(),
            "LVM2_member" => "LVM physical volume".into(),
            "linux_raid_member" => "member of a RAID array".into(),
            "crypto_LUKS" => "LUKS encrypted data".into(),
            "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" | "vfat" | "exfat" | "ntfs" | "f2fs"
            | "iso9660" | "udf" => format!("{} file system", self.kind),
            other => format!("data with the signature {other}"),
        };
        match self.label.as_deref().filter(|l| !l.is_empty()) {
            Some(label) => format!("{kind}, label {label}"),
            None => kind,
        }
    }
}

/// Returns the search path with the directories of system programs, which users' shells may lack.
fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

/// Runs the prober on an open file of this process.
fn probe(file: &File) -> Result<String> {
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let child = Command::new(PROGRAM)
        .args(["--json", "--no-act", "--", &path])
        .env("LC_ALL", "C")
        .env("PATH", search_path())
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            DatapathError::Program(format!("{PROGRAM} is not installed (package util-linux)"))
        }
        _ => DatapathError::system("start", &PROGRAM)(e),
    })?;
    let until = Instant::now() + PROBE_TIME;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                let _ = child.kill(); // it may have ended just now
                // A prober that waits for a device ends when the device answers. A thread of its
                // own waits for that.
                let reaper = std::thread::Builder::new().name("terrace-probe".into());
                let _ = reaper.spawn(move || child.wait());
                let seconds = PROBE_TIME.as_secs();
                return Err(DatapathError::Late(format!(
                    "{PROGRAM} has not ended within {seconds} s"
                )));
            }
            Err(error) => return Err(DatapathError::system("wait for", &PROGRAM)(error)),
        }
    };
    // Both outputs fit into a pipe: a device has few signatures.
    let (mut answer, mut errors) = (String::new(), String::new());
    let pipes = (child.stdout.take(), child.stderr.take());
    if let (Some(mut out), Some(mut err)) = pipes {
        let read = out.read_to_string(&mut answer);
        let read = read.and_then(|_| err.read_to_string(&mut errors));
        read.map_err(DatapathError::system("read the output of", &PROGRAM))?;
    }
    match status.success() {
        true => Ok(answer),
        false => Err(DatapathError::Program(format!(
            "{PROGRAM} failed: {}",
            errors.trim()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_text_names_kind_and_label() {
        let text = |kind: &str, label: Option<&str>| {
            let (kind, label) = (kind.into(), label.map(String::from));
            Signature { kind, label }.text()
        };
        assert_eq!(
            text("ext4", Some("backup")),
            "ext4 file system, label backup"
        );
        assert_eq!(text("xfs", Some("")), "xfs file system");
        assert_eq!(text("gpt", None), text("PMBR", None));
        assert_eq!(
            text("zfs_member", None),
            "data with the signature zfs_member"
        );
    }
}
