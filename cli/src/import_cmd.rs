//! `terrace volume import`: by the server of the array, or by a server of this command without guests.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use clap::Args;
use datapath::control_server::{ControlAnswer, ControlRequest, ImportInfo, VolumeInfo};
use datapath::{ArrayServer, Listen, Reach, ServerConfig};
use serde::Serialize;
use units::{Bytes, BytesPerSec};

use crate::live::{
    ArrayArg, Form, Go, OutputArg, Stop, absolute, explained, message, one, responds, show,
    stopped_after, unexpected, wrong_usage,
};
use crate::progress::LeftBar;
use crate::qemu_img;
use crate::volume_cmd::NBD_SOCKET;

/// Time between two checks of an import.
const LOOK: Duration = Duration::from_millis(100);

/// Duration of a problem after which an import by this command's own server fails, because nobody else would notice the problem. The
/// connection to a restarted source is restored earlier.
const PROBLEM_TIME: Duration = Duration::from_secs(15);

/// Name of the socket of this command's own server, for the comparison with the source.
const OWN_SOCKET: &str = "import.sock";

/// `terrace volume import`
#[derive(Debug, Args)]
pub struct Import {
    #[command(flatten)]
    array: ArrayArg,
    /// The name of the new volume
    #[arg(value_name = "VOLUME")]
    volume: String,
    /// An image, a block device, or an NBD export such as nbd://host/name; it is only read
    #[arg(value_name = "FROM")]
    from: String,
    /// Format of an image: raw, qcow2, vmdk or another format of qemu-nbd; raw by default if no other format is detected
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// Tier for the data of the volume
    #[arg(long, value_name = "TIER")]
    tier: String,
    /// Service class of the volume; without one it has no objective
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Highest rate of the copy; by default limited only by the load of guests
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<BytesPerSec>,
    /// Do not wait for the copy; the server continues it
    #[arg(long, conflicts_with = "verify")]
    detach: bool,
    /// After the copy, compare the volume with its source (needs qemu-img, and no connected guests)
    #[arg(long)]
    verify: bool,
    /// For --verify: the unix socket on which the volume is served; `nbd.sock` in the array's directory if left out
    #[arg(long, value_name = "PATH", requires = "verify")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArg,
}

/// Result of an import.
#[derive(Debug, Serialize)]
struct ImportResult {
    volume: String,
    from: String,
    size: Bytes,
    /// Size of the data with a place on a tier. The rest is zeroes.
    allocated: Bytes,
    /// True if everything is copied.
    complete: bool,
    /// Size of the data that is not copied yet.
    left: Bytes,
    /// Time that this command waited, seconds.
    seconds: f64,
    /// True if the volume was compared with the source and is identical.
    verified: bool,
    /// Description of content of the source that is not imported.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_imported: Option<String>,
}

type Asks<'a> = &'a dyn Fn(ControlRequest) -> datapath::Result<ControlAnswer>;

/// Runs `terrace volume import`.
pub fn run(mut what: Import) -> anyhow::Result<ExitCode> {
    if what.from.is_empty() {
        return Ok(wrong_usage(
            "FROM is empty: name an image, a block device or an NBD URI",
        ));
    }
    if !what.from.contains("://") {
        let path = absolute(Path::new(&what.from))?;
        let text = path.to_str();
        let text = text.ok_or_else(|| anyhow!("{} is not UTF-8", path.display()))?;
        what.from = text.into();
    }
    let reach = Reach::find(&what.array.array).map_err(explained)?;
    let before = known(&|ask| reach.ask(ask), &what.volume)?;
    let (order, mut more) = match before {
        None => (Some(order(&what)), None),
        Some(info) => {
            // The comparison uses the format of the running import and does not detect it again.
            what.format = Some(goes_on(&what, &info)?);
            (None, info.import.and_then(|i| i.more))
        }
    };
    if let Reach::Served(_) = &reach {
        let ask = |ask| reach.ask(ask);
        more = begin(&ask, &what, order)?.or(more);
        let socket = what.socket.clone();
        let socket = socket.unwrap_or_else(|| what.array.array.join(NBD_SOCKET));
        return wait(&ask, &what, more, &socket, true);
    }
    drop(reach);
    if what.detach {
        return Ok(wrong_usage(
            "--detach needs a server that continues the import, and the array is not served: leave --detach out, or start a server first",
        ));
    }
    alone(&what, order)
}

fn order(what: &Import) -> ControlRequest {
    ControlRequest::Import {
        volume: what.volume.clone(),
        from: what.from.clone(),
        format: what.format.clone(),
        tier: what.tier.clone(),
        class: what.class.clone(),
        bandwidth: what.bandwidth,
    }
}

/// Returns the volume of this name, if it exists.
fn known(ask: Asks<'_>, name: &str) -> anyhow::Result<Option<VolumeInfo>> {
    match ask(ControlRequest::Volumes).map_err(|why| anyhow!(why))? {
        ControlAnswer::Volumes { volumes } => Ok(volumes.into_iter().find(|v| v.name == name)),
        other => bail!("unexpected reply of the server: {other:?}"),
    }
}

/// Checks that an existing volume is the result of the same import. Returns the format of its source.
fn goes_on(what: &Import, info: &VolumeInfo) -> anyhow::Result<String> {
    let name = &what.volume;
    match &info.import {
        Some(import) if import.from == what.from => {
            let format = &import.format;
            if what.format.as_ref().is_some_and(|f| f != format) {
                bail!("volume {name:?} is being imported from an image of format {format}");
            }
            message(&format!("continuing the import of volume {name}"));
            Ok(format.clone())
        }
        Some(import) => bail!(
            "volume {name:?} exists and is being imported from {}",
            import.from
        ),
        None => bail!("volume {name:?} already exists"),
    }
}

/// Orders the import. Returns a description of content of the source that is not imported.
fn begin(
    ask: Asks<'_>,
    what: &Import,
    order: Option<ControlRequest>,
) -> anyhow::Result<Option<String>> {
    let Some(order) = order else {
        return Ok(None);
    };
    let ControlAnswer::Importing {
        message: text,
        more,
    } = ask(order).map_err(|why| anyhow!(why))?
    else {
        return Err(unexpected());
    };
    if what.output.form() == Form::Table {
        message(&text);
    }
    if let Some(more) = &more {
        message(&format!(
            "warning: {} has {more}, and these are not imported",
            what.from
        ));
    }
    Ok(more)
}

/// Imports with a server of this command, without guests.
fn alone(what: &Import, order: Option<ControlRequest>) -> anyhow::Result<ExitCode> {
    let serving =
        ArrayServer::start(&what.array.array, ServerConfig::default()).map_err(explained)?;
    let ask = |ask| serving.control_server().ask(ask);
    let socket = what.array.array.join(OWN_SOCKET);
    let work = || {
        if order.is_none() {
            let served = serving.control_server().export(&what.volume);
            served.map_err(|why| anyhow!(why))?;
        }
        if what.verify {
            serving.listen(&Listen::Unix(socket.clone()))?;
        }
        let more = begin(&ask, what, order)?;
        wait(&ask, what, more, &socket, false)
    };
    let over = work();
    stopped_after(over, serving.stop())
}

/// Waits for the end of the copy, unless `--detach` is given, and prints the result.
fn wait(
    ask: Asks<'_>,
    what: &Import,
    mut more: Option<String>,
    socket: &Path,
    lasts: bool,
) -> anyhow::Result<ExitCode> {
    let stop = Stop::listen()?;
    let began = Instant::now();
    let mut bar = LeftBar::new(&what.volume);
    let (mut problem, mut warning) = (None, None);
    let mut problem_since = Instant::now();
    let info = loop {
        let asked = Instant::now();
        let now = one(ask(show(&what.volume)).map_err(|why| anyhow!(why))?)?;
        // The reply for a large volume takes long and delays other requests.
        let pause = LOOK.max(10 * asked.elapsed());
        let Some(ImportInfo { left, .. }) = now.import else {
            break now;
        };
        if what.detach {
            break now;
        }
        responds(&now)?;
        if !now.exported {
            bail!(
                "the server does not serve volume {:?}, so its import does not continue: `terrace status` gives the reason",
                what.volume
            );
        }
        bar.update(left);
        let warns = now.import.as_ref().and_then(|i| i.warning.clone());
        if warns != warning {
            if let Some(why) = &warns {
                message(&format!("{}: {why}", what.volume));
            }
            warning = warns;
        }
        more = more.or(now.import.as_ref().and_then(|i| i.more.clone()));
        let waits = now.import.as_ref().and_then(|i| i.problem.clone());
        if waits.is_none() || problem.is_none() {
            problem_since = asked;
        }
        if waits != problem {
            match &waits {
                Some(why) => message(&format!("the import of {} waits: {why}", what.volume)),
                None => message(&format!("the import of {} continues", what.volume)),
            }
            problem = waits;
        }
        if let Some(why) = &problem
            && !lasts
            && problem_since.elapsed() > PROBLEM_TIME
        {
            bail!(
                "{}: {why} (tried for {} s); the copied data is kept: run the same command again to continue",
                what.volume,
                PROBLEM_TIME.as_secs()
            );
        }
        if stop.sleep(pause) == Go::Stop {
            drop(bar);
            message(match lasts {
                true => "stopped waiting: the server continues the import",
                false => {
                    "stopped: run the same command again, or `terrace volume export`, to continue the import"
                }
            });
            return Ok(ExitCode::FAILURE);
        }
    };
    drop(bar);
    let seconds = began.elapsed().as_secs_f64();
    if what.verify {
        let volume = Listen::Unix(socket.to_owned()).uri(&what.volume);
        let format = what.format.as_deref().unwrap_or("raw");
        qemu_img::compare(&volume, Path::new(&what.from), format, &stop)?;
    }
    let left = info.import.as_ref().map_or(Bytes(0), |i| i.left);
    let imported = ImportResult {
        volume: info.name,
        from: what.from.clone(),
        size: info.size,
        allocated: info.allocated,
        complete: info.import.is_none(),
        left,
        seconds,
        verified: what.verify,
        not_imported: more,
    };
    what.output
        .print("terrace.volume.import/1", &imported, text)?;
    Ok(ExitCode::SUCCESS)
}

fn text(i: &ImportResult) -> String {
    let mut out = match (i.complete, &i.not_imported) {
        (true, None) => format!(
            "imported volume {}: {} of {} allocated, in {:.1} s; {} is no longer needed\n",
            i.volume, i.allocated, i.size, i.seconds, i.from
        ),
        (true, Some(more)) => format!(
            "imported volume {}: {} of {} allocated, in {:.1} s; keep {} for its {more}: these were not imported\n",
            i.volume, i.allocated, i.size, i.seconds, i.from
        ),
        (false, _) => format!(
            "guests can use volume {}; {} are not copied yet from {}: keep the source until `terrace volume show {}` shows no import\n",
            i.volume, i.left, i.from, i.volume
        ),
    };
    if i.verified {
        out += "0 bytes differ\n";
    }
    out
}
