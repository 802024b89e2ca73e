//! Placement advice for a volume that does not exist yet, from the facts of the last decision.

use std::panic::{AssertUnwindSafe, catch_unwind};

use model::{Facts, MeasuredLoad, NO_CLASS, Policy, Rejection, TierState};
use planner::{GuessedOf, KnownLoad, PlaceAdvice, PlaceRequest, PlaceVerdict, TierAdvice};
use units::{Bytes, ClassId};

use super::host::Host;
use super::{Controller, facts};
use crate::question::{PlaceQuestion, Refusal};
use crate::view::{
    HostState, PlaceCostView, PlaceLoadView, PlaceStanding, PlaceTierView, PlaceView,
};

/// Utilization above which the load of a volume may be lower than its demand.
const BUSY: f64 = 0.93;

/// Assumed load of a volume that does not exist yet.
struct AssumedLoad {
    load: MeasuredLoad,
    /// Origin of the load, as text.
    note: String,
}

impl Controller {
    /// Returns the best place for a new volume.
    ///
    /// # Errors
    /// The host, the class or the load is unknown, or the host's agent is late.
    pub(super) fn place(&self, asked: &PlaceQuestion) -> Result<PlaceView, Refusal> {
        if asked.size == Bytes::ZERO {
            return Err(Refusal::Invalid("the size of a volume cannot be 0".into()));
        }
        let like = asked.like.as_deref();
        let like = like.map(|like| self.volume_of(asked.host.as_deref(), like));
        let like = like.transpose()?;
        let name = match (&like, asked.host.as_deref()) {
            (Some((host, _)), None) => host.clone(),
            (_, host) => self.host_named(host)?,
        };
        let host = &self.hosts[&name];
        let mut facts = self.facts_now(host)?;
        let class = class_named(&facts, asked.class.as_deref().unwrap_or(NO_CLASS))?;
        let expected = match &like {
            Some((_, volume)) => load_of(&facts, volume)?,
            None => guessed(host, &facts, class, asked.size)?,
        };
        let policy = self
            .policy_for(host, &facts)
            .map_err(|why| Refusal::Conflict(format!("no advice for {name}: {why}")))?;
        take_space_of(host, &mut facts);
        let request = PlaceRequest {
            size: asked.size,
            class,
            load: expected.load,
        };
        let advice = self.advised(host, &facts, &policy, &request)?;
        let tiers = advice.tiers.iter();
        let tiers = tiers
            .map(|t| self.place_tier(host, &facts, &advice, t))
            .collect();
        let best = advice.best().map(|t| facts.topology.tier(t.tier));
        let mut notes = vec![expected.note];
        notes.extend(best.and_then(|tier| promised(host, &tier.name, asked.size)));
        Ok(PlaceView {
            host: name,
            strategy: advice.strategy,
            at_ns: facts.at.0,
            size_bytes: asked.size.0,
            class: facts.classes[class.index()].name.clone(),
            like: like.map(|(_, volume)| volume),
            load: load_view(&request.load),
            tier: best.map(|tier| tier.name.clone()),
            reason: advice.reason.clone(),
            why_not: advice.why_not.clone(),
            tiers,
            notes,
        })
    }

    /// Host and name of a volume, whose name may contain the host.
    fn volume_of(&self, host: Option<&str>, volume: &str) -> Result<(String, String), Refusal> {
        let (found, v) = match host {
            Some(host) => {
                let host = self.host_named(Some(host))?;
                let bare = volume.strip_prefix(&format!("{host}/")).unwrap_or(volume);
                self.volume_named(&format!("{host}/{bare}"))?
            }
            None => self.volume_named(volume)?,
        };
        Ok((found.name.clone(), v.name.clone()))
    }

    /// Facts of the last decision about a host, unless they are outdated.
    fn facts_now(&self, host: &Host) -> Result<Facts, Refusal> {
        let name = &host.name;
        if self.state_of(host) != HostState::Live {
            let why = format!("the agent of {name} does not report: its facts are old");
            return Err(Refusal::Conflict(why));
        }
        let facts = host.facts.clone().ok_or_else(|| {
            let why = match &host.problem {
                Some(problem) => format!("no decision about {name}: {problem}"),
                None => format!(
                    "no facts about {name} yet: its first monitor epoch since the start of the controller has not ended"
                ),
            };
            Refusal::Conflict(why)
        })?;
        let report = host.report().expect("its agent reports");
        let now = facts::named_devices(&facts::topology(report, &self.settings));
        match now == host.kept.devices {
            true => Ok(facts),
            false => Err(Refusal::Conflict(format!(
                "the devices of {name} have changed: wait for the end of the monitor epoch"
            ))),
        }
    }

    /// Returns the advice of the strategy. A panic in it becomes an error.
    fn advised(
        &self,
        host: &Host,
        facts: &Facts,
        policy: &Policy,
        request: &PlaceRequest,
    ) -> Result<PlaceAdvice, Refusal> {
        let asked = catch_unwind(AssertUnwindSafe(|| {
            planner::place(&*self.strategy, facts, policy, &host.state, request)
        }));
        asked.map_err(|_| {
            let why = "the strategy panicked on the facts of this host: this is a bug in terrace";
            Refusal::Conflict(why.into())
        })
    }

    fn place_tier(
        &self,
        host: &Host,
        facts: &Facts,
        advice: &PlaceAdvice,
        row: &TierAdvice,
    ) -> PlaceTierView {
        let tier = facts.topology.tier(row.tier).name.clone();
        let (standing, verdict) = match &row.verdict {
            PlaceVerdict::Best => {
                let why = advice.reason.as_ref().map(ToString::to_string);
                (PlaceStanding::Best, why.unwrap_or_default())
            }
            PlaceVerdict::Possible => (PlaceStanding::Possible, "possible".into()),
            PlaceVerdict::NotJudged => {
                let why = advice.why_not.clone();
                let why = why.unwrap_or_else(|| "the load of the tier is unknown".into());
                (PlaceStanding::Unknown, why)
            }
            PlaceVerdict::Refused {
                by: Rejection::Cordoned,
            } => (PlaceStanding::Refused, self.why_closed(host, &tier)),
            PlaceVerdict::Refused { by } => (PlaceStanding::Refused, by.to_string()),
        };
        PlaceTierView {
            device: row
                .best
                .map(|b| facts.topology.device(b.device).name.clone()),
            latency_us: row.best.and_then(|b| b.latency_us),
            latency_range_us: row.best.and_then(|b| b.range_us),
            cost: row.best.map(|b| PlaceCostView {
                total_per_s: b.cost.total(),
                own_per_s: b.cost.own,
                others_per_s: b.cost.others,
            }),
            device_use: row.best.map(|b| b.use_after),
            free_after_bytes: row.free_after.map(|b| b.0),
            tier,
            standing,
            verdict,
        }
    }

    /// Reason for which a tier accepts no data.
    fn why_closed(&self, host: &Host, tier: &str) -> String {
        let state = self.tier_state(&host.name, tier);
        let report = host.report();
        let undescribed = report
            .is_some_and(|r| facts::undescribed(r, &self.settings).any(|t| t.as_str() == tier));
        match state {
            TierState::Draining => "the tier is being drained".into(),
            TierState::Cordoned => Rejection::Cordoned.to_string(),
            TierState::Open if undescribed => {
                "the performance of the tier is unknown: describe it in the configuration".into()
            }
            TierState::Open => "no device of the tier is reachable".into(),
        }
    }
}

/// Id of the class with a name.
fn class_named(facts: &Facts, name: &str) -> Result<ClassId, Refusal> {
    let found = facts.classes.iter().position(|c| c.name == name);
    found.map(ClassId::from_index).ok_or_else(|| {
        let names = facts.classes.iter().map(|c| c.name.as_str());
        let hint = config::suggestion(name, names);
        Refusal::NotFound(format!("unknown class {name:?}{hint}"))
    })
}

/// Load of an existing volume.
fn load_of(facts: &Facts, name: &str) -> Result<AssumedLoad, Refusal> {
    let found = facts.volumes.iter().find(|v| v.name == name);
    let measured = found.and_then(|v| Some((v, v.measured?)));
    let (v, load) = measured.ok_or_else(|| {
        Refusal::Conflict(format!(
            "the load of {name} is unknown: it was not measured in the last monitor epoch"
        ))
    })?;
    let mut note = format!("load assumed: that of {name}, {}", in_words(&load));
    if facts.devices[v.device.index()].utilization > BUSY {
        note += "; its device is saturated, so the real demand may be higher";
    }
    Ok(AssumedLoad { load, note })
}

/// Estimated load of a volume of known class and size. The size is the one that guests see: space is allocated as they write.
fn guessed(
    host: &Host,
    facts: &Facts,
    class: ClassId,
    size: Bytes,
) -> Result<AssumedLoad, Refusal> {
    let report = host.report().expect("its agent reports");
    let known = facts.volumes.iter().filter_map(|v| {
        let window = report.volumes.iter().find(|w| w.name == v.name)?;
        Some(KnownLoad {
            name: &v.name,
            class: v.class,
            size: Bytes(window.size_bytes),
            load: v.measured.as_ref()?,
        })
    });
    let known: Vec<KnownLoad<'_>> = known.collect();
    let guess = planner::guess_load(&known, class, size).ok_or_else(|| {
        Refusal::Conflict(format!(
            "no volume of {} has a known load, so the load of a new volume cannot be estimated: wait for the end of a monitor epoch with load",
            host.name
        ))
    })?;
    let class = &facts.classes[class.index()].name;
    let of = match (guess.of, guess.volumes) {
        (GuessedOf::Class, 1) => format!("the only measured volume of class {class}"),
        (GuessedOf::Class, n) => format!("the median of {n} volumes of class {class}"),
        (GuessedOf::All, 1) => format!("the only measured volume; none is of class {class}"),
        (GuessedOf::All, n) => {
            format!("the median of all {n} volumes; none of class {class} is measured")
        }
    };
    let note = format!(
        "load assumed: that of {}, scaled by size ({of}), {}; --like VOLUME selects another volume",
        guess.like,
        in_words(&guess.load)
    );
    let load = guess.load;
    Ok(AssumedLoad { load, note })
}

/// Text of a load.
fn in_words(load: &MeasuredLoad) -> String {
    let view = load_view(load);
    format!(
        "{:.0} r/s and {:.0} w/s, {:.1} MiB/s",
        view.reads_per_s,
        view.writes_per_s,
        load.bytes_per_s() / (1u64 << 20) as f64
    )
}

/// Updates the used space, which may have grown since the facts were gathered.
fn take_space_of(host: &Host, facts: &mut Facts) {
    let report = host.report().expect("its agent reports");
    let devices = facts.topology.devices.iter().zip(&mut facts.devices);
    for (device, now) in devices {
        let window = report.devices.iter().find(|d| d.name == device.name);
        if let Some(window) = window {
            now.used = Bytes(window.used_bytes);
        }
    }
}

/// Note if the volumes of a tier, with a new one of this size, are larger than the tier.
fn promised(host: &Host, tier: &str, size: Bytes) -> Option<String> {
    let report = host.report()?;
    let at_home = report.volumes.iter().filter(|v| v.home == tier);
    let promised = Bytes(at_home.map(|v| v.size_bytes).sum::<u64>()) + size;
    let of_tier = report.devices.iter().filter(|d| d.tier == tier);
    let there = Bytes(of_tier.map(|d| d.size_bytes).sum());
    let gib = |b: Bytes| b.as_f64() / (1u64 << 30) as f64;
    (promised > there).then(|| {
        format!(
            "volumes of {tier} would have a total size of {:.1} GiB on a capacity of {:.1} GiB: space is allocated as guests write",
            gib(promised),
            gib(there)
        )
    })
}

fn load_view(load: &MeasuredLoad) -> PlaceLoadView {
    let seconds = load.window.as_secs_f64();
    PlaceLoadView {
        reads_per_s: load.reads.ios as f64 / seconds,
        writes_per_s: load.writes.ios as f64 / seconds,
        read_bytes_per_s: load.reads.bytes as f64 / seconds,
        write_bytes_per_s: load.writes.bytes as f64 / seconds,
    }
}
