//! What a pool's storage is taken to be, from what the kernel says of its device.

/// How a device is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// PCIe.
    Nvme,
    /// Paravirtualized: what is behind it is not known.
    Virtio,
    /// SAS or SCSI of any kind.
    Scsi,
    /// SATA.
    Sata,
    /// A network.
    Network,
    /// Not known.
    Unknown,
}

/// What a device is, as far as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Medium {
    /// How it is connected.
    pub transport: Transport,
    /// Whether it has spinning disks; none is unknown.
    pub rotational: Option<bool>,
}

/// A guess at a device, for a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Guess {
    /// The faster one has the lower rank.
    pub rank: u8,
    /// A device preset, by its name in `model::PRESETS`.
    pub preset: &'static str,
}

/// What a device is taken to be. No preset has spinning disks: they count as the slowest that there is, and a measured profile says more.
pub fn guessed(medium: Medium) -> Guess {
    let (rank, preset) = match (medium.rotational, medium.transport) {
        (Some(true), _) | (_, Transport::Network) => (3, "nvme-qlc"),
        (_, Transport::Nvme) => (0, "nvme-tlc"),
        (_, Transport::Scsi) => (1, "sas-ssd"),
        (_, Transport::Virtio | Transport::Sata | Transport::Unknown) => (2, "sata-ssd"),
    };
    Guess { rank, preset }
}
