//! Memory of a guest with one queue, a driver on one side and the device's queue on the other.

use std::sync::Arc;

use testkit::virtio::Driver;
use vm_memory::{Bytes, MmapRegion, VolatileMemory};
use vring::{InflightBuffer, Memory, Queue, QueueSetup, Region};

pub const SIZE: u16 = 8;
pub const MEMORY_BYTES: usize = 1 << 20;

/// Address of the memory in the process that runs the guest.
pub const USER: u64 = 0x7f00_0000_0000;

/// Start of the buffers.
pub const BUFFERS: u64 = 512 << 10;

/// Returns the setup of a driver's queue, with addresses of the process that runs the guest.
pub fn setup_of(driver: &Driver, event_index: bool, indirect: bool) -> QueueSetup {
    let [descriptors, available, used] = driver.places().map(|at| USER + at);
    QueueSetup {
        size: SIZE,
        descriptors,
        available,
        used,
        base: 0,
        event_index,
        indirect,
    }
}

pub struct Site {
    pub map: Arc<MmapRegion>,
    pub driver: Driver,
    pub memory: Arc<Memory>,
    pub inflight: InflightBuffer,
    pub inflight_map: Arc<MmapRegion>,
    pub setup: QueueSetup,
}

impl Site {
    pub fn new(event_index: bool) -> Self {
        let map = Arc::new(anonymous());
        // The driver uses offsets, so guest addresses equal offsets.
        let driver = Driver::new(map.clone(), 0, SIZE, event_index);
        let memory = memory_of(&map);
        let inflight_map = Arc::new(MmapRegion::new(InflightBuffer::bytes(2, SIZE)).unwrap());
        let inflight = InflightBuffer::new(inflight_map.clone(), 0, 2, SIZE).unwrap();
        let setup = setup_of(&driver, event_index, true);
        Self {
            map,
            driver,
            memory,
            inflight,
            inflight_map,
            setup,
        }
    }

    pub fn queue(&self) -> Queue {
        Queue::new(self.memory.clone(), self.setup, None).unwrap()
    }

    /// Returns the device's queue with the second record of the inflight buffer.
    pub fn queue_kept(&self) -> Queue {
        let account = self.inflight.account(1, SIZE).unwrap();
        Queue::new(self.memory.clone(), self.setup, Some(account)).unwrap()
    }

    pub fn inflight_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.inflight_map.size()];
        let all = self.inflight_map.get_slice(0, bytes.len()).unwrap();
        all.read_slice(&mut bytes, 0).unwrap();
        bytes
    }

    pub fn set_inflight_bytes(&self, bytes: &[u8]) {
        let all = self.inflight_map.get_slice(0, bytes.len()).unwrap();
        all.write_slice(bytes, 0).unwrap();
    }
}

pub fn anonymous() -> MmapRegion {
    MmapRegion::new(MEMORY_BYTES).unwrap()
}

/// Maps guest address 0 to the first byte of the mapping, as the driver expects.
fn memory_of(map: &Arc<MmapRegion>) -> Arc<Memory> {
    let region = Region {
        guest: 0,
        user: USER,
        length: MEMORY_BYTES as u64,
        map: map.clone(),
        at: 0,
    };
    Arc::new(Memory::new(vec![region]).unwrap())
}
