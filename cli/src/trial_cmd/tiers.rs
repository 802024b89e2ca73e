//! Assumed tiers of a host: as given by the user, or guessed from pools and their devices.

use std::path::Path;

use agent::{FoundPlace, PlacesOf, TierOf, medium_of, probe};
use anyhow::{anyhow, bail};
use report::trial::{PlaceSeen, TrialTier};

use crate::live::message;

/// Places with the same preset belong to the same tier if their read latencies differ by less than this factor.
const ALIKE: f64 = 1.5;
/// Possible presets of a device of an unknown kind; its read latency selects one.
const KINDS: [&str; 3] = ["nvme-tlc", "sas-ssd", "sata-ssd"];
/// Assumed preset of a tier about whose places nothing is known.
const UNKNOWN: &str = "sata-ssd";

/// Probing of places by reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Places are not read.
    Off,
    /// A few blocks of each place are read.
    ALittle,
}

/// Examines a place. Returns the findings and the assumed preset: `guess`, unless the kind of the device is unknown and its read latency
/// was measured.
fn seen(path: &str, guess: &'static str, reading: Reading) -> (PlaceSeen, &'static str) {
    let path = Path::new(path);
    let medium = medium_of(path);
    let device = medium.map_or("no block device".into(), |m| m.to_string());
    let mut seen = PlaceSeen {
        device: Some(device),
        ..PlaceSeen::default()
    };
    if reading == Reading::ALittle {
        match probe(path) {
            Ok(probed) => (seen.read_us, seen.reads) = (Some(probed.median_us), probed.reads),
            Err(why) => seen.not_read = Some(why.to_string()),
        }
    }
    let preset = match seen.read_us {
        Some(us) if !medium.is_some_and(|m| m.is_known()) => nearest(us),
        _ => guess,
    };
    (seen, preset)
}

/// Returns the findings for a storage that is not a directory, which is not read.
fn of_kind(kind: &str) -> PlaceSeen {
    PlaceSeen {
        device: Some(kind.into()),
        ..PlaceSeen::default()
    }
}

fn preset_us(preset: &str) -> Option<f64> {
    let preset = model::PRESETS.iter().find(|p| p.name == preset);
    preset.map(|p| p.spec().read_latency.as_micros_f64())
}

/// Returns the preset with the nearest read latency, by ratio.
fn nearest(read_us: f64) -> &'static str {
    let ratio = |preset: &str| {
        let preset = preset_us(preset).expect("it is a preset");
        (read_us / preset).max(preset / read_us)
    };
    let kinds = KINDS.into_iter();
    kinds
        .min_by(|a, b| ratio(a).total_cmp(&ratio(b)))
        .expect("there are some")
}

/// Groups places to tiers by their assumed kinds of devices. Of places that share their space only the one with the most images is used,
/// because the space would count twice otherwise.
pub fn guessed(places: &[FoundPlace], reading: Reading) -> Vec<TrialTier> {
    let mut tiers: Vec<TrialTier> = vec![];
    for (n, place) in places.iter().enumerate() {
        let rank = |n: usize| (places[n].images, std::cmp::Reverse(n));
        let shares = |o: &usize| place.shares.is_some() && places[*o].shares == place.shares;
        let mut others = (0..places.len()).filter(shares);
        if let Some(other) = others.find(|o| rank(*o) > rank(n)) {
            message(&format!(
                "{} shares the space of {}, and is not used: name tiers with --tier to change that",
                place.name, places[other].name
            ));
            continue;
        }
        let at = (place.name.clone(), place.path.clone());
        let (seen, preset) = match &place.kind {
            Some(kind) => (of_kind(kind), place.guess.preset),
            None => seen(&place.path, place.guess.preset, reading),
        };
        if place.kind.is_some() {
            // The speed of the place is unknown, so it is alone in a tier, which the operator can describe.
            let name = place.name.rsplit(':').next().unwrap_or(&place.name);
            let name = free_name(name, &tiers);
            tiers.push(tier(name, preset, vec![at], vec![seen]));
            continue;
        }
        match tiers
            .iter_mut()
            .find(|t| t.preset == preset && alike(t, &seen))
        {
            Some(tier) => {
                tier.places.push(at);
                tier.found.push(seen);
            }
            None => {
                let name = free_name(preset, &tiers);
                tiers.push(tier(name, preset, vec![at], vec![seen]));
            }
        }
    }
    // Measured latency is better evidence than the name of a device. Tiers are sorted by it only if all were read.
    if tiers.iter().all(|t| read_us(t).is_some()) {
        tiers.sort_by(|a, b| {
            read_us(a)
                .partial_cmp(&read_us(b))
                .expect("times are numbers")
        });
    }
    tiers
}

/// Returns the name, or the first name with a number that no tier has.
fn free_name(name: &str, tiers: &[TrialTier]) -> String {
    let names = (1..).map(|n| match n {
        1 => name.to_owned(),
        n => format!("{name}-{n}"),
    });
    let mut free = names.filter(|name| tiers.iter().all(|t| t.name != *name));
    free.next().expect("there are fewer tiers than numbers")
}

fn tier(
    name: String,
    preset: &str,
    places: Vec<(String, String)>,
    found: Vec<PlaceSeen>,
) -> TrialTier {
    TrialTier {
        name,
        preset: preset.into(),
        latency_times: None,
        places,
        found,
    }
}

/// Returns the median of the read latencies of the tier's places; `None` if none was read.
fn read_us(tier: &TrialTier) -> Option<f64> {
    let mut all: Vec<f64> = tier.found.iter().filter_map(|f| f.read_us).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

fn alike(tier: &TrialTier, seen: &PlaceSeen) -> bool {
    match (read_us(tier), seen.read_us) {
        (Some(a), Some(b)) => a.max(b) < ALIKE * a.min(b),
        (None, None) => true,
        _ => false,
    }
}

/// Returns the tiers as given by the user, with the findings about their places. The first place of a tier determines its preset.
pub fn as_said(
    tiers: &[TierOf],
    places: &[FoundPlace],
    reading: Reading,
) -> anyhow::Result<Vec<TrialTier>> {
    let place = |of: &PlacesOf| {
        let found = match of {
            PlacesOf::Pool(name) => places.iter().find(|p| p.name == *name),
            PlacesOf::Directory(path) => places.iter().find(|p| p.path == *path),
            PlacesOf::Export(_) => {
                return Err(anyhow!("a trial can use no exports"));
            }
            PlacesOf::Device(_) | PlacesOf::Storage(_) => {
                let name = of.to_string();
                let found = places.iter().find(|p| p.path == name);
                return Ok((name.clone(), name, found));
            }
        };
        match (of, found) {
            (_, Some(p)) => Ok((p.name.clone(), p.path.clone(), Some(p))),
            (PlacesOf::Directory(path), None) => Ok((path.clone(), path.clone(), None)),
            (_, None) => {
                let known: Vec<&str> = places.iter().map(|p| p.name.as_str()).collect();
                Err(anyhow!(
                    "no active pool or storage is named {:?}; active are: {}",
                    of.to_string(),
                    known.join(", ")
                ))
            }
        }
    };
    let made = |t: &TierOf| {
        let places: Vec<_> = t.places.iter().map(place).collect::<anyhow::Result<_>>()?;
        let looked = places.iter().map(|(_, path, found)| {
            let guess = found.map_or(UNKNOWN, |f: &FoundPlace| f.guess.preset);
            match found.and_then(|f| f.kind.as_deref()) {
                Some(kind) => (of_kind(kind), guess),
                None => seen(path, guess, reading),
            }
        });
        let (found, presets): (Vec<PlaceSeen>, Vec<&str>) = looked.unzip();
        let preset = presets.first().copied().unwrap_or(UNKNOWN);
        let places = places.into_iter().map(|(name, path, _)| (name, path));
        Ok(tier(t.name.clone(), preset, places.collect(), found))
    };
    tiers.iter().map(made).collect()
}

/// Applies the presets that the user gave, and adjusts the other tiers by their measured latency.
pub fn with_presets(
    mut tiers: Vec<TrialTier>,
    said: &[(String, String)],
) -> anyhow::Result<Vec<TrialTier>> {
    for tier in &mut tiers {
        let preset = preset_us(&tier.preset);
        tier.latency_times = read_us(tier)
            .zip(preset)
            .map(|(read, preset)| read / preset);
    }
    for (name, preset) in said {
        let Some(tier) = tiers.iter_mut().find(|t| t.name == *name) else {
            let known: Vec<&str> = tiers.iter().map(|t| t.name.as_str()).collect();
            bail!(
                "--preset: no tier is named {name:?}; tiers: {}",
                known.join(", ")
            );
        };
        tier.preset.clone_from(preset);
        tier.latency_times = None;
    }
    Ok(tiers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(read_us: Option<f64>) -> PlaceSeen {
        PlaceSeen {
            read_us,
            ..PlaceSeen::default()
        }
    }

    #[test]
    fn probe_results_separate_places_of_one_preset_and_scale_latency() {
        let at = |name: &str| vec![(name.to_owned(), name.to_owned())];
        let one = tier("a".into(), "sata-ssd", at("/a"), vec![read(Some(700.0))]);
        assert!(alike(&one, &read(Some(900.0))) && !alike(&one, &read(Some(90.0))));
        assert!(!alike(&one, &read(None)));
        let two = tier("b".into(), "sata-ssd", at("/b"), vec![read(None)]);
        let said = [("b".to_owned(), "nvme-tlc".to_owned())];
        let tiers = with_presets(vec![one, two], &said).unwrap();
        assert_eq!(tiers[0].latency_times, Some(5.0));
        assert_eq!(
            (tiers[1].preset.as_str(), tiers[1].latency_times),
            ("nvme-tlc", None)
        );
        // A preset that the user gave is not adjusted.
        let said = [("a".to_owned(), "nvme-tlc".to_owned())];
        assert_eq!(
            with_presets(tiers.clone(), &said).unwrap()[0].latency_times,
            None
        );
        let said = [("c".to_owned(), "nvme-tlc".to_owned())];
        assert!(with_presets(tiers, &said).is_err());
    }

    #[test]
    fn places_with_shared_space_count_once_by_the_one_with_images() {
        let place = |name: &str, shares: &str, images| FoundPlace {
            name: name.into(),
            path: name.into(),
            shares: Some(shares.into()),
            images,
            kind: Some("a disk".into()),
            guess: vmhost::guessed(vmhost::Medium {
                transport: vmhost::Transport::Unknown,
                rotational: None,
            }),
        };
        let places = [
            place("Downloads", "a", 0),
            place("default", "a", 3),
            place("lvm:tank", "b", 1),
            place("zfs:tank", "c", 1),
            place("zfs:tank/other", "c", 1),
        ];
        let tiers = guessed(&places, Reading::Off);
        let names: Vec<_> = tiers.iter().map(|t| (&*t.name, &*t.places[0].0)).collect();
        assert_eq!(
            names,
            [
                ("default", "default"),
                ("tank", "lvm:tank"),
                ("tank-2", "zfs:tank")
            ]
        );
    }
}
