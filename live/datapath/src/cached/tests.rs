use algo::Rng;

use super::*;

const PAGE: u64 = 4096;
const SECTOR: u64 = 512;

fn settings(policy: PolicyKind, pages: u64, writes: WriteMode) -> CacheSettings {
    CacheSettings {
        extent_pages: 4,
        policy,
        writes,
        ..CacheSettings::of(Bytes(pages * PAGE), Bytes(PAGE))
    }
}

fn request(op: GuestOp, offset: u64, length: u64) -> GuestRequest {
    GuestRequest {
        op,
        offset,
        length,
        fua: false,
    }
}

/// Request in an engine.
#[derive(Debug)]
struct EngineRequest {
    pass: Pass,
    request: GuestRequest,
    value: u8,
    /// Sectors that are not read or changed yet.
    left: Vec<u64>,
    /// Data of a read.
    data: Vec<u8>,
    /// True if the request was completed with an error and continues: overlapping requests wait.
    zombie: bool,
    /// True for a read that serves only the L2 cache.
    aside: bool,
}

/// Volume behind the cache. Requests are executed sector by sector in any order, and complete at any later time. Some
/// fail, and continue.
struct World {
    rng: Rng,
    settings: CacheSettings,
    memory: CacheMemory,
    cache: Option<VolumeCache>,
    /// Content of each sector: now, and at the last flush.
    sectors: Vec<u8>,
    flushed: Vec<u8>,
    passed: Vec<EngineRequest>,
    hits: u64,
    kept: u64,
    /// Device of the L2 cache, and operations in flight there.
    device: Vec<u8>,
    filling: Vec<(StoredPage, Vec<u8>)>,
    reading: Vec<(StoredRead, GuestRequest)>,
    /// Reads of the L2 cache with right and with wrong data; reads only for the L2 cache whose pages were stored
    /// there.
    stored: u64,
    wrong: u64,
    aside: u64,
    /// Completed requests while the volume was excluded from caching.
    out: u64,
}

impl EngineRequest {
    fn new(pass: Pass, request: GuestRequest, value: u8) -> Self {
        let end = request.offset + request.length;
        Self {
            pass,
            request,
            value,
            left: (request.offset / SECTOR..end / SECTOR).collect(),
            data: vec![0xee; request.length as usize],
            zombie: false,
            aside: false,
        }
    }
}

impl World {
    fn size(&self) -> u64 {
        self.sectors.len() as u64 * SECTOR
    }

    fn bytes(&self, request: &GuestRequest) -> Vec<u8> {
        let sectors = request.offset / SECTOR..(request.offset + request.length) / SECTOR;
        sectors
            .flat_map(|s| [self.sectors[s as usize]; SECTOR as usize])
            .collect()
    }

    fn ask(&mut self) {
        let all = self.sectors.len() as u64;
        let op = match self.rng.below(20) {
            0..13 => GuestOp::Read,
            13..16 => GuestOp::Write,
            16 => GuestOp::Trim,
            17 => GuestOp::Zero,
            18 => GuestOp::ZeroAllocated,
            _ => GuestOp::Flush,
        };
        let (mut first, mut count) = (self.rng.below(all), 1 + self.rng.below(20));
        if self.rng.below(2) == 0 {
            (first, count) = (first & !7, (count + 7) & !7);
        }
        count = count.min(all - first);
        let request = match op {
            GuestOp::Flush => request(op, 0, 0),
            _ => request(op, first * SECTOR, count * SECTOR),
        };
        if let Some(cache) = &mut self.cache {
            let mut found = vec![0xee; request.length as usize];
            let copy = |at: usize, bytes: &[u8]| found[at..at + bytes.len()].copy_from_slice(bytes);
            if op == GuestOp::Read && cache.read(&mut self.memory, &request, copy) {
                assert_eq!(found, self.bytes(&request), "{request:?}");
                self.hits += 1;
                return;
            }
            if op == GuestOp::Read
                && let Some(read) = cache.read_stored(&mut self.memory, &request)
            {
                self.reading.push((read, request));
                return;
            }
            self.pass(request);
            return;
        }
        self.passed.push(EngineRequest::new(Pass::NONE, request, 1));
    }

    /// Reads pages for the L2 cache only.
    fn ask_aside(&mut self) {
        let pages = self.size() / PAGE;
        let first = self.rng.below(pages);
        let count = (1 + self.rng.below(3)).min(pages - first);
        let request = request(GuestOp::Read, first * PAGE, count * PAGE);
        let Some(cache) = &mut self.cache else {
            return;
        };
        if !cache.has_stored(&self.memory, &(first * PAGE..(first + count) * PAGE)) {
            let pass = cache.pass(&self.memory, &request);
            let passed = EngineRequest::new(pass, request, 1);
            self.passed.push(EngineRequest {
                aside: true,
                ..passed
            });
        }
    }

    /// Passes a request to the engine.
    fn pass(&mut self, mut request: GuestRequest) {
        let mut pass = Pass::NONE;
        if let Some(cache) = &mut self.cache {
            let op = request.op;
            if op == GuestOp::Read {
                (request.offset, request.length) = cache.whole(&self.memory, &request);
            }
            pass = cache.pass(&self.memory, &request);
        }
        let value = 1 + self.rng.below(250) as u8;
        self.passed.push(EngineRequest::new(pass, request, value));
    }

    /// Completes an operation of the L2 cache, corrupts one, or lets the device forget data.
    fn second(&mut self) {
        let below = |rng: &mut Rng, n: usize| rng.below(n as u64) as usize;
        if self.rng.below(2) == 0 && !self.filling.is_empty() {
            let at = below(&mut self.rng, self.filling.len());
            let (stored, data) = self.filling.swap_remove(at);
            let begin = stored.at(PAGE) as usize;
            self.device[begin..begin + PAGE as usize].copy_from_slice(&data);
            if let Some(second) = self.memory.second_mut() {
                second.filled(stored);
            }
        }
        if self.rng.below(300) == 0 {
            let at = below(&mut self.rng, PAGE as usize);
            let pages = self.device.chunks_mut(PAGE as usize);
            pages.for_each(|page| page[at] ^= 1);
        }
        if self.reading.is_empty() {
            return;
        }
        let at = below(&mut self.rng, self.reading.len());
        let (read, request) = self.reading.swap_remove(at);
        let mut data = vec![];
        for place in &read.places {
            let begin = place.at(PAGE) as usize;
            data.extend_from_slice(&self.device[begin..begin + PAGE as usize]);
        }
        let fails = self.rng.below(50) == 0;
        let Some(cache) = &mut self.cache else {
            return self.pass(request);
        };
        match cache.stored_over(&mut self.memory, &read, (!fails).then_some(&*data)) {
            L2ReadResult::Right => {
                let (offset, length) = (read.bytes.start, read.bytes.end - read.bytes.start);
                let whole = super::tests::request(GuestOp::Read, offset, length);
                assert_eq!(data, self.bytes(&whole), "{request:?}");
                self.stored += 1;
            }
            L2ReadResult::Overtaken => self.pass(request),
            L2ReadResult::Wrong => {
                self.wrong += 1;
                self.end_second();
                self.begin_second();
                self.pass(request);
            }
        }
    }

    fn end_second(&mut self) {
        self.memory.end_second();
        // Writes in flight to the device are irrelevant now and may still complete.
        for (stored, data) in self.filling.drain(..) {
            let begin = stored.at(PAGE) as usize;
            self.device[begin..begin + PAGE as usize].copy_from_slice(&data);
        }
        if let Some(cache) = &mut self.cache {
            cache.end_second();
        }
        for (read, request) in std::mem::take(&mut self.reading) {
            if let Some(cache) = &mut self.cache {
                let over = cache.stored_over(&mut self.memory, &read, None);
                assert_eq!(over, L2ReadResult::Overtaken);
            }
            self.pass(request);
        }
    }

    fn begin_second(&mut self) {
        let level = self
            .settings
            .second_level(Bytes(self.device.len() as u64), 4711);
        self.memory.begin_second(level.unwrap());
        if let Some(cache) = &mut self.cache {
            cache.begin_second(&mut self.memory).unwrap();
        }
    }

    /// Executes one sector of a request, unless the request waits for one that was already completed.
    fn go_on(&mut self) {
        if self.passed.is_empty() {
            return;
        }
        let at = self.rng.below(self.passed.len() as u64) as usize;
        let request = self.passed[at].request;
        let over = |other: &EngineRequest| {
            let (a, b) = (&other.request, &request);
            other.zombie && a.offset < b.offset + b.length && b.offset < a.offset + a.length
        };
        let waits = self.passed.iter().any(over) && !self.passed[at].zombie;
        let passed = &mut self.passed[at];
        if waits || passed.left.is_empty() {
            return;
        }
        let sector = passed
            .left
            .swap_remove(self.rng.below(passed.left.len() as u64) as usize);
        let value = &mut self.sectors[sector as usize];
        match request.op {
            GuestOp::Read => {
                let from = (sector * SECTOR - request.offset) as usize;
                passed.data[from..from + SECTOR as usize].fill(*value);
            }
            GuestOp::Write => *value = passed.value,
            GuestOp::Trim if self.rng.below(2) == 0 => {}
            _ => *value = 0,
        }
        if passed.zombie && passed.left.is_empty() {
            self.passed.swap_remove(at);
        }
    }

    /// Completes a request.
    fn answer(&mut self) {
        let done = |p: &EngineRequest| !p.zombie && p.left.is_empty();
        let late = self.rng.below(40) == 0;
        let found = self
            .passed
            .iter()
            .position(|p| done(p) || late && !p.zombie);
        let Some(at) = found else { return };
        let fails = !done(&self.passed[at]) || self.rng.below(10) == 0;
        let passed = &mut self.passed[at];
        let (pass, request, aside) = (passed.pass, passed.request, passed.aside);
        let data = match request.op {
            GuestOp::Read => std::mem::take(&mut passed.data),
            GuestOp::Write => vec![passed.value; request.length as usize],
            _ => vec![],
        };
        passed.zombie = fails && !passed.left.is_empty() && request.op != GuestOp::Read;
        if !passed.zombie {
            self.passed.swap_remove(at);
        }
        if request.op == GuestOp::Flush {
            for (now, then) in self.sectors.iter_mut().zip(&mut self.flushed) {
                if fails && self.rng.below(2) == 0 {
                    *now = *then;
                }
                *then = *now;
            }
        }
        if let Some(cache) = &mut self.cache {
            let data = (!fails).then_some(&*data);
            let kept = match aside {
                true => cache.read_aside_over(pass) && data.is_some(),
                false => cache.over(&mut self.memory, pass, &request, data),
            };
            if kept {
                let data = data.expect("it was kept");
                let room = self.rng.below(9) as usize;
                self.aside += u64::from(aside);
                for (stored, at) in cache.fill(&mut self.memory, &request, data, room) {
                    let page = data[at..at + PAGE as usize].to_vec();
                    self.filling.push((stored, page));
                }
            }
            let pages = self.memory.pages().cached(cache.volume());
            assert!(pages == 0 || !cache.is_kept_out(), "{pages} pages");
            self.kept += u64::from(pages > 0);
            self.out += u64::from(cache.is_kept_out());
        }
    }

    /// Lets the volume grow, or starts or stops its caching.
    fn change(&mut self) {
        let size = self.size();
        match (self.rng.below(7), &mut self.cache) {
            (_, Some(cache)) if cache.is_kept_out() => cache.keep_out(&mut self.memory, false),
            (6, Some(cache)) => cache.keep_out(&mut self.memory, true),
            (4, _) => self.end_second(),
            (5, _) if self.memory.second().is_none() => self.begin_second(),
            (0, Some(cache)) => {
                let grown = self.sectors.len() + 1 + self.rng.below(12) as usize;
                self.sectors.resize(grown, 0);
                self.flushed.resize(grown, 0);
                cache
                    .grew(&mut self.memory, size + (grown as u64 * SECTOR - size))
                    .unwrap();
            }
            (1, _) => {
                if let Some(cache) = self.cache.take() {
                    cache.end(&mut self.memory);
                    // Like the end of serving a volume: it has no operation in flight in the L2 cache.
                    for (_, request) in std::mem::take(&mut self.reading) {
                        self.pass(request);
                    }
                }
            }
            (2, cache @ None) => {
                let under_way = self.passed.iter().filter(|p| !p.zombie).count();
                let mut new = VolumeCache::new(&mut self.memory, size, under_way).unwrap();
                new.begin_second(&mut self.memory).unwrap();
                *cache = Some(new);
            }
            (_, Some(cache)) => {
                // Like the loss of a device: its content may be older than acknowledged writes.
                let at = self.rng.below(self.sectors.len() as u64) as usize;
                self.sectors[at] = 0;
                cache.forget(&mut self.memory);
            }
            _ => {}
        }
    }
}

/// Every read from memory returns the present content of the devices, independent of other requests in flight,
/// failures and later events.
#[test]
fn cache_never_returns_data_that_devices_do_not_have() {
    let (mut hits, mut kept) = (0, 0);
    let (mut stored, mut wrong, mut aside, mut out) = (0, 0, 0, 0);
    for seed in 0..600 {
        let mut rng = Rng::new(seed, 0xcac4e);
        let writes = match rng.below(3) {
            0 => WriteMode::WriteAround,
            _ => WriteMode::WriteThrough,
        };
        let kinds = [PolicyKind::Lru, PolicyKind::PriorityLru, PolicyKind::Sieve];
        let policy = kinds[rng.below(3) as usize];
        let settings = settings(policy, 1 + rng.below(12), writes);
        let mut memory = CacheMemory::new(&settings).unwrap();
        let sectors = 60 + rng.below(60) as usize;
        let cache = VolumeCache::new(&mut memory, sectors as u64 * SECTOR, 0).unwrap();
        // Another volume that uses the same cache.
        let other = VolumeCache::new(&mut memory, 40 * PAGE, 0).unwrap();
        let mut world = World {
            settings,
            memory,
            cache: Some(cache),
            sectors: vec![0; sectors],
            flushed: vec![0; sectors],
            passed: vec![],
            hits: 0,
            kept: 0,
            device: vec![0; (64 + 1 + seed as usize % 40) * PAGE as usize],
            filling: vec![],
            reading: vec![],
            stored: 0,
            wrong: 0,
            aside: 0,
            out: 0,
            rng,
        };
        if seed % 3 > 0 {
            world.begin_second();
        }
        // Limit of simultaneous requests.
        let depth = 1 + seed as usize % 8;
        for step in 0..3000 {
            match world.rng.below(12) {
                0 if world.passed.len() < depth && step % 4 == 0 => world.ask_aside(),
                0..3 if world.passed.len() < depth => world.ask(),
                3..9 => {
                    (0..12).for_each(|_| world.go_on());
                    world.second();
                }
                9..11 => world.answer(),
                11 if step % 29 == 0 => world.change(),
                11 if step % 7 == 0 => {
                    let page = world.rng.below(40);
                    world.memory.pages.insert(other.volume(), page);
                }
                _ => {}
            }
        }
        (hits, kept) = (hits + world.hits, kept + world.kept);
        (stored, wrong) = (stored + world.stored, wrong + world.wrong);
        (aside, out) = (aside + world.aside, out + world.out);
    }
    assert!(hits > 10_000, "{hits} reads from memory");
    assert!(kept > 50_000, "{kept}");
    assert!(stored > 2_000, "{stored} reads of the second level");
    assert!(aside > 2_000, "{aside} reads for it alone");
    assert!(out > 10_000, "{out} answers of which nothing was kept");
    assert!(wrong > 20, "{wrong} times the second level lied");
}

#[test]
fn invalid_cache_settings_are_refused() {
    let good = settings(PolicyKind::Lru, 10, WriteMode::WriteThrough);
    let fault = |change: &dyn Fn(&mut CacheSettings)| {
        let mut settings = good;
        change(&mut settings);
        CacheMemory::new(&settings)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    assert!(CacheMemory::new(&good).is_ok());
    assert!(fault(&|s| s.page = Bytes(5000)).contains("power of two"));
    assert!(fault(&|s| s.size = Bytes(100)).contains("; 1 to"));
    assert!(fault(&|s| s.size = Bytes(1 << 50)).contains("; 1 to"));
    assert!(fault(&|s| s.writes = WriteMode::WriteBack).contains("write-back cache"));
    assert!(fault(&|s| s.policy = PolicyKind::Arc).contains("remembers"));
}

#[test]
fn reads_and_write_through_writes_fill_the_cache() {
    for writes in [WriteMode::WriteThrough, WriteMode::WriteAround] {
        let mut memory = CacheMemory::new(&settings(PolicyKind::Lru, 10, writes)).unwrap();
        // The last page is short.
        let size = 5 * PAGE + SECTOR;
        let mut cache = VolumeCache::new(&mut memory, size, 0).unwrap();
        let pass = |memory: &mut CacheMemory, cache: &mut VolumeCache, r: GuestRequest| {
            let pass = cache.pass(memory, &r);
            cache.over(memory, pass, &r, Some(&vec![7; r.length as usize]));
        };
        let is_there = |memory: &mut CacheMemory, cache: &mut VolumeCache, page: u64| {
            let length = if page == 5 { SECTOR } else { PAGE };
            cache.read(
                memory,
                &request(GuestOp::Read, page * PAGE, length),
                |_, bytes| {
                    assert!(bytes.iter().all(|b| *b == 7));
                },
            )
        };
        pass(&mut memory, &mut cache, request(GuestOp::Read, 0, 2 * PAGE));
        pass(
            &mut memory,
            &mut cache,
            request(GuestOp::Read, 5 * PAGE, SECTOR),
        );
        pass(
            &mut memory,
            &mut cache,
            request(GuestOp::Read, 2 * PAGE, SECTOR),
        );
        let there = |memory: &mut CacheMemory, cache: &mut VolumeCache| {
            [0, 1, 2, 3, 4, 5].map(|page| is_there(memory, cache, page))
        };
        assert_eq!(
            there(&mut memory, &mut cache),
            [true, true, false, false, false, true]
        );
        // A part of a cached page, a part of an uncached page, and a whole page.
        pass(
            &mut memory,
            &mut cache,
            request(GuestOp::Write, SECTOR, SECTOR),
        );
        pass(
            &mut memory,
            &mut cache,
            request(GuestOp::Write, 2 * PAGE, SECTOR),
        );
        pass(
            &mut memory,
            &mut cache,
            request(GuestOp::Write, 3 * PAGE, PAGE),
        );
        let through = writes == WriteMode::WriteThrough;
        assert_eq!(
            there(&mut memory, &mut cache),
            [through, true, false, through, false, true]
        );
        pass(
            &mut memory,
            &mut cache,
            request(GuestOp::Trim, PAGE, SECTOR),
        );
        assert!(!there(&mut memory, &mut cache)[1]);
        let whole = cache.whole(&memory, &request(GuestOp::Read, 4 * PAGE + 100, PAGE));
        assert_eq!(whole, (4 * PAGE, PAGE + SECTOR));
        // A failed flush removes all pages.
        let flush = request(GuestOp::Flush, 0, 0);
        let flushing = cache.pass(&memory, &flush);
        cache.over(&mut memory, flushing, &flush, None);
        assert_eq!(there(&mut memory, &mut cache), [false; 6]);
    }
}

/// Two writes to one place may complete in any order. The data of the second one would be lost, and with it the L2
/// cache.
#[test]
fn l2_place_is_not_reassigned_while_it_is_written() {
    let places = *SecondLevel::places().start();
    let level = SecondLevel::new(PolicyKind::Lru, places, 1, &PolicyOptions::default(), 7);
    let mut level = level.unwrap().expect("there is room for a page");
    let volume = level.pages_mut().add_volume(100).unwrap();
    let first = level.fill(volume, 0, b"first").unwrap();
    let mut refused = 0;
    for page in 1..50 {
        match level.fill(volume, page, b"another") {
            Some(other) => {
                assert_ne!(other.at(1), first.at(1), "page {page}");
                level.filled(other);
            }
            None => refused += 1,
        }
    }
    assert!(refused > 0, "it was nobody's turn");
    level.filled(first);
    let again = (50..100).filter_map(|page| {
        let place = level.fill(volume, page, b"another")?;
        level.filled(place);
        Some(place.at(1))
    });
    assert!(again.collect::<Vec<_>>().contains(&first.at(1)));
}
