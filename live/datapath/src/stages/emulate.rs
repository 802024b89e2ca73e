//! Emulation of a slower device: I/O completes no earlier than on the emulated device.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use algo::{DeviceModel, mix};
use array::DeviceRecord;
use model::Op;
use serde::{Deserialize, Serialize};

use super::DeviceStage;

/// Delays the completion of I/O to that of the device model in the array's record.
#[derive(Debug, Default)]
pub struct Emulate(Option<EmulatedDevice>);

#[derive(Debug)]
struct EmulatedDevice {
    /// Seed of its jitter, combined with the number of the request.
    source: u64,
    requests: AtomicU64,
    /// The same model without load, for values that do not depend on load.
    idle: DeviceModel,
    device: Mutex<DeviceModel>,
}

/// State of the stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Total busy time of the emulated device in nanoseconds. It includes requests in flight, so it may be ahead of
    /// the present time. `None` for a real device.
    pub busy_ns: Option<u64>,
}

impl Emulate {
    /// Returns the device time that an I/O occupies, in nanoseconds; `None` for a real device.
    #[inline]
    pub fn occupancy_ns(&self, op: Op, bytes: u64) -> Option<u64> {
        let emulated = self.0.as_ref()?;
        Some(emulated.idle.occupancy_ns(op, bytes) as u64)
    }
}

impl DeviceStage for Emulate {
    type Sample = Sample;

    fn new(record: &DeviceRecord) -> Self {
        Self(record.emulate.as_ref().map(|like| EmulatedDevice {
            source: u64::from(record.id.0),
            requests: AtomicU64::new(0),
            idle: DeviceModel::new(like),
            device: Mutex::new(DeviceModel::new(like)),
        }))
    }

    #[inline]
    fn over_at(&self, now_ns: u64, op: Op, bytes: u64) -> u64 {
        let Some(emulated) = &self.0 else {
            return 0;
        };
        let number = emulated.requests.fetch_add(1, Ordering::Relaxed);
        let bits = mix(emulated.source, number);
        let device = emulated.device.lock();
        let mut device = device.unwrap_or_else(PoisonError::into_inner);
        device.submit(now_ns, op, bytes, bits)
    }

    fn sample(&self) -> Sample {
        let busy_ns = |emulated: &EmulatedDevice| {
            let device = emulated.device.lock();
            let device = device.unwrap_or_else(PoisonError::into_inner);
            device.counters().busy_ns as u64
        };
        Sample {
            busy_ns: self.0.as_ref().map(busy_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use array::DeviceKind;
    use units::{DeviceId, TierId};

    use super::*;

    #[test]
    fn emulated_device_adds_delay_and_a_real_one_does_not() {
        let record = |emulate| DeviceRecord {
            id: DeviceId(3),
            tier: TierId(0),
            name: "slow-0".into(),
            kind: DeviceKind::File,
            path: String::new(),
            slots: 1,
            high_water: 0,
            emulate,
            direct: model::DirectIo::Off,
        };
        let real = Emulate::new(&record(None));
        assert_eq!(real.over_at(1_000, Op::Read, 4096), 0);
        assert_eq!(real.sample(), Sample { busy_ns: None });
        assert_eq!(real.occupancy_ns(Op::Read, 4096), None);
        let like = model::preset("pm953").map(|p| p.spec());
        let emulated = Emulate::new(&record(like.clone()));
        assert_eq!(emulated.sample(), Sample { busy_ns: Some(0) });
        let over: Vec<u64> = (0..100)
            .map(|_| emulated.over_at(1_000, Op::Write, 4096))
            .collect();
        assert!(over.iter().all(|ns| *ns > 1_000));
        assert!(over[99] > over[0], "they wait for one another");
        let each = emulated.occupancy_ns(Op::Write, 4096).unwrap();
        let busy = emulated.sample().busy_ns.unwrap();
        assert!(busy.abs_diff(100 * each) <= 100, "{busy} of {each} each");
        // The same requests take the same time.
        let again = Emulate::new(&record(like));
        let times = (0..100).map(|_| again.over_at(1_000, Op::Write, 4096));
        assert!(times.eq(over));
    }
}
