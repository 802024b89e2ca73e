//! A guest of a vhost-user-blk server, without a machine: its memory, its queues, the messages of the process that would run it.
//!
//! ```text
//!  memory   queue 0, queue 1, …  │  slots of queue 0  │  slots of queue 1  │  …
//!  slot     header, range │ status │ data
//! ```
//!
//! One slot is one request. The memory, the queues and what is in flight outlast a connection, as they do in QEMU: after
//! [`Guest::disconnect`] another server may be connected to, and what was not answered is its to answer.

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

/// Longest wait for an answer before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// `EFD_NONBLOCK`
const NONBLOCK: i32 = 0o4000;

/// Sectors are counted in this.
const SECTOR: u64 = 512;

/// Where a slot's parts are.
const RANGE_AT: u64 = 16;
const STATUS_AT: u64 = 64;
const DATA_AT: u64 = 4096;

const FLUSH: u64 = 1 << 9;
const CONFIG_WCE: u64 = 1 << 11;
const EVENT_INDEX: u64 = 1 << 29;
const PROTOCOL: u64 = 1 << 30;

/// The byte of the configuration that says whether there is a write cache.
const WRITE_CACHE_AT: u32 = 32;

/// Bytes of the configuration that are of use.
const CONFIG_BYTES: u32 = 60;

/// What a guest is like.
#[derive(Debug, Clone, Copy)]
pub struct Like {
    pub queues: u16,
    /// Descriptors of each, and slots.
    pub size: u16,
    /// Bytes of data of a request at most.
    pub data: u32,
    /// Features that it does not want, of those that are offered.
    pub without: u64,
    /// Whether it keeps what is in flight.
    pub keeps: bool,
    /// How chains are handed in.
    pub form: Form,
    /// Its rings are said to be where it has no memory.
    pub astray: bool,
}

impl Default for Like {
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

/// What may be asked of the disk; offsets and lengths are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskRequest {
    Read(u64, u32),
    /// Write what is in the slot.
    Write(u64, u32),
    Flush,
    Name,
    Discard(u64, u32),
    /// Write zeroes, and keep the space.
    Zero(u64, u32),
    /// Write zeroes, and give the space back.
    ZeroUnmapped(u64, u32),
    /// A type that does not exist.
    Other(u32),
}

/// An answer: the slot, and the status, which is 0 when all is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskAnswer {
    /// The slot of the request.
    pub slot: u16,
    /// 0 done, 1 failed, 2 not known.
    pub status: u8,
}

struct GuestQueue {
    driver: Driver,
    kick: EventFd,
    call: EventFd,
    called: PollContext<u32>,
    /// The slot of each head that was handed in.
    slot_of: Vec<u16>,
    free: Vec<u16>,
}

pub struct Guest {
    like: Like,
    file: File,
    map: Arc<MmapRegion>,
    queues: Vec<GuestQueue>,
    kept: Option<(VhostUserInflight, File)>,
    features: u64,
    /// It was connected before.
    started: bool,
    connection: Option<Frontend>,
}

type Result<T> = std::result::Result<T, String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Guest {
    /// A guest that is not connected.
    ///
    /// # Panics
    /// When the system has no memory for it.
    pub fn new(like: Like) -> Self {
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

    /// Connects to a server, as the process does that runs a guest; again, if there was one before.
    ///
    /// # Errors
    /// What the server refuses.
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
            // Who runs a guest asks when it starts it, and never again.
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

    /// Hands the memory over once more, as after a change.
    ///
    /// # Errors
    /// What the server refuses.
    pub fn hand_memory_over_again(&self) -> Result<()> {
        self.hand_memory_over(self.connection()?)
    }

    /// Hands only the memory of slots over, without that of rings.
    ///
    /// # Errors
    /// What the server refuses.
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

    /// The guest is reset while nobody serves it: what was in flight is nobody's, and its queues are new. What it was told of its disk stays.
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

    /// Leaves the server, with whatever is in flight.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// To say something else to the server.
    ///
    /// # Errors
    /// When the client is not connected.
    pub fn connection(&self) -> Result<&Frontend> {
        self.connection
            .as_ref()
            .ok_or_else(|| "the client is not connected".into())
    }

    /// Has the server stop a queue when nothing of it is in flight; where it would go on.
    ///
    /// # Errors
    /// What the server refuses.
    pub fn stop_queue(&self, queue: usize) -> Result<u32> {
        self.connection()?.get_vring_base(queue).map_err(text)
    }

    /// Has a queue that was stopped served again.
    ///
    /// # Errors
    /// What the server refuses.
    pub fn start_queue(&mut self, queue: usize) -> Result<()> {
        let mut front = self.connection()?.clone();
        self.hand_queue_over(&mut front, queue)
    }

    /// The configuration.
    ///
    /// # Errors
    /// What the server refuses.
    pub fn config(&self, bytes: u32) -> Result<Vec<u8>> {
        let mut front = self.connection()?.clone();
        let flags = VhostUserConfigFlags::WRITABLE;
        let room = vec![0; bytes as usize];
        let answer = front.get_config(0, bytes, flags, &room);
        Ok(answer.map_err(text)?.1)
    }

    /// Switches the write cache on or off.
    ///
    /// # Errors
    /// What the server refuses.
    pub fn set_cached(&self, cached: bool) -> Result<()> {
        let mut front = self.connection()?.clone();
        let flags = VhostUserConfigFlags::WRITABLE;
        let byte = [u8::from(cached)];
        front.set_config(WRITE_CACHE_AT, flags, &byte).map_err(text)
    }

    /// Features without which a guest never flushes.
    pub fn never_flushes() -> u64 {
        FLUSH | CONFIG_WCE
    }

    /// A queue's driver, to do something with that no guest does.
    pub fn driver(&mut self, queue: usize) -> &mut Driver {
        &mut self.queues[queue].driver
    }

    /// Where the data of a slot is in memory.
    pub fn data_at(&self, queue: usize, slot: u16) -> u64 {
        self.slot_at(queue, slot) + DATA_AT
    }

    fn slot_at(&self, queue: usize, slot: u16) -> u64 {
        let rings = self.queues.len() as u64 * page(Driver::bytes(self.like.size) as u64);
        let before = queue as u64 * u64::from(self.like.size) + u64::from(slot);
        rings + before * slot_bytes(self.like)
    }

    /// A slot for the next request; none if all are in use. [`Guest::next`] gives it back.
    pub fn slot(&mut self, queue: usize) -> Option<u16> {
        self.queues[queue].free.pop()
    }

    /// Puts what is to be written into a slot.
    pub fn fill(&mut self, queue: usize, slot: u16, bytes: &[u8]) {
        let at = self.data_at(queue, slot);
        self.queues[queue].driver.put(at, bytes);
    }

    /// What was read.
    pub fn data(&self, queue: usize, slot: u16, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        let at = self.data_at(queue, slot);
        self.queues[queue].driver.get(at, &mut data);
        data
    }

    /// Forgets the interrupts of a queue, as if they had never come.
    pub fn forget_interrupts(&mut self, queue: usize) {
        let _ = self.queues[queue].call.read(); // there may be none
    }

    /// Whether there is an interrupt within a time, whatever is in the queue.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn is_interrupted(&mut self, queue: usize, within: Duration) -> bool {
        let called = self.queues[queue].called.wait_timeout(within);
        called
            .expect("it can be waited for")
            .iter()
            .next()
            .is_some()
    }

    /// Hands a request in, which is seen after [`Guest::kick`].
    ///
    /// # Panics
    /// When there is no room.
    pub fn hand_in(&mut self, queue: usize, slot: u16, ask: DiskRequest) {
        assert!(self.try_hand_in(queue, slot, ask), "there is room for it");
    }

    /// Likewise, if there is room for it; whether there is.
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

    /// Lets the server see what was handed in.
    pub fn kick(&mut self, queue: usize) {
        let of = &mut self.queues[queue];
        if of.driver.expose() {
            // It can only fail when the counter is full.
            let _ = of.kick.write(1);
        }
    }

    /// The next answer, if there is one.
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

    /// Sleeps until there is an answer, by the interrupt that the server sends.
    ///
    /// # Errors
    /// When none comes.
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

    /// The next answer, which is waited for.
    ///
    /// # Errors
    /// When none comes.
    pub fn wait(&mut self, queue: usize) -> Result<DiskAnswer> {
        loop {
            if let Some(answer) = self.next(queue) {
                return Ok(answer);
            }
            self.sleep(queue)?;
        }
    }

    /// Asks and waits; the slot has what was read. No other request may be in flight.
    ///
    /// # Errors
    /// When no answer comes, or one of failure.
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

    /// Reads.
    ///
    /// # Errors
    /// As [`Guest::ask`].
    pub fn read(&mut self, at: u64, bytes: u32) -> Result<Vec<u8>> {
        let slot = self.ask(0, DiskRequest::Read(at, bytes), &[])?;
        Ok(self.data(0, slot, bytes as usize))
    }

    /// Writes.
    ///
    /// # Errors
    /// As [`Guest::ask`].
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let ask = DiskRequest::Write(at, bytes.len() as u32);
        self.ask(0, ask, bytes).map(drop)
    }

    /// Flushes.
    ///
    /// # Errors
    /// As [`Guest::ask`].
    pub fn flush(&mut self) -> Result<()> {
        self.ask(0, DiskRequest::Flush, &[]).map(drop)
    }
}

fn page(bytes: u64) -> u64 {
    bytes.next_multiple_of(4096)
}

fn slot_bytes(like: Like) -> u64 {
    DATA_AT + page(like.data.into())
}
