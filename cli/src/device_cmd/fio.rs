//! Reader of the output of `fio --output-format=json` (fio 3.x).
//!
//! ```text
//!  fio: warnings, before the document
//!  { "fio version": "fio-3.33", "global options": {…},
//!    "jobs": [ { "jobname", "groupid", "error", "job options": {…},
//!                "read": { "total_ios", "iops", "bw_bytes", "lat_ns": { "mean" }, "clat_ns": { "mean", "percentile" } },
//!                "write": … }, … ] }
//! ```
//!
//! Jobs with the same `groupid` ran at the same time on the same device (fio starts a new group at `stonewall`), so they are
//! one load: rates and depths are added, latencies averaged over requests. Jobs of one group with different request sizes are refused,
//! because the result of each job alone is unknown.
//!
//! `lat_ns`, from the creation of a request to its completion, is the latency that a guest sees. fio can switch it off; then `clat_ns`
//! replaces it.

use std::collections::BTreeMap;

use algo::{LoadPoint, MeasuredFlow};
use anyhow::{Context, anyhow, bail, ensure};
use serde_json::{Map, Value};

/// Largest number of loads in all files together. It bounds the time of the fit; a sweep has some dozens.
pub const LOADS_MAX: usize = 2000;
/// Largest ratio of request sizes within one load.
const SIZES_ALIKE: f64 = 1.01;

/// Largest relative difference between configured and measured request size at which the configured size is used. fio counts bytes and
/// requests over slightly different times, so their quotient is some percent off at large depths.
const SIZE_NEAR: f64 = 0.05;

/// Load that fio ran.
#[derive(Debug, Clone, PartialEq)]
pub struct FioLoad {
    /// Path of the file, as given by the user.
    pub file: String,
    /// Name of the (first) job.
    pub name: String,
    /// `rw` of the job.
    pub pattern: String,
    /// Requests that fio kept in flight: iodepth times jobs; 1 per job with an engine that waits for every request.
    pub depth: u64,
    /// True if a rate or a think time limited the load in addition to the depth.
    pub paced: bool,
    /// True if I/O bypassed the page cache.
    pub direct: bool,
    /// True if the depth of a job had no effect, because its engine waits for every request.
    pub depth_ignored: bool,
    /// True if a job had several request sizes.
    pub several_sizes: bool,
    /// Length of the shortest job, seconds.
    pub runtime_s: f64,
    /// Measured rates and latencies.
    pub point: LoadPoint,
}

/// Parses the loads in the text of a file.
pub fn parse(file: &str, text: &str) -> anyhow::Result<Vec<FioLoad>> {
    let document = document(text).with_context(|| file.to_string())?;
    let root = Node {
        file,
        path: String::new(),
        value: &document,
    };
    let version = root.get("fio version")?.text()?;
    ensure!(
        version.starts_with("fio-3."),
        "{file}: fio version: {version} is not fio 3: other versions use another unit for latencies"
    );
    let global = root.options("global options")?;
    let jobs = root.get("jobs")?;
    let mut groups: BTreeMap<u64, Vec<Job>> = BTreeMap::new();
    let mut order = Vec::new();
    for (i, _) in jobs.list()?.iter().enumerate() {
        let (group, job) = job(&jobs.item(i), &global)?;
        if !order.contains(&group) {
            order.push(group);
        }
        groups.entry(group).or_default().push(job);
    }
    ensure!(!order.is_empty(), "{file}: jobs: the list is empty");
    order.iter().map(|g| load(file, &groups[g])).collect()
}

/// Finds and parses the JSON document after the warnings of fio.
fn document(text: &str) -> anyhow::Result<Value> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with('{') {
            let mut documents = serde_json::Deserializer::from_str(&text[start..]).into_iter();
            let first = documents.next().expect("the text is not empty");
            let value: Value = first.map_err(|e| {
                let before = text[..start].lines().count();
                anyhow!("line {}: {e}", before + e.line())
            })?;
            let rest = text[start + documents.byte_offset()..].trim_start();
            ensure!(
                !rest.starts_with('{'),
                "more than one JSON document: use one file for each"
            );
            return Ok(value);
        }
        start += line.len();
    }
    bail!("the file has no JSON: run fio with --output-format=json")
}

/// JSON value with its path, for messages.
struct Node<'a> {
    file: &'a str,
    path: String,
    value: &'a Value,
}

impl<'a> Node<'a> {
    fn wrong(&self, what: &str) -> anyhow::Error {
        let shown: String = self.value.to_string().chars().take(40).collect();
        anyhow!("{}: {}: {shown} is not {what}", self.file, self.path)
    }

    fn maybe(&self, key: &str) -> anyhow::Result<Option<Node<'a>>> {
        let table = self
            .value
            .as_object()
            .ok_or_else(|| self.wrong("an object"))?;
        let dot = if self.path.is_empty() { "" } else { "." };
        Ok(table.get(key).map(|value| Node {
            file: self.file,
            path: format!("{}{dot}{key}", self.path),
            value,
        }))
    }

    fn get(&self, key: &str) -> anyhow::Result<Node<'a>> {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.maybe(key)?
            .ok_or_else(|| anyhow!("{}: {}{dot}{key}: missing", self.file, self.path))
    }

    fn list(&self) -> anyhow::Result<&'a Vec<Value>> {
        self.value.as_array().ok_or_else(|| self.wrong("a list"))
    }

    fn item(&self, i: usize) -> Node<'a> {
        Node {
            file: self.file,
            path: format!("{}[{i}]", self.path),
            value: &self.value[i],
        }
    }

    fn text(&self) -> anyhow::Result<&'a str> {
        self.value.as_str().ok_or_else(|| self.wrong("text"))
    }

    fn whole(&self) -> anyhow::Result<u64> {
        self.value
            .as_u64()
            .ok_or_else(|| self.wrong("a whole number"))
    }

    fn number(&self) -> anyhow::Result<f64> {
        self.value
            .as_f64()
            .filter(|v| v.is_finite() && *v >= 0.0)
            .ok_or_else(|| self.wrong("a number of zero or more"))
    }

    fn positive(&self) -> anyhow::Result<f64> {
        self.number()?;
        self.value
            .as_f64()
            .filter(|v| *v > 0.0)
            .ok_or_else(|| self.wrong("above zero, though requests were counted"))
    }

    /// Returns a table of options; empty if the key is missing.
    fn options(&self, key: &str) -> anyhow::Result<Map<String, Value>> {
        match self.maybe(key)? {
            None => Ok(Map::new()),
            Some(node) => node
                .value
                .as_object()
                .cloned()
                .ok_or_else(|| node.wrong("an object")),
        }
    }
}

/// Entry of `jobs`.
struct Job {
    path: String,
    name: String,
    pattern: String,
    depth: u64,
    paced: bool,
    direct: bool,
    depth_ignored: bool,
    several_sizes: bool,
    runtime_s: f64,
    flows: [Option<MeasuredFlow>; 2],
}

fn job(node: &Node<'_>, global: &Map<String, Value>) -> anyhow::Result<(u64, Job)> {
    let error = node.get("error")?.whole()?;
    ensure!(
        error == 0,
        "{}: {}.error: the job failed with error {error}",
        node.file,
        node.path
    );
    let mut options = global.clone();
    options.extend(node.options("job options")?);
    let option = |key: &str| options.get(key).and_then(Value::as_str);
    let count = |key: &str| match option(key) {
        None => Ok(1),
        Some(text) => text
            .parse::<u64>()
            .ok()
            .filter(|n| (1..=1 << 20).contains(n))
            .ok_or_else(|| {
                anyhow!(
                    "{}: {}.job options.{key}: {text:?} is not between 1 and 1048576",
                    node.file,
                    node.path
                )
            }),
    };
    let on = |key: &str| options.contains_key(key) && option(key) != Some("0");
    let (depth, jobs) = (count("iodepth")?, count("numjobs")?);
    let engine = option("ioengine").unwrap_or("psync");
    let waits = ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"].contains(&engine);
    // Without group reporting, each of the jobs has its own entry.
    let entries = if on("group_reporting") { jobs } else { 1 };
    let mut flows = [None, None];
    let mut runtime_s = f64::INFINITY;
    for (flow, key) in flows.iter_mut().zip(["read", "write"]) {
        let direction = node.get(key)?;
        *flow = self::flow(
            &direction,
            asked_bytes(option("bs").or(option("blocksize")), key),
        )?;
        if let Some(runtime) = direction.maybe("runtime")?.filter(|_| flow.is_some()) {
            runtime_s = runtime_s.min(runtime.number()? / 1e3);
        }
    }
    let job = Job {
        path: node.path.clone(),
        name: node.get("jobname")?.text()?.to_string(),
        pattern: option("rw")
            .or(option("readwrite"))
            .unwrap_or("read")
            .to_string(),
        depth: if waits { 1 } else { depth } * entries,
        paced: ["rate", "rate_iops", "thinktime", "rate_process"]
            .iter()
            .any(|k| on(k)),
        direct: on("direct") || option("buffered") == Some("0"),
        depth_ignored: waits && depth > 1,
        several_sizes: ["bssplit", "bsrange", "blocksize_range"]
            .iter()
            .any(|k| on(k)),
        runtime_s,
        flows,
    };
    Ok((node.get("groupid")?.whole()?, job))
}

/// Parses the request size of a direction, bytes: `4k`, `64KiB`, or `4k,64k` for reads and writes. Returns `None` for other forms.
fn asked_bytes(option: Option<&str>, direction: &str) -> Option<f64> {
    let sizes: Vec<&str> = option.unwrap_or("4k").split(',').collect();
    let text = sizes[usize::from(direction == "write").min(sizes.len() - 1)].to_ascii_lowercase();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let unit = match &text[end..] {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1_048_576.0,
        _ => return None,
    };
    text[..end].parse::<f64>().ok().map(|n| n * unit)
}

fn flow(node: &Node<'_>, asked: Option<f64>) -> anyhow::Result<Option<MeasuredFlow>> {
    if node.get("total_ios")?.whole()? == 0 {
        return Ok(None);
    }
    let iops = node.get("iops")?.positive()?;
    let bytes_per_s = node.get("bw_bytes")?.positive()?;
    let mean = |key: &str| match node.maybe(key)? {
        Some(latency) => latency.get("mean").map(Some),
        None => anyhow::Ok(None),
    };
    // fio writes a mean of zero for a latency that it did not measure.
    let whole = mean("lat_ns")?.filter(|m| m.value.as_f64() != Some(0.0));
    let latency_ns = match whole {
        Some(mean) => mean.positive()?,
        None => node.get("clat_ns")?.get("mean")?.positive()?,
    };
    let mut spread_us = None;
    if let Some(percentiles) = node.maybe("clat_ns")?
        && let Some(percentiles) = percentiles.maybe("percentile")?
    {
        let at = |key: &str| match percentiles.maybe(key)? {
            Some(value) => anyhow::Ok(Some(value.number()? / 1e3)),
            None => Ok(None),
        };
        spread_us = at("10.000000")?.zip(at("90.000000")?);
    }
    let measured = bytes_per_s / iops;
    Ok(Some(MeasuredFlow {
        iops,
        bytes: asked
            .filter(|a| (measured / a - 1.0).abs() < SIZE_NEAR)
            .unwrap_or(measured),
        latency_us: latency_ns / 1e3,
        spread_us,
    }))
}

/// Combines the jobs of one group to one load.
fn load(file: &str, jobs: &[Job]) -> anyhow::Result<FioLoad> {
    let first = &jobs[0];
    let mut flows = [None, None];
    for (dir, flow) in flows.iter_mut().enumerate() {
        for job in jobs {
            let Some(one) = job.flows[dir] else { continue };
            *flow = Some(match *flow {
                None => one,
                Some(sum) => together(sum, one).ok_or_else(|| {
                    anyhow!(
                        "{file}: {} and {} ran at the same time with requests of {:.0} and {:.0} bytes: put `stonewall` between jobs that are to be measured alone",
                        first.path, job.path, sum.bytes, one.bytes
                    )
                })?,
            });
        }
    }
    ensure!(
        flows.iter().any(Option::is_some),
        "{file}: {}: no requests completed in job {:?}",
        first.path,
        first.name
    );
    Ok(FioLoad {
        file: file.into(),
        name: first.name.clone(),
        pattern: first.pattern.clone(),
        depth: jobs.iter().map(|j| j.depth).sum(),
        paced: jobs.iter().any(|j| j.paced),
        direct: jobs.iter().all(|j| j.direct),
        depth_ignored: jobs.iter().any(|j| j.depth_ignored),
        several_sizes: jobs.iter().any(|j| j.several_sizes),
        runtime_s: jobs
            .iter()
            .map(|j| j.runtime_s)
            .fold(f64::INFINITY, f64::min),
        point: LoadPoint { flows },
    })
}

fn together(a: MeasuredFlow, b: MeasuredFlow) -> Option<MeasuredFlow> {
    if a.bytes.max(b.bytes) > SIZES_ALIKE * a.bytes.min(b.bytes) {
        return None;
    }
    let iops = a.iops + b.iops;
    let mean = |of: fn(&MeasuredFlow) -> f64| (of(&a) * a.iops + of(&b) * b.iops) / iops;
    Some(MeasuredFlow {
        iops,
        bytes: mean(|f| f.bytes),
        latency_us: mean(|f| f.latency_us),
        // The percentiles of the sum cannot be computed from those of its parts.
        spread_us: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn direction(ios: u64, iops: f64, bytes: f64, mean_ns: f64) -> Value {
        json!({ "total_ios": ios, "iops": iops, "bw_bytes": iops * bytes, "runtime": 3000,
            "lat_ns": { "mean": mean_ns }, "clat_ns": { "mean": mean_ns - 500.0, "percentile": { "10.000000": 70_000, "90.000000": 90_000 } } })
    }

    fn one() -> Value {
        json!({ "jobname": "r", "groupid": 0, "error": 0, "job options": { "rw": "randread", "iodepth": "4" },
            "read": direction(1000, 40_000.0, 4096.0, 100_000.0), "write": direction(0, 0.0, 0.0, 0.0) })
    }

    fn run(jobs: Vec<Value>) -> Value {
        json!({ "fio version": "fio-3.33", "global options": { "ioengine": "libaio", "direct": "1" }, "jobs": jobs })
    }

    fn parsed(document: &Value) -> Vec<FioLoad> {
        parse("run.json", &document.to_string()).unwrap()
    }

    fn fault(text: &str) -> String {
        format!("{:#}", parse("run.json", text).unwrap_err())
    }

    #[test]
    fn fio_job_is_parsed_after_warnings() {
        let text = format!(
            "fio: a warning\nnote: {{ another\n{:#}\n\nbye\n",
            run(vec![one()])
        );
        let loads = parse("run.json", &text).unwrap();
        assert_eq!(loads, parsed(&run(vec![one()])));
        let load = &loads[0];
        assert_eq!(
            (load.name.as_str(), load.pattern.as_str(), load.depth),
            ("r", "randread", 4)
        );
        assert!(load.direct && !load.paced && !load.depth_ignored && !load.several_sizes);
        let flow = load.point.flows[0].unwrap();
        assert_eq!(
            (flow.iops, flow.bytes, flow.latency_us),
            (40_000.0, 4096.0, 100.0)
        );
        assert_eq!(flow.spread_us, Some((70.0, 90.0)));
        assert_eq!(load.point.flows[1], None);
        assert!((load.point.in_flight() - 4.0).abs() < 1e-9);
    }

    #[test]
    fn fio_jobs_of_a_group_are_merged_into_one_load() {
        let mut other = one();
        other["read"] = direction(3000, 120_000.0, 4096.0, 200_000.0);
        let loads = parsed(&run(vec![one(), other.clone()]));
        assert_eq!((loads.len(), loads[0].depth), (1, 8));
        let flow = loads[0].point.flows[0].unwrap();
        assert_eq!(
            (flow.iops, flow.latency_us, flow.spread_us),
            (160_000.0, 175.0, None)
        );
        other["groupid"] = json!(1);
        assert_eq!(parsed(&run(vec![one(), other.clone()])).len(), 2);
        other["groupid"] = json!(0);
        other["read"] = direction(3000, 120_000.0, 65_536.0, 200_000.0);
        let text = fault(&run(vec![one(), other]).to_string());
        assert!(
            text.contains("jobs[0] and jobs[1]") && text.contains("stonewall"),
            "{text}"
        );
    }

    #[test]
    fn fio_request_size_is_the_option_or_the_measured_mean() {
        let of = |bs: &str, bytes: f64| {
            let mut job = one();
            job["job options"]["bs"] = json!(bs);
            job["read"] = direction(1000, 40_000.0, bytes, 100_000.0);
            parsed(&run(vec![job]))[0].point.flows[0].unwrap().bytes
        };
        assert_eq!(of("64k", 66_000.0), 65_536.0);
        assert_eq!(of("64KiB,4k", 66_000.0), 65_536.0);
        assert_eq!(of("1M", 1_060_000.0), 1_048_576.0);
        assert_eq!(
            of("64k", 32_768.0),
            32_768.0,
            "too far off: the measured one"
        );
        assert_eq!(of("64kb?", 66_000.0), 66_000.0);
        assert_eq!(asked_bytes(Some("4k,8k"), "write"), Some(8192.0));
        assert_eq!(asked_bytes(None, "read"), Some(4096.0));
    }

    #[test]
    fn fio_options_set_depth_pacing_and_job_count() {
        let mut grouped = one();
        grouped["job options"] = json!({ "rw": "randrw", "numjobs": "3", "iodepth": "4", "group_reporting": "", "rate_iops": "100", "bssplit": "4k/50", "direct": "0" });
        let load = &parsed(&run(vec![grouped.clone()]))[0];
        assert_eq!(load.depth, 12);
        assert!(load.paced && load.several_sizes && !load.direct);
        grouped["job options"] = json!({ "ioengine": "psync", "iodepth": "32", "numjobs": "3" });
        let load = &parsed(&run(vec![grouped.clone(), grouped]))[0];
        assert_eq!(load.depth, 2, "an entry per job, each with one request");
        assert!(load.depth_ignored);
    }

    #[test]
    fn fio_faults_name_file_and_position() {
        assert!(
            fault("").contains("run.json: the file has no JSON"),
            "{}",
            fault("")
        );
        assert!(
            fault("a\nb\n{\n\"x\": }").contains("run.json: line 4: "),
            "{}",
            fault("a\nb\n{\n\"x\": }")
        );
        assert!(fault("{}").contains("fio version: missing"));
        let twice = format!("{}\n{}", run(vec![one()]), run(vec![one()]));
        assert!(
            fault(&twice).contains("more than one JSON document"),
            "{}",
            fault(&twice)
        );
        let with = |change: &dyn Fn(&mut Value)| {
            let mut document = run(vec![one(), one()]);
            change(&mut document);
            fault(&document.to_string())
        };
        for (path, value, want) in [
            (
                "/fio version",
                json!("fio-2.1"),
                "run.json: fio version: fio-2.1 is not fio 3",
            ),
            ("/jobs", json!([]), "run.json: jobs: the list is empty"),
            ("/jobs", json!(3), "run.json: jobs: 3 is not a list"),
            (
                "/jobs/1/error",
                json!(5),
                "run.json: jobs[1].error: the job failed with error 5",
            ),
            (
                "/jobs/1/read",
                json!({}),
                "run.json: jobs[1].read.total_ios: missing",
            ),
            (
                "/jobs/1/read/iops",
                json!("fast"),
                "run.json: jobs[1].read.iops: \"fast\" is not a number",
            ),
            (
                "/jobs/1/read/iops",
                json!(-4),
                "run.json: jobs[1].read.iops: -4 is not a number of zero or more",
            ),
            (
                "/jobs/1/read/bw_bytes",
                json!(0),
                "run.json: jobs[1].read.bw_bytes: 0 is not above zero",
            ),
            (
                "/jobs/1/read/lat_ns",
                json!({}),
                "run.json: jobs[1].read.lat_ns.mean: missing",
            ),
            (
                "/jobs/1/job options/iodepth",
                json!("0"),
                "run.json: jobs[1].job options.iodepth: \"0\" is not between",
            ),
            (
                "/jobs/1/job options",
                json!([]),
                "run.json: jobs[1].job options: [] is not an object",
            ),
            (
                "/jobs/0/groupid",
                json!("a"),
                "run.json: jobs[0].groupid: \"a\" is not a whole number",
            ),
        ] {
            let text = with(&|d| *d.pointer_mut(path).unwrap() = value.clone());
            assert!(text.starts_with(want), "{path}: {text}");
        }
        let idle = with(&|d| {
            for job in d["jobs"].as_array_mut().unwrap() {
                job["read"]["total_ios"] = json!(0);
            }
        });
        assert!(
            idle.contains("jobs[0]: no requests completed in job \"r\""),
            "{idle}"
        );
    }

    #[test]
    fn completion_latency_replaces_missing_total_latency() {
        let mut job = one();
        job["read"]["lat_ns"]["mean"] = json!(0);
        assert_eq!(
            parsed(&run(vec![job.clone()]))[0].point.flows[0]
                .unwrap()
                .latency_us,
            99.5
        );
        job["read"].as_object_mut().unwrap().remove("lat_ns");
        job["read"]["clat_ns"]
            .as_object_mut()
            .unwrap()
            .remove("percentile");
        let flow = parsed(&run(vec![job]))[0].point.flows[0].unwrap();
        assert_eq!((flow.latency_us, flow.spread_us), (99.5, None));
    }
}
