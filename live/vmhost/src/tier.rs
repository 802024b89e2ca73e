//! Assumed kind of a pool's storage, from the kernel's facts about its device.

use std::fmt;

/// Connection of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// PCIe.
    Nvme,
    /// Paravirtualized: the device behind it is unknown.
    Virtio,
    /// SAS or SCSI of any kind.
    Scsi,
    Sata,
    Network,
    /// Unknown.
    Unknown,
}

/// Bandwidths of buses: SATA with 6 Gb/s, and SAS with two ports of 24 Gb/s.
const SATA_BYTES_PER_S: f64 = 600e6;
const SAS_BYTES_PER_S: f64 = 4.8e9;

/// Kind of device, as far as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Medium {
    /// Connection of the device.
    pub transport: Transport,
    /// True if it has spinning disks; `None` if that is unknown.
    pub rotational: Option<bool>,
}

impl Medium {
    /// Returns true if the transport determines the kind of device.
    pub fn is_known(&self) -> bool {
        !matches!(self.transport, Transport::Virtio | Transport::Unknown)
    }

    /// Returns the shortest time of a read of this many bytes in microseconds: the least latency of any device plus the
    /// transfer on the bus. The attribute `rotational` is ignored, because virtual disks on SSDs are often reported as
    /// rotational.
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
            // Default of every such device, unless its host sets the attribute.
            (Some(true), Transport::Virtio) | (None, _) => "the device behind it is unknown",
            (Some(true), _) => "rotational",
            (Some(false), _) => "not rotational",
        };
        write!(f, "{transport}, {spins}")
    }
}

/// Assumed device, for a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Guess {
    /// Rank by speed: the faster device has the lower rank.
    pub rank: u8,
    /// Name of a device preset in `model::PRESETS`.
    pub preset: &'static str,
}

/// Returns the assumed rank and preset of a device. A measured profile is more accurate.
///
/// Linux reports a paravirtualized device as rotational unless its host sets the attribute, so the attribute is ignored
/// for such devices.
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
    fn rotational_flag_is_used_except_for_paravirtualized_devices() {
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
