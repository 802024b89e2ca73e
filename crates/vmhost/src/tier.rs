//! What a pool's storage is taken to be, from what the kernel says of its device.

use std::fmt;

/// How a device is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// PCIe.
    Nvme,
    /// Paravirtualized: what is behind it is not known.
    Virtio,
    /// SAS or SCSI of any kind.
    Scsi,
    Sata,
    Network,
    /// Not known.
    Unknown,
}

/// Bandwidths of buses: SATA with 6 Gb/s, and SAS with two ports of 24 Gb/s.
const SATA_BYTES_PER_S: f64 = 600e6;
const SAS_BYTES_PER_S: f64 = 4.8e9;

/// What a device is, as far as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Medium {
    /// How it is connected.
    pub transport: Transport,
    /// Whether it has spinning disks; none is unknown.
    pub rotational: Option<bool>,
}

impl Medium {
    /// Whether that says what kind of device it is.
    pub fn is_known(&self) -> bool {
        !matches!(self.transport, Transport::Virtio | Transport::Unknown)
    }

    /// Shortest time of a read of so many bytes, microseconds: the least latency of any device and the transfer on the bus. Whether it is
    /// rotational does not count, because virtual disks on SSDs are often reported as rotational.
    pub fn read_us_min(&self, bytes: usize) -> f64 {
        let bus = match self.transport {
            Transport::Sata => SATA_BYTES_PER_S,
            Transport::Scsi => SAS_BYTES_PER_S,
            Transport::Nvme | Transport::Virtio | Transport::Network | Transport::Unknown => {
                model::BANDWIDTH_MAX
            }
        };
        model::LATENCY_MIN_US + bytes as f64 * 1e6 / bus
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            Transport::Nvme => "NVMe",
            Transport::Virtio => "virtio",
            Transport::Scsi => "SCSI or SAS",
            Transport::Sata => "SATA",
            Transport::Network => "network",
            Transport::Unknown => "unknown transport",
        };
        let spins = match (self.rotational, self.transport) {
            // What every one of them says, unless it was told otherwise.
            (Some(true), Transport::Virtio) | (None, _) => "the device behind it is unknown",
            (Some(true), _) => "rotational",
            (Some(false), _) => "not rotational",
        };
        write!(f, "{transport}, {spins}")
    }
}

/// A guess at a device, for a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Guess {
    /// The faster one has the lower rank.
    pub rank: u8,
    /// A device preset, by its name in `model::PRESETS`.
    pub preset: &'static str,
}

/// Guesses the rank and the preset of a device. A measured profile says more.
///
/// Linux calls a paravirtualized device rotational unless its host says otherwise, so that attribute is ignored.
pub fn guessed(medium: Medium) -> Guess {
    let (rank, preset) = match (medium.rotational, medium.transport) {
        (_, Transport::Virtio) => (2, "sata-ssd"),
        (Some(true), Transport::Scsi) => (4, "disk-15k"),
        (Some(true), _) => (5, "disk-7k2"),
        (_, Transport::Network) => (3, "nvme-qlc"),
        (_, Transport::Nvme) => (0, "nvme-tlc"),
        (_, Transport::Scsi) => (1, "sas-ssd"),
        (_, Transport::Sata | Transport::Unknown) => (2, "sata-ssd"),
    };
    Guess { rank, preset }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_calls_rotational_is_believed_but_of_paravirtualized_devices() {
        let medium = |transport, rotational| Medium {
            transport,
            rotational,
        };
        let rank = |m| guessed(m).rank;
        let sata = |spins| medium(Transport::Sata, Some(spins));
        assert!(rank(sata(true)) > rank(sata(false)));
        let virtio = |spins| medium(Transport::Virtio, Some(spins));
        assert_eq!(rank(virtio(true)), rank(virtio(false)));
        assert_eq!(sata(true).to_string(), "SATA, rotational");
        assert_eq!(
            virtio(true).to_string(),
            "virtio, the device behind it is unknown"
        );
    }
}
