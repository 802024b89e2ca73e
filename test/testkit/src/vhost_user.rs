//! Guest of a vhost-user-blk server, without a virtual machine: its memory, its queues, and the messages of the process
//! that would run it.
//!
//! ```text
//!  memory   queue 0, queue 1, …  │  slots of queue 0  │  slots of queue 1  │  …
//!  slot     header, range │ status │ data
//! ```
//!
//! One slot is one request. The memory, the queues and the requests in flight outlast a connection, as in QEMU. After
//! [`Guest::disconnect`] the guest may connect to another server, which must answer the open requests.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::MemfdFlags;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{FileOffset, MmapRegion};
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::poll::PollContext;

use crate::virtio::{Buffer, Driver, Form};

/// Longest wait for an answer before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// `EFD_NONBLOCK`
const NONBLOCK: i32 = 0o4000;

/// Unit of sectors in bytes.
const SECTOR: u64 = 512;

/// Offsets of a slot's parts.
const RANGE_AT: u64 = 16;
const STATUS_AT: u64 = 64;
const DATA_AT: u64 = 4096;

const FLUSH: u64 = 1 << 9;
const CONFIG_WCE: u64 = 1 << 11;
const EVENT_INDEX: u64 = 1 << 29;
const PROTOCOL: u64 = 1 << 30;

/// Offset of the configuration's byte that enables the write cache.
const WRITE_CACHE_AT: u32 = 32;

/// Number of configuration bytes that are used.
const CONFIG_BYTES: u32 = 60;

/// Properties of a guest.
#[derive(Debug, Clone, Copy)]
pub struct GuestSpec {
    pub queues: u16,
    /// Number of descriptors, and of slots, of each queue.
    pub size: u16,
    /// Largest number of data bytes of a request.
    pub data: u32,
    /// Offered features that it does not accept.
    pub without: u64,
    /// True if it tracks requests in flight across connections.
    pub keeps: bool,
    /// Form of the chains in the queues.
    pub form: Form,
    /// True if it reports addresses of rings outside its memory.
    pub astray: bool,
}

impl Default for GuestSpec {
    fn default() -> Self {
        Self {
            queues: 1,
            size: 64,
            data: 64 << 10,
            without: 0,
            keeps: true,
            form: Form::Indirect,
            astray: false,
        }
    }
}

/// Request to the disk; offsets and lengths are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskRequest {
    Read(u64, u32),
    /// Writes the data in the slot.
    Write(u64, u32),
    Flush,
    Name,
    Discard(u64, u32),
    /// Writes zeroes, and keeps the space allocated.
    Zero(u64, u32),
    /// Writes zeroes, and frees the space.
    ZeroUnmapped(u64, u32),
    /// An unknown type.
    Other(u32),
}

/// Answer to a request; status 0 is success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskAnswer {
    /// Slot of the request.
    pub slot: u16,
    /// 0: success; 1: error; 2: not supported.
    pub status: u8,
}

struct GuestQueue {
    driver: Driver,
    kick: EventFd,
    call: EventFd,
    called: PollContext<u32>,
    /// Slot of each head in flight.
    slot_of: Vec<u16>,
    free: Vec<u16>,
}

pub struct Guest {
    like: GuestSpec,
    file: File,
    map: Arc<MmapRegion>,
    queues: Vec<GuestQueue>,
    kept: Option<(VhostUserInflight, File)>,
    features: u64,
    /// True after the first connection.
    started: bool,
    connection: Option<Frontend>,
}

type Result<T> = std::result::Result<T, String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Guest {
    /// Creates a guest that is not connected.
    ///
    /// # Panics
    /// The system has no memory for it.
    pub fn new(like: GuestSpec) -> Self {
        let queues = u64::from(like.queues);
        let rings = queues * page(Driver::bytes(like.size) as u64);
        let slots = queues * u64::from(like.size) * slot_bytes(like);
        let bytes = rings + slots;
        let file = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
        rustix::fs::ftruncate(&file, bytes).expect("memory");
        let file = File::from(file);
        let shared = FileOffset::new(file.try_clone().expect("a descriptor"), 0);
        let map = Arc::new(MmapRegion::from_file(shared, bytes as usize).expect("a mapping"));
        let mut guest = Self {
            like,
            file,
            map,
            queues: vec![],
            kept: None,
            features: 0,
            started: false,
            connection: None,
        };
        let event = || EventFd::new(NONBLOCK).expect("an event counter");
        for n in 0..like.queues {
            let at = u64::from(n) * page(Driver::bytes(like.size) as u64);
            let indexed = like.without & EVENT_INDEX == 0;
            let call = event();
            let called = PollContext::new().expect("something to wait with");
            called.add(&call, 0).expect("an event counter");
            guest.queues.push(GuestQueue {
                driver: Driver::new(guest.map.clone(), at as usize, like.size, indexed),
                kick: event(),
                call,
                called,
                slot_of: vec![0; usize::from(like.size)],
                free: (0..like.size).rev().collect(),
            });
        }
        guest
    }

    /// Connects to a server as the process of a guest does, also after an earlier connection.
    ///
    /// # Errors
    /// The server refuses a message.
    pub fn connect(&mut self, socket: &Path) -> Result<()> {
        let mut front = Frontend::connect(socket, self.like.queues.into()).map_err(text)?;
        front.set_owner().map_err(text)?;
        self.features = front.get_features().map_err(text)? & !self.like.without;
        let offered = front.get_protocol_features().map_err(text)?;
        let mut wanted = VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK;
        if self.like.keeps {
            wanted |= VhostUserProtocolFeatures::INFLIGHT_SHMFD;
        }
        let missing = wanted - offered;
        if !missing.is_empty() {
            return Err(format!("the server does not offer {missing:?}"));
        }
        front.set_protocol_features(wanted).map_err(text)?;
        front.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        front.set_features(self.features).map_err(text)?;
        if !std::mem::replace(&mut self.started, true) {
            // The process of a guest reads the configuration only at the guest's start.
            let room = [0; CONFIG_BYTES as usize];
            let flags = VhostUserConfigFlags::WRITABLE;
            let answer = front.get_config(0, CONFIG_BYTES, flags, &room);
            answer.map_err(text)?;
        }
        if self.like.keeps {
            if self.kept.is_none() {
                let asked = VhostUserInflight::new(0, 0, self.like.queues, self.like.size);
                self.kept = Some(front.get_inflight_fd(&asked).map_err(text)?);
            }
            if let Some((answer, file)) = &self.kept {
                front
                    .set_inflight_fd(answer, file.as_raw_fd())
                    .map_err(text)?;
            }
        }
        self.hand_memory_over(&front)?;
        for n in 0..self.queues.len() {
            self.hand_queue_over(&mut front, n)?;
        }
        self.connection = Some(front);
        Ok(())
    }

    fn hand_memory_over(&self, front: &Frontend) -> Result<()> {
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: self.map.size() as u64,
            userspace_addr: self.map.as_ptr() as u64,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        };
        front.set_mem_table(&[region]).map(drop).map_err(text)
    }

    /// Sends the memory table once more, as after a change.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn hand_memory_over_again(&self) -> Result<()> {
        self.hand_memory_over(self.connection()?)
    }

    /// Sends a memory table with the slots only, without the rings.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn hand_slots_over(&self) -> Result<()> {
        let queues = u64::from(self.like.queues);
        let rings = queues * page(Driver::bytes(self.like.size) as u64);
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: rings,
            memory_size: self.map.size() as u64 - rings,
            userspace_addr: self.map.as_ptr() as u64 + rings,
            mmap_offset: rings,
            mmap_handle: self.file.as_raw_fd(),
        };
        let answer = self.connection()?.set_mem_table(&[region]);
        answer.map(drop).map_err(text)
    }

    fn hand_queue_over(&self, front: &mut Frontend, n: usize) -> Result<()> {
        let queue = &self.queues[n];
        front.set_vring_num(n, self.like.size).map_err(text)?;
        let base = queue.driver.used_index();
        front.set_vring_base(n, base).map_err(text)?;
        let away = if self.like.astray { 1 << 40 } else { 0 };
        let start = self.map.as_ptr() as u64 + away;
        let [descriptors, available, used] = queue.driver.places().map(|at| start + at);
        let places = VringConfigData {
            queue_max_size: self.like.size,
            queue_size: self.like.size,
            flags: 0,
            desc_table_addr: descriptors,
            used_ring_addr: used,
            avail_ring_addr: available,
            log_addr: None,
        };
        front.set_vring_addr(n, &places).map_err(text)?;
        front.set_vring_kick(n, &queue.kick).map_err(text)?;
        front.set_vring_call(n, &queue.call).map_err(text)?;
        if self.features & PROTOCOL != 0 {
            front.set_vring_enable(n, true).map_err(text)?;
        }
        Ok(())
    }

    /// Resets the guest without a server: requests in flight are discarded, and its queues are new. The known
    /// configuration of its disk stays.
    pub fn reset(&mut self) {
        self.disconnect();
        self.kept = None;
        for queue in &mut self.queues {
            let at = queue.driver.places()[0] as usize;
            let (size, indexed) = (self.like.size, self.like.without & EVENT_INDEX == 0);
            let zeroes = vec![0; Driver::bytes(size)];
            queue.driver.put(at as u64, &zeroes);
            queue.driver = Driver::new(self.map.clone(), at, size, indexed);
            queue.free = (0..size).rev().collect();
        }
    }

    /// Disconnects from the server, with requests in flight.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Returns the connection, for other messages to the server.
    ///
    /// # Errors
    /// The guest is not connected.
    pub fn connection(&self) -> Result<&Frontend> {
        self.connection
            .as_ref()
            .ok_or_else(|| "the client is not connected".into())
    }

    /// Stops a queue after its requests in flight. Returns the index at which the server would continue.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn stop_queue(&self, queue: usize) -> Result<u32> {
        self.connection()?.get_vring_base(queue).map_err(text)
    }

    /// Starts a stopped queue again.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn start_queue(&mut self, queue: usize) -> Result<()> {
        let mut front = self.connection()?.clone();
        self.hand_queue_over(&mut front, queue)
    }

    /// Reads the configuration.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn config(&self, bytes: u32) -> Result<Vec<u8>> {
        let mut front = self.connection()?.clone();
        let flags = VhostUserConfigFlags::WRITABLE;
        let room = vec![0; bytes as usize];
        let answer = front.get_config(0, bytes, flags, &room);
        Ok(answer.map_err(text)?.1)
    }

    /// Enables or disables the write cache.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn set_cached(&self, cached: bool) -> Result<()> {
        let mut front = self.connection()?.clone();
        let flags = VhostUserConfigFlags::WRITABLE;
        let byte = [u8::from(cached)];
        front.set_config(WRITE_CACHE_AT, flags, &byte).map_err(text)
    }

    /// Returns the features without which a guest never flushes.
    pub fn never_flushes() -> u64 {
        FLUSH | CONFIG_WCE
    }

    /// Returns the driver of a queue, for operations that a guest does not perform.
    pub fn driver(&mut self, queue: usize) -> &mut Driver {
        &mut self.queues[queue].driver
    }

    /// Returns the address of a slot's data in memory.
    pub fn data_at(&self, queue: usize, slot: u16) -> u64 {
        self.slot_at(queue, slot) + DATA_AT
    }

    fn slot_at(&self, queue: usize, slot: u16) -> u64 {
        let rings = self.queues.len() as u64 * page(Driver::bytes(self.like.size) as u64);
        let before = queue as u64 * u64::from(self.like.size) + u64::from(slot);
        rings + before * slot_bytes(self.like)
    }

    /// Takes a slot for the next request; `None` if all are in use. [`Guest::next`] returns it.
    pub fn slot(&mut self, queue: usize) -> Option<u16> {
        self.queues[queue].free.pop()
    }

    /// Writes data for a write request into a slot.
    pub fn fill(&mut self, queue: usize, slot: u16, bytes: &[u8]) {
        let at = self.data_at(queue, slot);
        self.queues[queue].driver.put(at, bytes);
    }

    /// Returns the data of a slot after a read.
    pub fn data(&self, queue: usize, slot: u16, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        let at = self.data_at(queue, slot);
        self.queues[queue].driver.get(at, &mut data);
        data
    }

    /// Discards the pending interrupts of a queue.
    pub fn forget_interrupts(&mut self, queue: usize) {
        let _ = self.queues[queue].call.read(); // there may be none
    }

    /// Returns true if an interrupt arrives within a time, independent of the content of the queue.
    ///
    /// # Panics
    /// The wait fails.
    pub fn is_interrupted(&mut self, queue: usize, within: Duration) -> bool {
        let called = self.queues[queue].called.wait_timeout(within);
        called
            .expect("it can be waited for")
            .iter()
            .next()
            .is_some()
    }

    /// Adds a request to a queue. The server sees it after [`Guest::kick`].
    ///
    /// # Panics
    /// The queue is full.
    pub fn hand_in(&mut self, queue: usize, slot: u16, ask: DiskRequest) {
        assert!(self.try_hand_in(queue, slot, ask), "there is room for it");
    }

    /// Adds a request to a queue. Returns false if the queue is full.
    pub fn try_hand_in(&mut self, queue: usize, slot: u16, ask: DiskRequest) -> bool {
        let at = self.slot_at(queue, slot);
        let (kind, offset, given, wanted) = match ask {
            DiskRequest::Read(offset, length) => (0, offset, 0, length),
            DiskRequest::Write(offset, length) => (1, offset, length, 0),
            DiskRequest::Flush => (4, 0, 0, 0),
            DiskRequest::Name => (8, 0, 0, 20),
            DiskRequest::Discard(..) => (11, 0, 0, 0),
            DiskRequest::Zero(..) | DiskRequest::ZeroUnmapped(..) => (13, 0, 0, 0),
            DiskRequest::Other(kind) => (kind, 0, 0, 0),
        };
        let form = self.like.form;
        let of = &mut self.queues[queue];
        let mut header = [0; 16];
        header[..4].copy_from_slice(&u32::to_le_bytes(kind));
        header[8..].copy_from_slice(&(offset / SECTOR).to_le_bytes());
        of.driver.put(at, &header);
        of.driver.put(at + STATUS_AT, &[0xff]);
        let head: Buffer = (at, 16);
        let status: Buffer = (at + STATUS_AT, 1);
        let data: Buffer = (at + DATA_AT, given.max(wanted));
        let range = match ask {
            DiskRequest::Discard(offset, length) | DiskRequest::Zero(offset, length) => {
                Some((offset, length, 0u32))
            }
            DiskRequest::ZeroUnmapped(offset, length) => Some((offset, length, 1)),
            _ => None,
        };
        let added = if let Some((offset, length, flags)) = range {
            let sectors = (u64::from(length) / SECTOR) as u32;
            let sector = (offset / SECTOR).to_le_bytes();
            let rest = [sectors.to_le_bytes(), flags.to_le_bytes()].concat();
            of.driver.put(at + RANGE_AT, &sector);
            of.driver.put(at + RANGE_AT + 8, &rest);
            of.driver.add(&[head, (at + RANGE_AT, 16)], &[status], form)
        } else if given > 0 {
            of.driver.add(&[head, data], &[status], form)
        } else if wanted > 0 {
            of.driver.add(&[head], &[data, status], form)
        } else {
            of.driver.add(&[head], &[status], form)
        };
        let Some(head) = added else { return false };
        of.slot_of[usize::from(head)] = slot;
        true
    }

    /// Makes the added requests visible to the server, and notifies it if necessary.
    pub fn kick(&mut self, queue: usize) {
        let of = &mut self.queues[queue];
        if of.driver.expose() {
            // The write fails only if the counter is full.
            let _ = of.kick.write(1);
        }
    }

    /// Returns the next answer; `None` if there is none yet.
    pub fn next(&mut self, queue: usize) -> Option<DiskAnswer> {
        let (head, _) = self.queues[queue].driver.next_used()?;
        let slot = self.queues[queue].slot_of[usize::from(head)];
        let mut status = [0];
        let at = self.slot_at(queue, slot) + STATUS_AT;
        let of = &mut self.queues[queue];
        of.driver.get(at, &mut status);
        of.free.push(slot);
        Some(DiskAnswer {
            slot,
            status: status[0],
        })
    }

    /// Sleeps until the server sends the interrupt of an answer.
    ///
    /// # Errors
    /// No answer arrives in time.
    pub fn sleep(&mut self, queue: usize) -> Result<()> {
        let of = &mut self.queues[queue];
        while !of.driver.await_used() {
            let events = of.called.wait_timeout(PATIENCE).map_err(text)?;
            if events.iter().next().is_none() {
                return Err("no reply".into());
            }
            let _ = of.call.read();
        }
        Ok(())
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// No answer arrives in time.
    pub fn wait(&mut self, queue: usize) -> Result<DiskAnswer> {
        loop {
            if let Some(answer) = self.next(queue) {
                return Ok(answer);
            }
            self.sleep(queue)?;
        }
    }

    /// Sends a request and waits for its answer. After a read, the slot has the data. No other request may be in
    /// flight.
    ///
    /// # Errors
    /// No answer arrives in time, or the request failed.
    pub fn ask(&mut self, queue: usize, ask: DiskRequest, given: &[u8]) -> Result<u16> {
        let slot = self.slot(queue).ok_or("all slots are in use")?;
        self.fill(queue, slot, given);
        self.hand_in(queue, slot, ask);
        self.kick(queue);
        let answer = self.wait(queue)?;
        match (answer.slot == slot, answer.status) {
            (false, _) => Err("unexpected reply".into()),
            (true, 0) => Ok(slot),
            (true, status) => Err(format!("{ask:?}: status {status}")),
        }
    }

    /// Reads data; see [`Guest::ask`].
    ///
    /// # Errors
    /// The same as for [`Guest::ask`].
    pub fn read(&mut self, at: u64, bytes: u32) -> Result<Vec<u8>> {
        let slot = self.ask(0, DiskRequest::Read(at, bytes), &[])?;
        Ok(self.data(0, slot, bytes as usize))
    }

    /// Writes data; see [`Guest::ask`].
    ///
    /// # Errors
    /// The same as for [`Guest::ask`].
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let ask = DiskRequest::Write(at, bytes.len() as u32);
        self.ask(0, ask, bytes).map(drop)
    }

    /// Flushes; see [`Guest::ask`].
    ///
    /// # Errors
    /// The same as for [`Guest::ask`].
    pub fn flush(&mut self) -> Result<()> {
        self.ask(0, DiskRequest::Flush, &[]).map(drop)
    }
}

fn page(bytes: u64) -> u64 {
    bytes.next_multiple_of(4096)
}

fn slot_bytes(like: GuestSpec) -> u64 {
    DATA_AT + page(like.data.into())
}
