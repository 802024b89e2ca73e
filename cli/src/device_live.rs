//! `terrace device remove`, `replace`, `accept` and `direct`: removal, replacement and return of devices of an array, and their I/O mode.

use std::process::ExitCode;

use clap::Args;
use datapath::control_server::ControlRequest;
use model::DirectIo;

use crate::live::{AcceptLossArg, ArrayArg};
use crate::tier_cmd::DeviceArgs;

/// Which device of which array.
#[derive(Debug, Args)]
struct DeviceSelector {
    #[command(flatten)]
    array: ArrayArg,
    /// The device, as `terrace tier list` calls it
    #[arg(value_name = "DEVICE")]
    device: String,
}

/// `terrace device remove`
#[derive(Debug, Args)]
pub struct Remove {
    #[command(flatten)]
    which: DeviceSelector,
    #[command(flatten)]
    accept: AcceptLossArg,
}

/// `terrace device replace`
#[derive(Debug, Args)]
pub struct Replace {
    #[command(flatten)]
    which: DeviceSelector,
    #[command(flatten)]
    new: DeviceArgs,
    #[command(flatten)]
    accept: AcceptLossArg,
}

/// `terrace device accept`
#[derive(Debug, Args)]
pub struct Accept {
    #[command(flatten)]
    which: DeviceSelector,
    #[command(flatten)]
    accept: AcceptLossArg,
}

/// `terrace device direct`
#[derive(Debug, Args)]
pub struct DirectArgs {
    #[command(flatten)]
    which: DeviceSelector,
    /// auto: the faster way, as measured at each start of the server
    #[arg(value_name = "auto|on|off")]
    direct: DirectIo,
}

/// Runs `terrace device remove`.
pub fn remove(what: &Remove) -> anyhow::Result<ExitCode> {
    let DeviceSelector { array, device } = &what.which;
    let ask = ControlRequest::RemoveDevice {
        device: device.clone(),
        accept_loss: what.accept.names(device),
    };
    array.order_accepting(ask, &what.accept)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `terrace device replace`.
pub fn replace(what: Replace) -> anyhow::Result<ExitCode> {
    let DeviceSelector { array, device } = &what.which;
    let ask = ControlRequest::ReplaceDevice {
        device: device.clone(),
        // The server uses the tier of the replaced device.
        new: what.new.wanted(String::new())?,
        accept_loss: what.accept.names(device),
    };
    array.order_accepting(ask, &what.accept)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `terrace device accept`.
pub fn accept(what: &Accept) -> anyhow::Result<ExitCode> {
    let DeviceSelector { array, device } = &what.which;
    let ask = ControlRequest::AcceptDevice {
        device: device.clone(),
    };
    array.order_accepting(ask, &what.accept)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `terrace device direct`.
pub fn direct(what: &DirectArgs) -> anyhow::Result<ExitCode> {
    let DeviceSelector { array, device } = &what.which;
    array.order(ControlRequest::SetDirect {
        device: device.clone(),
        direct: what.direct,
    })?;
    Ok(ExitCode::SUCCESS)
}
