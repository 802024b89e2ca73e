//! Sequential reader of an export in pieces, over several connections.
//!
//! ```text
//!  planner: block status ──▶ pieces ──▶ readers: read a piece, process it ──▶ caller, in order
//!       ▲                                                                          │
//!       └──────────────────── each completed piece allows one more ◀───────────────┘
//! ```

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use datapath::Client;
use nbd::{StatusExtent, Uri};
use units::Bytes;

use crate::live::{Go, Stop, explained};
use crate::progress::LeftBar;

/// Number of reading connections. One worker of the server serves all connections; this number keeps its devices busy.
const READERS: usize = 8;

/// Size of a piece with data, bytes.
pub const PIECE_BYTES: u64 = 1 << 20;

/// Size of a piece of zeroes, bytes.
const HOLE_BYTES: u64 = 64 << 20;

/// Largest number of pieces in progress. It bounds memory to 32 MiB.
const PIECES_MAX: usize = 32;

/// Length of a block status request, bytes.
const STATUS_BYTES: u64 = 1 << 30;

/// Time between two checks for a stop order.
const LOOK: Duration = Duration::from_millis(100);

/// Export whose content does not change.
pub struct Export {
    pub uri: String,
    /// Size of the export, bytes.
    pub size: u64,
    parsed: Uri,
}

/// Part of an export.
#[derive(Debug)]
pub struct Piece {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Content; `None` for zeroes.
    pub data: Option<Vec<u8>>,
}

impl Export {
    pub fn find(uri: &str) -> anyhow::Result<Self> {
        let parsed: Uri = uri.parse().with_context(|| format!("{uri} is not a URI"))?;
        let client = Client::connect(&parsed).map_err(explained)?;
        Ok(Self {
            uri: uri.into(),
            size: client.size(),
            parsed,
        })
    }

    /// Calls `work` for each piece, on several threads, then `in_order` for each result, in the order of the pieces. `what` describes the
    /// activity in the progress bar.
    pub fn each_piece<R: Send>(
        &self,
        what: &str,
        stop: &Stop,
        work: impl Fn(&Piece) -> anyhow::Result<R> + Sync,
        mut in_order: impl FnMut(Piece, R) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        // All connections are made before the first read. So a server that ends or releases the volume breaks at least one
        // connection.
        let planner = Client::connect_for_status(&self.parsed).map_err(explained)?;
        let mut readers = vec![];
        for _ in 0..READERS {
            readers.push(Client::connect(&self.parsed).map_err(explained)?);
        }
        if readers.iter().any(|r| r.size() != self.size) {
            bail!("the size of {} has changed", self.uri);
        }
        let mut breakers = vec![planner.breaker().map_err(explained)?];
        for reader in &readers {
            breakers.push(reader.breaker().map_err(explained)?);
        }
        let mut bar = LeftBar::new(what);
        std::thread::scope(|threads| {
            // Dropping the breakers ends all waits for replies, also after an error.
            let _breakers = breakers;
            let (begin, may_begin) = channel();
            let (to_readers, planned) = sync_channel(PIECES_MAX);
            let (to_us, done) = channel();
            for _ in 0..PIECES_MAX {
                let _ = begin.send(()); // the receiver exists
            }
            let size = self.size;
            let failed = to_us.clone();
            threads.spawn(move || {
                if let Err(why) = plan(planner, size, &may_begin, &to_readers) {
                    let _ = failed.send(Err(why)); // fails only if the receiver has already failed
                }
            });
            let planned = Arc::new(Mutex::new(planned));
            for mut reader in readers {
                let (to_us, planned, work) = (to_us.clone(), planned.clone(), &work);
                threads.spawn(move || {
                    loop {
                        let next = planned
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .recv();
                        let Ok((number, piece)) = next else { return };
                        let worked = read(&mut reader, piece).and_then(|piece| {
                            let result = work(&piece)?;
                            Ok((number, piece, result))
                        });
                        let over = worked.is_err();
                        if to_us.send(worked).is_err() || over {
                            return;
                        }
                    }
                });
            }
            drop((to_us, planned));
            let mut waiting = BTreeMap::new();
            let (mut next, mut position) = (0, 0);
            while position < self.size {
                if stop.sleep(Duration::ZERO) == Go::Stop {
                    bail!("stopped");
                }
                match done.recv_timeout(LOOK) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => bail!("a thread has ended"),
                    Ok(worked) => {
                        let (number, piece, result) = worked?;
                        waiting.insert(number, (piece, result));
                    }
                }
                while let Some((piece, result)) = waiting.remove(&next) {
                    assert_eq!(piece.offset, position, "pieces follow one another");
                    position += piece.length;
                    next += 1;
                    in_order(piece, result)?;
                    let _ = begin.send(()); // fails if the planner has ended
                }
                bar.update(Bytes(self.size - position));
            }
            Ok(())
        })
    }
}

/// Divides the export into pieces, at the rate at which earlier pieces complete. Returns early and without an error if the receiver of the
/// pieces has ended.
fn plan(
    mut client: Client,
    size: u64,
    may_begin: &Receiver<()>,
    to_readers: &SyncSender<(u64, Piece)>,
) -> anyhow::Result<()> {
    let (mut number, mut offset) = (0, 0);
    while offset < size {
        let asked = STATUS_BYTES.min(size - offset) as u32;
        let extents = match client.tells_status() {
            true => client.status(offset, asked).map_err(explained)?,
            false => vec![StatusExtent {
                length: asked,
                flags: 0,
            }],
        };
        let before = offset;
        for extent in extents {
            let zeroes = extent.flags & StatusExtent::ZERO != 0;
            let end = size.min(offset + u64::from(extent.length));
            let most = if zeroes { HOLE_BYTES } else { PIECE_BYTES };
            while offset < end {
                // Pieces are aligned like the slots of extents, if possible.
                let length = (end - offset).min(most - offset % most);
                let piece = Piece {
                    offset,
                    length,
                    data: (!zeroes).then(Vec::new),
                };
                if may_begin.recv().is_err() || to_readers.send((number, piece)).is_err() {
                    return Ok(());
                }
                number += 1;
                offset += length;
            }
        }
        if offset == before {
            return Err(anyhow!(
                "the server does not report the allocation at byte {offset}"
            ));
        }
    }
    Ok(())
}

fn read(client: &mut Client, piece: Piece) -> anyhow::Result<Piece> {
    let Piece { offset, length, .. } = piece;
    let data = match piece.data {
        None => None,
        Some(_) => {
            let read = client.read(offset, length as u32).map_err(explained);
            Some(read.with_context(|| format!("cannot read {length} bytes at byte {offset}"))?)
        }
    };
    Ok(Piece { data, ..piece })
}
