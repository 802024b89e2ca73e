//! `terrace volume save`: the content of a volume, or of a snapshot, as an image that anything can read.
//!
//! It is read from the server's own export, which nobody can write to meanwhile: a snapshot's, or that of a volume that the server holds for
//! this command ([`datapath::control::Holding`]). An array that is not served is served for it, to nobody else.

mod pieces;
mod raw;
mod target;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use datapath::control::{self, CONTROL_SOCKET, Holding};
use datapath::control_server::{ControlAnswer, ControlRequest, VolumeInfo};
use datapath::{Listen, Reach, ServerConfig, Serving};
use nix::sys::signal::{SigSet, Signal};
use serde::Serialize;
use units::Bytes;

use crate::live::{ArrayArg, OutputArg, Stop, explained, one, show, stopped_after, wrong_usage};
use crate::live_table::size;
use crate::qemu_img;
use pieces::Export;
use target::Target;

/// Where a server of our own listens.
const OWN_SOCKET: &str = "save.sock";

/// What is written by this program itself.
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
struct Saved {
    volume: String,
    to: PathBuf,
    format: String,
    /// Bytes of the volume.
    size: Bytes,
    /// Bytes of the sectors that guests of the volume see. The image does not tell them.
    logical_block: u32,
    /// Bytes that are not zero, by blocks; of a raw image only.
    data: Option<Bytes>,
    /// Bytes that are holes; of a raw image only.
    holes: Option<Bytes>,
    /// Seconds that it took, without comparing.
    seconds: f64,
    /// XXH3 of the content, of 128 bits, in hexadecimal; of a raw image only.
    xxh3: Option<String>,
    /// Whether it was compared with the volume, and is the same.
    verified: bool,
}

/// Runs `terrace volume save`.
pub fn run(what: Save) -> anyhow::Result<ExitCode> {
    if what.to.to_string_lossy().contains("://") {
        return Ok(wrong_usage("TO is a file or a block device, not a URI"));
    }
    let stop = Stop::listen()?;
    too_large_is_an_error()?;
    // What is wrong with it is said before anything is held or started.
    target::check(&what)?;
    if what.salvage {
        let serving = Serving::salvage(&what.array.array, ServerConfig::default());
        return saved(&what, alone(&what, serving.map_err(explained)?, &stop)?);
    }
    let reach = Reach::find(&what.array.array).map_err(explained)?;
    let done = match reach {
        Reach::Served(control) => save(&what, &control, what.socket.as_deref(), &stop)?,
        Reach::Here(control_server) => {
            drop(control_server);
            let serving = Serving::start(&what.array.array, ServerConfig::default());
            alone(&what, serving.map_err(explained)?, &stop)?
        }
    };
    saved(&what, done)
}

fn saved(what: &Save, saved: Saved) -> anyhow::Result<ExitCode> {
    what.output.print("terrace.volume.save/1", &saved, text)?;
    Ok(ExitCode::SUCCESS)
}

/// By a server of our own, without guests.
fn alone(what: &Save, serving: Serving, stop: &Stop) -> anyhow::Result<Saved> {
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

/// From now on a file that grows beyond what the shell allows (`ulimit -f`) is an error, and not the end of the process: what was begun is
/// removed then as after any other error. To be called before threads begin: they inherit that.
fn too_large_is_an_error() -> anyhow::Result<()> {
    let mut too_large = SigSet::empty();
    too_large.add(Signal::SIGXFSZ);
    too_large.thread_block().context("cannot block SIGXFSZ")
}

/// The socket to read from: of this very server, as another one may have other content under the same name.
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

/// From the server that listens on this control socket.
fn save(what: &Save, control: &Path, socket: Option<&Path>, stop: &Stop) -> anyhow::Result<Saved> {
    let logical_block = not_in_use(what, control)?.logical_block;
    let answer = control::ask(control, &ControlRequest::Volumes).map_err(explained)?;
    if let ControlAnswer::Volumes { volumes } = answer {
        target::is_no_source(what, &volumes)?;
    }
    let holding = Holding::begin(control, &what.volume).map_err(explained)?;
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
    // Only now it is known that what was read is of one moment.
    holding.end().map_err(|e| {
        explained(e).context(format!(
            "{} may have changed while it was read",
            what.volume
        ))
    })?;
    let to = target.finish()?;
    Ok(Saved {
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

/// Refuses a volume that guests are connected to, and says what to do; those who connect later are met by the server.
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

fn text(s: &Saved) -> String {
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
