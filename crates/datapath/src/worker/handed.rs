//! Handing guests' connections to another process: a worker is made still, so that nothing of a guest is in flight, and says what another
//! one has to know to go on with the connections. What guests send meanwhile waits in their sockets.
//!
//! A connection that is being negotiated goes on; one with TLS, or of a guest with rings, is still too, and is not handed over: it ends with
//! this process, and its client connects again.

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
use super::timers::Due;
use super::{Token, Worker};

/// What a guest whose write was refused by the process before is told, if it wants to know.
const REFUSED: &str = "the request was refused";

/// A connection that another process goes on with.
#[derive(Debug)]
pub struct HandedConnection {
    pub socket: Arc<OwnedFd>,
    /// What was agreed.
    pub session: HandedSession,
    /// What has come of requests that are not begun.
    pub received: Vec<u8>,
    /// What the socket has not taken yet.
    pub unsent: Vec<u8>,
}

/// What was agreed with a guest, and where in its stream of bytes it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandedSession {
    pub volume: u32,
    /// The name that the guest knows it by.
    pub export: String,
    /// The size that it was told.
    pub size: u64,
    /// The flags that hold for it.
    pub flags: u16,
    /// The sizes of requests that it was told: smallest, preferred, largest.
    pub block: [u32; 3],
    /// Whether replies are structured.
    pub structured: bool,
    /// The id of `base:allocation`.
    pub allocation: Option<u32>,
    /// Ids of contexts that say what has changed, the bytes of a part, and the parts that may have.
    pub dirty: Vec<(u32, u64, Vec<u32>)>,
    /// Bytes of a refused write that are still to come.
    pub skip: u64,
    /// That write's cookie, and the number of the error that it is answered with.
    pub refused: Option<(u64, u32)>,
}

/// What a still worker hands over.
#[derive(Debug, Default)]
pub struct HandedWork {
    pub connections: Vec<HandedConnection>,
    /// Volumes, and where their extents are ([`place_bytes`]): what the map has of them too, which takes long to read.
    pub places: Vec<(VolumeId, Vec<u8>)>,
}

/// Bytes that say where an extent is.
pub const PLACE_BYTES: usize = 6;

/// Where an extent is: device and slot, or all ones.
pub fn place_bytes(at: Option<Location>) -> [u8; PLACE_BYTES] {
    let Some(Location { device, slot }) = at else {
        return [u8::MAX; PLACE_BYTES];
    };
    let ([a, b], [c, d, e, f]) = (device.0.to_le_bytes(), slot.to_le_bytes());
    [a, b, c, d, e, f]
}

/// What [`place_bytes`] has made.
pub fn place_of([a, b, c, d, e, f]: [u8; PLACE_BYTES]) -> Option<Location> {
    let device = DeviceId(u16::from_le_bytes([a, b]));
    let slot = u32::from_le_bytes([c, d, e, f]);
    (device.0 != u16::MAX).then_some(Location { device, slot })
}

/// How still a worker is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stillness {
    /// What is in flight, if something is.
    pub busy: Option<String>,
    /// A batch of a move of this volume is under way.
    pub moving: Option<String>,
    /// Connections that are being negotiated.
    pub negotiating: usize,
    /// Connections that cannot be handed over, though they are still.
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

    /// Whether a session can be made of it.
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

/// Whether a connection is one whose requests another process can go on with.
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

    /// Whether another process may go on with this connection by now. What is done to its socket is done to both.
    pub(super) fn is_anothers(&self, connection: u32) -> bool {
        let found = || self.connections.get(connection as usize);
        self.handed_over && found().is_some_and(|c| goes_along(c).is_some())
    }

    pub(super) fn be_still(&mut self, still: bool) {
        self.still = still;
        self.handed_over = false;
        match still {
            true => {
                // The next process begins with an empty cache.
                self.end_second(Some(
                    "the server was taken over: the new process starts without its content".into(),
                ));
                self.submit_throttled(None);
            }
            // Another process may have had the volumes for a moment.
            false => self.forget_cached(None),
        }
        let all = self.connections.iter();
        let serving = all.filter(|(_, c)| matches!(c.stage, Stage::Serving { .. }));
        let serving: Vec<u32> = serving.map(|(i, _)| i as u32).collect();
        for connection in serving {
            if still {
                let c = &self.connections[connection as usize];
                // What comes over TLS is not taken along, and may come.
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

    /// Submits the held-back requests of one volume, or of all, to the engine, because they would not end in time. A process that takes over starts
    /// with full buckets anyway.
    pub(super) fn submit_throttled(&mut self, of: Option<u32>) {
        for due in self.timers.take_held_back(of) {
            if let Due::Submit {
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
        // Those of a second level are nobody's who is handed over.
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

    /// All that another process has to know. Nothing is sent from here on on connections that it may go on with, until
    /// [`Worker::be_still`] says that it does not.
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

    /// Goes on with a connection where the process before this one has left it.
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

/// The bytes of answers that are not sent yet. Guests wait while they are copied: whole segments, not byte by byte.
fn unsent(connection: &Connection) -> Vec<u8> {
    let mut bytes = vec![];
    for segment in &connection.out {
        segment.append_to_send(&mut bytes);
    }
    bytes
}

/// The bytes of requests that are not begun, as they came: of one whose payload is coming, all that has come.
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
    fn places_survive_the_way() {
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
