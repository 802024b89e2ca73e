//! Messages of one connection: negotiated features, and the rings that are served.
//!
//! ```text
//!            size, place, kick; enabled             base requested, or disabled
//!  unserved ────────────────────────────▶ served ─────────────────────────────▶ unserved, with a base
//! ```

use std::fs::File;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use tracing::{info, warn};
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    BackendReqHandler, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut,
};
use vring::blk::{self, feature};
use vring::{Memory, QUEUES_MAX, QueueSetup};

use super::memory::{InflightFile, event, guest_memory, known_inflight, new_inflight};
use super::sockets::CountGuard;
use crate::text::explain;
use crate::worker::{Durability, Inbox, Message, NoReply, RingGuestSetup, RingOrder, RingSetup};

pub struct ServedVolume {
    pub name: String,
    pub bytes: u64,
    pub logical_block: u32,
    pub home: crate::registry::Home,
    pub worker: Inbox,
    /// Counts of this connection. They are held until the worker has released all resources of the connection.
    pub counted: Vec<CountGuard>,
    /// True once the client has sent a valid message of the protocol.
    pub speaks: Arc<AtomicBool>,
}

/// Handles messages until the connection ends.
pub fn converse(socket: UnixStream, served: ServedVolume) {
    let name = served.name.clone();
    let worker = served.worker.clone();
    let Some(session) = Session::begin(&socket, served) else {
        // The volume is not served, or its worker is stalled. The thread that waits for the first message has a copy
        // of the socket.
        let _ = socket.shutdown(Shutdown::Both);
        return;
    };
    let guest = session.guest;
    let session = Arc::new(Mutex::new(session));
    let mut messages = BackendReqHandler::from_stream(socket, session);
    loop {
        match messages.handle_request() {
            Ok(()) => {}
            Err(Error::Disconnected | Error::SocketBroken(_)) => break,
            Err(why) => {
                let why = explain(&why);
                warn!(
                    volume = name,
                    why, "closed the vhost-user connection of a guest"
                );
                break;
            }
        }
    }
    worker.send(Message::Ring(RingOrder::Gone(guest)));
}

/// Known parameters of a ring.
#[derive(Debug, Default)]
struct RingState {
    size: u16,
    /// Addresses of the descriptor table, available ring and used ring, in the address space of the process that runs
    /// the guest.
    places: Option<[u64; 3]>,
    base: u16,
    kick: Option<Arc<OwnedFd>>,
    call: Option<Arc<OwnedFd>>,
    enabled: bool,
    served: bool,
}

struct Session {
    served: ServedVolume,
    guest: u32,
    features: u64,
    memory: Option<Arc<Memory>>,
    kept: Option<InflightFile>,
    rings: Vec<RingState>,
    /// State of the guest's write cache; `None` if unknown. The process that runs the guest queries it at the guest's
    /// start, and the reply is that it is on. Later the guest sets it, or the kept state contains it. A guest that
    /// was restarted while it was not served may have got another reply from that process. Its state is then unknown,
    /// and each write is made durable before it is acknowledged.
    cached: Option<bool>,
    /// Durability that the worker uses.
    durability: Option<Durability>,
}

fn refused<T>(why: impl std::error::Error) -> Result<T> {
    Err(Error::ReqHandlerError(std::io::Error::other(explain(&why))))
}

/// Returns the error for a connection that the worker has ended, or whose worker has ended.
fn over() -> Error {
    Error::Disconnected
}

impl Session {
    fn begin(socket: &UnixStream, mut served: ServedVolume) -> Option<Self> {
        let socket = socket.try_clone().ok()?;
        let (volume, counted) = (served.home.volume, std::mem::take(&mut served.counted));
        let connect = |answer| {
            Message::Ring(RingOrder::Connect(RingGuestSetup {
                volume,
                socket,
                counted,
                answer,
            }))
        };
        let guest = served.worker.ask(connect);
        if let Err(why) = &guest
            && why.is_stall()
        {
            let volume = &served.name;
            warn!(volume, %why, "closed the vhost-user connection of a guest");
        }
        let guest = guest.ok()??;
        let mut rings = vec![];
        rings.resize_with(usize::from(QUEUES_MAX), RingState::default);
        Some(Self {
            served,
            guest,
            features: 0,
            memory: None,
            kept: None,
            rings,
            cached: None,
            durability: None,
        })
    }

    fn order(&self, order: RingOrder) {
        self.served.worker.send(Message::Ring(order));
    }

    /// Sends an order to the worker and waits for its completion.
    fn ordered<R>(&self, order: impl FnOnce(Sender<R>) -> RingOrder) -> Result<R> {
        let worker = &self.served.worker;
        match worker.ask(|answer| Message::Ring(order(answer))) {
            Err(NoReply::Ended) => Err(over()),
            answer => answer.or_else(refused),
        }
    }

    fn ring(&mut self, index: u32) -> Result<&mut RingState> {
        self.rings
            .get_mut(index as usize)
            .ok_or(Error::InvalidParam)
    }

    fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Sends the durability of writes to the worker if it has changed.
    fn tell_durability(&mut self) -> Result<()> {
        let cached = self.cached == Some(true);
        let durability = match blk::flushes(self.features, cached) {
            true => Durability::ByFlush,
            false => Durability::ByWrite,
        };
        if self.durability.replace(durability) == Some(durability) {
            return Ok(());
        }
        let guest = self.guest;
        let so = self.ordered(|answer| RingOrder::Durability(guest, durability, answer))?;
        so.or_else(refused)
    }

    /// Sends a changed durability if an earlier one was sent. Before a ring is served it is not needed.
    fn tell_durability_again(&mut self) -> Result<()> {
        match self.durability {
            Some(_) => self.tell_durability(),
            None => Ok(()),
        }
    }

    /// Lets the worker serve a ring if all its parameters are known.
    fn start(&mut self, index: u32) -> Result<()> {
        let ready = {
            let ring = self.ring(index)?;
            ring.enabled && !ring.served && ring.size > 0
        };
        let Some(memory) = self.memory.clone().filter(|_| ready) else {
            return Ok(());
        };
        let kept = self.kept.as_ref().map(|k| (k.inflight.clone(), k.id));
        let (event_index, indirect) = (self.has(feature::EVENT_INDEX), self.has(feature::INDIRECT));
        if self.cached.is_none() && self.durability.is_none() && self.has(feature::CONFIG_WCE) {
            let volume = &self.served.name;
            info!(
                volume,
                "the guest did not report its write cache mode: each write is made durable before it is acknowledged"
            );
        }
        self.tell_durability()?;
        let guest = self.guest;
        let ring = self.ring(index)?;
        let (Some([descriptors, available, used]), Some(kick)) = (ring.places, ring.kick.clone())
        else {
            return Ok(());
        };
        ring.served = true;
        let setup = RingSetup {
            index: index as u16,
            memory,
            queue: QueueSetup {
                size: ring.size,
                descriptors,
                available,
                used,
                base: ring.base,
                event_index,
                indirect,
            },
            inflight: kept,
            kick,
            call: ring.call.clone(),
        };
        self.order(RingOrder::Start(guest, Box::new(setup)));
        Ok(())
    }

    /// Lets the worker complete the requests of a ring in flight, and stores the position at which it continues.
    fn stop(&mut self, index: u32) -> Result<()> {
        let guest = self.guest;
        if !self.ring(index)?.served {
            return Ok(());
        }
        let base = self.ordered(|answer| RingOrder::Stop(guest, index as u16, answer))?;
        let ring = self.ring(index)?;
        ring.served = false;
        ring.base = base.ok_or_else(over)?;
        Ok(())
    }

    fn stop_all(&mut self) -> Result<()> {
        for index in 0..self.rings.len() as u32 {
            self.stop(index)?;
            self.ring(index)?.enabled = false;
        }
        Ok(())
    }
}

/// Returns the offered protocol features.
fn offered() -> VhostUserProtocolFeatures {
    VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::INFLIGHT_SHMFD
}

impl VhostUserBackendReqHandlerMut for Session {
    fn set_owner(&mut self) -> Result<()> {
        self.served.speaks.store(true, Ordering::Release);
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.stop_all()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all()
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(feature::ALL)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !feature::ALL != 0 {
            return Err(Error::InvalidParam);
        }
        self.features = features;
        self.tell_durability_again()
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(offered())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        match features & !offered().bits() {
            0 => Ok(()),
            _ => Err(Error::InvalidParam),
        }
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES_MAX.into())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let memory = guest_memory(regions, files).or_else(refused)?;
        self.memory = Some(memory.clone());
        if self.rings.iter().any(|r| r.served) {
            let guest = self.guest;
            self.ordered(|answer| RingOrder::Memory(guest, memory, answer))?;
        }
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, size: u32) -> Result<()> {
        let ring = self.ring(index)?;
        if ring.served || !size.is_power_of_two() || size > vring::QUEUE_SIZE_MAX.into() {
            return Err(Error::InvalidParam);
        }
        ring.size = size as u16;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        if !flags.is_empty() {
            // Logging of changes was not negotiated.
            return Err(Error::InvalidParam);
        }
        let places = Some([descriptor, available, used]);
        if self.ring(index)?.places == places {
            return Ok(());
        }
        self.stop(index)?;
        self.ring(index)?.places = places;
        self.start(index)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let ring = self.ring(index)?;
        if ring.served {
            return Err(Error::InvalidParam);
        }
        ring.base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.stop(index)?;
        let ring = self.ring(index)?;
        // The ring restarts with a new kick.
        ring.kick = None;
        Ok(VhostUserVringState::new(index, ring.base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let Some(file) = file else {
            return Err(Error::InvalidOperation(
                "a ring without a kick file descriptor is not supported",
            ));
        };
        let kick = event(file).or_else(refused)?;
        let index = u32::from(index);
        self.stop(index)?;
        let plain = !self.has(feature::PROTOCOL);
        let ring = self.ring(index)?;
        ring.kick = Some(kick);
        // Without protocol features, clients send no message to enable rings.
        ring.enabled |= plain;
        self.start(index)
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let call = file.map(event).transpose().or_else(refused)?;
        let guest = self.guest;
        let ring = self.ring(index.into())?;
        ring.call.clone_from(&call);
        if ring.served {
            self.ordered(|answer| RingOrder::Call(guest, index.into(), call, answer))?;
        }
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _: Option<File>) -> Result<()> {
        // An invalid ring ends the connection, so this event is not used.
        self.ring(index.into()).map(drop)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        if !enable {
            self.stop(index)?;
        }
        self.ring(index)?.enabled = enable;
        self.start(index)
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let end = offset.checked_add(size).ok_or(Error::InvalidParam)?;
        let ServedVolume {
            bytes,
            logical_block,
            ..
        } = self.served;
        let config = blk::config(bytes, logical_block, QUEUES_MAX, self.cached != Some(false));
        let asked = config.get(offset as usize..end as usize);
        let answer = asked.map(<[u8]>::to_vec).ok_or(Error::InvalidParam)?;
        if self.cached.is_none() && (offset..end).contains(&blk::WRITE_CACHE_AT) {
            self.cached = Some(true);
            self.tell_durability_again()?;
        }
        Ok(answer)
    }

    fn set_config(&mut self, offset: u32, bytes: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        let (blk::WRITE_CACHE_AT, [cached]) = (offset, bytes) else {
            return Err(Error::InvalidParam);
        };
        self.cached = Some(*cached != 0);
        if let Some(kept) = &self.kept {
            kept.inflight.note_writes_through(*cached == 0);
        }
        self.tell_durability_again()
    }

    fn get_inflight_fd(&mut self, asked: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (inflight, file, kept) =
            new_inflight(asked.num_queues, asked.queue_size).or_else(refused)?;
        kept.inflight.note_writes_through(self.cached != Some(true));
        self.kept = Some(kept);
        Ok((inflight, file))
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        let kept = known_inflight(inflight, file).or_else(refused)?;
        self.cached = Some(self.cached != Some(false) && !kept.inflight.writes_through());
        self.kept = Some(kept);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        not_agreed_on()
    }

    fn add_mem_region(
        &mut self,
        _: &VhostUserSingleMemoryRegion,
        _: File,
        _: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        not_agreed_on()
    }

    fn remove_mem_region(&mut self, _: &VhostUserSingleMemoryRegion) -> Result<()> {
        not_agreed_on()
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        not_agreed_on()
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        not_agreed_on()
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        not_agreed_on()
    }

    fn check_device_state(&mut self) -> Result<()> {
        not_agreed_on()
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        not_agreed_on()
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        not_agreed_on()
    }
}

/// Rejects a message of a feature that was not offered.
fn not_agreed_on<T>() -> Result<T> {
    Err(Error::InvalidOperation("the feature was not negotiated"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Io, IoChoice};
    use crate::pulse::{Beats, STALLED_AFTER};
    use crate::registry::Home;
    use crate::worker::Inbox;
    use std::sync::mpsc::channel;

    /// A guest can repeat this message without limit. Without the wait, its orders would fill the worker's inbox.
    #[test]
    fn vring_call_of_served_ring_waits_for_the_worker() {
        let (io, _) = Io::new(IoChoice::Threads).unwrap();
        let (sender, worker) = channel();
        let mut session = Session {
            served: ServedVolume {
                name: "data".into(),
                bytes: 1 << 20,
                logical_block: 512,
                home: Home {
                    worker: 0,
                    volume: units::VolumeId(0),
                },
                worker: Inbox::new(&io, sender, 0, Arc::new(Beats::new(1, STALLED_AFTER))),
                counted: vec![],
                speaks: Arc::default(),
            },
            guest: 0,
            features: 0,
            memory: None,
            kept: None,
            rings: vec![RingState::default()],
            cached: None,
            durability: None,
        };
        session.set_vring_call(0, None).unwrap();
        assert!(worker.try_recv().is_err(), "the ring is not served yet");
        session.rings[0].served = true;
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| session.set_vring_call(0, None));
            let message = worker.recv().unwrap().open();
            let Some(Message::Ring(RingOrder::Call(0, 0, None, answer))) = message else {
                panic!("no order to send interrupts somewhere else");
            };
            answer.send(()).unwrap();
            asked.join().unwrap().unwrap();
        });
        drop(worker);
        assert!(matches!(
            session.set_vring_call(0, None),
            Err(Error::Disconnected)
        ));
    }
}
