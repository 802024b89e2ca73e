//! The demonstration's array: tiers, volumes, and data on all of them.

use std::path::Path;

use datapath::control_server::{ControlRequest, NewDevice, NewSource};
use datapath::{Client, Reach, add_device, explain};
use model::DirectIo;
use units::Bytes;

use crate::loads::{DemoTier, LOADS, TIERS};

/// Extents are small, since volumes are.
const EXTENT: Bytes = Bytes::mib(1);

/// Bytes of one write when volumes are filled.
const FILL_BYTES: usize = 1 << 20;

/// Makes the array in a directory. Volumes are empty.
pub(crate) fn make(dir: &Path) -> Result<(), String> {
    for (i, tier) in TIERS.iter().enumerate() {
        add(dir, tier, i == 0)?;
    }
    let reach = Reach::find(dir).map_err(|e| explain(&e))?;
    for load in &LOADS {
        reach.ask(ControlRequest::Create {
            volume: load.name.into(),
            size: load.size(),
            tier: load.tier.into(),
            class: Some(load.class.into()),
        })?;
    }
    Ok(())
}

/// Adds the device of a tier to the array in a directory, which is made with its first one.
pub(crate) fn add(dir: &Path, tier: &DemoTier, first: bool) -> Result<(), String> {
    let backing = dir.with_extension(tier.name);
    std::fs::create_dir_all(&backing)
        .map_err(|e| format!("cannot make {}: {e}", backing.display()))?;
    let device = NewDevice {
        tier: tier.name.into(),
        source: NewSource::Dir(backing),
        size: Some(Bytes::mib(tier.mib)),
        emulate: Some(tier.spec()),
        direct: DirectIo::Off,
        force: false,
        thin: true,
    };
    add_device(dir, first.then_some(EXTENT), device).map(|_| ())
}

/// Writes all of a volume once, so that it has a place.
pub(crate) fn fill(uri: &nbd::Uri, mib: u64) -> Result<(), String> {
    let text = |e: datapath::ClientError| explain(&e);
    let mut client = Client::connect(uri).map_err(text)?;
    let data: Vec<u8> = (0..FILL_BYTES).map(|i| (i * 31 % 251) as u8).collect();
    for i in 0..mib {
        client.write(i << 20, &data).map_err(text)?;
    }
    client.flush().map_err(text)?;
    client.disconnect().map_err(text)
}
