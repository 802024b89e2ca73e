//! Memory and flash that a host lends to the caches of other hosts' arrays: `[lend]` of a live configuration.

use std::net::IpAddr;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Bytes;

/// Pages that one has at most.
pub const SECOND_LEVEL_PAGES_MAX: u64 = (cache::CAPACITY_PAGES_MAX - cache::FRAMES_BESIDE) as u64;

/// Less than this is no appliance.
pub const LEND_MIN: Bytes = Bytes::mib(1);

/// Memory and flash that a host lends to the caches of other hosts' arrays: its agent starts a process for each that a controller orders, and ends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LendConfig {
    /// How much memory in all, 1 MiB at least; none if left out. What nobody uses is the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// How much flash in all, 1 MiB at least; none if left out. What nobody uses is the file system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<Bytes>,
    /// With `flash`: the directory on it, from the file's. Files there have no names, so nothing is left of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash_dir: Option<String>,
    /// Where the hosts that use it connect: "tcp:ADDRESS" at ports that the system chooses, "tcp:ADDRESS:FIRST-LAST" at ports of that range, or "unix:DIR" at
    /// sockets in a directory, from the file's, for arrays of this host.
    pub listen: String,
    /// The hosts that use it have to speak TLS, and to prove who they are by a certificate: a directory, from the file's, with `ca-cert.pem`, `server-cert.pem`,
    /// `server-key.pem` and, if there is one, `ca-crl.pem`. Needed beyond loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_certificates: Option<String>,
    /// The directory in which the hosts that use it have their own certificates, an absolute path; the same one as `tls_certificates` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificates: Option<String>,
}

/// Where processes that lend listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LendListen {
    /// At sockets in this directory.
    Unix(String),
    /// At this address.
    Tcp {
        address: IpAddr,
        /// The first and the last port; ones that the system chooses if there are none.
        ports: Option<(u16, u16)>,
    },
}

impl FromStr for LendListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(dir) = text.strip_prefix("unix:").filter(|dir| !dir.is_empty()) {
            return Ok(LendListen::Unix(dir.into()));
        }
        let unknown = || {
            format!(
                "{text:?} is no place to lend at: write \"tcp:ADDRESS\", \"tcp:ADDRESS:FIRST-LAST\" or \"unix:DIR\""
            )
        };
        let place = text.strip_prefix("tcp:").ok_or_else(unknown)?;
        // An address of IPv6 is in brackets.
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
            both.ok_or_else(|| format!("{range:?} is no range of ports, such as \"10810-10819\""))
        });
        let ports = ports.transpose()?;
        Ok(LendListen::Tcp { address, ports })
    }
}

impl LendConfig {
    /// Where it is lent.
    ///
    /// # Errors
    /// The key in the table, and why it cannot be.
    pub fn check(&self) -> Result<LendListen, (&'static str, String)> {
        for (key, size) in [("memory", self.memory), ("flash", self.flash)] {
            if size.is_some_and(|size| size < LEND_MIN) {
                return Err((key, format!("is at least {LEND_MIN}")));
            }
        }
        match (self.memory, self.flash, &self.flash_dir) {
            (None, None, _) => {
                return Err((
                    "memory",
                    "is not there, nor is flash: one of both is lent".into(),
                ));
            }
            (_, Some(_), None) => return Err(("flash", "needs flash_dir".into())),
            (_, None, Some(_)) => return Err(("flash_dir", "needs flash".into())),
            _ => {}
        }
        let listen: LendListen = self.listen.parse().map_err(|why| ("listen", why))?;
        let is_tcp = match &listen {
            LendListen::Unix(_) => false,
            LendListen::Tcp { address, .. } => {
                if address.is_unspecified() {
                    let why =
                        "names the address at which other hosts reach this one: not all of them";
                    return Err(("listen", why.into()));
                }
                if !address.is_loopback() && self.tls_certificates.is_none() {
                    let why = "has guests' data: beyond loopback with TLS (tls_certificates)";
                    return Err(("listen", why.into()));
                }
                true
            }
        };
        if self.tls_certificates.is_some() && !is_tcp {
            let why = "is for addresses, not for unix sockets";
            return Err(("tls_certificates", why.into()));
        }
        let Some(theirs) = &self.client_certificates else {
            return Ok(listen);
        };
        if self.tls_certificates.is_none() {
            return Err(("client_certificates", "need tls_certificates".into()));
        }
        match theirs.starts_with('/') {
            true => Ok(listen),
            false => {
                let why = "is a path on other hosts: an absolute one";
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
    fn places_are_read_as_they_are_written() {
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
    fn what_cannot_be_is_refused_with_its_key() {
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
