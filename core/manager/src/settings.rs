//! Configuration of a live manager: the keys of its file, and the checked settings.

use std::collections::BTreeMap;

use config::scenario::ArrayCacheConfig;
use config::{
    ClassConfig, ConfigFault, Hours, HoursConfig, LendConfig, LiveResponseConfig, ModesConfig,
    PolicyConfig, StrategyTables, Text, TierConfig, UnknownVolumes, WatchConfig,
};
use model::{DeviceSpec, Goal, Mode, NO_CLASS, Policy, SloClass, Specialty};
use planner::AnyStrategy;
use planner::hosted::is_python;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use units::{ClassId, Nanos};

use crate::ManagerError;
use crate::wire::ArrayPolicy;

/// Configuration file of `terrace serve`. Tables that scenarios also have mean the same here.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ManagerConfig {
    /// State directory of the controller and access to it.
    #[serde(default)]
    pub controller: ControllerConfig,
    /// Array of this host. If omitted, agents of other hosts register.
    pub array: Option<ArrayConfig>,
    /// Memory and flash that this host lends to the caches of other hosts; nothing if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lend: Option<LendConfig>,
    /// Placement strategy, or the name of a table in `strategies`. FILE.py:CLASS, relative to the directory of the
    /// file, is a strategy in Python: its moves are only recommended.
    #[serde(default = "default_strategy")]
    pub strategy: String,
    /// Seed of all random numbers.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Length of a measurement window, at least 100 ms.
    #[serde(default = "default_window")]
    pub window: Nanos,
    /// Performance of the tiers, by their names in the array. Tiers of emulated devices need no
    /// entry. The array knows its own space: `devices`, `members` and `capacity` are not used.
    #[serde(default)]
    pub tiers: Vec<TierConfig>,
    /// Service classes; none if omitted. A volume without a class has no objective and weight 1. It
    /// counts as class `default`, which can be described here under that name.
    #[serde(default)]
    pub classes: Vec<ClassConfig>,
    /// Epochs, headroom, budget, rules and gates. The defaults here are `hold` 2, `cooldown` 1h,
    /// `margin` 0.05 and `overcommit_max` 2.
    #[serde(default)]
    pub policy: PolicyConfig,
    /// Mode of each goal: which moves the controller carries out without approval.
    #[serde(default)]
    pub modes: ModesConfig,
    /// Remedies for violations, other than moves of the strategy, and their modes. If omitted and
    /// `window` is at most 60 s, throttles are recommended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<LiveResponseConfig>,
    /// Hours in which moves may start without an operator.
    #[serde(default)]
    pub hours: HoursConfig,
    /// Thresholds for warnings.
    #[serde(default)]
    pub watch: WatchConfig,
    /// Parameters of strategies, by name. The defaults of AutoTiering here are `sensitivity`
    /// `injected-else-passive` and `prior_confidence` 0.5, except in its literal form.
    #[serde(default)]
    pub strategies: StrategyTables,
    /// Virtual machines of a platform, instead of an array: the table with the platform's name. The
    /// agent reads it, and knows its keys; those of [`MachinesConfig`] all platforms have.
    #[serde(flatten)]
    pub platforms: BTreeMap<String, Value>,
}

impl Default for ManagerConfig {
    /// Returns the configuration of an empty file.
    fn default() -> Self {
        Self {
            controller: ControllerConfig::default(),
            array: None,
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
            platforms: BTreeMap::new(),
        }
    }
}

/// State directory of the controller and access to it. Paths are relative to the directory of the
/// file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ControllerConfig {
    /// Directory of the store and of a generated certificate.
    pub state: String,
    /// Unix socket; `controller.sock` in the state directory if omitted. Callers that can open it
    /// have all permissions.
    pub socket: Option<String>,
    /// Address and port for TLS, such as "127.0.0.1:9443", where callers need a token; none if
    /// omitted.
    pub listen: Option<String>,
    /// File of tokens, one line `ROLE NAME SECRET` each. Roles are read, operate, admin and agent.
    /// Required with `listen`.
    pub tokens: Option<String>,
    /// Certificate, a PEM file. If omitted, a self-signed one is created in the state directory.
    pub certificate: Option<String>,
    /// Private key of the certificate, a PEM file.
    pub key: Option<String>,
    /// Time for which windows are kept as reported.
    pub raw: Nanos,
    /// Time for which windows of five minutes and the audit log are kept.
    pub rolled: Nanos,
    /// File to which all inputs and decisions of the controller are appended, for `terrace sim
    /// replay`. It grows with every report. No recording if omitted.
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

/// Array of this host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayConfig {
    /// Directory of the array, relative to the directory of the file.
    pub dir: String,
    /// Name of the host.
    #[serde(default = "default_host")]
    pub host: String,
    /// Process that serves the volumes: this one or another one.
    #[serde(default)]
    pub serve: Serve,
    /// Sockets for guests: "unix:PATH", "tcp:127.0.0.1:PORT" or, with TLS, "tcp:ADDRESS:PORT";
    /// `nbd.sock` in the directory of the array if omitted.
    #[serde(default)]
    pub listen: Vec<String>,
    /// Requires TLS and client certificates from guests by TCP. A directory, relative to that of
    /// the file, with `ca-cert.pem`, `server-cert.pem`, `server-key.pem` and optionally
    /// `ca-crl.pem`. No TLS if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_certificates: Option<String>,
    /// Requires TLS with pre-shared keys from guests by TCP. A file of lines `user:key`, relative
    /// to the directory of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_psk: Option<String>,
    /// Directory, relative to that of the array, with a socket `VOLUME.sock` for each volume, for
    /// QEMU by vhost-user; none if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost_user: Option<String>,
    /// Longest time that an idle worker polls before it sleeps, if requests arrive one by one. At
    /// most 1 ms; "0s" disables polling; "50us" if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll: Option<Nanos>,
    /// Cache of pages in memory, in front of the tiers; none if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<ArrayCacheConfig>,
}

/// Maximum of `poll`. A longer time would occupy a processor per worker.
pub const POLL_MAX: Nanos = Nanos::from_millis(1);

/// Default time for which the old image of a moved disk is kept: one day.
pub const KEEP_SOURCE: Nanos = Nanos::from_secs(86_400);

/// Keys that every platform of virtual machines has in its table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachinesConfig {
    /// Name of the host.
    #[serde(default = "default_host")]
    pub host: String,
    /// True if disks are moved; if false, moves are only recommended.
    #[serde(default = "yes")]
    pub moves: bool,
    /// Time for which the old image of a moved disk is kept.
    #[serde(default = "default_keep_source")]
    pub keep_source: Nanos,
    /// Classes of disks; the first matching entry applies.
    #[serde(default)]
    pub classes: Vec<DiskClassConfig>,
}

/// Class of disks with matching names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskClassConfig {
    /// Pattern for names DOMAIN:TARGET, such as "web:vda"; * matches any text.
    pub disks: String,
    /// Name of the class.
    pub class: String,
}

/// Process that serves the volumes of an array.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Serve {
    /// This process.
    #[default]
    Here,
    /// Another process, such as `terrace volume export`. This process observes the array and gives
    /// orders.
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

/// Default gates of a live manager, which prevent repeated moves to and fro.
const HOLD: u32 = 2;
const COOLDOWN: Nanos = Nanos::from_secs(3600);
const MARGIN: f64 = 0.05;

/// Default maximum of provisioned space over real space. Disks of guests are seldom more than half
/// full; a higher value needs a decision by the operator.
const OVERCOMMIT_MAX: f64 = 2.0;

/// Properties of a tier.
#[derive(Debug, Clone, PartialEq)]
pub struct TierTraits {
    /// Performance of a device; its capacity comes from the array.
    pub spec: DeviceSpec,
    /// Specialty of the tier; if `None`, it depends on the tier's rank.
    pub specialty: Option<Specialty>,
}

/// Function that returns the strategy of these settings, which is one in Python.
pub type StartPython = fn(&Settings) -> Box<dyn AnyStrategy>;

/// Checked settings of the operator.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Text of the file, for rules that are resolved when the volumes are known.
    text: Text,
    /// Resolved rules of a simulated host, whose volumes and devices do not change.
    resolved: Option<Box<Policy>>,
    pub words: ManagerConfig,
    /// Name of the strategy and its parameters.
    pub strategy: (String, Value),
    /// Access to a strategy in Python, which runs in a process of its own; the caller sets it. The core starts no processes.
    pub python: Option<StartPython>,
    /// Properties of tiers by name.
    pub tiers: BTreeMap<String, TierTraits>,
    /// Service classes, including the one of volumes without a class.
    pub classes: Vec<SloClass>,
    /// Hours in which moves may start without an operator.
    pub hours: Hours,
}

impl Settings {
    /// Checks a configuration; `words` were read from `text`, at its root.
    ///
    /// # Errors
    /// An invalid value, with file, line and key.
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
            if let Some((key, why)) = traits.spec.impossible() {
                let key = format!("{at}.{key}");
                let what = "measure the device again with direct I/O, or remove the value";
                return Err(text.fault(&key, format!("{why}: {what}")));
            }
            if tiers.insert(t.name.clone(), traits).is_some() {
                let why = format!("tier \"{}\" is listed twice", t.name);
                return Err(text.fault(&format!("{at}.name"), why));
            }
        }
        let mut classes = config::resolve_classes(&text, &words.classes)?;
        if classes.iter().all(|c| c.name != NO_CLASS) {
            classes.push(SloClass::none());
        }
        let hours = Hours::parse(&words.hours.moves, &words.hours.time_zone)
            .map_err(|why| text.fault("hours", why))?;
        let epochs = words.policy.epochs();
        // Tiers of emulated devices need no entry.
        let known: Vec<String> = tiers.keys().cloned().collect();
        let known = (!known.is_empty()).then_some(&known[..]);
        if is_python(&words.strategy) {
            check_recommends(&words.modes).map_err(|(key, why)| text.fault(&key, why))?;
        } else {
            config::strategy(&text, &words.strategies, &words.strategy, &epochs, known)?;
        }
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
            return Err(text.fault("watch.calibration_budget", "must be a share from 0 to 1"));
        }
        if watch.prediction_error_max.is_nan() || watch.prediction_error_max <= 0.0 {
            return Err(text.fault("watch.prediction_error_max", "must be above 0"));
        }
        cross_checks(&words).map_err(|(key, why)| text.fault(key, why))?;
        check_machines(&words).map_err(|(key, why)| text.fault(&key, why))?;
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
            python: None,
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

    /// Creates the settings of a simulated host with the policy of its inventory.
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
            python: None,
            tiers,
            classes,
            hours,
        }
    }

    /// Returns the text of the configuration file.
    pub fn text(&self) -> &Text {
        &self.text
    }

    /// Returns an error at a key of the file.
    pub(crate) fn fault(&self, key: &str, why: impl ToString) -> ConfigFault {
        self.text.fault(key, why)
    }

    /// Returns the strategy.
    ///
    /// # Errors
    /// Invalid parameters; a strategy in Python without access to it.
    pub(crate) fn build_strategy(&self) -> Result<Box<dyn AnyStrategy>, ManagerError> {
        let (name, parameters) = &self.strategy;
        match self.python {
            Some(start) if is_python(name) => Ok(start(self)),
            None if is_python(name) => Err(ManagerError::Python { name: name.clone() }),
            _ => Ok(planner::build(name, parameters.clone())?),
        }
    }

    /// Returns true if moves start only with the approval of an operator, because the strategy is one in Python.
    pub(crate) fn recommends_only(&self) -> bool {
        is_python(&self.strategy.0)
    }

    /// Returns the mode of a goal in the file.
    pub fn mode(&self, goal: Goal) -> Mode {
        let modes = &self.words.modes;
        match goal {
            Goal::Drain => modes.drain,
            Goal::Rules => modes.rules,
            Goal::Space => modes.space,
            Goal::Latency => modes.latency,
        }
    }

    /// Returns the configuration of remedies, or `None` if no remedies are looked for.
    pub fn response(&self) -> Option<LiveResponseConfig> {
        let said = self.words.response.clone().unwrap_or_default();
        (!said.is_off() && self.words.window <= ANSWERED_WINDOW_MAX).then_some(said)
    }

    /// Returns the policy for an array with these tiers and volumes, in the order of their ids.
    /// Rules about unknown volumes take effect when the volumes exist.
    ///
    /// # Errors
    /// Rules with unknown tiers, unless `unknown` skips them.
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

    /// Returns the maximum sum of the sizes of volumes divided by the space of an array.
    pub fn overcommit_max(&self) -> f64 {
        self.words.policy.overcommit_max.unwrap_or(OVERCOMMIT_MAX)
    }

    /// Returns true if the performance of a tier with these devices is known.
    pub fn describes<'a>(
        &self,
        tier: &str,
        mut devices: impl Iterator<Item = &'a crate::wire::DeviceWindow>,
    ) -> bool {
        self.tiers.contains_key(tier) || devices.all(|d| d.emulate.is_some())
    }

    /// Returns the performance of a device, as emulated or as described for its tier.
    pub(crate) fn spec_of<'a>(
        &'a self,
        device: &'a crate::wire::DeviceWindow,
    ) -> Option<&'a DeviceSpec> {
        let described = self.tiers.get(&device.tier).map(|t| &t.spec);
        device.emulate.as_ref().or(described)
    }

    /// Returns true if the latencies of a device are known better than by a preset: it emulates a drive, or its tier has them.
    pub(crate) fn calibrated(&self, device: &crate::wire::DeviceWindow) -> bool {
        let mut tiers = self.words.tiers.iter();
        let tier = tiers.find(|t| t.name == device.tier);
        let measured = tier.is_some_and(|t| {
            t.spec.is_some() || (t.read_latency.is_some() && t.write_latency.is_some())
        });
        device.emulate.is_some() || measured
    }

    /// Returns the rules that arrays apply to changes by operators.
    pub fn array_policy(&self) -> ArrayPolicy {
        ArrayPolicy {
            classes: self.classes.iter().map(|c| c.name.clone()).collect(),
            overcommit_max: self.overcommit_max(),
        }
    }

    /// Returns the class that volumes of this class name count as; the class of volumes without one
    /// if the name is not configured.
    pub fn class_of(&self, name: &str) -> &SloClass {
        &self.classes[self.class_id(name).index()]
    }

    /// Returns the id of the class that volumes of this class name count as.
    pub fn class_id(&self, name: &str) -> ClassId {
        let found = self.class(name).or_else(|| self.class(NO_CLASS));
        ClassId::from_index(found.expect("the class of volumes without a class always exists"))
    }

    /// Returns the index of the class with this name.
    pub fn class(&self, name: &str) -> Option<usize> {
        self.classes.iter().position(|c| c.name == name)
    }
}

/// Maximum window for which remedies are looked for. Longer windows find violations too late.
const ANSWERED_WINDOW_MAX: Nanos = Nanos::from_secs(60);

/// Checks `[lend]`, which needs a host with an agent in this process.
fn check_lend(lend: &LendConfig, words: &ManagerConfig) -> Result<(), (&'static str, String)> {
    lend.check()?;
    match words.array.is_some() || !words.platforms.is_empty() {
        true => Ok(()),
        false => Err((
            "memory",
            "needs a host in a table [array] or of a platform of virtual machines; on other hosts use `terrace agent --lend-only`".into(),
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
            "remedies need a window of at most 60 s: shorten window, or set all modes to off"
                .into(),
        )),
    }
}

/// Text of the refusal of a mode other than `off` and `recommend` with a strategy in Python.
pub(crate) const ONLY_RECOMMENDED: &str = "moves of a strategy in Python are only recommended: set recommend or off, or choose a strategy that is built in";

/// Refuses modes in which moves start by themselves.
fn check_recommends(modes: &ModesConfig) -> Result<(), (String, String)> {
    let of = [
        (Goal::Drain, modes.drain),
        (Goal::Rules, modes.rules),
        (Goal::Space, modes.space),
        (Goal::Latency, modes.latency),
    ];
    match of.into_iter().find(|(_, mode)| mode.starts_moves()) {
        Some((goal, mode)) => Err((
            format!("modes.{goal}"),
            format!("is {mode}, but {ONLY_RECOMMENDED}"),
        )),
        None => Ok(()),
    }
}

/// Checks values that depend on one another.
fn cross_checks(words: &ManagerConfig) -> Result<(), (&'static str, String)> {
    let fault = |key, why: &str| Err((key, why.to_string()));
    let (watch, controller) = (&words.watch, &words.controller);
    if watch.stuck_after == Nanos::ZERO || watch.give_up_after < watch.stuck_after {
        return fault(
            "watch.stuck_after",
            "must be above 0, and give_up_after must be at least stuck_after",
        );
    }
    if watch.prediction_outcomes_min > watch.prediction_outcomes {
        return fault(
            "watch.prediction_outcomes_min",
            "is above prediction_outcomes, so predictions could never be judged",
        );
    }
    if controller.raw == Nanos::ZERO || controller.rolled < controller.raw {
        return fault(
            "controller.raw",
            "must be above 0, and rolled must be at least raw",
        );
    }
    if words.classes.iter().any(|c| c.latency == Some(Nanos::ZERO)) {
        return fault("classes", "an objective of 0 s cannot be met");
    }
    let poll = words.array.as_ref().and_then(|a| a.poll);
    if poll.is_some_and(|poll| poll > POLL_MAX) {
        return fault("array.poll", "must be at most 1 ms");
    }
    let cache = words.array.as_ref().and_then(|a| a.cache.as_ref());
    if let Some(fault) = cache.and_then(ArrayCacheConfig::fault) {
        return Err(fault);
    }
    for class in cache.iter().flat_map(|c| &c.parts).flat_map(|p| &p.class) {
        if class != NO_CLASS && words.classes.iter().all(|c| c.name != *class) {
            let why = format!("class {class:?} is not defined in [[classes]]");
            return Err(("array.cache.parts", why));
        }
    }
    if controller.listen.is_some() && controller.tokens.is_none() {
        return fault(
            "controller.tokens",
            "is required with controller.listen: callers need a token",
        );
    }
    if let Some(listen) = &controller.listen
        && listen.parse::<std::net::SocketAddr>().is_err()
    {
        let why =
            format!("{listen:?} is not an IP address with a port, such as \"127.0.0.1:9443\"");
        return Err(("controller.listen", why));
    }
    if controller.certificate.is_some() != controller.key.is_some() {
        return fault(
            "controller.certificate",
            "and controller.key must be given together",
        );
    }
    let host = words.array.as_ref().map(|a| &a.host);
    match host.and_then(|h| crate::wire::host_name_fault(h)) {
        Some(why) => Err(("array.host", why)),
        None => Ok(()),
    }
}

impl ManagerConfig {
    /// Returns the platform of the virtual machines of this host, and the keys that every platform
    /// has.
    ///
    /// # Errors
    /// Two hosts, or values that are invalid, with the key.
    pub fn machines(&self) -> Result<Option<(&str, MachinesConfig)>, (String, String)> {
        let mut tables = self.platforms.iter();
        let Some((name, table)) = tables.next() else {
            return Ok(None);
        };
        let other = tables.next().map(|(other, _)| other.as_str());
        if let Some(other) = other.or(self.array.as_ref().map(|_| "array")) {
            let why =
                format!("is another host than [{other}]: run `terrace agent` for one of the hosts");
            return Err((name.clone(), why));
        }
        let keys = MachinesConfig::deserialize(table).map_err(|e| (name.clone(), e.to_string()))?;
        Ok(Some((name, keys)))
    }
}

/// Checks the table of a host of virtual machines, and the keys that only such hosts have.
fn check_machines(words: &ManagerConfig) -> Result<(), (String, String)> {
    let fault = |why: &str| Err(("tiers".to_owned(), why.to_owned()));
    let Some((name, keys)) = words.machines()? else {
        let storage = words.tiers.iter().any(|t| t.storage().next().is_some());
        let format = words.tiers.iter().any(|t| t.format.is_some());
        return match storage {
            true => fault(
                "with pools, a volume group or ZFS need a table of a platform, such as [libvirt] or [qemu]",
            ),
            false if format => fault(
                "with an image format need a table of a platform, such as [libvirt] or [qemu]",
            ),
            false => Ok(()),
        };
    };
    if let Some(why) = crate::wire::host_name_fault(&keys.host) {
        return Err((format!("{name}.host"), why));
    }
    if words.tiers.is_empty() || words.tiers.iter().any(|t| t.storage().next().is_none()) {
        return fault(
            "of a host of virtual machines need pools, volume_group or zfs: name the storage of each tier",
        );
    }
    let known = |class: &String| words.classes.iter().any(|c| c.name == *class);
    let unknown = keys
        .classes
        .iter()
        .find(|c| !known(&c.class) && c.class != NO_CLASS);
    match unknown {
        Some(unknown) => {
            let why = format!("class \"{}\" is not defined in [[classes]]", unknown.class);
            Err((format!("{name}.classes"), why))
        }
        None => Ok(()),
    }
}

/// Adds the defaults of a live manager to a strategy's parameters. AutoTiering must not delay
/// volumes that violate their objective. It uses the passive reaction of their latency, or assumes
/// the reaction of most guests.
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

/// Treatment of rules that name unknown tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownTiers {
    /// The configuration is invalid.
    Refuse,
    /// The rules take effect when the tiers exist.
    Skip,
}

/// Policy, and the unknown volumes that its rules name.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedRules {
    pub policy: Policy,
    /// Names of these volumes.
    pub unknown: Vec<String>,
}
