//! Closed-loop clients: loads that wait for replies, so a slower volume receives fewer requests.
//!
//! A client keeps a number of requests outstanding (its slots). A slot issues a request, waits for it, thinks, and
//! issues the next one. A rate cap may delay it, phases change its habits over time, and bursts multiply its activity
//! for a time. The pages have a Zipf-like popularity over a footprint, or are sequential.
//!
//! The driver determines the order of events. It calls [`Client::next`] when a slot is ready, and [`Client::think_ns`]
//! when the slot has issued a request. All results are functions of the seed and of the times of the calls.

#[cfg(test)]
mod tests;

use algo::{JitterTable, Popularity, Rng};
use model::Op;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use units::{Bytes, Iops, Nanos};

/// Alignment of requests, bytes.
const ALIGN: u64 = 4096;
/// Largest number of slots of one client. Bounds the event queue; far above any device's queue.
const SLOTS_MAX: u32 = 4096;

/// Request size with its weight in a size mix.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeShare {
    /// Size of the requests, a multiple of 4 KiB.
    pub size: Bytes,
    /// Weight of this size among all sizes, above 0.
    pub share: f64,
}

/// Properties of a client's load. In a scenario, keys that are left out have the value of the preset or, in a
/// phase, of the client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Habits {
    /// Number of requests in flight.
    pub outstanding: Option<u32>,
    /// Share of reads, 0 to 1.
    pub read_share: Option<f64>,
    /// Share of requests at random positions, 0 to 1. The others are sequential.
    pub random_share: Option<f64>,
    /// Mix of request sizes.
    pub sizes: Option<Vec<SizeShare>>,
    /// Mean think time: from the completion of a request to the next one of the same slot.
    pub think: Option<Nanos>,
    /// If true, think times are exponentially distributed; if false, they are constant.
    pub think_random: Option<bool>,
    /// Largest number of requests per second.
    pub rate: Option<Iops>,
    /// Skew of page popularity (Zipf theta), 0 to 2; 0 is uniform.
    pub skew: Option<f64>,
    /// Share of the volume that receives requests, above 0 and up to 1.
    pub footprint: Option<f64>,
}

/// Phase of a client with other habits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Length of the phase. The phases of a client repeat in a cycle.
    pub duration: Nanos,
    /// If true, the client issues no requests. Default: false.
    #[serde(default)]
    pub idle: bool,
    /// Habits that differ from those of the client.
    #[serde(default)]
    pub habits: Habits,
}

/// Periodic bursts of a client.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// Time from the start of one burst to the start of the next.
    pub every: Nanos,
    /// Length of each burst.
    pub length: Nanos,
    /// Factor on requests in flight and on the rate limit during a burst.
    pub factor: f64,
}

/// Closed-loop client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientSpec {
    /// Name of a workload of paper 0, Table V, if any.
    pub preset: Option<String>,
    /// Properties of the load. Keys that are left out have the preset's value.
    pub habits: Habits,
    /// Phases with other habits, repeated in a cycle.
    pub phases: Vec<Phase>,
    /// Periodic bursts.
    pub bursts: Option<Bursts>,
}

/// Invalid client.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{key}: {why}")]
pub struct ClientError {
    /// Key of the specification.
    pub key: String,
    /// Reason.
    pub why: String,
}

/// Request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientRequest {
    /// Read or write.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

/// Action of a ready slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientStep {
    /// Issues this request now.
    Issue(ClientRequest),
    /// Waits until this time (nanoseconds). Call [`Client::next`] again then.
    Later(u64),
}

/// Habits in the form for the inner loop.
#[derive(Debug, Clone)]
struct Mode {
    slots: u32,
    /// Share of reads, in units of 1/65,536.
    reads: u64,
    /// Share of random requests, in units of 1/65,536.
    randoms: u64,
    /// Sizes at 256 equally likely quantiles.
    sizes: Box<[u32; 256]>,
    think_ns: f64,
    think_random: bool,
    /// Minimum time between requests; 0 without a cap.
    gap_ns: f64,
    popularity: Popularity,
}

#[derive(Debug, Clone)]
struct PhaseMode {
    length_ns: u64,
    mode: usize,
    idle: bool,
}

/// Running client.
#[derive(Debug, Clone)]
pub struct Client {
    modes: Vec<Mode>,
    phases: Vec<PhaseMode>,
    cycle_ns: u64,
    bursts: Option<Bursts>,
    volume_bytes: u64,
    rng: Rng,
    think: JitterTable,
    sequential: u64,
    next_token_ns: f64,
    reserved: Box<[bool]>,
    /// End of the period in which mode, slots and gap do not change.
    segment_end_ns: u64,
    mode: usize,
    slots_now: u32,
    gap_ns: f64,
}

impl Habits {
    fn over(&self, base: &Habits) -> Habits {
        let own = self.clone();
        Habits {
            outstanding: own.outstanding.or(base.outstanding),
            read_share: own.read_share.or(base.read_share),
            random_share: own.random_share.or(base.random_share),
            sizes: own.sizes.or_else(|| base.sizes.clone()),
            think: own.think.or(base.think),
            think_random: own.think_random.or(base.think_random),
            rate: own.rate.or(base.rate),
            skew: own.skew.or(base.skew),
            footprint: own.footprint.or(base.footprint),
        }
    }

    fn mode(&self, volume_bytes: u64, at: &str) -> Result<Mode, ClientError> {
        let bad = |key: &str, why: String| {
            Err(ClientError {
                key: format!("{at}{key}"),
                why,
            })
        };
        let share = |key: &str, value: Option<f64>, default: f64| match value.unwrap_or(default) {
            s if (0.0..=1.0).contains(&s) => Ok((s * 65_536.0).round() as u64),
            s => bad(key, format!("must be a share from 0 to 1, not {s}")).map(|_: Mode| 0),
        };
        let slots = self.outstanding.unwrap_or(1);
        if !(1..=SLOTS_MAX).contains(&slots) {
            return bad(
                "outstanding",
                format!("{slots} is not between 1 and {SLOTS_MAX}"),
            );
        }
        let reads = share("read_share", self.read_share, 1.0)?;
        let randoms = share("random_share", self.random_share, 1.0)?;
        let sizes = match &self.sizes {
            Some(list) => list.clone(),
            None => vec![SizeShare {
                size: Bytes(ALIGN),
                share: 1.0,
            }],
        };
        let sizes = size_table(&sizes, |why| ClientError {
            key: format!("{at}sizes"),
            why,
        })?;
        let largest = u64::from(*sizes.iter().max().expect("256 sizes"));
        if largest > volume_bytes {
            return bad(
                "sizes",
                format!("{largest} bytes do not fit into a volume of {volume_bytes} bytes"),
            );
        }
        let footprint = self.footprint.unwrap_or(1.0);
        if !(footprint > 0.0 && footprint <= 1.0) {
            return bad(
                "footprint",
                format!("{footprint} is not above 0 and at most 1"),
            );
        }
        let skew = self.skew.unwrap_or(0.0);
        if !(0.0..=2.0).contains(&skew) {
            return bad("skew", format!("{skew} is not between 0 and 2"));
        }
        let gap_ns = match self.rate {
            None => 0.0,
            Some(rate) if rate.0 > 0.0 => 1e9 / rate.0,
            Some(rate) => return bad("rate", format!("{rate} is not above 0")),
        };
        let pages = ((volume_bytes as f64 * footprint) as u64 / ALIGN).max(1);
        Ok(Mode {
            slots,
            reads,
            randoms,
            sizes,
            think_ns: self.think.unwrap_or(Nanos::ZERO).as_f64(),
            think_random: self.think_random.unwrap_or(false),
            gap_ns,
            popularity: Popularity::new(pages, skew),
        })
    }
}

fn size_table(
    sizes: &[SizeShare],
    refuse: impl FnOnce(String) -> ClientError,
) -> Result<Box<[u32; 256]>, ClientError> {
    let total: f64 = sizes.iter().map(|s| s.share).sum();
    if sizes.is_empty() || !total.is_finite() || total <= 0.0 || sizes.iter().any(|s| s.share < 0.0)
    {
        let why = "must have at least one size, with shares of at least 0 that are not all 0";
        return Err(refuse(why.into()));
    }
    if let Some(odd) = sizes
        .iter()
        .find(|s| !s.size.0.is_multiple_of(ALIGN) || s.size.0 == 0 || s.size.0 > 1 << 30)
    {
        let why = format!("{} is not a multiple of 4 KiB up to 1 GiB", odd.size);
        return Err(refuse(why));
    }
    let mut table = Box::new([0; 256]);
    let mut sum = 0.0;
    let mut from = 0;
    for s in sizes {
        sum += s.share;
        let to = (sum / total * 256.0).round() as usize;
        table[from..to].fill(s.size.0 as u32);
        from = to;
    }
    Ok(table)
}

impl Client {
    /// Creates a client on a volume of the given size. Different streams of one seed are independent.
    pub fn new(
        spec: &ClientSpec,
        volume: Bytes,
        seed: u64,
        stream: u64,
    ) -> Result<Self, ClientError> {
        let base = match &spec.preset {
            None => spec.habits.clone(),
            Some(name) => {
                let preset = crate::presets::client_preset(name).ok_or_else(|| ClientError {
                    key: "preset".into(),
                    why: format!(
                        "unknown workload \"{name}\"; known: {}",
                        crate::presets::client_preset_names()
                    ),
                })?;
                spec.habits.over(&preset.habits())
            }
        };
        let mut modes = vec![base.mode(volume.0, "habits.")?];
        let mut phases = Vec::new();
        for (i, phase) in spec.phases.iter().enumerate() {
            if phase.duration < Nanos::from_millis(1) {
                return Err(ClientError {
                    key: format!("phases[{i}].duration"),
                    why: "must be at least 1ms".into(),
                });
            }
            modes.push(
                phase
                    .habits
                    .over(&base)
                    .mode(volume.0, &format!("phases[{i}].habits."))?,
            );
            phases.push(PhaseMode {
                length_ns: phase.duration.0,
                mode: modes.len() - 1,
                idle: phase.idle,
            });
        }
        if phases.is_empty() {
            phases.push(PhaseMode {
                length_ns: u64::MAX / 4,
                mode: 0,
                idle: false,
            });
        }
        if let Some(b) = &spec.bursts {
            let fits =
                b.every >= Nanos::from_millis(1) && b.length <= b.every && b.length > Nanos::ZERO;
            if !(fits && b.factor > 0.0 && b.factor <= 1000.0) {
                let why = "length must be at most every, every at least 1ms, and factor above 0 and at most 1000".into();
                return Err(ClientError {
                    key: "bursts".into(),
                    why,
                });
            }
        }
        let factor = spec.bursts.map_or(1.0, |b| b.factor.max(1.0));
        let most = modes.iter().map(|m| m.slots).max().unwrap_or(1);
        let slots = (f64::from(most) * factor).ceil();
        if slots > f64::from(SLOTS_MAX) {
            let why =
                format!("{slots} requests in flight in a burst exceed the limit of {SLOTS_MAX}");
            return Err(ClientError {
                key: "bursts.factor".into(),
                why,
            });
        }
        let cycle_ns = phases.iter().map(|p| p.length_ns).sum();
        Ok(Self {
            modes,
            phases,
            cycle_ns,
            bursts: spec.bursts,
            volume_bytes: volume.0,
            rng: Rng::new(seed, stream),
            think: JitterTable::exponential(),
            sequential: 0,
            next_token_ns: 0.0,
            reserved: vec![false; slots as usize].into(),
            segment_end_ns: 0,
            mode: 0,
            slots_now: 0,
            gap_ns: 0.0,
        })
    }

    /// Returns the number of slots. Each is ready at time 0.
    pub fn slots(&self) -> u32 {
        self.reserved.len() as u32
    }

    /// Returns the action of slot `slot`, which is ready at `now_ns`. Times must not decrease from call to call.
    #[inline]
    pub fn next(&mut self, now_ns: u64, slot: u32) -> ClientStep {
        if now_ns >= self.segment_end_ns {
            self.enter_segment(now_ns);
        }
        if slot >= self.slots_now {
            self.reserved[slot as usize] = false;
            return ClientStep::Later(self.segment_end_ns);
        }
        if self.gap_ns > 0.0 && !std::mem::take(&mut self.reserved[slot as usize]) {
            let now = now_ns as f64;
            // A client that is late may catch up by as many requests as it has slots.
            let token = self
                .next_token_ns
                .max(now - self.gap_ns * f64::from(self.slots_now));
            self.next_token_ns = token + self.gap_ns;
            if token > now {
                self.reserved[slot as usize] = true;
                return ClientStep::Later((token as u64).max(now_ns + 1));
            }
        }
        ClientStep::Issue(self.request())
    }

    #[inline]
    fn request(&mut self) -> ClientRequest {
        let mode = &self.modes[self.mode];
        let bits = self.rng.next_u64();
        let op = if (bits & 0xFFFF) < mode.reads {
            Op::Read
        } else {
            Op::Write
        };
        let length = mode.sizes[(bits >> 16 & 0xFF) as usize];
        let last = self.volume_bytes - u64::from(length);
        let offset = if (bits >> 24 & 0xFFFF) < mode.randoms {
            (mode.popularity.page(self.rng.next_u64()) * ALIGN).min(last / ALIGN * ALIGN)
        } else {
            let at = if self.sequential > last {
                0
            } else {
                self.sequential
            };
            self.sequential = at + u64::from(length);
            at
        };
        ClientRequest { op, offset, length }
    }

    /// Returns the time from a completion to the slot's next request.
    #[inline]
    pub fn think_ns(&mut self) -> u64 {
        let mode = &self.modes[self.mode];
        if mode.think_ns == 0.0 {
            0
        } else if mode.think_random {
            (mode.think_ns * self.think.factor(self.rng.next_u64())) as u64
        } else {
            mode.think_ns as u64
        }
    }

    /// Returns the number of requests that the client would have issued by `now_ns` if all replies had arrived. With
    /// think time it is not late. Without a rate, each slot has its next request ready.
    pub fn behind(&self, now_ns: u64) -> u64 {
        let mode = &self.modes[self.mode];
        let slots = u64::from(self.slots_now);
        if mode.think_ns > 0.0 || slots == 0 {
            return 0;
        }
        if self.gap_ns <= 0.0 {
            return slots;
        }
        // The client may catch up by as many requests as it has slots.
        let late_ns = now_ns as f64 - self.next_token_ns;
        if late_ns <= 0.0 {
            return 0;
        }
        (1 + (late_ns / self.gap_ns) as u64).min(slots)
    }

    #[cold]
    fn enter_segment(&mut self, now_ns: u64) {
        let mut at = now_ns % self.cycle_ns;
        let phase = self
            .phases
            .iter()
            .find(|p| {
                let inside = at < p.length_ns;
                if !inside {
                    at -= p.length_ns;
                }
                inside
            })
            .expect("the phases fill the cycle");
        self.mode = phase.mode;
        let mode = &self.modes[phase.mode];
        let mut end = now_ns.saturating_add(phase.length_ns - at);
        let mut factor = 1.0;
        if let Some(b) = &self.bursts {
            let within = now_ns % b.every.0;
            let burst = within < b.length.0;
            factor = if burst { b.factor } else { 1.0 };
            end = end.min(now_ns - within + if burst { b.length.0 } else { b.every.0 });
        }
        self.segment_end_ns = end;
        self.slots_now = if phase.idle {
            0
        } else {
            ((f64::from(mode.slots) * factor).round() as u32).max(1)
        };
        self.gap_ns = mode.gap_ns / factor;
    }
}
