//! Files, sockets and hosts that a configuration names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::{HostOf, LendSettings, MachinesSettings, Moving, TierOf, check_tiers};
use controller::{Certificate, TcpSettings};
use manager::settings::{ControllerConfig, DiskClassConfig, ManagerConfig, Settings};
use store::Retention;
use units::Nanos;

use crate::error::DaemonError;
use crate::{CONTROLLER_SOCKET, STORE_FILE};

/// Where it is written what becomes of disks that move, in a controller's state directory.
const LIBVIRT_MOVES_DIR: &str = "libvirt-moves";
const QEMU_MOVES_DIR: &str = "qemu-moves";

/// Where a controller keeps its store, and for how long.
pub(crate) struct Words {
    pub(crate) state: PathBuf,
    pub(crate) store: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) retention: Retention,
}

impl Words {
    pub(crate) fn of(settings: &Settings, base: &Path) -> Self {
        let words = &settings.words.controller;
        let state = base.join(&words.state);
        Self {
            store: state.join(STORE_FILE),
            socket: words
                .socket
                .as_ref()
                .map_or_else(|| state.join(CONTROLLER_SOCKET), |s| base.join(s)),
            retention: Retention {
                raw: words.raw,
                rolled: words.rolled,
                ..Retention::default()
            },
            state,
        }
    }
}

/// The host that a configuration names, and what is looked after there.
pub(crate) fn host_of(
    words: &ManagerConfig,
    base: &Path,
) -> Result<Option<(String, HostOf)>, DaemonError> {
    if let Some(array) = &words.array {
        let control = base.join(&array.dir);
        let control = control.join(datapath::control::CONTROL_SOCKET);
        return Ok(Some((array.host.clone(), HostOf::Array(control))));
    }
    let tier = |t: &config::TierConfig| {
        let places = t.storage().map(|(key, place)| {
            let key = match key {
                "volume_group" => "tiers.volume_group",
                "zfs" => "tiers.zfs",
                _ => "tiers.pools",
            };
            let place = place.parse();
            place.map_err(|why| DaemonError::Config { key, why })
        });
        Ok::<_, DaemonError>(TierOf {
            name: t.name.clone(),
            places: places.collect::<Result<_, _>>()?,
            capacity: t.capacity.map(|c| c.0),
            format: t.format.map(|f| f.name().into()),
            overwrite: t.overwrite,
        })
    };
    let settings = |classes: &[DiskClassConfig], moves: bool, keep_source: Nanos, dir: &str| {
        let classes = classes.iter();
        Ok::<_, DaemonError>(MachinesSettings {
            tiers: words.tiers.iter().map(tier).collect::<Result<_, _>>()?,
            classes: classes
                .map(|c| (c.disks.clone(), c.class.clone()))
                .collect(),
            moving: moves.then(|| Moving {
                dir: base.join(&words.controller.state).join(dir),
                keep_source: Duration::from_nanos(keep_source.0),
            }),
            latency_histograms: words.libvirt.as_ref().is_some_and(|l| l.latency_histograms),
        })
    };
    if let Some(of) = &words.libvirt {
        let settings = settings(&of.classes, of.moves, of.keep_source, LIBVIRT_MOVES_DIR)?;
        let host = HostOf::Libvirt(of.uri.clone(), settings);
        return Ok(Some((of.host.clone(), host)));
    }
    let Some(of) = &words.qemu else {
        return Ok(None);
    };
    let settings = settings(&of.classes, of.moves, of.keep_source, QEMU_MOVES_DIR)?;
    let key = "tiers.pools";
    check_tiers(&settings.tiers).map_err(|why| DaemonError::Config { key, why })?;
    let host = HostOf::Qemu(base.join(&of.sockets), settings);
    Ok(Some((of.host.clone(), host)))
}

/// The memory and flash that this host lends through processes of this program.
pub(crate) fn lend_of(
    words: &ManagerConfig,
    base: &Path,
) -> Result<Option<LendSettings>, DaemonError> {
    let Some(lend) = &words.lend else {
        return Ok(None);
    };
    let program = std::env::current_exe().map_err(|e| DaemonError::Config {
        key: "lend",
        why: format!("needs the path of this program, which is unknown: {e}"),
    })?;
    let settings = LendSettings::new(lend, base, program);
    let settings = settings.map_err(|(key, why)| DaemonError::Config {
        key: "lend",
        why: format!("{key} {why}"),
    })?;
    Ok(Some(settings))
}

/// Where people connect over TLS, if they may.
pub(crate) fn tcp(
    words: &ControllerConfig,
    base: &Path,
) -> Result<Option<TcpSettings>, DaemonError> {
    let Some(listen) = &words.listen else {
        return Ok(None);
    };
    let bad = |key: &'static str, why: String| DaemonError::Config { key, why };
    let listen = listen.parse().map_err(|_| {
        bad(
            "controller.listen",
            format!("{listen:?} is not an IP address with a port, such as \"127.0.0.1:9443\""),
        )
    })?;
    let tokens = words.tokens.as_ref().ok_or_else(|| {
        bad(
            "controller.tokens",
            "is required with controller.listen: callers need a token".into(),
        )
    })?;
    let certificate = match (&words.certificate, &words.key) {
        (Some(certificate), Some(key)) => Certificate::Files {
            certificate: base.join(certificate),
            key: base.join(key),
        },
        (None, None) => Certificate::SelfSigned {
            directory: base.join(&words.state),
        },
        _ => {
            return Err(bad(
                "controller.certificate",
                "and controller.key must be given together".into(),
            ));
        }
    };
    Ok(Some(TcpSettings {
        listen,
        tokens: base.join(tokens),
        certificate,
    }))
}
