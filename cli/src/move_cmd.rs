//! `terrace volume move` and `cancel`: by the server of the array, or by a server of this command without guests.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use datapath::control_server::{ControlAnswer, ControlRequest};
use datapath::{ArrayServer, LastMove, Reach, ServerConfig};
use model::ExtentRanges;
use units::BytesPerSec;

use crate::live::{Go, Stop, explained, message, one, responds, said, show, stopped_after};
use crate::live_table;
use crate::progress::LeftBar;
use crate::volume_cmd::VolumeSelector;

/// Time between two checks of a move.
const LOOK: Duration = Duration::from_millis(100);

/// `terrace volume move`
#[derive(Debug, Args)]
pub struct Move {
    #[command(flatten)]
    which: VolumeSelector,
    /// The tier
    #[arg(long, value_name = "TIER")]
    to: String,
    /// Only these extents, such as "0-99,200"; `terrace volume heat` shows which are used most
    #[arg(long, value_name = "RANGES")]
    extents: Option<ExtentRanges>,
    /// Highest rate of the copy
    #[arg(long, value_name = "RATE", default_value = "200 MiB/s")]
    bandwidth: BytesPerSec,
    /// Wait for the end of the move; without a server the command always waits
    #[arg(long)]
    wait: bool,
}

type ControlResult = datapath::Result<ControlAnswer>;

/// Runs `terrace volume move`.
pub fn run(what: &Move) -> anyhow::Result<ExitCode> {
    let volume = &what.which.volume;
    let order = ControlRequest::Move {
        volume: volume.clone(),
        to: what.to.clone(),
        device: None,
        bandwidth: what.bandwidth,
        extents: what.extents.clone(),
    };
    let reach = Reach::find(&what.which.array.array).map_err(explained)?;
    let before = one(reach.ask(show(volume)).map_err(|why| anyhow!(why))?)?;
    if let Reach::Served(_) = &reach {
        said(&reach.ask(order).map_err(|why| anyhow!(why))?);
        if !what.wait {
            return Ok(ExitCode::SUCCESS);
        }
        let stop = Stop::listen()?;
        return follow(
            &|ask| reach.ask(ask),
            volume,
            &stop,
            "the server continues the move",
        );
    }
    drop(reach);
    match before.moving_to {
        Some(to) if to == what.to && before.moving_extents == what.extents => {
            message(&format!("continuing the move of volume {volume} to {to}"));
            alone(&what.which, None)
        }
        Some(to) => bail!(
            "volume {volume:?} is already moving to {to}: `terrace volume cancel {volume}` cancels that move"
        ),
        None => alone(&what.which, Some(order)),
    }
}

/// Runs `terrace volume cancel`.
pub fn cancel(which: &VolumeSelector) -> anyhow::Result<ExitCode> {
    let order = ControlRequest::CancelMove {
        volume: which.volume.clone(),
    };
    let reach = Reach::find(&which.array.array).map_err(explained)?;
    if let Reach::Served(_) = &reach {
        said(&reach.ask(order).map_err(|why| anyhow!(why))?);
        return Ok(ExitCode::SUCCESS);
    }
    let before = one(reach.ask(show(&which.volume)).map_err(|why| anyhow!(why))?)?;
    drop(reach);
    if before.moving_to.is_none() {
        bail!("volume {:?} is not moving", which.volume);
    }
    let serving = serve(which)?;
    let answer = serving
        .control_server()
        .ask(order)
        .map_err(|why| anyhow!(why));
    let over = answer.and_then(|answer| {
        said(&answer);
        loop {
            let now = one(serving
                .control_server()
                .ask(show(&which.volume))
                .map_err(|w| anyhow!(w))?)?;
            responds(&now)?;
            if now.status.is_none_or(|s| s.moving.is_none()) {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(LOOK);
        }
    });
    stopped_after(over, serving.stop())
}

/// Starts a server of this command, with one volume and no guests.
fn serve(which: &VolumeSelector) -> anyhow::Result<ArrayServer> {
    let config = ServerConfig {
        workers: 1,
        ..ServerConfig::default()
    };
    let serving = ArrayServer::start(&which.array.array, config).map_err(explained)?;
    match serving.control_server().export(&which.volume) {
        Ok(()) => Ok(serving),
        Err(why) => stopped_after(Err(anyhow!(why)), serving.stop()),
    }
}

fn alone(which: &VolumeSelector, order: Option<ControlRequest>) -> anyhow::Result<ExitCode> {
    let stop = Stop::listen()?;
    let serving = serve(which)?;
    let remotes = serving.wait_for_remotes(Duration::from_secs(10));
    let answer = remotes
        .map_err(|why| anyhow!(why))
        .and_then(|()| match order {
            Some(order) => serving
                .control_server()
                .ask(order)
                .map_err(|why| anyhow!(why)),
            None => Ok(ControlAnswer::Done {
                message: String::new(),
            }),
        });
    let ended = answer.and_then(|_| {
        let later =
            "run `terrace volume move` again, or `terrace volume export`, to continue the move";
        follow(
            &|ask| serving.control_server().ask(ask),
            &which.volume,
            &stop,
            later,
        )
    });
    stopped_after(ended, serving.stop())
}

/// Waits for the end of a move.
fn follow(
    ask: &dyn Fn(ControlRequest) -> ControlResult,
    volume: &str,
    stop: &Stop,
    later: &str,
) -> anyhow::Result<ExitCode> {
    let mut bar = LeftBar::new(volume);
    loop {
        let now = one(ask(show(volume)).map_err(|why| anyhow!(why))?)?;
        responds(&now)?;
        let Some(status) = now.status else {
            bail!("volume {volume:?} is no longer served; {later}");
        };
        match (status.moving, status.last_move) {
            (Some(moving), _) => bar.update_move(volume, &moving),
            (None, Some(LastMove::Done { copied })) => {
                drop(bar);
                let text = live_table::ended(&LastMove::Done { copied });
                message(&format!("move of {volume} {text}"));
                return Ok(ExitCode::SUCCESS);
            }
            (None, Some(stopped)) => {
                bail!("move of {volume} {}", live_table::ended(&stopped));
            }
            (None, None) => bail!("volume {volume:?} is not moving"),
        }
        if stop.sleep(LOOK) == Go::Stop {
            drop(bar);
            message(&format!("stopped waiting: {later}"));
            return Ok(ExitCode::FAILURE);
        }
    }
}
