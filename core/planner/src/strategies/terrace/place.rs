//! Predictions for a volume that does not exist yet: its violations on every device and the additional violations of others,
//! by the costs with which moves are judged.

use units::DeviceId;

use super::history::{DEPTH_MIN, Sample};
use super::latency::{DeviceLoad, Latency, Use};
use super::learned::DeviceNow;
use super::rates::Aim;
use super::residuals::{Cell, Regime};
use super::search::Search;
use crate::{DeviceOption, PlaceCost, PlaceRequest};

/// Returns every device as a place for the volume.
pub(super) fn options(
    search: &Search<'_>,
    now: &[DeviceNow],
    request: &PlaceRequest,
) -> Vec<DeviceOption> {
    let devices = now.iter().enumerate();
    devices
        .map(|(d, now)| option(search, now, request, d))
        .collect()
}

fn option(search: &Search<'_>, seen: &DeviceNow, request: &PlaceRequest, d: usize) -> DeviceOption {
    let forecast = &search.forecast;
    let facts = forecast.facts;
    let spec = &facts.topology.devices[d].spec;
    let load = Sample::of(facts.epoch, &request.load).load();
    let depth = request.load.outstanding.max(DEPTH_MIN);
    let own_use = Use::of(spec, &load, depth, forecast.factors[d]);
    let p = forecast.newest();
    let there = &search.at.on[d].volumes;
    let uses = there.iter().map(|v| forecast.use_at(*v, d, p));
    // Use of the device without a known volume; the use by copies ends soon and is left out.
    let known: f64 = uses.clone().map(|u| u.share).sum();
    let unknown = match seen.disturbed {
        true => 0.0,
        false => (seen.busy.rho - known).max(0.0),
    };
    let now = DeviceLoad::of(uses.clone(), unknown);
    let after = DeviceLoad::of(uses.chain([own_use]), unknown);
    let arrivals = search.learned.arrivals(None);
    let modelled = |b: &DeviceLoad| Latency::of(spec, &load, b.rho, b.wait(&own_use, &arrivals));
    let model = modelled(&after);
    let latency = model.times(forecast.slower[d]);
    let latency = forecast
        .floors
        .raised((d, p), spec, &load, latency, &model, modelled);
    let mean_us = latency.mean_us;
    let (mut own, mut latency_us, mut range_us) = (0.0, None, None);
    if load.total() > 0.0 && mean_us > 0.0 {
        let aim = Aim::of(&facts.classes[request.class.index()]);
        let rates = &search.config.rates;
        let sigma = forecast.sigma_there;
        own = rates
            .cost(&aim, &latency, 0.0, sigma, load.total(), 0.0)
            .sum();
        latency_us = Some(mean_us);
        let cell = Cell {
            tier: facts
                .topology
                .tier(facts.topology.devices[d].tier)
                .name
                .clone(),
            regime: Regime::of(after.rho, 0.0),
            faster: true,
        };
        let (low, high) = search.learned.factors(&cell);
        range_us = Some((mean_us * low, mean_us * high));
    }
    let harm = |v: &usize| forecast.cost(*v, d, p, &after).0 - forecast.cost(*v, d, p, &now).0;
    DeviceOption {
        device: DeviceId::from_index(d),
        cost: PlaceCost {
            own,
            others: Some(
                there.iter().map(harm).sum::<f64>().max(0.0) + search.reserve_rate(d, request.size),
            ),
        },
        latency_us,
        range_us,
        use_after: after.rho,
    }
}
