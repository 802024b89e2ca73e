//! What the operator of a live manager wants: the words of its configuration file, and what they come to.

use std::collections::BTreeMap;

use config::scenario::ArrayCacheConfig;
use config::{
    ClassConfig, ConfigFault, Hours, HoursConfig, LendConfig, LiveResponseConfig, ModesConfig,
    PolicyConfig, StrategyTables, Text, TierConfig, UnknownVolumes, WatchConfig,
};
use model::{DeviceSpec, Goal, Mode, NO_CLASS, Policy, SloClass, Specialty};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use units::{ClassId, Nanos};

use crate::wire::ArrayPolicy;

/// The file of `terrace serve`. The tables are those of a scenario where they have the same names.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ManagerConfig {
    /// Where the controller keeps its state, and who may ask it.
    #[serde(default)]
    pub controller: ControllerConfig,
    /// The array of this host; without it, agents of other hosts register.
    pub array: Option<ArrayConfig>,
    /// Virtual machines under libvirt, instead of an array; tiers say by `pools` what they are made of.
    pub libvirt: Option<LibvirtConfig>,
    /// Virtual machines of plain QEMU, instead of an array; tiers say by `pools` what they are made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu: Option<QemuConfig>,
    /// What this host lends to the caches of other hosts' arrays; nothing if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lend: Option<LendConfig>,
    /// The strategy, or the name of a table in `strategies`.
    #[serde(default = "default_strategy")]
    pub strategy: String,
    /// Seed of everything random.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Length of a measurement window.
    #[serde(default = "default_window")]
    pub window: Nanos,
    /// What the tiers are made of, by their names in the array. Not needed for tiers of emulated devices. Space is the
    /// array's own affair: `devices`, `members` and `capacity` are not used.
    #[serde(default)]
    pub tiers: Vec<TierConfig>,
    /// Service classes; none if left out. A volume without a class is of none: no objective, weight 1. Its class is called
    /// `default`, and may be described here under that name.
    #[serde(default)]
    pub classes: Vec<ClassConfig>,
    /// Epochs, headroom, budget, rules, gates. Left out here, `hold` is 2, `cooldown` 1h, `margin` 0.05 and
    /// `overcommit_max` 2.
    #[serde(default)]
    pub policy: PolicyConfig,
    /// How far to go without asking, by goal.
    #[serde(default)]
    pub modes: ModesConfig,
    /// What is done when an objective breaks, beside moves, and how far by itself. Left out, it is said what a throttle would do, where
    /// windows are of 60 s at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<LiveResponseConfig>,
    /// When moves may begin by themselves.
    #[serde(default)]
    pub hours: HoursConfig,
    /// When to worry.
    #[serde(default)]
    pub watch: WatchConfig,
    /// Parameters of strategies, by name. Left out here, AutoTiering's `sensitivity` is `injected-else-passive` and its
    /// `prior_confidence` 0.5, unless its form is literal.
    #[serde(default)]
    pub strategies: StrategyTables,
}

impl Default for ManagerConfig {
    /// A file that leaves everything out.
    fn default() -> Self {
        Self {
            controller: ControllerConfig::default(),
            array: None,
            libvirt: None,
            qemu: None,
            lend: None,
            strategy: default_strategy(),
            seed: default_seed(),
            window: default_window(),
            tiers: vec![],
            classes: vec![],
            policy: PolicyConfig::default(),
            modes: ModesConfig::default(),
            response: None,
            hours: HoursConfig::default(),
            watch: WatchConfig::default(),
            strategies: StrategyTables::new(),
        }
    }
}

/// Where the controller keeps its state, and who may ask it. Paths are taken from the file's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ControllerConfig {
    /// The directory of its store and of its certificate.
    pub state: String,
    /// Its unix socket; `controller.sock` in the state directory if left out. Whoever may open it may do everything.
    pub socket: Option<String>,
    /// Where it listens with TLS for people with tokens, such as "127.0.0.1:9443"; nowhere if left out.
    pub listen: Option<String>,
    /// The file of tokens: a line `ROLE NAME SECRET` each; roles are read, operate, admin and agent. Needed to listen.
    pub tokens: Option<String>,
    /// The certificate, PEM; one that signs itself is made in the state directory if left out.
    pub certificate: Option<String>,
    /// Its key, PEM.
    pub key: Option<String>,
    /// Windows are kept as they were for so long.
    pub raw: Nanos,
    /// Windows of five minutes, and the audit, are kept for so long.
    pub rolled: Nanos,
    /// A file that everything the controller is told is added to, and what it decides, for `terrace sim replay`. It grows by all reports;
    /// nothing is recorded if left out.
    pub record: Option<String>,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            state: "terrace-state".into(),
            socket: None,
            listen: None,
            tokens: None,
            certificate: None,
            key: None,
            raw: Nanos::from_secs(7 * 86_400),
            rolled: Nanos::from_secs(400 * 86_400),
            record: None,
        }
    }
}

/// The array of this host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayConfig {
    /// Its directory, from the file's directory.
    pub dir: String,
    /// The host's name.
    #[serde(default = "default_host")]
    pub host: String,
    /// Whether this process serves its volumes, or another one does.
    #[serde(default)]
    pub serve: Serve,
    /// Where guests connect: "unix:PATH", "tcp:127.0.0.1:PORT" or, with TLS, "tcp:ADDRESS:PORT"; `nbd.sock` in its directory if left out.
    #[serde(default)]
    pub listen: Vec<String>,
    /// Guests by TCP have to speak TLS, and to prove who they are by a certificate: a directory, from the file's, with `ca-cert.pem`,
    /// `server-cert.pem`, `server-key.pem` and, if there is one, `ca-crl.pem`; no TLS if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_certificates: Option<String>,
    /// Likewise by pre-shared keys: a file, from the file's directory, of lines `user:key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_psk: Option<String>,
    /// A directory, from the array's, with a socket `VOLUME.sock` for each volume, where QEMU on this host connects by vhost-user; none if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost_user: Option<String>,
    /// A worker with nothing to do looks for so long at most before it sleeps, where requests come one by one: at most 1 ms, "0s" is not at all; "50us" if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll: Option<Nanos>,
    /// A cache of pages in memory, in front of the tiers; none if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<ArrayCacheConfig>,
}

/// A worker that looks for longer would have a processor for itself.
pub const POLL_MAX: Nanos = Nanos::from_millis(1);

/// An image that a disk has left is kept for a day, unless something else is said.
pub const KEEP_SOURCE: Nanos = Nanos::from_secs(86_400);

/// Virtual machines of a host, by libvirt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LibvirtConfig {
    /// The hypervisor, such as "qemu:///system"; virsh's own default if left out.
    pub uri: Option<String>,
    /// The host's name.
    #[serde(default = "default_host")]
    pub host: String,
    /// Whether disks are moved; if not, moves are recommended only.
    #[serde(default = "yes")]
    pub moves: bool,
    /// For how long an image that a disk has left is kept.
    #[serde(default = "default_keep_source")]
    pub keep_source: Nanos,
    /// Whether QEMU is asked, through libvirt's monitor command, to count latencies, so that percentiles are known. libvirt marks a domain as tainted
    /// for that.
    #[serde(default)]
    pub latency_histograms: bool,
    /// Which disks are of which class: the first that fits.
    #[serde(default)]
    pub classes: Vec<DiskClassConfig>,
}

/// Virtual machines of a host, by the sockets of plain QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QemuConfig {
    /// The directory of QMP sockets, taken from the file's directory: NAME.qmp or NAME.sock is of the machine NAME. Each is Terrace's alone.
    pub sockets: String,
    /// The host's name.
    #[serde(default = "default_host")]
    pub host: String,
    /// Whether disks are moved; if not, moves are recommended only.
    #[serde(default = "yes")]
    pub moves: bool,
    /// For how long an image that a disk has left is kept.
    #[serde(default = "default_keep_source")]
    pub keep_source: Nanos,
    /// Which disks are of which class: the first that fits.
    #[serde(default)]
    pub classes: Vec<DiskClassConfig>,
}

/// Disks of one class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskClassConfig {
    /// Their names, DOMAIN:TARGET such as "web:vda"; a * stands for anything.
    pub disks: String,
    /// The class.
    pub class: String,
}

/// Who serves an array's volumes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Serve {
    /// This process.
    #[default]
    Here,
    /// Another one, such as `terrace volume export`: it is only looked at, and ordered.
    Elsewhere,
}

fn yes() -> bool {
    true
}
fn default_keep_source() -> Nanos {
    KEEP_SOURCE
}
fn default_host() -> String {
    "local".into()
}
fn default_strategy() -> String {
    planner::DEFAULT_STRATEGY.into()
}
fn default_seed() -> u64 {
    1
}
fn default_window() -> Nanos {
    Nanos::from_secs(10)
}

/// Gates of a live manager where the file gives none: nobody wants ping-pong.
const HOLD: u32 = 2;
const COOLDOWN: Nanos = Nanos::from_secs(3600);
const MARGIN: f64 = 0.05;

/// Provisioned space over real space where the file gives no bound: disks of guests are seldom more than half full, and an array
/// that is promised more than twice is one that somebody should have decided about.
const OVERCOMMIT_MAX: f64 = 2.0;

/// What a tier is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct TierTraits {
    /// A device; its capacity is the array's affair.
    pub spec: DeviceSpec,
    /// What it is meant for; by its place among the tiers without it.
    pub specialty: Option<Specialty>,
}

/// What the operator wants, checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The file with its text, for rules that are resolved when volumes are known.
    text: Text,
    /// Rules that are resolved already, of a simulated host: its inventory does not change.
    resolved: Option<Box<Policy>>,
    pub words: ManagerConfig,
    /// The strategy's own name and its parameters.
    pub strategy: (String, Value),
    /// Tiers by name.
    pub tiers: BTreeMap<String, TierTraits>,
    /// Service classes, with that of volumes which have none.
    pub classes: Vec<SloClass>,
    /// Hours in which moves may begin by themselves.
    pub hours: Hours,
}

impl Settings {
    /// Checks the words of a file; `words` were read from `text`, at its root.
    ///
    /// # Errors
    /// With file, line and key.
    pub fn new(text: Text, mut words: ManagerConfig) -> Result<Self, ConfigFault> {
        let policy = &mut words.policy;
        policy.hold.get_or_insert(HOLD);
        policy.cooldown.get_or_insert(COOLDOWN);
        policy.margin.get_or_insert(MARGIN);
        policy.overcommit_max.get_or_insert(OVERCOMMIT_MAX);
        let mut tiers = BTreeMap::new();
        for (i, t) in words.tiers.iter().enumerate() {
            let at = format!("tiers[{i}]");
            let traits = TierTraits {
                spec: config::resolve_tier_spec(&text, &at, t)?,
                specialty: t.specialty,
            };
            if tiers.insert(t.name.clone(), traits).is_some() {
                let why = format!("tier \"{}\" is listed twice", t.name);
                return Err(text.fault(&format!("{at}.name"), why));
            }
        }
        let mut classes = config::resolve_classes(&text, &words.classes)?;
        if classes.iter().all(|c| c.name != NO_CLASS) {
            classes.push(SloClass::none());
        }
        let hours = Hours::parse(&words.hours.moves, &words.hours.utc_offset)
            .map_err(|why| text.fault("hours", why))?;
        let epochs = words.policy.epochs();
        // Tiers of emulated devices need not be listed.
        let known: Vec<String> = tiers.keys().cloned().collect();
        let known = (!known.is_empty()).then_some(&known[..]);
        config::strategy(&text, &words.strategies, &words.strategy, &epochs, known)?;
        let strategy = live_parameters(config::parameters(
            &text,
            &words.strategies,
            &words.strategy,
        )?);
        let window = words.window;
        if window < Nanos::from_millis(100) {
            return Err(text.fault("window", "must be at least 100ms"));
        }
        let watch = &words.watch;
        if watch.late_windows == 0 || watch.lost_windows < watch.late_windows {
            let why = "must be at least 1, and lost_windows at least late_windows";
            return Err(text.fault("watch.late_windows", why));
        }
        if !(0.0..=1.0).contains(&watch.calibration_budget) {
            return Err(text.fault("watch.calibration_budget", "is a share: 0 to 1"));
        }
        if watch.prediction_error_max.is_nan() || watch.prediction_error_max <= 0.0 {
            return Err(text.fault("watch.prediction_error_max", "must be above 0"));
        }
        cross_checks(&words).map_err(|(key, why)| text.fault(key, why))?;
        if let Some(lend) = &words.lend {
            check_lend(lend, &words)
                .map_err(|(key, why)| text.fault(&format!("lend.{key}"), why))?;
        }
        if let Some(response) = &words.response {
            check_response(response, window)
                .map_err(|(key, why)| text.fault(&format!("response.{key}"), why))?;
        }
        let settings = Self {
            text,
            resolved: None,
            words,
            strategy,
            tiers,
            classes,
            hours,
        };
        let policy = settings.policy(&[], &[], UnknownTiers::Skip)?;
        if !policy.policy.epochs.monitor.0.is_multiple_of(window.0) {
            let why = format!(
                "{} is not a multiple of the window of {window}",
                policy.policy.epochs.monitor
            );
            return Err(settings.text.fault("policy.monitor_epoch", why));
        }
        Ok(settings)
    }

    /// Those of a simulated host: `policy` is that of its inventory.
    pub fn simulated(
        words: ManagerConfig,
        strategy: (String, Value),
        hours: Hours,
        tiers: BTreeMap<String, TierTraits>,
        classes: Vec<SloClass>,
        policy: Policy,
    ) -> Self {
        Self {
            text: Text::default(),
            resolved: Some(Box::new(policy)),
            words,
            strategy,
            tiers,
            classes,
            hours,
        }
    }

    /// The file that they are from.
    pub fn text(&self) -> &Text {
        &self.text
    }

    /// A fault at a key of the file.
    pub(crate) fn fault(&self, key: &str, why: impl Into<String>) -> ConfigFault {
        self.text.fault(key, why)
    }

    /// The mode of a goal by the file.
    pub fn mode(&self, goal: Goal) -> Mode {
        let modes = &self.words.modes;
        match goal {
            Goal::Drain => modes.drain,
            Goal::Rules => modes.rules,
            Goal::Space => modes.space,
            Goal::Latency => modes.latency,
        }
    }

    /// What is done when objectives break; none where nothing is looked for.
    pub fn response(&self) -> Option<LiveResponseConfig> {
        let said = self.words.response.clone().unwrap_or_default();
        (!said.is_off() && self.words.window <= ANSWERED_WINDOW_MAX).then_some(said)
    }

    /// The policy for an array of these tiers and volumes, in the order of their ids. Rules about volumes that are not there
    /// wait until they are.
    ///
    /// # Errors
    /// Rules that name tiers which the array does not have, unless they are to be skipped.
    pub fn policy(
        &self,
        tiers: &[&str],
        volumes: &[&str],
        unknown: UnknownTiers,
    ) -> Result<ResolvedRules, ConfigFault> {
        if let Some(policy) = &self.resolved {
            return Ok(ResolvedRules {
                policy: (**policy).clone(),
                unknown: vec![],
            });
        }
        let mut words = self.words.policy.clone();
        let known = |t: &String| tiers.contains(&t.as_str());
        if unknown == UnknownTiers::Skip {
            words.cordon.retain(known);
            words.drain.retain(known);
            words.pins.retain(|_, t| known(t));
        }
        let resolved = config::resolve_policy(
            &self.text,
            "policy",
            &words,
            tiers,
            volumes,
            UnknownVolumes::Skip,
        )?;
        Ok(ResolvedRules {
            policy: resolved.policy,
            unknown: resolved.unknown,
        })
    }

    /// Sizes of volumes may come to so many times the space of an array.
    pub fn overcommit_max(&self) -> f64 {
        self.words.policy.overcommit_max.unwrap_or(OVERCOMMIT_MAX)
    }

    /// Whether it is known what a tier of these devices can do.
    pub fn describes<'a>(
        &self,
        tier: &str,
        mut devices: impl Iterator<Item = &'a crate::wire::DeviceWindow>,
    ) -> bool {
        self.tiers.contains_key(tier) || devices.all(|d| d.emulate.is_some())
    }

    /// What a device can do: as it is emulated, or as its tier is described.
    pub(crate) fn spec_of<'a>(
        &'a self,
        device: &'a crate::wire::DeviceWindow,
    ) -> Option<&'a DeviceSpec> {
        let described = self.tiers.get(&device.tier).map(|t| &t.spec);
        device.emulate.as_ref().or(described)
    }

    /// What arrays are to hold their operators to.
    pub fn array_policy(&self) -> ArrayPolicy {
        ArrayPolicy {
            classes: self.classes.iter().map(|c| c.name.clone()).collect(),
            overcommit_max: self.overcommit_max(),
        }
    }

    /// The class that volumes of this name count as: that one, or none if nobody described it.
    pub fn class_of(&self, name: &str) -> &SloClass {
        &self.classes[self.class_id(name).index()]
    }

    /// The number of the class that volumes of this name count as.
    pub fn class_id(&self, name: &str) -> ClassId {
        let found = self.class(name).or_else(|| self.class(NO_CLASS));
        ClassId::from_index(found.expect("that of volumes without a class is always there"))
    }

    /// The place of the class of that name.
    pub fn class(&self, name: &str) -> Option<usize> {
        self.classes.iter().position(|c| c.name == name)
    }
}

/// Windows that answers are looked for in are of so long at most.
const ANSWERED_WINDOW_MAX: Nanos = Nanos::from_secs(60);

/// It is lent by an agent, which a host has that is looked after.
fn check_lend(lend: &LendConfig, words: &ManagerConfig) -> Result<(), (&'static str, String)> {
    lend.check()?;
    let host = words.array.is_some() || words.libvirt.is_some() || words.qemu.is_some();
    match host {
        true => Ok(()),
        false => Err((
            "memory",
            "is lent by the host of a table [array], [libvirt] or [qemu]; where there is none of them, `terrace agent` lends it".into(),
        )),
    }
}

fn check_response(response: &LiveResponseConfig, window: Nanos) -> Result<(), (String, String)> {
    response.check()?;
    response.check_ahead(window)?;
    match response.is_off() || window <= ANSWERED_WINDOW_MAX {
        true => Ok(()),
        false => Err((
            "modes".into(),
            "answers are looked for window by window, which are 60 s at most then".into(),
        )),
    }
}

/// What makes no sense together.
fn cross_checks(words: &ManagerConfig) -> Result<(), (&'static str, String)> {
    let fault = |key, why: &str| Err((key, why.to_string()));
    let (watch, controller) = (&words.watch, &words.controller);
    if watch.stuck_after == Nanos::ZERO || watch.give_up_after < watch.stuck_after {
        return fault(
            "watch.stuck_after",
            "must be above 0, and give_up_after not less",
        );
    }
    if watch.prediction_outcomes_min > watch.prediction_outcomes {
        return fault(
            "watch.prediction_outcomes_min",
            "is more than prediction_outcomes: predictions could never be judged",
        );
    }
    if controller.raw == Nanos::ZERO || controller.rolled < controller.raw {
        return fault("controller.raw", "must be above 0, and rolled not less");
    }
    if words.classes.iter().any(|c| c.latency == Some(Nanos::ZERO)) {
        return fault("classes", "an objective of no latency at all cannot be met");
    }
    let poll = words.array.as_ref().and_then(|a| a.poll);
    if poll.is_some_and(|poll| poll > POLL_MAX) {
        return fault("array.poll", "is at most 1 ms");
    }
    let cache = words.array.as_ref().and_then(|a| a.cache.as_ref());
    if let Some(fault) = cache.and_then(ArrayCacheConfig::fault) {
        return Err(fault);
    }
    for class in cache.iter().flat_map(|c| &c.parts).flat_map(|p| &p.class) {
        if class != NO_CLASS && words.classes.iter().all(|c| c.name != *class) {
            let why = format!("class {class:?} is not one of [[classes]]");
            return Err(("array.cache.parts", why));
        }
    }
    if controller.listen.is_some() && controller.tokens.is_none() {
        return fault(
            "controller.tokens",
            "is needed to listen: whoever connects must say who they are",
        );
    }
    if let Some(listen) = &controller.listen
        && listen.parse::<std::net::SocketAddr>().is_err()
    {
        let why = format!("{listen:?} is no address and port, such as \"127.0.0.1:9443\"");
        return Err(("controller.listen", why));
    }
    if controller.certificate.is_some() != controller.key.is_some() {
        return fault(
            "controller.certificate",
            "and controller.key belong together",
        );
    }
    let hosts = [
        ("array.host", words.array.as_ref().map(|a| &a.host)),
        ("libvirt.host", words.libvirt.as_ref().map(|l| &l.host)),
        ("qemu.host", words.qemu.as_ref().map(|q| &q.host)),
    ];
    for (key, host) in hosts {
        if let Some(why) = host.and_then(|h| crate::wire::host_name_fault(h)) {
            return Err((key, why));
        }
    }
    check_machines(words)
}

/// What a host of virtual machines needs, and what only such a host has.
fn check_machines(words: &ManagerConfig) -> Result<(), (&'static str, String)> {
    let fault = |key, why: &str| Err((key, why.to_owned()));
    let (key, classes_key, classes) = match (&words.libvirt, &words.qemu) {
        (Some(libvirt), None) => ("libvirt", "libvirt.classes", &libvirt.classes),
        (None, Some(qemu)) => ("qemu", "qemu.classes", &qemu.classes),
        (Some(_), Some(_)) => {
            return fault(
                "qemu",
                "is another host than libvirt: one of them needs an agent of its own",
            );
        }
        (None, None) => {
            let pools = words.tiers.iter().any(|t| !t.pools.is_empty());
            let format = words.tiers.iter().any(|t| t.format.is_some());
            return match pools {
                true => fault("tiers", "with pools need a table [libvirt] or [qemu]"),
                false if format => fault(
                    "tiers",
                    "with a format of images need a table [libvirt] or [qemu]",
                ),
                false => Ok(()),
            };
        }
    };
    if words.array.is_some() {
        return fault(
            key,
            "is another host than array: one of them needs an agent of its own",
        );
    }
    if words.tiers.is_empty() || words.tiers.iter().any(|t| t.pools.is_empty()) {
        return fault(
            "tiers",
            "of a host of virtual machines say by pools what they are made of",
        );
    }
    let known = |class: &String| words.classes.iter().any(|c| c.name == *class);
    let unknown = classes
        .iter()
        .find(|c| !known(&c.class) && c.class != NO_CLASS);
    match unknown {
        Some(unknown) => {
            let why = format!("there is no class \"{}\"", unknown.class);
            Err((classes_key, why))
        }
        None => Ok(()),
    }
}

/// A live manager's own defaults of a strategy's parameters, where the file gives none. AutoTiering must not delay volumes
/// that miss their objective: it takes what their latency does by itself, or assumes that they react as most guests do.
fn live_parameters((name, mut parameters): (String, Value)) -> (String, Value) {
    if name == "autotiering" {
        if parameters.is_null() {
            parameters = Value::Object(serde_json::Map::new());
        }
        if let Some(given) = parameters.as_object_mut() {
            let literal = given.get("form").and_then(Value::as_str) == Some("literal");
            for (key, value) in LIVE_AUTOTIERING.iter().filter(|_| !literal) {
                given.entry(*key).or_insert_with(value);
            }
        }
    }
    (name, parameters)
}

type Preset = (&'static str, fn() -> Value);

const LIVE_AUTOTIERING: [Preset; 2] = [
    ("sensitivity", || "injected-else-passive".into()),
    ("prior_confidence", || 0.5.into()),
];

/// What to do about tiers that rules name and the array does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownTiers {
    /// They are a fault.
    Refuse,
    /// The rules wait.
    Skip,
}

/// A policy, and the volumes that rules name and that are not there.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedRules {
    pub policy: Policy,
    /// Names.
    pub unknown: Vec<String>,
}
