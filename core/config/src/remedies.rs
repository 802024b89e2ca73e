//! Remedies of a live controller, and their modes: `[response]` of a live configuration.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slo::ladder::RemedyKind;
use slo::{AheadConfig, ResponderConfig};
use units::{Bytes, Nanos};

/// Autonomy of a live controller for one kind of remedy.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum RemedyMode {
    /// The remedy is not considered.
    Off,
    /// The remedy is recommended with its evidence, and not applied.
    #[default]
    Recommend,
    /// The remedy is applied, and released when it is no longer needed.
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

/// Kinds of remedies on a live host. Cache shares need a cache that can be partitioned, mirrors a served array,
/// moves several devices. Caching appliances need a cache, and memory or flash of other hosts.
pub const LIVE_REMEDIES: [RemedyKind; 5] = [
    RemedyKind::Throttle,
    RemedyKind::MemoryShare,
    RemedyKind::Mirror,
    RemedyKind::Appliance,
    RemedyKind::Move,
];

/// Remedies for violations of objectives on live hosts, evaluated every window. `ahead` and `workflow` are those of
/// a scenario's `[response]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LiveResponseConfig {
    /// Mode by kind of remedy: `off`, `recommend` or `auto`. Default: `recommend` for `throttle`, `memory-share`,
    /// `mirror`, `move` and, if `nodes` has entries, `appliance`; `off` for the others. With donor hosts and no
    /// nodes, `appliance` must be set here. `ops-share` can only be `off`.
    pub modes: BTreeMap<RemedyKind, RemedyMode>,
    /// Cache nodes that operators have started on other hosts (`terrace cache-node`), for caching appliances. Donor
    /// hosts (`[lend]`) need no entry here. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeConfig>,
    /// Early remedies for peaks that recur with a season, as far as `modes` allow. Its slots use local time
    /// (`hours.time_zone`). Left out, the controller does not act before peaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<AheadConfig>,
    /// Parameters of the workflow: detection, interference analysis, sizing, prices, release of remedies.
    pub workflow: ResponderConfig,
}

/// Largest number of slots of a season, each of which is kept for every volume.
const SLOTS_MAX: u64 = 1024;

/// Cache node: a process that serves memory or flash of its host to the caches of other hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Unique name, 1 to 64 bytes.
    pub name: String,
    /// NBD URI at which other hosts reach the node. Addresses other than loopback need TLS (`nbds://`).
    pub uri: String,
    /// Size that may be used, at least 1 MiB and at most the size with which the node was started.
    pub memory: Bytes,
}

/// Smallest size of a node: a smaller cache is of no use.
const NODE_MIN: Bytes = crate::LEND_MIN;

/// Largest number of nodes of one configuration.
const NODES_MAX: usize = 1000;

/// Returns true if the part of a URI after its scheme names this host.
fn is_loopback(rest: &str) -> bool {
    let host = rest.split(['/', '?']).next().unwrap_or(rest);
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    ["localhost", "127.0.0.1", "[::1]"]
        .iter()
        .any(|own| host == *own || host.strip_prefix(own).is_some_and(|p| p.starts_with(':')))
}

/// Returns the reason why a URI of a cache node is invalid: it must be an NBD URI, with TLS beyond loopback.
pub fn node_uri_fault(uri: &str) -> Option<&'static str> {
    if !["nbd://", "nbds://", "nbd+unix://", "nbds+unix://"]
        .iter()
        .any(|scheme| uri.starts_with(scheme))
    {
        return Some("must be an NBD URI: nbd://, nbds://, nbd+unix:// or nbds+unix://");
    }
    let clear = uri.strip_prefix("nbd://");
    let far = clear.is_some_and(|rest| !is_loopback(rest));
    far.then_some("carries guest data: use TLS (nbds://) for an address other than loopback")
}

impl NodeConfig {
    fn check(&self, before: &[NodeConfig]) -> Result<(), (&'static str, String)> {
        if self.name.is_empty() || self.name.len() > 64 {
            return Err(("name", "must have 1 to 64 bytes".into()));
        }
        if before.iter().any(|n| n.name == self.name) {
            return Err(("name", format!("two nodes have the name {:?}", self.name)));
        }
        if before.iter().any(|n| n.uri == self.uri) {
            return Err(("uri", "two nodes have the same URI".into()));
        }
        if let Some(why) = node_uri_fault(&self.uri) {
            return Err(("uri", why.into()));
        }
        match self.memory >= NODE_MIN {
            true => Ok(()),
            false => Err(("memory", format!("must be at least {NODE_MIN}"))),
        }
    }
}

impl LiveResponseConfig {
    /// Returns the mode of a kind of remedy.
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

    /// Returns the kinds of remedies with this mode.
    pub fn remedies(&self, mode: RemedyMode) -> Vec<RemedyKind> {
        let all = RemedyKind::ALL.into_iter();
        all.filter(|kind| self.mode(*kind) == mode).collect()
    }

    /// Returns true if every kind of remedy is off.
    pub fn is_off(&self) -> bool {
        let mut all = RemedyKind::ALL.into_iter();
        all.all(|kind| self.mode(kind) == RemedyMode::Off)
    }

    /// Checks the table.
    ///
    /// # Errors
    /// The invalid key of the table, and the reason.
    pub fn check(&self) -> Result<(), (String, String)> {
        for (kind, mode) in &self.modes {
            if LIVE_REMEDIES.contains(kind) || *mode == RemedyMode::Off {
                continue;
            }
            let key = format!("modes.{}", kind.name());
            let why = match kind {
                RemedyKind::OpsShare => {
                    "must be \"off\": live devices cannot share their over-provisioning"
                }
                RemedyKind::Throttle
                | RemedyKind::MemoryShare
                | RemedyKind::Mirror
                | RemedyKind::Appliance
                | RemedyKind::Move => unreachable!("a live remedy"),
            };
            return Err((key, why.into()));
        }
        if self.nodes.len() > NODES_MAX {
            let why = format!("has {} nodes, more than {NODES_MAX}", self.nodes.len());
            return Err(("nodes".into(), why));
        }
        for (i, node) in self.nodes.iter().enumerate() {
            let fault = |(key, why)| (format!("nodes[{i}].{key}"), why);
            node.check(&self.nodes[..i]).map_err(fault)?;
        }
        self.check_workflow()
            .map_err(|(key, why)| (format!("workflow.{key}"), why.into()))
    }

    /// Checks `ahead` for windows of this length.
    ///
    /// # Errors
    /// The invalid key of the table, and the reason.
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
                format!("a season has {slots} slots, more than {SLOTS_MAX}: use longer slots"),
            )),
        }
    }

    fn check_workflow(&self) -> Result<(), (&'static str, &'static str)> {
        let workflow = &self.workflow;
        let (detect, release) = (&workflow.detect, &workflow.release);
        let share = |v: f64| (0.0..=1.0).contains(&v);
        if workflow.allowed != ResponderConfig::default().allowed {
            return Err(("allowed", "must be left out: set response.modes instead"));
        }
        if !(1..=SAMPLES_MAX).contains(&detect.samples) {
            return Err(("detect.samples", "must be 1 to 360 windows"));
        }
        if !(1..=detect.samples).contains(&detect.violating_min) {
            return Err(("detect.violating_min", "must be 1 to detect.samples"));
        }
        if !share(detect.clear_below) || detect.clear_below == 0.0 {
            return Err(("detect.clear_below", "must be a share above 0 and up to 1"));
        }
        if !share(release.margin) {
            return Err(("release.margin", "must be a share from 0 to 1"));
        }
        if release.samples == 0 {
            return Err(("release.samples", "must be at least 1"));
        }
        let interference = &workflow.interference;
        if interference.taken_min.is_some_and(|t| !share(t)) {
            return Err(("interference.taken_min", "must be a share from 0 to 1"));
        }
        if !share(interference.false_discovery) || !share(interference.strength_min) {
            return Err((
                "interference",
                "false_discovery and strength_min must be shares from 0 to 1",
            ));
        }
        if interference.samples > SAMPLES_MAX || interference.lag_max > LAG_MAX {
            return Err((
                "interference",
                "samples must be at most 360, and lag_max at most 10, to bound the controller's work",
            ));
        }
        let warm = &workflow.warm;
        if warm.zone < ZONE_MIN {
            return Err(("warm.zone", "must be at least 1 MiB"));
        }
        if !share(warm.likeness_min) || warm.spare_share.is_some_and(|s| !share(s)) {
            return Err((
                "warm",
                "spare_share and likeness_min must be shares from 0 to 1",
            ));
        }
        if !(1.0..=1e6).contains(&warm.rate_min_per_s) {
            return Err(("warm.rate_min_per_s", "must be 1 to 1,000,000"));
        }
        if !(0.0..=100.0).contains(&workflow.patience) {
            return Err(("patience", "must be 0 to 100"));
        }
        workflow.copies.check()?;
        workflow.price.check()
    }
}

/// Number of samples that are kept of each volume.
const SAMPLES_MAX: usize = 360;
/// Largest lag of the interference analysis, samples: bounds the controller's work.
const LAG_MAX: usize = 10;

/// Smallest zone: smaller zones are too many to count.
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
    fn remedies_available_live_are_recommended_by_default() {
        let config = checked("").unwrap();
        let without = LIVE_REMEDIES.into_iter();
        let without: Vec<RemedyKind> = without.filter(|r| *r != RemedyKind::Appliance).collect();
        assert_eq!(config.remedies(RemedyMode::Recommend), without);
        let node = "nodes = [{ name = \"other\", uri = \"nbd+unix:///?socket=n.sock\", memory = \"8 GiB\" }]";
        let config = checked(node).unwrap();
        assert_eq!(config.remedies(RemedyMode::Recommend), LIVE_REMEDIES);
        assert_eq!(config.remedies(RemedyMode::Auto), []);
        // Donor hosts need no configured node.
        let config = checked("modes.appliance = \"auto\"").unwrap();
        assert_eq!(config.remedies(RemedyMode::Auto), [RemedyKind::Appliance]);
        let config = checked("modes.throttle = \"auto\"").unwrap();
        assert_eq!(config.remedies(RemedyMode::Auto), [RemedyKind::Throttle]);
        let off = "modes = { throttle = \"off\", memory-share = \"off\", mirror = \"off\", move = \"off\", appliance = \"off\" }";
        let off = checked(off).unwrap();
        assert_eq!(off.remedies(RemedyMode::Off), RemedyKind::ALL);
    }

    #[test]
    fn remedies_unavailable_live_are_refused_with_their_key() {
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
