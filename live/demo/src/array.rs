//! Array of the demonstration: its tiers, and its volumes with data.

use std::path::Path;

use datapath::control_server::{ControlRequest, NewDevice, NewSource};
use datapath::{Client, ClientError, Reach, add_device};
use model::DirectIo;
use units::Bytes;

use crate::error::DemoError;
use crate::loads::{DemoTier, LOADS, TIERS};

/// Size of an extent. It is small because the volumes are.
const EXTENT: Bytes = Bytes::mib(1);

/// Bytes of one write when volumes are filled.
const FILL_BYTES: usize = 1 << 20;

/// Creates the array in a directory. Its volumes are empty.
pub(crate) fn make(dir: &Path) -> Result<(), DemoError> {
    for (i, tier) in TIERS.iter().enumerate() {
        add(dir, tier, i == 0)?;
    }
    let reach = Reach::find(dir).map_err(DemoError::of_array)?;
    for load in &LOADS {
        let create = ControlRequest::Create {
            volume: load.name.into(),
            size: load.size(),
            tier: load.tier.into(),
            class: Some(load.class.into()),
        };
        reach.ask(create).map_err(DemoError::of_array)?;
    }
    Ok(())
}

/// Adds the device of a tier to the array in a directory. The first device creates the array.
pub(crate) fn add(dir: &Path, tier: &DemoTier, first: bool) -> Result<(), DemoError> {
    let backing = dir.with_extension(tier.name);
    make_directory(&backing)?;
    let device = NewDevice {
        tier: tier.name.into(),
        source: NewSource::Dir(backing),
        size: Some(Bytes::mib(tier.mib)),
        emulate: Some(tier.spec()),
        direct: DirectIo::Off,
        force: false,
        thin: true,
    };
    let added = add_device(dir, first.then_some(EXTENT), device);
    added.map(|_| ()).map_err(DemoError::of_array)
}

/// Creates the directory of a device.
pub(crate) fn make_directory(path: &Path) -> Result<(), DemoError> {
    std::fs::create_dir_all(path).map_err(|why| DemoError::Directory {
        path: path.into(),
        why,
    })
}

/// Writes all of a volume once, so all its extents are allocated.
pub(crate) fn fill(uri: &nbd::Uri, mib: u64) -> Result<(), DemoError> {
    write_all(uri, mib).map_err(DemoError::of_array)
}

fn write_all(uri: &nbd::Uri, mib: u64) -> Result<(), ClientError> {
    let mut client = Client::connect(uri)?;
    let data: Vec<u8> = (0..FILL_BYTES).map(|i| (i * 31 % 251) as u8).collect();
    for i in 0..mib {
        client.write(i << 20, &data)?;
    }
    client.flush()?;
    client.disconnect()
}
