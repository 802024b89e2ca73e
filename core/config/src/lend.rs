//! Memory and flash that a donor host lends to the caches of other hosts: `[lend]` of a live configuration.

use std::net::IpAddr;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::ValueError;

/// Largest number of pages of an L2 cache.
pub const SECOND_LEVEL_PAGES_MAX: u64 = (cache::CAPACITY_PAGES_MAX - cache::FRAMES_BESIDE) as u64;

/// Smallest amount of memory or flash that is lent: a smaller cache is of no use.
pub const LEND_MIN: Bytes = Bytes::mib(1);

/// Memory and flash that this host lends to the caches of other hosts. Its agent starts and stops a cache node for
/// each order of the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LendConfig {
    /// Total memory that the host lends, at least 1 MiB. Unused memory stays available to the system. Default:
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Total flash that the host lends, at least 1 MiB; needs `flash_dir`. Unused space stays available to the file
    /// system. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<Bytes>,
    /// Directory on the flash, relative to the directory of this file. Files in it are unnamed, so they disappear
    /// with their process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash_dir: Option<String>,
    /// Address at which borrowing hosts connect. "tcp:ADDRESS" uses ports that the system chooses,
    /// "tcp:ADDRESS:FIRST-LAST" ports of that range. "unix:DIR" uses sockets in a directory, relative to this
    /// file's, for arrays of this host.
    pub listen: String,
    /// Directory with `ca-cert.pem`, `server-cert.pem`, `server-key.pem` and optionally `ca-crl.pem`, relative to
    /// this file's directory. With it, borrowing hosts must use TLS and present a certificate. Required for
    /// addresses other than loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_certificates: Option<String>,
    /// Absolute path of the directory in which borrowing hosts keep their own certificates. Default: the path of
    /// `tls_certificates`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificates: Option<String>,
}

/// Address of the processes that serve lent memory and flash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LendListen {
    /// Sockets in this directory.
    Unix(String),
    /// Ports of this address.
    Tcp {
        address: IpAddr,
        /// First and last port; `None` for ports that the system chooses.
        ports: Option<(u16, u16)>,
    },
}

impl FromStr for LendListen {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if let Some(dir) = text.strip_prefix("unix:").filter(|dir| !dir.is_empty()) {
            return Ok(LendListen::Unix(dir.into()));
        }
        let unknown = || ValueError::Address(text.into());
        let place = text.strip_prefix("tcp:").ok_or_else(unknown)?;
        // IPv6 addresses are in brackets.
        let (address, ports) = match place.strip_prefix('[') {
            Some(rest) => {
                let (address, rest) = rest.split_once(']').ok_or_else(unknown)?;
                match rest.is_empty() {
                    true => (address, None),
                    false => (address, Some(rest.strip_prefix(':').ok_or_else(unknown)?)),
                }
            }
            None => match place.split_once(':') {
                Some((address, ports)) => (address, Some(ports)),
                None => (place, None),
            },
        };
        let address: IpAddr = address.parse().map_err(|_| unknown())?;
        let ports = ports.map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let [first, last] = [first, last].map(|p| p.parse::<u16>().ok().filter(|p| *p > 0));
            let both = first.zip(last).filter(|(first, last)| first <= last);
            both.ok_or_else(|| ValueError::Ports(range.into()))
        });
        let ports = ports.transpose()?;
        Ok(LendListen::Tcp { address, ports })
    }
}

impl LendConfig {
    /// Returns the address at which the host lends.
    ///
    /// # Errors
    /// The invalid key of the table, and the reason.
    pub fn check(&self) -> Result<LendListen, (&'static str, String)> {
        for (key, size) in [("memory", self.memory), ("flash", self.flash)] {
            if size.is_some_and(|size| size < LEND_MIN) {
                return Err((key, format!("must be at least {LEND_MIN}")));
            }
        }
        match (self.memory, self.flash, &self.flash_dir) {
            (None, None, _) => {
                return Err(("memory", "and flash are missing: set at least one".into()));
            }
            (_, Some(_), None) => return Err(("flash", "needs flash_dir".into())),
            (_, None, Some(_)) => return Err(("flash_dir", "needs flash".into())),
            _ => {}
        }
        let listen = self.listen.parse();
        let listen: LendListen = listen.map_err(|why: ValueError| ("listen", why.to_string()))?;
        let is_tcp = match &listen {
            LendListen::Unix(_) => false,
            LendListen::Tcp { address, .. } => {
                if address.is_unspecified() {
                    let why =
                        "must be one address at which other hosts reach this one, not a wildcard";
                    return Err(("listen", why.into()));
                }
                if !address.is_loopback() && self.tls_certificates.is_none() {
                    let why = "carries guest data: set tls_certificates for an address other than loopback";
                    return Err(("listen", why.into()));
                }
                true
            }
        };
        if self.tls_certificates.is_some() && !is_tcp {
            let why = "applies to tcp addresses only, not to unix sockets";
            return Err(("tls_certificates", why.into()));
        }
        let Some(theirs) = &self.client_certificates else {
            return Ok(listen);
        };
        if self.tls_certificates.is_none() {
            return Err(("client_certificates", "needs tls_certificates".into()));
        }
        match theirs.starts_with('/') {
            true => Ok(listen),
            false => {
                let why = "must be an absolute path: it is used on other hosts";
                Err(("client_certificates", why.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<LendListen, (String, String)> {
        let (read, _) = crate::read::<LendConfig>("t.toml", text)
            .map_err(|e| ("not read".to_string(), e.to_string()))?;
        read.check().map_err(|(key, why)| (key.to_string(), why))
    }

    #[test]
    fn lending_addresses_parse() {
        let tcp = |address: &str, ports| {
            let address = address.parse().unwrap();
            Ok(LendListen::Tcp { address, ports })
        };
        for (text, place) in [
            ("unix:/run/x", Ok(LendListen::Unix("/run/x".into()))),
            ("tcp:192.0.2.7", tcp("192.0.2.7", None)),
            ("tcp:192.0.2.7:9-10", tcp("192.0.2.7", Some((9, 10)))),
            ("tcp:192.0.2.7:9", tcp("192.0.2.7", Some((9, 9)))),
            ("tcp:[::1]", tcp("::1", None)),
            ("tcp:[::1]:9-10", tcp("::1", Some((9, 10)))),
        ] {
            assert_eq!(text.parse::<LendListen>(), place, "{text}");
        }
        for text in [
            "",
            "unix:",
            "tcp:",
            "tcp:host",
            "tcp:::1",
            "tcp:[::1",
            "tcp:[::1]9",
            "tcp:192.0.2.7:",
            "tcp:192.0.2.7:0-9",
            "tcp:192.0.2.7:10-9",
            "tcp:192.0.2.7:9-70000",
            "udp:192.0.2.7",
        ] {
            assert!(text.parse::<LendListen>().is_err(), "{text}");
        }
    }

    #[test]
    fn invalid_lending_options_are_refused_with_their_key() {
        let tls = "tls_certificates = \"tls\"\n";
        let remote = "memory = \"1 GiB\"\nlisten = \"tcp:192.0.2.7\"\n";
        let local = "memory = \"1 GiB\"\nlisten = \"tcp:127.0.0.1\"\n";
        for text in [
            local.to_owned(),
            format!("{remote}{tls}"),
            format!("{local}{tls}client_certificates = \"/etc/tls\""),
            format!("{local}flash = \"1 GiB\"\nflash_dir = \"f\""),
            "flash = \"1 GiB\"\nflash_dir = \"f\"\nlisten = \"unix:n\"".into(),
        ] {
            assert!(checked(&text).is_ok(), "{text}");
        }
        for (text, key) in [
            ("memory = \"1 KiB\"\nlisten = \"unix:n\"".into(), "memory"),
            ("memory = \"1 GiB\"\nlisten = \"n\"".into(), "listen"),
            (
                "memory = \"1 GiB\"\nlisten = \"tcp:0.0.0.0\"".into(),
                "listen",
            ),
            (remote.into(), "listen"),
            (
                format!("memory = \"1 GiB\"\nlisten = \"unix:n\"\n{tls}"),
                "tls_certificates",
            ),
            (
                format!("{local}client_certificates = \"/a\""),
                "client_certificates",
            ),
            (
                format!("{remote}{tls}client_certificates = \"a\""),
                "client_certificates",
            ),
            ("memory = \"1 GiB\"".into(), "not read"),
            (format!("{local}flash = \"1 GiB\""), "flash"),
            (format!("{local}flash_dir = \"f\""), "flash_dir"),
            (
                format!("{local}flash = \"1 KiB\"\nflash_dir = \"f\""),
                "flash",
            ),
            ("listen = \"unix:n\"".into(), "memory"),
            (format!("{local}disk = \"1 GiB\""), "not read"),
        ] {
            let (said, why) = checked(&text).unwrap_err();
            assert_eq!(said, key, "{text}: {why}");
        }
    }
}
