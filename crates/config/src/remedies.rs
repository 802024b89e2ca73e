//! What a live controller may do when an objective breaks, and how far by itself: `[response]` of a live configuration.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slo::ladder::RemedyKind;
use slo::{AheadConfig, ResponderConfig};
use units::{Bytes, Nanos};

/// How far a live controller goes with one kind of answer.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum RemedyMode {
    /// It is not looked at.
    Off,
    /// What would be done is said, with its evidence, and nothing is done.
    #[default]
    Recommend,
    /// It is done, and taken back when it is not needed any more.
    #[serde(alias = "automatic")]
    Auto,
}

impl std::fmt::Display for RemedyMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RemedyMode::Off => "off",
            RemedyMode::Recommend => "recommend",
            RemedyMode::Auto => "auto",
        })
    }
}

/// Kinds of answers that a live host has: parts of the cache where it has one that can be shared out, second copies where it is a served array, moves where it
/// has several devices, appliances where it has a cache and there is memory or flash of other hosts.
pub const LIVE_REMEDIES: [RemedyKind; 5] = [
    RemedyKind::Throttle,
    RemedyKind::MemoryShare,
    RemedyKind::Mirror,
    RemedyKind::Appliance,
    RemedyKind::Move,
];

/// Answers to broken objectives of a live host, window by window. `ahead` and `workflow` are those of a scenario's `[response]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LiveResponseConfig {
    /// How far to go by itself, by kind of answer as in a scenario's `remedies`; what is left out is recommended, as far as it can be done live
    /// (`throttle`, `memory-share`, `mirror`, `move`, and `appliance` where there are nodes). `appliance` has to be named where hosts lend and no nodes are.
    pub modes: BTreeMap<RemedyKind, RemedyMode>,
    /// Memory or flash of other hosts that appliances can have, beside that of hosts which lend some (`lend`): nodes that people have started there (`terrace cache-node`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeConfig>,
    /// Peaks that come again with a season are acted on before they begin, as far as modes allow; none are if left out. Slots are of local time (`hours.utc_offset`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<AheadConfig>,
    /// How answers are found: detection, interference, when they are taken back.
    pub workflow: ResponderConfig,
}

/// Slots of a season: of each volume that many are kept at most.
const SLOTS_MAX: u64 = 1024;

/// A node: memory or flash of a host, for the caches of others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// What it is called.
    pub name: String,
    /// Where the hosts whose caches it is for reach it: an NBD URI, with TLS beyond loopback.
    pub uri: String,
    /// How much of it may be used, as much as it was started with at most.
    pub memory: Bytes,
}

/// Less than this is no appliance.
const NODE_MIN: Bytes = crate::LEND_MIN;

/// Nodes of one configuration.
const NODES_MAX: usize = 1000;

/// Whether what comes after a scheme names this host.
fn is_loopback(rest: &str) -> bool {
    let host = rest.split(['/', '?']).next().unwrap_or(rest);
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    ["localhost", "127.0.0.1", "[::1]"]
        .iter()
        .any(|own| host == *own || host.strip_prefix(own).is_some_and(|p| p.starts_with(':')))
}

/// What is wrong with a place where memory of another host is, if anything is: an NBD URI, with TLS beyond loopback.
pub fn node_uri_fault(uri: &str) -> Option<&'static str> {
    if !["nbd://", "nbds://", "nbd+unix://", "nbds+unix://"]
        .iter()
        .any(|scheme| uri.starts_with(scheme))
    {
        return Some("is an NBD URI: nbd://, nbds://, nbd+unix:// or nbds+unix://");
    }
    let clear = uri.strip_prefix("nbd://");
    let far = clear.is_some_and(|rest| !is_loopback(rest));
    far.then_some("has guests' data: beyond loopback with TLS (nbds://)")
}

impl NodeConfig {
    fn check(&self, before: &[NodeConfig]) -> Result<(), (&'static str, String)> {
        if self.name.is_empty() || self.name.len() > 64 {
            return Err(("name", "has 1 to 64 bytes".into()));
        }
        if before.iter().any(|n| n.name == self.name) {
            return Err(("name", format!("there are two nodes {:?}", self.name)));
        }
        if before.iter().any(|n| n.uri == self.uri) {
            return Err(("uri", "two nodes are at the same place".into()));
        }
        if let Some(why) = node_uri_fault(&self.uri) {
            return Err(("uri", why.into()));
        }
        match self.memory >= NODE_MIN {
            true => Ok(()),
            false => Err(("memory", format!("is at least {NODE_MIN}"))),
        }
    }
}

impl LiveResponseConfig {
    /// The mode of a kind of answer.
    pub fn mode(&self, kind: RemedyKind) -> RemedyMode {
        let said = self.modes.get(&kind).copied();
        let lacks = kind == RemedyKind::Appliance && self.nodes.is_empty();
        let can = LIVE_REMEDIES.contains(&kind) && !lacks;
        let usual = if can {
            RemedyMode::Recommend
        } else {
            RemedyMode::Off
        };
        said.unwrap_or(usual)
    }

    /// Kinds of answers of that mode.
    pub fn remedies(&self, mode: RemedyMode) -> Vec<RemedyKind> {
        let all = RemedyKind::ALL.into_iter();
        all.filter(|kind| self.mode(*kind) == mode).collect()
    }

    /// Whether nothing is looked at.
    pub fn is_off(&self) -> bool {
        let mut all = RemedyKind::ALL.into_iter();
        all.all(|kind| self.mode(kind) == RemedyMode::Off)
    }

    /// What cannot be, with the key in the table.
    ///
    /// # Errors
    /// The key, and why.
    pub fn check(&self) -> Result<(), (String, String)> {
        for (kind, mode) in &self.modes {
            if LIVE_REMEDIES.contains(kind) || *mode == RemedyMode::Off {
                continue;
            }
            let key = format!("modes.{}", kind.name());
            let why = match kind {
                RemedyKind::OpsShare => {
                    "no live device lets its spare flash be shared out: only \"off\", or leave it out"
                }
                RemedyKind::Throttle
                | RemedyKind::MemoryShare
                | RemedyKind::Mirror
                | RemedyKind::Appliance
                | RemedyKind::Move => unreachable!("it can be done"),
            };
            return Err((key, why.into()));
        }
        if self.nodes.len() > NODES_MAX {
            let why = format!("{} nodes are more than {NODES_MAX}", self.nodes.len());
            return Err(("nodes".into(), why));
        }
        for (i, node) in self.nodes.iter().enumerate() {
            let fault = |(key, why)| (format!("nodes[{i}].{key}"), why);
            node.check(&self.nodes[..i]).map_err(fault)?;
        }
        self.check_workflow()
            .map_err(|(key, why)| (format!("workflow.{key}"), why.into()))
    }

    /// What cannot be of looking ahead where windows are so long, with the key in the table.
    ///
    /// # Errors
    /// The key, and why.
    pub fn check_ahead(&self, window: Nanos) -> Result<(), (String, String)> {
        let Some(ahead) = &self.ahead else {
            return Ok(());
        };
        if let Some((key, why)) = ahead.fault(window) {
            return Err((format!("ahead.{key}"), why));
        }
        let slots = ahead.seasonal.season.0 / ahead.seasonal.slot.0;
        match slots <= SLOTS_MAX {
            true => Ok(()),
            false => Err((
                "ahead.seasonal.slot".into(),
                format!("a season of {slots} slots has more than {SLOTS_MAX}"),
            )),
        }
    }

    fn check_workflow(&self) -> Result<(), (&'static str, &'static str)> {
        let workflow = &self.workflow;
        let (detect, release) = (&workflow.detect, &workflow.release);
        let share = |v: f64| (0.0..=1.0).contains(&v);
        if workflow.allowed != ResponderConfig::default().allowed {
            return Err(("allowed", "what may be done is said in response.modes"));
        }
        if !(1..=SAMPLES_MAX).contains(&detect.samples) {
            return Err(("detect.samples", "is from 1 to 360 windows"));
        }
        if !(1..=detect.samples).contains(&detect.violating_min) {
            return Err(("detect.violating_min", "is from 1 to detect.samples"));
        }
        if !share(detect.clear_below) || detect.clear_below == 0.0 {
            return Err(("detect.clear_below", "is a share above 0, up to 1"));
        }
        if !share(release.margin) {
            return Err(("release.margin", "is a share: 0 to 1"));
        }
        if release.samples == 0 {
            return Err(("release.samples", "is at least 1"));
        }
        let interference = &workflow.interference;
        if interference.taken_min.is_some_and(|t| !share(t)) {
            return Err(("interference.taken_min", "is a share: 0 to 1"));
        }
        if !share(interference.false_discovery) || !share(interference.strength_min) {
            return Err((
                "interference",
                "false_discovery and strength_min are shares: 0 to 1",
            ));
        }
        if interference.samples > SAMPLES_MAX || interference.lag_max > LAG_MAX {
            return Err((
                "interference",
                "samples are 360 at most, and lag_max is 10 at most: a controller has other hosts too",
            ));
        }
        let warm = &workflow.warm;
        if warm.zone < ZONE_MIN {
            return Err(("warm.zone", "is at least 1 MiB"));
        }
        if !share(warm.likeness_min) || warm.spare_share.is_some_and(|s| !share(s)) {
            return Err(("warm", "spare_share and likeness_min are shares: 0 to 1"));
        }
        if !(1.0..=1e6).contains(&warm.rate_min_per_s) {
            return Err(("warm.rate_min_per_s", "is from 1 to 1,000,000"));
        }
        if !(0.0..=100.0).contains(&workflow.patience) {
            return Err(("patience", "is from 0 to 100"));
        }
        workflow.copies.check()?;
        workflow.price.check()
    }
}

/// Samples of a volume that are kept.
const SAMPLES_MAX: usize = 360;
const LAG_MAX: usize = 10;

/// Smaller zones are too many to count.
const ZONE_MIN: Bytes = Bytes::mib(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<LiveResponseConfig, (String, String)> {
        let (read, _) = crate::read::<LiveResponseConfig>("t.toml", text)
            .map_err(|e| ("not read".to_string(), e.to_string()))?;
        read.check().map(|()| read)
    }

    #[test]
    fn by_default_what_can_be_done_live_is_recommended_and_nothing_else_is_looked_at() {
        let config = checked("").unwrap();
        let without = LIVE_REMEDIES.into_iter();
        let without: Vec<RemedyKind> = without.filter(|r| *r != RemedyKind::Appliance).collect();
        assert_eq!(config.remedies(RemedyMode::Recommend), without);
        let node = "nodes = [{ name = \"other\", uri = \"nbd+unix:///?socket=n.sock\", memory = \"8 GiB\" }]";
        let config = checked(node).unwrap();
        assert_eq!(config.remedies(RemedyMode::Recommend), LIVE_REMEDIES);
        assert_eq!(config.remedies(RemedyMode::Auto), []);
        // Where hosts lend there need not be a node.
        let config = checked("modes.appliance = \"auto\"").unwrap();
        assert_eq!(config.remedies(RemedyMode::Auto), [RemedyKind::Appliance]);
        for word in ["auto", "automatic"] {
            let config = checked(&format!("modes.throttle = \"{word}\"")).unwrap();
            assert_eq!(config.remedies(RemedyMode::Auto), [RemedyKind::Throttle]);
        }
        let off = "modes = { throttle = \"off\", memory-share = \"off\", mirror = \"off\", move = \"off\", appliance = \"off\" }";
        let off = checked(off).unwrap();
        assert_eq!(off.remedies(RemedyMode::Off), RemedyKind::ALL);
    }

    #[test]
    fn what_cannot_be_done_live_is_refused_with_its_key() {
        for (text, key) in [
            ("modes.ops-share = \"auto\"", "modes.ops-share"),
            (
                "nodes = [{ name = \"\", uri = \"nbd://localhost:1\", memory = \"8 GiB\" }]",
                "nodes[0].name",
            ),
            (
                "nodes = [{ name = \"a\", uri = \"nbd://192.0.2.7:10810\", memory = \"8 GiB\" }]",
                "nodes[0].uri",
            ),
            (
                "nodes = [{ name = \"a\", uri = \"nbd://localhost.example\", memory = \"8 GiB\" }]",
                "nodes[0].uri",
            ),
            (
                "nodes = [{ name = \"a\", uri = \"/a\", memory = \"8 GiB\" }]",
                "nodes[0].uri",
            ),
            (
                "nodes = [{ name = \"a\", uri = \"nbd://localhost:1\", memory = \"1 KiB\" }]",
                "nodes[0].memory",
            ),
            (
                "nodes = [{ name = \"a\", uri = \"nbd://localhost:1\", memory = \"1 GiB\" }, { name = \"b\", uri = \"nbd://localhost:1\", memory = \"1 GiB\" }]",
                "nodes[1].uri",
            ),
            (
                "nodes = [{ name = \"a\", uri = \"nbd://localhost:1\", memory = \"1 GiB\" }, { name = \"a\", uri = \"nbd://localhost:2\", memory = \"1 GiB\" }]",
                "nodes[1].name",
            ),
            ("workflow.allowed = []", "workflow.allowed"),
            ("workflow.warm.zone = \"4 KiB\"", "workflow.warm.zone"),
            ("workflow.warm.spare_share = 1.5", "workflow.warm"),
            ("workflow.warm.likeness_min = nan", "workflow.warm"),
            (
                "workflow.warm.rate_min_per_s = 0.0",
                "workflow.warm.rate_min_per_s",
            ),
            (
                "workflow.warm.rate_min_per_s = inf",
                "workflow.warm.rate_min_per_s",
            ),
            ("workflow.detect.samples = 0", "workflow.detect.samples"),
            ("workflow.detect.samples = 361", "workflow.detect.samples"),
            (
                "workflow.detect.violating_min = 45",
                "workflow.detect.violating_min",
            ),
            (
                "workflow.detect.clear_below = 0.0",
                "workflow.detect.clear_below",
            ),
            ("workflow.release.margin = nan", "workflow.release.margin"),
            ("workflow.release.samples = 0", "workflow.release.samples"),
            (
                "workflow.interference.taken_min = 2.0",
                "workflow.interference.taken_min",
            ),
            (
                "workflow.interference.lag_max = 11",
                "workflow.interference",
            ),
            ("workflow.patience = -1.0", "workflow.patience"),
            ("workflow.price.others = -1.0", "workflow.price.others"),
            ("workflow.copies.free = 2.0", "workflow.copies.free"),
            (
                "workflow.copies.read_share = nan",
                "workflow.copies.read_share",
            ),
            (
                "workflow.copies.bandwidth = \"1 KiB/s\"",
                "workflow.copies.bandwidth",
            ),
            ("workflow.choice = \"cheapest\"", "not read"),
            ("modes.throtle = \"auto\"", "not read"),
            ("remedies = [\"throttle\"]", "not read"),
        ] {
            let (said, why) = checked(text).unwrap_err();
            assert_eq!(said, key, "{text}: {why}");
        }
    }
}
