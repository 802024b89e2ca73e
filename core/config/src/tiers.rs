//! Tiers and their devices: configuration tables, and their resolution to a topology.

use model::{Device, DeviceSpec, LoadCurve, Specialty, Tier, Topology};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, DeviceId, Iops, Nanos, TierId};

use crate::unknown::suggestion;
use crate::{ConfigFault, Text};

/// Largest number of devices of a tier. Protects against numbers in the wrong key.
const DEVICES_MAX: usize = 1024;
/// Largest spread of latencies: with a larger one, the mean is meaningless.
const JITTER_SIGMA_MAX: f64 = 3.0;

/// Format of an image file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageFormat {
    /// Raw bytes of the disk.
    Raw,
    /// QEMU's qcow2 format.
    Qcow2,
}

impl ImageFormat {
    /// Returns QEMU's name of the format.
    pub fn name(self) -> &'static str {
        match self {
            ImageFormat::Raw => "raw",
            ImageFormat::Qcow2 => "qcow2",
        }
    }
}

/// Tier: a class of similar devices. Keys of a device (`capacity`, `read_iops` and others) override the values of
/// `preset` or `spec`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TierConfig {
    /// Unique name of the tier.
    pub name: String,
    /// Name of a device preset (`terrace sim presets`). Each tier needs either `preset` or `spec`.
    pub preset: Option<String>,
    /// Complete description of the device, instead of a preset. Exports of live arrays contain it.
    pub spec: Option<DeviceSpec>,
    /// Live, hosts with virtual machines only: libvirt pools, directories, NBD exports, block devices, and pools of
    /// RBD or targets of iSCSI ("rbd:POOL", "iscsi:TARGET"). Each is one device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
    /// Live, libvirt hosts only: LVM volume group of the tier, or a thin pool in it ("GROUP/POOL"). It is one device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_group: Option<String>,
    /// Live, libvirt hosts only: ZFS dataset of the tier; volumes below it hold the disks. It is one device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zfs: Option<String>,
    /// Live, hosts with virtual machines only: format of images in the tier's directories, "raw" or "qcow2". Left
    /// out, an image keeps its format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<ImageFormat>,
    /// Live, libvirt hosts only: moves may overwrite data in the tier's NBD exports and block devices. Default:
    /// false; only empty exports are targets.
    #[serde(default)]
    pub overwrite: bool,
    /// Number of devices, 1 to 1024. Default: 1.
    pub devices: Option<u32>,
    /// Usable space of one device. Default: the preset's.
    pub capacity: Option<Bytes>,
    /// Devices by name, each with its own size, instead of `devices` and `capacity`.
    #[serde(default)]
    pub members: Vec<MemberConfig>,
    /// Largest read rate of one device, requests per second. Default: the preset's.
    pub read_iops: Option<Iops>,
    /// Largest sustained write rate of one device, requests per second. Default: the preset's.
    pub write_iops: Option<Iops>,
    /// Largest read bandwidth of one device. Default: the preset's.
    pub read_bandwidth: Option<BytesPerSec>,
    /// Largest sustained write bandwidth of one device. Default: the preset's.
    pub write_bandwidth: Option<BytesPerSec>,
    /// Read latency of the idle device, without the transfer of data. Default: the preset's.
    pub read_latency: Option<Nanos>,
    /// Write latency of the idle device, without the transfer of data. Default: the preset's.
    pub write_latency: Option<Nanos>,
    /// Growth of latency with load: points (utilization from 0 to 1, factor on the idle latency), from (0, 1) on.
    /// Default: the preset's.
    pub curve: Option<Vec<(f64, f64)>>,
    /// Spread of latencies: sigma of a log-normal factor with mean 1, from 0 (no spread) to 3. Default: the
    /// preset's.
    pub jitter_sigma: Option<f64>,
    /// Purpose of the tier, as weights. Default: by its position; the first tier is for performance, the last one
    /// for space.
    pub specialty: Option<Specialty>,
}

impl TierConfig {
    /// Returns the storage of the tier as `terrace agent --tier` names it, each with its key.
    pub fn storage(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        let named = |key, kind: &str, name: &Option<String>| {
            let name = name.as_ref().map(|name| format!("{kind}:{name}"));
            name.map(|name| (key, name))
        };
        let pools = self.pools.iter().map(|p| ("pools", p.clone()));
        pools
            .chain(named("volume_group", "lvm", &self.volume_group))
            .chain(named("zfs", "zfs", &self.zfs))
    }
}

/// One device of a tier.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemberConfig {
    /// Unique name among the devices of all tiers.
    pub name: String,
    /// Usable space. Default: that of the tier's preset or spec.
    pub capacity: Option<Bytes>,
    /// Complete description of the device, if it differs from the tier's other devices.
    pub spec: Option<DeviceSpec>,
}

/// Returns the topology of the tiers at the key `tiers`, high end first.
///
/// # Errors
/// An empty list of tiers, duplicate names, and invalid values.
pub fn resolve_topology(text: &Text, tiers: &[TierConfig]) -> Result<Topology, ConfigFault> {
    let mut topology = Topology {
        tiers: vec![],
        devices: vec![],
    };
    if tiers.is_empty() {
        return Err(text.fault("tiers", "at least one tier is needed"));
    }
    for (i, t) in tiers.iter().enumerate() {
        let at = format!("tiers[{i}]");
        if tiers[..i].iter().any(|o| o.name == t.name) {
            let why = format!("tier \"{}\" is listed twice", t.name);
            return Err(text.fault(&format!("{at}.name"), why));
        }
        if t.format.is_some() {
            let why = "is for hosts with virtual machines only: remove it";
            return Err(text.fault(&format!("{at}.format"), why));
        }
        if let Some((key, _)) = t.storage().next() {
            let why = "names storage of hosts with virtual machines only: remove it";
            return Err(text.fault(&format!("{at}.{key}"), why));
        }
        let devices = devices(text, &at, t)?;
        let specialty = t
            .specialty
            .unwrap_or_else(|| Specialty::for_tier(i, tiers.len()));
        if [specialty.performance, specialty.bandwidth, specialty.space]
            .iter()
            .any(|w| !(0.0..=1.0).contains(w))
        {
            let key = format!("{at}.specialty");
            return Err(text.fault(&key, "weights must be shares from 0 to 1"));
        }
        let tier = TierId::from_index(i);
        let first = topology.devices.len();
        for (name, spec) in devices {
            if topology.devices.iter().any(|d| d.name == name) {
                let key = if t.members.is_empty() {
                    "name"
                } else {
                    "members"
                };
                let why = format!("two devices have the name \"{name}\"");
                return Err(text.fault(&format!("{at}.{key}"), why));
            }
            topology.devices.push(Device { name, tier, spec });
        }
        let devices = (first..topology.devices.len())
            .map(DeviceId::from_index)
            .collect();
        topology.tiers.push(Tier {
            name: t.name.clone(),
            specialty,
            devices,
        });
    }
    Ok(topology)
}

/// Returns names and specs of a tier's devices.
fn devices(
    text: &Text,
    at: &str,
    t: &TierConfig,
) -> Result<Vec<(String, DeviceSpec)>, ConfigFault> {
    let spec = resolve_tier_spec(text, at, t)?;
    if t.members.is_empty() {
        let n = t.devices.unwrap_or(1);
        if !(1..=DEVICES_MAX).contains(&(n as usize)) {
            let why = format!("{n} is not between 1 and {DEVICES_MAX}");
            return Err(text.fault(&format!("{at}.devices"), why));
        }
        let name = |i: u32| match n {
            1 => t.name.clone(),
            _ => format!("{}-{i}", t.name),
        };
        return Ok((0..n).map(|i| (name(i), spec.clone())).collect());
    }
    for (key, given) in [
        ("devices", t.devices.is_some()),
        ("capacity", t.capacity.is_some()),
    ] {
        if given {
            let why = "use either members, or devices and capacity";
            return Err(text.fault(&format!("{at}.{key}"), why));
        }
    }
    if t.members.len() > DEVICES_MAX {
        let why = format!("{} devices are more than {DEVICES_MAX}", t.members.len());
        return Err(text.fault(&format!("{at}.members"), why));
    }
    let mut out = Vec::with_capacity(t.members.len());
    for (i, member) in t.members.iter().enumerate() {
        let key = |key: &str| format!("{at}.members[{i}].{key}");
        if t.members[..i].iter().any(|o| o.name == member.name) {
            let why = format!("device \"{}\" is listed twice", member.name);
            return Err(text.fault(&key("name"), why));
        }
        let capacity = member.capacity.unwrap_or(spec.capacity);
        if capacity == Bytes::ZERO {
            return Err(text.fault(&key("capacity"), "must be above 0"));
        }
        let own = member.spec.as_ref().unwrap_or(&spec);
        check_spec(text, &key("spec"), own)?;
        let spec = DeviceSpec {
            capacity,
            ..own.clone()
        };
        out.push((member.name.clone(), spec));
    }
    Ok(out)
}

/// Returns the spec of one device of a tier whose key is `at`, such as `tiers[0]`. Members may differ from it.
///
/// # Errors
/// An unknown preset, and invalid values.
pub fn resolve_tier_spec(text: &Text, at: &str, t: &TierConfig) -> Result<DeviceSpec, ConfigFault> {
    let key = |key: &str| format!("{at}.{key}");
    let mut spec = match (&t.preset, &t.spec) {
        (Some(name), None) => {
            let preset = model::preset(name).ok_or_else(|| {
                let why = suggestion(name, model::PRESETS.iter().map(|p| p.name));
                text.fault(&key("preset"), format!("unknown device \"{name}\"{why}"))
            })?;
            preset.spec()
        }
        (None, Some(spec)) => spec.clone(),
        (None, None) => return Err(text.fault(at, "needs a preset or a spec")),
        (Some(_), Some(_)) => {
            return Err(text.fault(&key("spec"), "use either a preset or a spec"));
        }
    };
    spec.capacity = t.capacity.unwrap_or(spec.capacity);
    spec.read_iops = t.read_iops.map_or(spec.read_iops, |r| r.0);
    spec.write_iops = t.write_iops.map_or(spec.write_iops, |r| r.0);
    spec.read_bandwidth = t.read_bandwidth.unwrap_or(spec.read_bandwidth);
    spec.write_bandwidth = t.write_bandwidth.unwrap_or(spec.write_bandwidth);
    spec.read_latency = t.read_latency.unwrap_or(spec.read_latency);
    spec.write_latency = t.write_latency.unwrap_or(spec.write_latency);
    spec.jitter_sigma = t.jitter_sigma.unwrap_or(spec.jitter_sigma);
    if let Some(points) = &t.curve {
        spec.curve =
            LoadCurve::new(points.clone()).map_err(|e| text.fault(&key("curve"), e.to_string()))?;
    }
    check_spec(text, at, &spec)?;
    Ok(spec)
}

/// Rejects a device with an invalid capability.
fn check_spec(text: &Text, at: &str, spec: &DeviceSpec) -> Result<(), ConfigFault> {
    let key = |key: &str| format!("{at}.{key}");
    let positive = [
        ("capacity", spec.capacity.as_f64()),
        ("read_iops", spec.read_iops),
        ("write_iops", spec.write_iops),
        ("read_bandwidth", spec.read_bandwidth.as_f64()),
        ("write_bandwidth", spec.write_bandwidth.as_f64()),
    ];
    if let Some((name, _)) = positive.iter().find(|(_, v)| *v <= 0.0) {
        return Err(text.fault(&key(name), "must be above 0"));
    }
    if !(0.0..=JITTER_SIGMA_MAX).contains(&spec.jitter_sigma) {
        let why = format!("must be between 0 and {JITTER_SIGMA_MAX}");
        return Err(text.fault(&key("jitter_sigma"), why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(toml: &str) -> Result<Topology, String> {
        #[derive(Deserialize, JsonSchema)]
        struct Words {
            tiers: Vec<TierConfig>,
        }
        let (words, text) = crate::read::<Words>("x.toml", toml).map_err(|e| e.to_string())?;
        resolve_topology(&text, &words.tiers).map_err(|e| e.to_string())
    }

    const TWO: &str = "[[tiers]]\nname = \"fast\"\npreset = \"pm953\"\nmembers = [{ name = \"nvme-0\", capacity = \"4 GiB\" }, { name = \"nvme-1\" }]\n";

    #[test]
    fn members_have_distinct_names_and_sizes() {
        let topology = resolve(TWO).unwrap();
        let names: Vec<_> = topology.devices.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["nvme-0", "nvme-1"]);
        assert_eq!(topology.devices[0].spec.capacity, Bytes::gib(4));
        let preset = model::preset("pm953").unwrap().spec();
        assert_eq!(topology.devices[1].spec, preset);
        assert_eq!(topology.devices[0].spec.read_iops, preset.read_iops);
    }

    #[test]
    fn machine_storage_keys_are_accepted_for_live_hosts_only() {
        let keys = "pools = [\"/srv\"]\nvolume_group = \"vg0/thin\"\nzfs = \"tank/vm\"\n";
        let text = format!("name = \"fast\"\npreset = \"pm953\"\n{keys}");
        let (tier, _) = crate::read::<TierConfig>("x.toml", &text).unwrap();
        let storage: Vec<_> = tier.storage().collect();
        let expected = [
            ("pools", "/srv"),
            ("volume_group", "lvm:vg0/thin"),
            ("zfs", "zfs:tank/vm"),
        ];
        assert_eq!(storage, expected.map(|(key, name)| (key, name.to_owned())));
        let fault = resolve(&format!("{TWO}volume_group = \"vg0\"\n")).unwrap_err();
        assert!(
            fault.starts_with("x.toml:5: ") && fault.contains("virtual machines only"),
            "{fault}"
        );
    }

    #[test]
    fn members_and_the_short_form_exclude_each_other() {
        for key in ["devices = 2", "capacity = \"1 GiB\""] {
            let fault = resolve(&format!("{TWO}{key}\n")).unwrap_err();
            assert!(
                fault.starts_with("x.toml:5: ") && fault.contains("either members, or devices"),
                "{fault}"
            );
        }
        let none = TWO.replace("4 GiB", "0B");
        assert!(resolve(&none).unwrap_err().contains("must be above 0"));
    }

    #[test]
    fn device_names_are_unique() {
        let twice = TWO.replace("nvme-1", "nvme-0");
        let fault = resolve(&twice).unwrap_err();
        assert!(
            fault.contains("members[1].name: device \"nvme-0\" is listed twice"),
            "{fault}"
        );
        let across = format!("{TWO}[[tiers]]\nname = \"nvme-1\"\npreset = \"pm863\"\n");
        let fault = resolve(&across).unwrap_err();
        assert!(
            fault.contains("two devices have the name \"nvme-1\""),
            "{fault}"
        );
    }
}
