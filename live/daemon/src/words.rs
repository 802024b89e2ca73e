//! Files, sockets and hosts that a configuration names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::{AgentError, Host, LendSettings, MachinesSettings, MoveSettings, Platform, TierOf};
use controller::{Certificate, TcpSettings};
use manager::settings::{ControllerConfig, ManagerConfig, Settings};
use store::Retention;

use crate::error::DaemonError;
use crate::{CONTROLLER_SOCKET, STORE_FILE};

/// Files of a controller and the retention of its store.
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

/// Title of a host, and the host.
type NamedHost = (String, Box<dyn Host>);

/// Returns the host of a configuration, with its monitored objects.
pub(crate) fn host_of(
    words: &ManagerConfig,
    base: &Path,
) -> Result<Option<NamedHost>, DaemonError> {
    if let Some(array) = &words.array {
        let control = base.join(&array.dir);
        let control = control.join(datapath::control::CONTROL_SOCKET);
        let host = agent::ServedArray::new(control);
        return Ok(Some((array.host.clone(), Box::new(host))));
    }
    let Some((platform, settings)) = machines_of(words, base)? else {
        return Ok(None);
    };
    let host = platform.open(&words.platforms[platform.name], base, settings);
    let host = host.map_err(|(key, why)| DaemonError::Config { key, why })?;
    let machines = words.machines().ok().flatten();
    let name = machines.map_or_else(String::new, |(_, keys)| keys.host);
    Ok(Some((name, host)))
}

/// Returns the platform of this host's virtual machines with its settings.
fn machines_of(
    words: &ManagerConfig,
    base: &Path,
) -> Result<Option<(&'static Platform, MachinesSettings)>, DaemonError> {
    let bad = |key: &'static str, why| DaemonError::Config { key, why };
    let machines = words.machines().map_err(|(_, why)| bad("tiers", why))?;
    let Some((name, keys)) = machines else {
        return Ok(None);
    };
    let platform = Platform::find(name);
    let platform = platform.ok_or_else(|| bad("tiers", format!("unknown platform {name}")))?;
    let tier = |t: &config::TierConfig| {
        let places = t.storage().map(|(key, place)| {
            let key = match key {
                "volume_group" => "tiers.volume_group",
                "zfs" => "tiers.zfs",
                _ => "tiers.pools",
            };
            place
                .parse()
                .map_err(|e: AgentError| bad(key, e.to_string()))
        });
        Ok::<_, DaemonError>(TierOf {
            name: t.name.clone(),
            places: places.collect::<Result<_, _>>()?,
            capacity: t.capacity.map(|c| c.0),
            format: t.format.map(|f| f.name().into()),
            overwrite: t.overwrite,
        })
    };
    // Records the states of disks that move.
    let moves = format!("{name}-moves");
    let classes = keys.classes.into_iter();
    let settings = MachinesSettings {
        tiers: words.tiers.iter().map(tier).collect::<Result<_, _>>()?,
        classes: classes.map(|c| (c.disks, c.class)).collect(),
        moving: keys.moves.then(|| MoveSettings {
            dir: base.join(&words.controller.state).join(moves),
            keep_source: Duration::from_nanos(keys.keep_source.0),
        }),
    };
    Ok(Some((platform, settings)))
}

/// Runs the configuration checks of the platform of the virtual machines. Returns lines for the operator.
///
/// # Errors
/// Reasons for which the platform would not work.
pub(crate) fn check_platform(
    words: &ManagerConfig,
    base: &Path,
) -> Result<Vec<String>, DaemonError> {
    let Some((platform, settings)) = machines_of(words, base)? else {
        return Ok(vec![]);
    };
    let checked = platform.check(&words.platforms[platform.name], base, &settings);
    checked.map_err(|(key, why)| DaemonError::Config { key, why })
}

/// Returns the memory and flash that this host lends through processes of this program.
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

/// Returns the TLS address for users, if one is configured.
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
