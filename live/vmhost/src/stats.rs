//! List of domains, and the counters of their disks.

use crate::HostError;

/// Line of `virsh list --uuid --id --name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedDomain {
    /// Permanent identifier of the domain.
    pub uuid: String,
    /// Number that differs for each start; `None` if the domain does not run.
    pub id: Option<u32>,
    pub name: String,
}

/// Parses the lines of `virsh list --uuid --id --name`.
///
/// # Errors
/// The fault, with its line.
pub fn listed(text: &str) -> Result<Vec<ListedDomain>, HostError> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, l)| !l.trim().is_empty());
    let read = |(n, line): (usize, &str)| {
        let fault = |why: &str| HostError::Line {
            what: "list of domains",
            line: n + 1,
            why: format!("{why}: {line:?}"),
        };
        let line = line.trim();
        let (uuid, rest) = line
            .split_once(char::is_whitespace)
            .ok_or_else(|| fault("UUID, id or name is missing"))?;
        let (id, name) = rest
            .trim_start()
            .split_once(char::is_whitespace)
            .ok_or_else(|| fault("UUID, id or name is missing"))?;
        let id = match id {
            "-" => None,
            id => Some(id.parse().map_err(|_| fault("the id is not a number"))?),
        };
        Ok(ListedDomain {
            uuid: uuid.into(),
            id,
            name: name.trim().into(),
        })
    };
    lines.map(read).collect()
}

/// Counters of a domain's disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainStats {
    /// Name of the domain.
    pub domain: String,
    /// Counters of its disks.
    pub blocks: Vec<BlockStats>,
}

/// Counters of one direction: requests, bytes and total time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Direction {
    /// Completed requests.
    pub requests: u64,
    pub bytes: u64,
    /// Sum of the times of all requests in nanoseconds.
    pub time_ns: u64,
}

/// Counters of one image of a disk since the start of its domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockStats {
    /// Name of the disk, such as `vda`.
    pub target: String,
    /// Path of its file or block device.
    pub path: Option<String>,
    /// Reads; `None` if QEMU did not report them.
    pub reads: Option<Direction>,
    pub writes: Option<Direction>,
    /// Flushes; they have no bytes.
    pub flushes: Option<Direction>,
    /// Bytes that the guest sees.
    pub capacity: Option<u64>,
    /// Bytes that the image occupies.
    pub physical: Option<u64>,
    /// Requests by latency; `None` without a histogram.
    pub latencies: Option<Latencies>,
}

/// Requests by bucket of the latency histogram (`algo::bucket_value_ns`), ascending, without empty buckets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latencies {
    pub reads: Vec<(u16, u64)>,
    /// Writes and flushes.
    pub writes: Vec<(u16, u64)>,
}

/// Parses the output of `virsh domstats --block --raw`. Unknown keys are ignored, because new versions add keys.
///
/// # Errors
/// The fault, with its line.
pub fn domain_stats(text: &str) -> Result<Vec<DomainStats>, HostError> {
    let mut domains: Vec<DomainStats> = vec![];
    for (n, line) in text.lines().enumerate() {
        let fault = |why: String| HostError::Line {
            what: "statistics of domains",
            line: n + 1,
            why,
        };
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix("Domain: '") {
            let name = name
                .strip_suffix('\'')
                .ok_or_else(|| fault(format!("{line:?} has no closing quote")))?;
            domains.push(DomainStats {
                domain: name.into(),
                blocks: vec![],
            });
            continue;
        }
        let Some(domain) = domains.last_mut() else {
            return Err(fault(format!("{line:?} does not belong to a domain")));
        };
        let (key, value) = line
            .split_once('=')
            .ok_or_else(|| fault(format!("{line:?} is not key=value")))?;
        let Some((index, key)) = key.strip_prefix("block.").and_then(|k| k.split_once('.')) else {
            continue;
        };
        let Ok(index) = index.parse::<usize>() else {
            continue;
        };
        if index > domain.blocks.len() {
            return Err(fault(format!(
                "block {index} comes before block {}",
                domain.blocks.len()
            )));
        }
        if index == domain.blocks.len() {
            domain.blocks.push(BlockStats::default());
        }
        take(&mut domain.blocks[index], key, value, fault)?;
    }
    Ok(domains)
}

fn take(
    block: &mut BlockStats,
    key: &str,
    value: &str,
    fault: impl Fn(String) -> HostError,
) -> Result<(), HostError> {
    let number = || {
        value
            .parse::<u64>()
            .map_err(|_| fault(format!("{key} is not a number: {value:?}")))
    };
    match key {
        "name" => block.target = value.into(),
        "path" => block.path = Some(value.into()),
        "capacity" => block.capacity = Some(number()?),
        "physical" => block.physical = Some(number()?),
        _ => {
            let Some((direction, what)) = key.split_once('.') else {
                return Ok(());
            };
            let of = match direction {
                "rd" => &mut block.reads,
                "wr" => &mut block.writes,
                "fl" => &mut block.flushes,
                _ => return Ok(()),
            };
            let of = of.get_or_insert_default();
            match what {
                "reqs" => of.requests = number()?,
                "bytes" => of.bytes = number()?,
                "times" => of.time_ns = number()?,
                _ => {}
            }
        }
    }
    Ok(())
}
