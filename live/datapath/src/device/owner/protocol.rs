//! Protocol by which a server becomes the owner of a remote device and stays it; sans-io. The
//! driver carries out each [`Action`] and returns its result as an [`Event`].
//!
//! NBD has no atomic compare-and-write. Servers therefore agree on the owner with reads, writes and
//! time, as in ZFS's multihost protection and in sanlock. The device has two places for claims: the
//! owner's and a contender's.
//!
//! ```text
//!  owner's claim                     the server
//!  ────────────────────────────────  ────────────────────────────────────────────────────────
//!  released by this array directory  writes the owner's claim; owns the device if there is no
//!                                    contender, else after WAIT_NS of heartbeats
//!  released by another directory,    contends: writes the contender's claim, watches the
//!  or none; left by this directory;  owner's for WAIT_NS, then owns the device unless one of
//!  left by any one, with force       the two claims changed
//!  left by another directory         watches for WAIT_NS, then is refused
//!
//!  owner: heartbeat ─▶ confirmed: lease of LEASE_NS ─▶ sleep ─▶ heartbeat …
//!                  └─▶ not confirmed in time: no writes; claims again as after an orderly stop,
//!                      and compares the superblock
//! ```
//!
//! # At most one owner
//!
//! 1. A lease ends [`LEASE_NS`] after the *start* of its heartbeat. A heartbeat that takes longer
//!    than [`BEAT_LIMIT_NS`] is not confirmed. A contender takes over only after the owner's claim
//!    has not changed for [`WAIT_NS`] ≥ LEASE_NS + BEAT_LIMIT_NS. By then every confirmed heartbeat
//!    has ended, and its lease too.
//! 2. A server that owns without waiting, or again after its lease ended, writes the owner's claim
//!    and then reads the contender's. A contender writes its claim and then reads the owner's. In
//!    any order of these requests at least one server sees the other (Dekker's algorithm). A server
//!    that sees a contender gets no lease until its heartbeats have been confirmed for [`WAIT_NS`].
//! 3. Of several contenders only the last one to write can win. Each contender reads the
//!    contender's claim again after WAIT_NS, and then has [`BEAT_LIMIT_NS`] to write the owner's
//!    claim.
//! 4. A claim of a former owner that is carried out late has an older generation. The owner then
//!    writes its own claim again.
//! 5. A server without a lease gets one only if the superblock is the one that it knows. An owner
//!    stamps the superblock before it writes data.

use super::claim::{Claim, ClaimContent, ClaimState};
use super::refusal::{OtherServer, Refusal};

/// Time between two heartbeats, in nanoseconds. It leaves time for a few small requests to a busy
/// server. A start after a crash waits for three intervals.
pub(crate) const INTERVAL_NS: u64 = 2_000_000_000;

/// Length of a lease, from the start of its heartbeat.
pub(crate) const LEASE_NS: u64 = 2 * INTERVAL_NS;

/// Time limit of a heartbeat, and of the last step of a take-over.
pub(crate) const BEAT_LIMIT_NS: u64 = INTERVAL_NS / 2;

/// Time after which an unchanged claim has no owner. It is longer than the lease and the limit of a
/// heartbeat together. The rest is for writes of the former owner that are in transit.
pub(crate) const WAIT_NS: u64 = LEASE_NS + BEAT_LIMIT_NS + INTERVAL_NS / 4;

// A start waits for three intervals at most.
const _: () = assert!(WAIT_NS + INTERVAL_NS / 4 <= 3 * INTERVAL_NS);

/// Time between two reads of a watched claim.
const LOOK_NS: u64 = INTERVAL_NS / 8;

/// Place of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Owner,
    Contender,
}

/// Request of the protocol to its driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Read(Place),
    /// Write a claim, or zeroes for `None`.
    Write {
        place: Place,
        claim: Option<Claim>,
        durable: bool,
    },
    /// Compare the superblock with the one that was read at the opening or written since.
    CompareSuperblock,
    /// Set the end of the lease. The driver then calls [`Protocol::step`] at once.
    Grant {
        until_ns: u64,
    },
    Sleep {
        until_ns: u64,
    },
    Refuse(Refusal),
}

/// Result of the last action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// Start, or continuation after a grant or a sleep.
    Go,
    Read(ClaimContent),
    Written,
    /// Result of the comparison: true if the superblock is the same.
    Same(bool),
    /// The request failed or timed out. A write may still be carried out at any later time.
    Failed,
}

/// Ways in which a server may become the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Rights {
    /// True if the operator states that the last owner has ended.
    pub force: bool,
    /// True if the device is being added to an array: no claim is expected on it.
    pub new: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    /// Reads the owner's claim for the first time.
    First {
        begun_ns: u64,
    },
    /// Writes the contender's claim.
    Contends {
        first: ClaimContent,
    },
    /// Reads the owner's claim to detect a change. Without `take` the server only watches.
    Watches {
        base: ClaimContent,
        until_ns: u64,
        take: bool,
    },
    Sleeps {
        base: ClaimContent,
        until_ns: u64,
        take: bool,
    },
    /// Reads the contender's claim for the last time.
    LastContender {
        base: ClaimContent,
        begun_ns: u64,
    },
    LastOwner {
        base: ClaimContent,
        begun_ns: u64,
    },
    Takes {
        begun_ns: u64,
    },
    Confirms {
        begun_ns: u64,
    },
    /// Between two heartbeats.
    Rests,
    BeatReads {
        begun_ns: u64,
    },
    BeatWrites {
        begun_ns: u64,
    },
    BeatLooks {
        begun_ns: u64,
    },
    BeatConfirms {
        begun_ns: u64,
        held: bool,
    },
    Compares {
        begun_ns: u64,
    },
    /// Has a lease from the heartbeat begun at `begun_ns`, perhaps its first lease. With `clear`
    /// the contender's claim is erased next.
    Granted {
        begun_ns: u64,
        first: bool,
        clear: bool,
    },
    Over,
}

/// State of the protocol for one server and one device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Protocol {
    /// Own claim, as last written or about to be written.
    mine: Claim,
    rights: Rights,
    phase: Phase,
    /// End of the lease; 0 without one.
    until_ns: u64,
    /// True once a lease was granted.
    owned: bool,
    /// Start of the uninterrupted heartbeats since a contender was seen.
    probation_ns: Option<u64>,
    /// Owner id of another server that claims the device while this one has no lease, and the time
    /// when it was first seen.
    claiming: Option<(u128, u64)>,
}

impl Protocol {
    /// Creates the protocol of a server without a claim. `mine` identifies the server; its state
    /// and numbers are ignored.
    pub fn new(mine: Claim, rights: Rights) -> Self {
        Self {
            mine,
            rights,
            phase: Phase::Over,
            until_ns: 0,
            owned: false,
            probation_ns: None,
            claiming: None,
        }
    }

    /// Returns the claim as it was last written.
    pub fn mine(&self) -> &Claim {
        &self.mine
    }

    /// Starts the protocol.
    pub fn start(&mut self, now_ns: u64) -> Action {
        self.phase = Phase::First { begun_ns: now_ns };
        Action::Read(Place::Owner)
    }

    /// Takes the result of the last action, and returns the next one.
    pub fn step(&mut self, now_ns: u64, event: Event) -> Action {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        match (phase, event) {
            (Phase::Rests, _) => self.beat(now_ns),
            (
                Phase::Granted {
                    begun_ns,
                    first,
                    clear: true,
                },
                Event::Go,
            ) => {
                let clear = false;
                self.phase = Phase::Granted {
                    begun_ns,
                    first,
                    clear,
                };
                Action::Write {
                    place: Place::Contender,
                    claim: None,
                    durable: false,
                }
            }
            (Phase::Granted { first: true, .. }, _) => self.beat(now_ns),
            (Phase::Granted { begun_ns, .. }, _) => {
                self.phase = Phase::Rests;
                Action::Sleep {
                    until_ns: now_ns.max(begun_ns + INTERVAL_NS),
                }
            }
            (
                Phase::Sleeps {
                    base,
                    until_ns,
                    take,
                },
                _,
            ) if take && now_ns >= until_ns => {
                let begun_ns = now_ns;
                self.phase = Phase::LastContender { base, begun_ns };
                Action::Read(Place::Contender)
            }
            (
                Phase::Sleeps {
                    base,
                    until_ns,
                    take,
                },
                _,
            ) => {
                self.phase = Phase::Watches {
                    base,
                    until_ns,
                    take,
                };
                Action::Read(Place::Owner)
            }
            (Phase::First { begun_ns }, Event::Read(found)) => self.first(begun_ns, found),
            (Phase::Contends { first }, Event::Written) => self.watch(now_ns, first, true),
            (
                Phase::Watches {
                    base,
                    until_ns,
                    take,
                },
                Event::Read(found),
            ) => self.watched(now_ns, base, until_ns, take, found),
            (Phase::LastContender { base, begun_ns }, Event::Read(found)) => {
                if !self.is_mine(&found) {
                    return self.refuse(Refusal::Contended(named(&found)));
                }
                self.phase = Phase::LastOwner { base, begun_ns };
                Action::Read(Place::Owner)
            }
            (Phase::LastOwner { base, begun_ns }, Event::Read(found)) => {
                if found != base {
                    return self.refuse(live_or_contended(found));
                }
                let last = base.claim().map_or(0, |c| c.generation);
                self.mine.generation = last + 1;
                self.phase = Phase::Takes { begun_ns };
                self.write(ClaimState::Claiming, true)
            }
            (Phase::Takes { begun_ns }, Event::Written) => {
                self.phase = Phase::Confirms { begun_ns };
                Action::Read(Place::Owner)
            }
            (Phase::Confirms { begun_ns }, Event::Read(found)) => {
                if !self.is_mine(&found) {
                    return self.refuse(Refusal::Contended(named(&found)));
                }
                match now_ns - begun_ns > BEAT_LIMIT_NS {
                    true => self.refuse(Refusal::NoReply),
                    false => self.compare(begun_ns),
                }
            }
            (Phase::BeatReads { begun_ns }, Event::Read(found)) => {
                self.beat_read(now_ns, begun_ns, found)
            }
            (Phase::BeatWrites { begun_ns }, Event::Written) => match now_ns < self.until_ns {
                true => {
                    self.phase = Phase::BeatConfirms {
                        begun_ns,
                        held: true,
                    };
                    Action::Read(Place::Owner)
                }
                false => {
                    self.phase = Phase::BeatLooks { begun_ns };
                    Action::Read(Place::Contender)
                }
            },
            (Phase::BeatLooks { begun_ns }, Event::Read(found)) => {
                let other = found != ClaimContent::Blank && !self.is_mine(&found);
                self.probation_ns = other.then(|| self.probation_ns.unwrap_or(now_ns));
                self.phase = Phase::BeatConfirms {
                    begun_ns,
                    held: false,
                };
                Action::Read(Place::Owner)
            }
            (Phase::BeatConfirms { begun_ns, held }, Event::Read(found)) => {
                self.beat_confirmed(now_ns, begun_ns, held, found)
            }
            (Phase::Compares { begun_ns }, Event::Same(true)) => self.grant(begun_ns),
            (Phase::Compares { .. }, Event::Same(false)) if !self.owned => {
                self.refuse(Refusal::TakenOver(None))
            }
            (Phase::Over, _) => self.refuse(Refusal::NoReply),
            // A failed request or an unexpected result. A server that never had a lease is refused;
            // others retry.
            _ => self.failed(now_ns),
        }
    }

    fn is_mine(&self, found: &ClaimContent) -> bool {
        found.claim().is_some_and(|c| c.owner == self.mine.owner)
    }

    fn refuse(&mut self, why: Refusal) -> Action {
        self.until_ns = 0;
        self.phase = Phase::Over;
        Action::Refuse(why)
    }

    fn failed(&mut self, now_ns: u64) -> Action {
        if !self.owned {
            return self.refuse(Refusal::NoReply);
        }
        self.unconfirmed(now_ns)
    }

    /// Discards the heartbeat and tries another one soon.
    fn unconfirmed(&mut self, now_ns: u64) -> Action {
        self.probation_ns = self.probation_ns.map(|_| now_ns);
        self.phase = Phase::Rests;
        Action::Sleep {
            until_ns: now_ns + LOOK_NS,
        }
    }

    fn beat(&mut self, now_ns: u64) -> Action {
        self.phase = Phase::BeatReads { begun_ns: now_ns };
        Action::Read(Place::Owner)
    }

    fn first(&mut self, begun_ns: u64, found: ClaimContent) -> Action {
        let own = found.claim().is_some_and(|c| c.home == self.mine.home);
        let may = match &found {
            ClaimContent::Blank if self.rights.new => {
                self.mine.generation = 1;
                return self.assert(begun_ns);
            }
            ClaimContent::Claim(claim) if claim.state == ClaimState::Released && own => {
                self.mine.generation = claim.generation + 1;
                return self.assert(begun_ns);
            }
            ClaimContent::Blank => true,
            ClaimContent::Claim(claim) if claim.state == ClaimState::Released => true,
            _ => own || self.rights.force,
        };
        if !may {
            // The refusal reports whether the owner still runs.
            return self.watch(begun_ns, found, false);
        }
        self.phase = Phase::Contends { first: found };
        self.mine.state = ClaimState::Claiming;
        Action::Write {
            place: Place::Contender,
            claim: Some(self.mine.clone()),
            durable: true,
        }
    }

    /// Writes the claim without waiting, as heartbeats do.
    fn assert(&mut self, begun_ns: u64) -> Action {
        self.phase = Phase::BeatWrites { begun_ns };
        self.write(ClaimState::Claiming, true)
    }

    fn write(&mut self, state: ClaimState, durable: bool) -> Action {
        self.mine.state = state;
        self.mine.counter += 1;
        Action::Write {
            place: Place::Owner,
            claim: Some(self.mine.clone()),
            durable,
        }
    }

    fn watch(&mut self, now_ns: u64, base: ClaimContent, take: bool) -> Action {
        let until_ns = now_ns + WAIT_NS;
        self.phase = Phase::Watches {
            base,
            until_ns,
            take,
        };
        Action::Read(Place::Owner)
    }

    fn watched(
        &mut self,
        now_ns: u64,
        base: ClaimContent,
        until_ns: u64,
        take: bool,
        found: ClaimContent,
    ) -> Action {
        if found != base {
            return self.refuse(live_or_contended(found));
        }
        if !take && now_ns >= until_ns {
            return self.refuse(match found {
                ClaimContent::Claim(claim) => Refusal::LeftBehind(claim.into()),
                ClaimContent::Blank | ClaimContent::Damaged => Refusal::Damaged,
            });
        }
        self.phase = Phase::Sleeps {
            base,
            until_ns,
            take,
        };
        Action::Sleep {
            until_ns: until_ns.min(now_ns + LOOK_NS),
        }
    }

    fn beat_read(&mut self, now_ns: u64, begun_ns: u64, found: ClaimContent) -> Action {
        match self.judge(now_ns, &found) {
            Verdict::Write => {
                self.phase = Phase::BeatWrites { begun_ns };
                let state = match self.owned {
                    true => ClaimState::Owned,
                    false => ClaimState::Claiming,
                };
                self.write(state, false)
            }
            Verdict::Wait => self.unconfirmed(now_ns),
            Verdict::Lost => self.refuse(Refusal::TakenOver(named(&found))),
        }
    }

    fn beat_confirmed(
        &mut self,
        now_ns: u64,
        begun_ns: u64,
        held: bool,
        found: ClaimContent,
    ) -> Action {
        if !self.is_mine(&found) {
            return match self.judge(now_ns, &found) {
                Verdict::Write | Verdict::Wait => self.unconfirmed(now_ns),
                Verdict::Lost => self.refuse(Refusal::TakenOver(named(&found))),
            };
        }
        self.claiming = None;
        if now_ns - begun_ns > BEAT_LIMIT_NS {
            return self.unconfirmed(now_ns);
        }
        if held {
            return self.grant(begun_ns);
        }
        match self.probation_ns {
            Some(since_ns) if begun_ns < since_ns + WAIT_NS => {
                self.phase = Phase::Rests;
                Action::Sleep {
                    until_ns: now_ns + LOOK_NS,
                }
            }
            _ => self.compare(begun_ns),
        }
    }

    fn compare(&mut self, begun_ns: u64) -> Action {
        self.phase = Phase::Compares { begun_ns };
        Action::CompareSuperblock
    }

    fn grant(&mut self, begun_ns: u64) -> Action {
        let first = !std::mem::replace(&mut self.owned, true);
        self.until_ns = begun_ns + LEASE_NS;
        // The contender has seen the heartbeats or has stopped. Its claim is erased: the next start
        // would wait because of the claim.
        let clear = self.probation_ns.take().is_some();
        self.phase = Phase::Granted {
            begun_ns,
            first,
            clear,
        };
        Action::Grant {
            until_ns: self.until_ns,
        }
    }

    /// Decides about the content of the owner's place, for a server that owns the device or owned
    /// it.
    fn judge(&mut self, now_ns: u64, found: &ClaimContent) -> Verdict {
        let ClaimContent::Claim(claim) = found else {
            // The claim was erased, or the export is another one: the superblock will show the
            // difference.
            return Verdict::Wait;
        };
        if claim.owner == self.mine.owner || claim.generation < self.mine.generation {
            self.claiming = None;
            return Verdict::Write;
        }
        if claim.state != ClaimState::Claiming {
            return Verdict::Lost;
        }
        if now_ns < self.until_ns {
            return Verdict::Write; // its server is late and will be refused
        }
        match self.claiming {
            Some((owner, since_ns)) if owner == claim.owner => match now_ns < since_ns + WAIT_NS {
                true => Verdict::Wait,
                false => Verdict::Write, // its server has stopped
            },
            _ => {
                self.claiming = Some((claim.owner, now_ns));
                Verdict::Wait
            }
        }
    }
}

enum Verdict {
    /// Write the claim.
    Write,
    /// Do not write the claim now.
    Wait,
    Lost,
}

fn named(found: &ClaimContent) -> Option<OtherServer> {
    found.claim().cloned().map(OtherServer::from)
}

fn live_or_contended(found: ClaimContent) -> Refusal {
    match found {
        ClaimContent::Claim(claim) if claim.state == ClaimState::Owned => {
            Refusal::Live(claim.into())
        }
        ClaimContent::Claim(claim) => Refusal::Contended(Some(claim.into())),
        ClaimContent::Blank | ClaimContent::Damaged => Refusal::Contended(None),
    }
}

#[cfg(test)]
mod tests;
