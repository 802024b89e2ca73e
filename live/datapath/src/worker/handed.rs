//! Handing over guests' connections to another process. The worker is made still: no request of a guest is in flight. It
//! then returns the state that the other process needs to continue the connections. New requests of guests wait in their
//! sockets meanwhile.
//!
//! A connection in its handshake continues. Connections with TLS and of guests with rings are still too, but are not handed
//! over: they end with this process, and their clients connect again.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nbd::{BlockSizes, DirtyRanges, ErrorCode, Export, ExportFlags, Session};
use serde::{Deserialize, Serialize};
use units::{DeviceId, VolumeId};
use volume::Location;

use crate::io::Buf;

use super::answers::Segment;
use super::guests::{Connection, HEAD, INPUT_BYTES, Stage};
use super::second::NO_VOLUME;
use super::timers::TimerAction;
use super::{Token, Worker};

/// Reason for clients whose write the previous process has refused.
const REFUSED: &str = "the request was refused";

/// Connection that another process continues.
#[derive(Debug)]
pub struct HandedConnection {
    pub socket: Arc<OwnedFd>,
    /// Negotiated session.
    pub session: HandedSession,
    /// Received bytes of requests that are not started.
    pub received: Vec<u8>,
    /// Bytes of answers that are not sent.
    pub unsent: Vec<u8>,
}

/// Negotiated session of a guest, and its position in the stream of requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandedSession {
    pub volume: u32,
    /// Name of the export, as the guest knows it.
    pub export: String,
    /// Size that the guest received, bytes.
    pub size: u64,
    /// Transmission flags of the export.
    pub flags: u16,
    /// Sizes of requests that the guest received: minimum, preferred, maximum.
    pub block: [u32; 3],
    /// True if replies are structured.
    pub structured: bool,
    /// Id of the metadata context `base:allocation`.
    pub allocation: Option<u32>,
    /// Metadata contexts of changed parts: id, size of a part in bytes, and numbers of the parts that may have changed.
    pub dirty: Vec<(u32, u64, Vec<u32>)>,
    /// Number of bytes of a refused write that are still to be received.
    pub skip: u64,
    /// Cookie of that write, and the number of its error.
    pub refused: Option<(u64, u32)>,
}

/// State that a still worker hands over.
#[derive(Debug, Default)]
pub struct HandedWork {
    pub connections: Vec<HandedConnection>,
    /// Volumes and the places of their extents ([`place_bytes`]). The map of the array has them too, but reading it takes
    /// long.
    pub places: Vec<(VolumeId, Vec<u8>)>,
}

/// Size of an encoded place.
pub const PLACE_BYTES: usize = 6;

/// Encodes the place of an extent: device and slot, or all ones without a place.
pub fn place_bytes(at: Option<Location>) -> [u8; PLACE_BYTES] {
    let Some(Location { device, slot }) = at else {
        return [u8::MAX; PLACE_BYTES];
    };
    let ([a, b], [c, d, e, f]) = (device.0.to_le_bytes(), slot.to_le_bytes());
    [a, b, c, d, e, f]
}

/// Decodes the result of [`place_bytes`].
pub fn place_of([a, b, c, d, e, f]: [u8; PLACE_BYTES]) -> Option<Location> {
    let device = DeviceId(u16::from_le_bytes([a, b]));
    let slot = u32::from_le_bytes([c, d, e, f]);
    (device.0 != u16::MAX).then_some(Location { device, slot })
}

/// Progress of a worker towards stillness.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stillness {
    /// Description of an operation in flight; none if nothing is in flight.
    pub busy: Option<String>,
    /// Name of a volume that has a batch of a move in flight.
    pub moving: Option<String>,
    /// Number of connections in their handshake.
    pub negotiating: usize,
    /// Number of still connections that cannot be handed over.
    pub left: usize,
}

impl HandedSession {
    fn of(volume: u32, session: &Session, connection: &Connection) -> Self {
        let Export {
            name,
            size,
            flags,
            block,
            ..
        } = &session.export;
        let dirty = session.dirty.iter();
        Self {
            volume,
            export: name.clone(),
            size: *size,
            flags: flags.0,
            block: [block.minimum, block.preferred, block.maximum],
            structured: session.structured,
            allocation: session.allocation_context,
            dirty: dirty
                .map(|(id, dirty)| (*id, dirty.unit(), dirty.parts().to_vec()))
                .collect(),
            skip: connection.skip,
            refused: connection
                .refused
                .map(|(cookie, error, _)| (cookie, error.number())),
        }
    }

    /// Returns true if the values are valid for a session.
    pub fn is_sound(&self) -> bool {
        let known = |number: u32| ErrorCode::ALL.iter().any(|e| e.number() == number);
        self.block_sizes().sound()
            && self.dirty.iter().all(|d| d.1 > 0)
            && self.refused.is_none_or(|r| known(r.1))
    }

    fn block_sizes(&self) -> BlockSizes {
        let [minimum, preferred, maximum] = self.block;
        BlockSizes {
            minimum,
            preferred,
            maximum,
        }
    }

    fn session(&self) -> Session {
        let dirty = self.dirty.iter();
        Session {
            export: Export {
                name: self.export.clone(),
                description: String::new(),
                size: self.size,
                flags: ExportFlags(self.flags),
                block: self.block_sizes(),
            },
            structured: self.structured,
            allocation_context: self.allocation,
            dirty: dirty
                .map(|(id, unit, parts)| (*id, Arc::new(DirtyRanges::new(*unit, parts.clone()))))
                .collect(),
        }
    }
}

/// Returns volume and session of a connection that another process can continue; none if it cannot.
fn goes_along(connection: &Connection) -> Option<(u32, &Session)> {
    match &connection.stage {
        Stage::Serving { volume, session } if connection.tls.is_none() => Some((*volume, session)),
        _ => None,
    }
}

impl Worker {
    pub(super) fn hold_moves(&mut self, held: bool) {
        for volume in 0..self.volumes.len() as u32 {
            if let Some(live) = self.volumes[volume as usize].as_mut() {
                live.engine.hold_moves(self.now_ns, held);
                self.carry_out(volume);
            }
        }
    }

    /// Returns true if another process may already have taken this connection. Both processes share its socket.
    pub(super) fn is_anothers(&self, connection: u32) -> bool {
        let found = || self.connections.get(connection as usize);
        self.handed_over && found().is_some_and(|c| goes_along(c).is_some())
    }

    pub(super) fn be_still(&mut self, still: bool) {
        self.still = still;
        self.handed_over = false;
        match still {
            true => {
                // The next process starts with an empty cache.
                self.end_second(Some(
                    "the server was taken over: the new process starts without its content".into(),
                ));
                self.submit_throttled(None);
            }
            // Another process may have changed the volumes meanwhile.
            false => self.forget_cached(None),
        }
        let all = self.connections.iter();
        let serving = all.filter(|(_, c)| matches!(c.stage, Stage::Serving { .. }));
        let serving: Vec<u32> = serving.map(|(i, _)| i as u32).collect();
        for connection in serving {
            if still {
                let c = &self.connections[connection as usize];
                // A receive of a TLS connection may end normally, because that connection is not handed over.
                if c.receiving && c.tls.is_none() {
                    self.io.cancel(Token::Receive(connection).pack());
                }
            } else {
                self.decode_again(connection);
                self.receive(connection);
                self.send_later(connection);
            }
        }
    }

    /// Submits the delayed requests of one volume, or of all, to the engine, because their delay would last too long. A
    /// process that takes over starts with full token buckets anyway.
    pub(super) fn submit_throttled(&mut self, of: Option<u32>) {
        for due in self.timers.take_held_back(of) {
            if let TimerAction::Submit {
                volume,
                guest,
                request,
            } = due
            {
                self.submit(volume, guest, request);
            }
        }
    }

    pub(super) fn how_still(&mut self) -> Stillness {
        if self.still {
            self.submit_throttled(None); // requests whose reception ended after the worker became still
        }
        let volumes = || self.volumes.iter().flatten();
        let busy = volumes().find(|live| !live.engine.is_still());
        let mut busy = busy.map(|live| {
            let left = live.engine.outstanding();
            match left {
                0 => format!("an operation on volume {} is still running", live.name),
                left => format!("{left} requests of volume {} are in flight", live.name),
            }
        });
        // I/Os of the L2 cache belong to no guest that is handed over.
        let of_volumes = self.ios.iter().any(|(_, io)| io.volume != NO_VOLUME);
        if of_volumes || self.timers.any_in_flight() || !self.at_once.is_empty() {
            busy = busy.or(Some("requests are in flight".into()));
        }
        if self.rings.any_in_flight() {
            busy = busy.or(Some("requests of a vhost-user guest are in flight".into()));
        }
        let mut all = self.connections.iter().map(|(_, c)| c);
        if all.any(|c| c.receiving && goes_along(c).is_some()) {
            busy = busy.or(Some("a request is being received".into()));
        }
        if volumes().any(|live| live.detached.is_some()) {
            busy = busy.or(Some("a volume is being detached".into()));
        }
        let moving = volumes().find(|live| !live.engine.is_between_batches());
        let count = |is: fn(&Connection) -> bool| {
            let all = self.connections.iter().map(|(_, c)| c);
            all.filter(|c| is(c)).count()
        };
        let secured = count(|c| c.tls.is_some() && matches!(c.stage, Stage::Serving { .. }));
        Stillness {
            busy,
            moving: moving.map(|live| live.name.clone()),
            negotiating: count(|c| matches!(c.stage, Stage::Handshake(_))),
            left: secured + self.rings.connected(),
        }
    }

    /// Returns the state for the other process. From here on, nothing is sent on connections that it may continue, until
    /// [`Worker::be_still`] returns them to this worker.
    pub(super) fn hand_over(&mut self) -> HandedWork {
        self.handed_over = true;
        let places = |live: &super::LiveVolume| {
            let map = live.engine.map();
            let mut all = Vec::with_capacity(map.extents() * PLACE_BYTES);
            for extent in 0..map.extents() {
                all.extend_from_slice(&place_bytes(map.location(extent)));
            }
            (live.id, all)
        };
        HandedWork {
            connections: self.handed_connections(),
            places: self.volumes.iter().flatten().map(places).collect(),
        }
    }

    fn handed_connections(&self) -> Vec<HandedConnection> {
        let all = self.connections.iter();
        let along = all.filter_map(|(_, c)| Some((c, goes_along(c)?)));
        along
            .map(|(c, (volume, session))| HandedConnection {
                socket: c.socket.clone(),
                session: HandedSession::of(volume, session, c),
                received: received(c),
                unsent: unsent(c),
            })
            .collect()
    }

    /// Continues a connection from the state of the previous process.
    pub(super) fn take_handed(&mut self, handed: HandedConnection) {
        let HandedConnection {
            socket,
            session: from,
            received,
            unsent,
        } = handed;
        let volume = VolumeId(from.volume);
        let served = self.volumes.get(volume.index());
        let served = served.is_some_and(|v| v.as_ref().is_some_and(|v| v.detached.is_none()));
        let socket = Arc::into_inner(socket).filter(|_| served);
        let Some(socket) = socket else {
            self.shared.connections.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        let stage = Stage::Serving {
            volume: volume.0,
            session: Box::new(from.session()),
        };
        let connection = self.add_connection(socket, None, stage);
        self.push_segment(connection, Segment::Bytes(unsent, 0));
        let c = &mut self.connections[connection as usize];
        let input = Buf::new(INPUT_BYTES.max(received.len()));
        input.fill(0..received.len(), |to| to.copy_from_slice(&received));
        (c.input, c.end) = (Some(input), received.len());
        c.skip = from.skip;
        c.refused = from.refused.and_then(|(cookie, number)| {
            let error = ErrorCode::ALL.into_iter().find(|e| e.number() == number)?;
            Some((cookie, error, REFUSED))
        });
        self.decode(connection);
        self.receive(connection);
    }
}

/// Returns the bytes of answers that are not sent. Copies whole segments instead of single bytes, because guests wait
/// meanwhile.
fn unsent(connection: &Connection) -> Vec<u8> {
    let mut bytes = vec![];
    for segment in &connection.out {
        segment.append_to_send(&mut bytes);
    }
    bytes
}

/// Returns the bytes of requests that are not started, as received, including the received part of a payload.
fn received(connection: &Connection) -> Vec<u8> {
    let mut bytes = vec![];
    if let Some(payload) = &connection.payload {
        bytes.extend(nbd::encode_request(&payload.header));
        let filled = HEAD..HEAD + payload.filled;
        payload
            .buf
            .with(filled, |data| bytes.extend_from_slice(data));
    }
    if let Some(input) = &connection.input {
        let rest = connection.start..connection.end;
        input.with(rest, |rest| bytes.extend_from_slice(rest));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extent_locations_survive_the_hand_over() {
        let at = |device, slot| {
            Some(Location {
                device: DeviceId(device),
                slot,
            })
        };
        for place in [None, at(0, 0), at(7, 123_456), at(u16::MAX - 1, u32::MAX)] {
            assert_eq!(place_of(place_bytes(place)), place);
        }
    }
}
