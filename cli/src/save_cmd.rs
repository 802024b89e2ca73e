//! `terrace volume save`: writes the content of a volume or of a snapshot as an ordinary image.
//!
//! The command reads an export of the server that cannot change: a snapshot, or a volume that the server holds for this command
//! ([`datapath::control::VolumeHold`]). If the array is not served, the command serves it for itself only.

mod pieces;
mod raw;
mod target;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use datapath::control::{self, CONTROL_SOCKET, VolumeHold};
use datapath::control_server::{ControlAnswer, ControlRequest, VolumeInfo};
use datapath::{ArrayServer, Listen, Reach, ServerConfig};
use nix::sys::signal::{SigSet, Signal};
use serde::Serialize;
use units::Bytes;

use crate::live::{ArrayArg, OutputArg, Stop, explained, one, show, stopped_after, wrong_usage};
use crate::live_table::size;
use crate::qemu_img;
use pieces::Export;
use target::Target;

/// Name of the socket of this command's own server.
const OWN_SOCKET: &str = "save.sock";

/// Format that this program writes itself; `qemu-img` writes the others.
const RAW: &str = "raw";

/// `terrace volume save`
#[derive(Debug, Args)]
pub struct Save {
    #[command(flatten)]
    array: ArrayArg,
    /// The volume, without connected guests, or a snapshot, as VOLUME@NAME
    #[arg(value_name = "VOLUME")]
    volume: String,
    /// A new file, or a block device
    #[arg(value_name = "TO")]
    to: PathBuf,
    /// Format of the output: raw, qcow2, vmdk or another format of qemu-img
    #[arg(long, value_name = "FORMAT", default_value = RAW)]
    format: String,
    /// Replace an existing file, or overwrite a block device
    #[arg(long)]
    force: bool,
    /// Read and compare both after the copy
    #[arg(long)]
    verify: bool,
    /// Compute no checksum; faster for large volumes that are mostly holes
    #[arg(long)]
    no_checksum: bool,
    /// Read an intact volume of a damaged map
    #[arg(long, conflicts_with = "socket")]
    salvage: bool,
    /// The unix socket of the array's server to read from; the first that it listens on if left out
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArg,
}

#[derive(Debug, Serialize)]
struct SaveResult {
    volume: String,
    to: PathBuf,
    format: String,
    /// Size of the volume.
    size: Bytes,
    /// Sector size that guests of the volume see, bytes. The image does not contain it.
    logical_block: u32,
    /// Size of all blocks that are not zero; only for a raw image.
    data: Option<Bytes>,
    /// Size of all holes; only for a raw image.
    holes: Option<Bytes>,
    /// Duration of the copy in seconds, without the comparison.
    seconds: f64,
    /// 128-bit XXH3 of the content, in hexadecimal; only for a raw image.
    xxh3: Option<String>,
    /// True if the image was compared with the volume and is identical.
    verified: bool,
}

/// Runs `terrace volume save`.
pub fn run(what: Save) -> anyhow::Result<ExitCode> {
    if what.to.to_string_lossy().contains("://") {
        return Ok(wrong_usage("TO is a file or a block device, not a URI"));
    }
    let stop = Stop::listen()?;
    too_large_is_an_error()?;
    // Errors of the target are reported before a volume is held or a server started.
    target::check(&what)?;
    if what.salvage {
        let serving = ArrayServer::salvage(&what.array.array, ServerConfig::default());
        return saved(&what, alone(&what, serving.map_err(explained)?, &stop)?);
    }
    let reach = Reach::find(&what.array.array).map_err(explained)?;
    let done = match reach {
        Reach::Served(control) => save(&what, &control, what.socket.as_deref(), &stop)?,
        Reach::Here(control_server) => {
            drop(control_server);
            let serving = ArrayServer::start(&what.array.array, ServerConfig::default());
            alone(&what, serving.map_err(explained)?, &stop)?
        }
    };
    saved(&what, done)
}

fn saved(what: &Save, saved: SaveResult) -> anyhow::Result<ExitCode> {
    what.output.print("terrace.volume.save/1", &saved, text)?;
    Ok(ExitCode::SUCCESS)
}

/// Saves with a server of this command, without guests.
fn alone(what: &Save, serving: ArrayServer, stop: &Stop) -> anyhow::Result<SaveResult> {
    let dir = &what.array.array;
    let work = || {
        let exported = serving.control_server().export(&what.volume);
        exported.map_err(|why| anyhow!(why))?;
        let listen = Listen::Unix(dir.join(OWN_SOCKET));
        serving.listen(&listen).map_err(explained)?;
        save(what, &dir.join(CONTROL_SOCKET), None, stop)
    };
    let saved = work();
    stopped_after(saved, serving.stop())
}

/// Blocks SIGXFSZ: from then on a file beyond the limit of the shell (`ulimit -f`) is an error, and does not kill the process. The
/// incomplete file is then removed as after any other error. Call it before any thread starts, because threads inherit the blocked signal.
fn too_large_is_an_error() -> anyhow::Result<()> {
    let mut too_large = SigSet::empty();
    too_large.add(Signal::SIGXFSZ);
    too_large.thread_block().context("cannot block SIGXFSZ")
}

/// Returns the socket to read from. It must belong to the server of the array: another server may have other content under the same name.
fn socket_of(sockets: &[PathBuf], wanted: Option<&Path>) -> anyhow::Result<PathBuf> {
    let Some(first) = sockets.first() else {
        bail!(
            "saving needs a server that listens on a unix socket: start it with an additional `--listen unix:PATH`"
        );
    };
    let Some(wanted) = wanted else {
        return Ok(first.clone());
    };
    let file = |path: &Path| path.metadata().map(|m| (m.dev(), m.ino()));
    let this = file(wanted).with_context(|| format!("cannot inspect {}", wanted.display()))?;
    if !sockets.iter().any(|s| file(s).is_ok_and(|s| s == this)) {
        let known: Vec<_> = sockets.iter().map(|s| s.display().to_string()).collect();
        bail!(
            "the array's server does not listen on {}, but on {}",
            wanted.display(),
            known.join(" and ")
        );
    }
    Ok(wanted.into())
}

/// Saves from the server with this control socket.
fn save(
    what: &Save,
    control: &Path,
    socket: Option<&Path>,
    stop: &Stop,
) -> anyhow::Result<SaveResult> {
    let logical_block = not_in_use(what, control)?.logical_block;
    let answer = control::ask(control, &ControlRequest::Volumes).map_err(explained)?;
    if let ControlAnswer::Volumes { volumes } = answer {
        target::is_no_source(what, &volumes)?;
    }
    let holding = VolumeHold::begin(control, &what.volume).map_err(explained)?;
    let socket = socket_of(&holding.sockets, socket)?;
    let export = Export::find(&Listen::Unix(socket).uri(&holding.export))?;
    let began = Instant::now();
    let target = Target::open(what, export.size)?;
    let written = match what.format.as_str() {
        RAW => Some(raw::write(&export, &target, what, stop)?),
        format => {
            qemu_img::convert(&export.uri, target.path(), format, stop)?;
            None
        }
    };
    target.make_durable()?;
    let seconds = began.elapsed().as_secs_f64();
    match what.format.as_str() {
        _ if !what.verify => {}
        RAW => raw::compare(&export, &target, &what.volume, stop)?,
        format => {
            target.forget_cached();
            qemu_img::compare(&export.uri, target.path(), format, stop)?;
        }
    }
    // Only the end of the hold confirms that the volume did not change during the copy.
    holding.end().map_err(|e| {
        explained(e).context(format!(
            "{} may have changed while it was read",
            what.volume
        ))
    })?;
    let to = target.finish()?;
    Ok(SaveResult {
        volume: what.volume.clone(),
        to,
        format: what.format.clone(),
        size: Bytes(export.size),
        logical_block,
        data: written.as_ref().map(|w| w.data),
        holes: written.as_ref().map(|w| w.holes),
        seconds,
        xxh3: written.and_then(|w| w.xxh3),
        verified: what.verify,
    })
}

/// Refuses a volume with connected guests, with advice. The server handles guests that connect later.
fn not_in_use(what: &Save, control: &Path) -> anyhow::Result<VolumeInfo> {
    let answer = control::ask(control, &show(&what.volume)).map_err(explained)?;
    let info = one(answer)?;
    let connections = info.status.as_ref().map_or(0, |s| s.connections);
    if info.snapshot.is_some() || connections == 0 {
        return Ok(info);
    }
    let guests = match connections {
        1 => "a guest is connected".into(),
        n => format!("{n} guests are connected"),
    };
    let Save {
        volume, to, format, ..
    } = what;
    let format = match format.as_str() {
        RAW => String::new(),
        format => format!(" --format {format}"),
    };
    bail!(
        "volume {volume:?} is in use ({guests}) and would change during the copy. Save a snapshot instead: `terrace volume snapshot create {volume} NAME`, then `terrace volume save {volume}@NAME {}{format}`",
        to.display()
    )
}

fn text(s: &SaveResult) -> String {
    let to = s.to.display().to_string();
    let to = report::printable(&to);
    let mut out = format!("saved {} as {to}: {}", s.volume, size(s.size));
    if let (Some(data), Some(holes)) = (s.data, s.holes) {
        out += &format!(", {} of data and {} of holes", size(data), size(holes));
    }
    out += &format!(", in {:.1} s\n", s.seconds);
    if s.logical_block != 512 {
        out += &format!(
            "its partition table uses sectors of {n} bytes: attach it to guests with `<blockio logical_block_size='{n}'/>`\n",
            n = s.logical_block
        );
    }
    if let Some(xxh3) = &s.xxh3 {
        out += &format!("xxh3 {xxh3}\n");
    }
    if s.verified {
        out += "0 bytes differ\n";
    }
    out
}
