//! Parser of the tenants of `terrace sim ssd` on the command line.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use flash::drive::Op;
use flash::host::{Load, RecordedRequest, Slo, TenantPlan};
use model::Op as Kind;
use trace::ReadOptions;
use units::{Bytes, BytesPerSec, Nanos};

/// Largest number of records of one trace. It limits memory, because records are kept in memory.
const RECORDS_MAX: usize = 20_000_000;

/// Parses a share: `20%` or `0.2`.
pub fn share(text: &str) -> Result<f64, String> {
    let (digits, scale) = match text.strip_suffix('%') {
        Some(digits) => (digits, 0.01),
        None => (text, 1.0),
    };
    match digits.trim().parse::<f64>() {
        Ok(x) if x.is_finite() && x > 0.0 && x * scale <= 1.0 => Ok(x * scale),
        _ => Err(format!("\"{text}\" is not a share: give 7% or 0.07")),
    }
}

/// Parses all tenants, with their sizes and, if given, their shares of device time.
pub fn plans(
    texts: &[String],
    drive: Bytes,
    by_spare_space: bool,
) -> anyhow::Result<(Vec<TenantPlan>, Vec<bool>)> {
    ensure!(
        texts.len() <= 64,
        "--tenants: {} tenants, at most 64 are allowed",
        texts.len()
    );
    let mut plans: Vec<TenantPlan> = Vec::with_capacity(texts.len());
    let mut shares_given = Vec::with_capacity(texts.len());
    for text in texts {
        let (plan, share_given) =
            plan(text, drive, by_spare_space).with_context(|| format!("tenant \"{text}\""))?;
        if plans.iter().any(|p| p.name == plan.name) {
            bail!("tenant \"{}\" is named twice", plan.name);
        }
        plans.push(plan);
        shares_given.push(share_given);
    }
    let taken: u64 = plans.iter().map(|p| p.bytes.0).sum();
    let without = plans.iter().filter(|p| p.bytes.0 == 0).count() as u64;
    if taken > drive.0 || (without > 0 && taken == drive.0) {
        bail!("tenants take {}, the drive has {drive}", Bytes(taken));
    }
    for plan in plans.iter_mut().filter(|p| p.bytes.0 == 0) {
        plan.bytes = Bytes((drive.0 - taken) / without / 4096 * 4096);
        ensure!(
            plan.bytes.0 > 0,
            "the drive has no space left for tenant \"{}\"",
            plan.name
        );
    }
    Ok((plans, shares_given))
}

fn plan(text: &str, drive: Bytes, by_spare_space: bool) -> anyhow::Result<(TenantPlan, bool)> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    ensure!(
        !name.is_empty() && name.len() <= 64,
        "give it a name: NAME:KEY=VALUE,…"
    );
    let mut plan = TenantPlan::new(name, Bytes(0), Load::FileServer);
    let (mut load, mut depth, mut time_share) = (None, None, None);
    for part in rest.split(',').filter(|p| !p.is_empty()) {
        let (key, value) = part
            .split_once('=')
            .with_context(|| format!("\"{part}\" is not KEY=VALUE"))?;
        match key {
            "weight" => plan.weight = positive(key, value)?,
            "share" => time_share = Some(positive(key, value)?),
            "size" => plan.bytes = size(value, drive)?,
            "load" => load = Some(value.parse::<Load>()?),
            "trace" => load = Some(recorded(Path::new(value))?),
            "depth" => depth = Some(whole(key, value, 4096)?),
            "rate" => plan.rate = Some(positive(key, value)?),
            "iops" => plan.slo = Slo::Iops(positive(key, value)?),
            "bandwidth" => {
                let rate: BytesPerSec = value.parse().with_context(|| key.to_owned())?;
                ensure!(rate.0 > 0, "bandwidth=0 is not an objective");
                plan.slo = Slo::BytesPerSecond(rate.0 as f64);
            }
            "ops" => plan.spare_share = share(value).map_err(anyhow::Error::msg)?,
            "from" => plan.comes = value.parse::<Nanos>().with_context(|| key.to_owned())?,
            "to" => plan.goes = Some(value.parse::<Nanos>().with_context(|| key.to_owned())?),
            _ => bail!(
                "unknown key \"{key}\": known keys are load, trace, size, weight, depth, rate, iops, bandwidth, ops, share, from and to"
            ),
        }
    }
    ensure!(
        plan.goes.is_none_or(|goes| goes > plan.comes),
        "to= is before from="
    );
    ensure!(
        plan.rate.is_none() || depth.is_none(),
        "rate= and depth= exclude each other"
    );
    plan.load = load.context("load= or trace= is missing")?;
    let own_times = matches!(plan.load, Load::Recorded(_));
    plan.depth = depth.unwrap_or(if own_times { 0 } else { 16 });
    plan.time_share = time_share.unwrap_or(if by_spare_space { 1.0 } else { plan.weight });
    Ok((plan, time_share.is_some()))
}

fn positive(key: &str, value: &str) -> anyhow::Result<f64> {
    let number: f64 = value.parse().with_context(|| format!("{key}={value}"))?;
    ensure!(
        (1e-6..=1e9).contains(&number),
        "{key}={value} is outside 0.000001..=1000000000"
    );
    Ok(number)
}

fn whole(key: &str, value: &str, most: u32) -> anyhow::Result<u32> {
    let number: u32 = value.parse().with_context(|| format!("{key}={value}"))?;
    ensure!(
        (1..=most).contains(&number),
        "{key}={value} is outside 1..={most}"
    );
    Ok(number)
}

fn size(value: &str, drive: Bytes) -> anyhow::Result<Bytes> {
    let bytes = match value.strip_suffix('%') {
        Some(_) => {
            (share(value).map_err(anyhow::Error::msg)? * drive.as_f64()) as u64 / 4096 * 4096
        }
        None => value.parse::<Bytes>().context("size")?.0,
    };
    ensure!(bytes > 0, "size={value} must be above 0");
    Ok(Bytes(bytes))
}

fn recorded(path: &Path) -> anyhow::Result<Load> {
    let loaded = trace::load(path, &ReadOptions::default())
        .with_context(|| format!("cannot read trace {}", path.display()))?;
    let records = loaded.records();
    if records.len() > RECORDS_MAX {
        bail!(
            "{} has {} records, at most {RECORDS_MAX} are kept in memory: take a part with terrace trace sample",
            path.display(),
            records.len()
        );
    }
    let requests: Arc<[RecordedRequest]> = records
        .iter()
        .filter_map(|r| {
            let op = match r.op() {
                Kind::Read => Op::Read,
                Kind::Write => Op::Write,
                Kind::Trim => Op::Trim,
                Kind::Flush => return None,
            };
            Some(RecordedRequest {
                at_ns: r.time_ns,
                op,
                offset: r.offset_bytes,
                bytes: r.length_bytes,
            })
        })
        .collect();
    ensure!(
        requests.iter().any(|r| r.op != Op::Trim),
        "{} has no reads and no writes",
        path.display()
    );
    Ok(Load::Recorded(requests))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVE: Bytes = Bytes(1 << 30);

    fn read(texts: &[&str]) -> Result<Vec<TenantPlan>, String> {
        let texts: Vec<String> = texts.iter().map(|t| (*t).to_owned()).collect();
        plans(&texts, DRIVE, false)
            .map(|(plans, _)| plans)
            .map_err(|e| format!("{e:#}"))
    }

    #[test]
    fn tenant_options_parse_with_defaults() {
        let all = read(&[
            "a:weight=5,size=20%,load=random-write-32k,iops=30",
            "b:load=zipf,rate=100,from=5s,to=1m,share=2",
            "c:load=sequential,depth=4,ops=3%,bandwidth=20 MiB/s",
        ])
        .unwrap();
        assert_eq!(all[0].bytes, Bytes((1 << 30) / 5 / 4096 * 4096));
        assert_eq!(
            (all[0].weight, all[0].time_share, all[0].depth),
            (5.0, 5.0, 16)
        );
        assert_eq!(all[0].slo, Slo::Iops(30.0));
        assert_eq!(all[1].bytes, all[2].bytes);
        assert_eq!((all[1].rate, all[1].time_share), (Some(100.0), 2.0));
        assert_eq!((all[2].depth, all[2].spare_share), (4, 0.03));
        assert_eq!(all[2].slo, Slo::BytesPerSecond((20 << 20) as f64));
    }

    #[test]
    fn invalid_tenant_options_are_refused_with_the_reason() {
        for (texts, want) in [
            (&["a"][..], "load= or trace= is missing"),
            (&[":load=zipf"], "give it a name"),
            (&["a:load=zipf,x=1"], "unknown key \"x\""),
            (&["a:load=storm"], "unknown load \"storm\""),
            (&["a:load=zipf,weight=-1"], "weight=-1 is outside"),
            (&["a:load=zipf,weight=nan"], "weight=nan is outside"),
            (&["a:load=zipf,size=150%"], "is not a share"),
            (&["a:load=zipf,rate=1,depth=1"], "exclude each other"),
            (&["a:load=zipf,from=5s,to=2s"], "to= is before from="),
            (&["a:load=zipf", "a:load=zipf"], "named twice"),
            (
                &["a:load=zipf,size=2 GiB"],
                "tenants take 2 GiB, the drive has 1 GiB",
            ),
            (&["a:trace=/nowhere/at all"], "cannot read trace"),
        ] {
            let text = read(texts).unwrap_err();
            assert!(text.contains(want), "{texts:?}: {text}");
        }
    }
}
