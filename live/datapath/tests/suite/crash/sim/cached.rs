//! Cache between guests and engines, with the rules of a worker.

use datapath::cached::{CacheMemory, CacheSettings, Pass, VolumeCache};
use datapath::engine::{Fault, GuestOp, GuestRequest};

use super::life::Life;
use super::oracle::fill;
use super::orders::GROWING;

/// Cache of one life. Its content ends with the life.
pub struct SimCache {
    memory: CacheMemory,
    volumes: Vec<VolumeCache>,
    /// Passes of requests in engines.
    passes: std::collections::BTreeMap<(usize, u64), (Pass, GuestRequest)>,
}

impl SimCache {
    pub fn new(settings: &CacheSettings, sizes: impl Iterator<Item = u64>) -> Self {
        let mut memory = CacheMemory::new(settings).expect("a plan has one that can be");
        let volumes = sizes.map(|size| VolumeCache::new(&mut memory, size, 0));
        let volumes = volumes.collect::<Result<_, _>>();
        Self {
            volumes: volumes.expect("they are small"),
            memory,
            passes: Default::default(),
        }
    }
}

impl Life<'_> {
    /// Passes a guest's request on, through the cache if there is one.
    pub(super) fn submit(
        &mut self,
        volume: usize,
        op: u64,
        mut request: GuestRequest,
    ) -> Result<(), String> {
        if let Some(cache) = &mut self.cache {
            let (memory, of) = (&mut cache.memory, &mut cache.volumes[volume]);
            if request.op == GuestOp::Read {
                let asked = self.asked.get_mut(&op).expect("it was asked");
                let copy = |at: usize, bytes: &[u8]| {
                    asked.bytes[at..at + bytes.len()].copy_from_slice(bytes);
                };
                if of.read(memory, &request, copy) {
                    self.tally.from_memory += 1;
                    return self.replied(volume, op, Ok(()), &[]);
                }
                let (offset, length) = of.whole(memory, &request);
                if length != request.length {
                    let whole = vec![0xee; length as usize];
                    let own = std::mem::replace(&mut asked.bytes, whole);
                    asked.narrower = Some((request, own));
                    asked.buffer += 1;
                    request = GuestRequest {
                        offset,
                        length,
                        ..request
                    };
                    asked.request = request;
                }
            }
            let pass = of.pass(memory, &request);
            cache.passes.insert((volume, op), (pass, request));
        }
        self.engines[volume].submit(self.now_ns, op, request);
        Ok(())
    }

    /// Handles the completion of a request by an engine.
    pub(super) fn engine_replied(
        &mut self,
        volume: usize,
        op: u64,
        result: Result<(), Fault>,
        gaps: &[(u64, u64)],
    ) -> Result<(), String> {
        let mut empty = vec![];
        let Some(cache) = &mut self.cache else {
            return self.replied(volume, op, result, gaps);
        };
        let passed = cache.passes.remove(&(volume, op));
        let (pass, request) = passed.ok_or("a request is answered twice")?;
        let (memory, of) = (&mut cache.memory, &mut cache.volumes[volume]);
        let asked = self.asked.get_mut(&op);
        let data: &[u8] = match (request.op, asked) {
            (GuestOp::Read, Some(asked)) => {
                for (from, bytes) in gaps {
                    asked.bytes[*from as usize..(from + bytes) as usize].fill(0);
                }
                &asked.bytes
            }
            (GuestOp::Write, _) => {
                empty.resize(request.length as usize, 0);
                fill(volume as u32, request.offset, op, &mut empty);
                &empty
            }
            _ => &empty,
        };
        of.over(memory, pass, &request, result.is_ok().then_some(data));
        if op != GROWING
            && let Some(asked) = self.asked.get_mut(&op)
            && let Some((narrower, mut own)) = asked.narrower.take()
        {
            let from = (narrower.offset - request.offset) as usize;
            if result.is_ok() {
                own.copy_from_slice(&asked.bytes[from..from + narrower.length as usize]);
            }
            (asked.request, asked.bytes) = (narrower, own);
            asked.buffer += 1;
            if result.is_err() {
                // Repeat the read without the rest of its pages. Reads of the first attempt that hang have their own
                // memory.
                let pass = of.pass(memory, &narrower);
                cache.passes.insert((volume, op), (pass, narrower));
                self.tally.read_again += 1;
                self.disown(op);
                self.engines[volume].submit(self.now_ns, op, narrower);
                return Ok(());
            }
        }
        self.replied(volume, op, result, &[])
    }

    /// Delivers a reply, by its ring or at once.
    fn replied(
        &mut self,
        volume: usize,
        op: u64,
        result: Result<(), Fault>,
        gaps: &[(u64, u64)],
    ) -> Result<(), String> {
        if op == GROWING {
            return self.grown(volume, result);
        }
        if self.answer_ring(volume, op, result, gaps) {
            return Ok(());
        }
        self.answered(volume, op, result, gaps)
    }

    /// Discards the cache, as a worker does when a device is lost or back, or when a flush has failed.
    pub(super) fn forget_cached(&mut self) {
        if let Some(cache) = &mut self.cache {
            for of in &mut cache.volumes {
                of.forget(&mut cache.memory);
            }
        }
    }

    /// Adapts the cache to a larger volume, as a worker does.
    pub(super) fn cached_grew(&mut self, volume: usize) {
        let size = self.engines[volume].map().size().0;
        if let Some(cache) = &mut self.cache {
            let grew = cache.volumes[volume].grew(&mut cache.memory, size);
            grew.expect("it is small");
        }
    }
}
