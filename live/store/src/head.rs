//! Head of a window: its length, its volumes in order, and its devices.

use crate::failure::Failure;
use crate::part::{put_steps, take_steps};
use crate::varint::{Reader, id, put};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Length of the window, ns.
    pub window_ns: u64,
    /// Ids of its volumes, in the order of the report.
    pub volumes: Vec<u32>,
    pub devices: Vec<DeviceRow>,
}

/// Device in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeviceRow {
    /// Id of the device's name.
    pub device: u32,
    /// Measured time, ns.
    pub measured_ns: u64,
    pub used_bytes: u64,
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub utilization_milli: u64,
}

impl Head {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.volumes.len() + 32 * self.devices.len() + 16);
        put(&mut out, self.window_ns);
        put(&mut out, self.volumes.len() as u64);
        put_steps(&mut out, &self.volumes, |v| u64::from(*v));
        put(&mut out, self.devices.len() as u64);
        put_steps(&mut out, &self.devices, |d| u64::from(d.device));
        put_steps(&mut out, &self.devices, |d| d.measured_ns);
        for field in FIELDS {
            for device in &self.devices {
                put(&mut out, *field(&mut device.clone()));
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Failure> {
        let mut from = Reader::new(bytes);
        let window_ns = from.take()?;
        let mut volumes = vec![0; from.take_count()?];
        take_steps(&mut from, &mut volumes, |v, n| {
            *v = id(n)?;
            Ok(())
        })?;
        let mut devices = vec![DeviceRow::default(); from.take_count()?];
        take_steps(&mut from, &mut devices, |d, n| {
            d.device = id(n)?;
            Ok(())
        })?;
        take_steps(&mut from, &mut devices, |d, n| {
            d.measured_ns = n;
            Ok(())
        })?;
        for field in FIELDS {
            for device in &mut devices {
                *field(device) = from.take()?;
            }
        }
        from.finish()?;
        Ok(Self {
            window_ns,
            volumes,
            devices,
        })
    }
}

/// Columns of plain numbers, in order.
const FIELDS: [fn(&mut DeviceRow) -> &mut u64; 6] = [
    |d| &mut d.used_bytes,
    |d| &mut d.reads,
    |d| &mut d.writes,
    |d| &mut d.read_bytes,
    |d| &mut d.write_bytes,
    |d| &mut d.utilization_milli,
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn heads_round_trip(
            window_ns: u64,
            volumes: Vec<u32>,
            devices in proptest::collection::vec(any::<[u64; 8]>(), 0..20),
        ) {
            let devices = devices.iter().map(|n| DeviceRow {
                device: n[0] as u32,
                measured_ns: n[1],
                used_bytes: n[2],
                reads: n[3],
                writes: n[4],
                read_bytes: n[5],
                write_bytes: n[6],
                utilization_milli: n[7],
            });
            let head = Head { window_ns, volumes, devices: devices.collect() };
            prop_assert_eq!(Head::decode(&head.encode()).unwrap(), head);
        }

        #[test]
        fn arbitrary_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Head::decode(&bytes);
        }
    }
}
