//! Drive in the configuration of a VM: its volume, and options that must be preserved.

use crate::{HostError, Limits};

/// Limits of rates among the options of a drive (qemu-server, `Drive.pm`, `%drivedesc_base`).
const LIMITS: [[&str; 3]; 6] = [
    ["mbps", "mbps_max", "bps_max_length"],
    ["mbps_rd", "mbps_rd_max", "bps_rd_max_length"],
    ["mbps_wr", "mbps_wr_max", "bps_wr_max_length"],
    ["iops", "iops_max", "iops_max_length"],
    ["iops_rd", "iops_rd_max", "iops_rd_max_length"],
    ["iops_wr", "iops_wr_max", "iops_wr_max_length"],
];

/// Names of limits in bytes in old configurations.
const OLD_LIMITS: [&str; 3] = ["bps", "bps_rd", "bps_wr"];

const MIB: f64 = 1048576.0;

/// Drive, such as `local:100/vm-100-disk-0.qcow2,iothread=1,size=32G`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    /// Identifier of its volume (`STORAGE:NAME`), a path, `none` or `cdrom`.
    pub file: String,
    /// Other options, in order.
    options: Vec<(String, String)>,
}

/// Limits of a drive in their original text.
pub type LimitOptions = Vec<(String, String)>;

impl Drive {
    /// Reads the text of a drive.
    ///
    /// # Errors
    /// An option without a value, or no volume.
    pub fn parse(key: &str, text: &str) -> Result<Self, HostError> {
        let fault = |why: &str| HostError::Field {
            what: "configuration of a VM",
            field: key.into(),
            why: format!("{why}: {text:?}"),
        };
        let mut file = None;
        let mut options: Vec<(String, String)> = vec![];
        for (i, part) in text.split(',').enumerate() {
            match part.split_once('=') {
                // The first option may omit its key; `volume` is an alias of the key.
                None if i == 0 => file = Some(part.to_owned()),
                Some(("file" | "volume", value)) => file = Some(value.to_owned()),
                Some((name, value)) => options.push((name.into(), value.into())),
                None => return Err(fault("an option has no value")),
            }
        }
        let file = file.filter(|f| !f.is_empty());
        let file = file.ok_or_else(|| fault("no volume"))?;
        Ok(Self { file, options })
    }

    /// Returns the value of an option.
    pub fn option(&self, name: &str) -> Option<&str> {
        let mut options = self.options.iter();
        options.find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Returns the storage and the name of its volume; `None` for a path or an empty drive.
    pub fn volume(&self) -> Option<(&str, &str)> {
        let volume = self.file.split_once(':')?;
        (!self.file.starts_with('/')).then_some(volume)
    }

    pub fn is_cdrom(&self) -> bool {
        self.option("media") == Some("cdrom") || matches!(self.file.as_str(), "none" | "cdrom")
    }

    /// Returns true for the drive that cloud-init reads (qemu-server, `drive_is_cloudinit`).
    pub fn is_cloud_init(&self) -> bool {
        let name = self.volume().map_or("", |(_, name)| name);
        let name = name.rsplit('/').next().unwrap_or(name);
        name == "cloudinit" || name.contains("-cloudinit")
    }

    /// Returns the size in the configuration in bytes. It may be out of date.
    pub fn size(&self) -> Option<u64> {
        let text = self.option("size")?;
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match &text[digits.len()..] {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            _ => return None,
        };
        let number: f64 = digits.parse().ok()?;
        Some((number * (1u64 << shift) as f64) as u64)
    }

    /// Returns the limits in their original text.
    pub fn limit_options(&self) -> LimitOptions {
        let is_limit = |name: &str| LIMITS.as_flattened().contains(&name);
        let options = self.options.iter().filter(|(name, _)| is_limit(name));
        options.cloned().collect()
    }

    /// Returns the text of the drive with other limits. All other options are preserved.
    pub fn with_limits(&self, limits: &LimitOptions) -> String {
        let is_limit = |name: &str| LIMITS.as_flattened().contains(&name);
        let kept = self.options.iter().filter(|(name, _)| !is_limit(name));
        let mut text = self.file.clone();
        for (name, value) in kept.chain(limits) {
            text += &format!(",{name}={value}");
        }
        text
    }

    /// Returns its limits, lowered to this number of requests and bytes per second.
    ///
    /// # Errors
    /// [`HostError::LimitNotNumber`] and [`HostError::OutdatedLimit`].
    pub fn lowered_limits(
        &self,
        requests: Option<u64>,
        bytes: Option<u64>,
    ) -> Result<LimitOptions, HostError> {
        let mut old = OLD_LIMITS.into_iter();
        if let Some(old) = old.find(|name| self.option(name).is_some()) {
            return Err(HostError::OutdatedLimit(old));
        }
        let before = self.limits()?;
        let after = before.lowered(requests, bytes);
        let (before, after) = (before.rates(), after.rates());
        let mut options = vec![];
        for kind in [0..3, 3..6] {
            // Unchanged limits keep their text; changed ones lose their bursts.
            let same = before[kind.clone()] == after[kind.clone()];
            for i in kind {
                let kept = LIMITS[i].iter().filter(|_| same);
                let kept = kept.filter_map(|n| Some(((*n).to_owned(), self.option(n)?.to_owned())));
                options.extend(kept);
                if !same && after[i] > 0 {
                    let text = match i < 3 {
                        true => mib_text(after[i]),
                        false => after[i].to_string(),
                    };
                    options.push((LIMITS[i][0].into(), text));
                }
            }
        }
        Ok(options)
    }

    /// Returns the limits in bytes and requests per second.
    fn limits(&self) -> Result<Limits, HostError> {
        let mut rates = [0; 6];
        for (i, names) in LIMITS.iter().enumerate() {
            let Some(text) = self.option(names[0]) else {
                continue;
            };
            let number = text
                .parse::<f64>()
                .ok()
                .filter(|n| n.is_finite() && *n >= 0.0);
            let number = number.ok_or_else(|| HostError::LimitNotNumber {
                option: names[0],
                value: text.into(),
            })?;
            rates[i] = match i < 3 {
                true => (number * MIB) as u64,
                false => number as u64,
            };
        }
        Ok(Limits::of_rates(rates))
    }
}

/// Returns MiB per second as text, at least a thousandth. Proxmox VE multiplies it by 1,048,576 (qemu-server,
/// `vmconfig_update_disk`).
fn mib_text(bytes: u64) -> String {
    let thousandths = (bytes as f64 / MIB * 1000.0).floor().max(1.0);
    let text = format!("{:.3}", thousandths / 1000.0);
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Returns true if both have the same limits, independent of text and order.
pub fn same_limits(a: &LimitOptions, b: &LimitOptions) -> bool {
    let plain = |options: &LimitOptions| {
        let value = |text: &str| text.parse::<f64>().ok();
        let mut all: Vec<(String, Option<f64>)> = options
            .iter()
            .map(|(n, v)| (n.clone(), value(v)))
            // Zero is no limit.
            .filter(|(_, v)| *v != Some(0.0))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    };
    let (a, b) = (plain(a), plain(b));
    a.iter().all(|(_, v)| v.is_some()) && a == b
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "local:100/vm-100-disk-0.qcow2,cache=writeback,iops_rd=500,iothread=1,mbps=12.5,size=32G";

    #[test]
    fn drive_keeps_options_it_does_not_know() {
        let drive = Drive::parse("scsi0", TEXT).unwrap();
        assert_eq!(drive.volume(), Some(("local", "100/vm-100-disk-0.qcow2")));
        assert_eq!((drive.size(), drive.is_cdrom()), (Some(32 << 30), false));
        let limits = drive.limit_options();
        let other = vec![("iops".to_owned(), "100".to_owned())];
        let limited = drive.with_limits(&other);
        assert_eq!(
            limited,
            "local:100/vm-100-disk-0.qcow2,cache=writeback,iothread=1,size=32G,iops=100"
        );
        let again = Drive::parse("scsi0", &limited).unwrap();
        let back = Drive::parse("scsi0", &again.with_limits(&limits)).unwrap();
        assert!(same_limits(&back.limit_options(), &limits));
        assert_eq!(back.option("cache"), Some("writeback"));
        for (text, said) in [
            ("", "no volume"),
            ("a:b,ssd", "an option has no value"),
            ("ssd=1", "no volume"),
        ] {
            let why = Drive::parse("scsi0", text).unwrap_err().to_string();
            assert!(why.contains("scsi0") && why.contains(said), "{why}");
        }
        let named = Drive::parse("ide2", "size=4M,file=a:cloudinit,media=cdrom").unwrap();
        assert!(named.is_cdrom() && named.is_cloud_init());
        assert_eq!(named.size(), Some(4 << 20));
        assert_eq!(Drive::parse("ide2", "/dev/sda").unwrap().volume(), None);
    }

    #[test]
    fn lowering_limits_changes_no_other_options() {
        let drive = |options: &str| Drive::parse("scsi0", &format!("a:b{options}")).unwrap();
        let lowered = |options: &str, requests, bytes| {
            let limits = drive(options).lowered_limits(requests, bytes).unwrap();
            let text = limits.iter().map(|(n, v)| format!("{n}={v}"));
            text.collect::<Vec<_>>().join(",")
        };
        assert_eq!(lowered("", Some(100), None), "iops=100");
        assert_eq!(lowered(",mbps=12.5", Some(100), None), "mbps=12.5,iops=100");
        assert_eq!(lowered(",mbps=1.5", None, Some(1 << 20)), "mbps=1");
        assert_eq!(
            lowered(",iops=50,iops_max=70", Some(100), None),
            "iops=50,iops_max=70"
        );
        assert_eq!(
            lowered(",iops_rd=500", Some(100), None),
            "iops_rd=50,iops_wr=50"
        );
        assert_eq!(lowered("", None, Some(1)), "mbps=0.001");
        let why = drive(",bps=5")
            .lowered_limits(Some(1), None)
            .unwrap_err()
            .to_string();
        assert!(why.contains("mbps"), "{why}");
        let why = drive(",iops=x")
            .lowered_limits(Some(1), None)
            .unwrap_err()
            .to_string();
        assert!(why.contains("iops=x"), "{why}");
    }

    #[test]
    fn limits_are_compared_as_numbers() {
        let of = |text: &str| {
            Drive::parse("scsi0", &format!("a:b{text}"))
                .unwrap()
                .limit_options()
        };
        assert!(same_limits(
            &of(",mbps=1.50,iops=5"),
            &of(",iops=5,mbps=1.5")
        ));
        assert!(same_limits(&of(",mbps=0"), &of("")));
        assert!(!same_limits(&of(",mbps=1"), &of("")));
        assert!(!same_limits(&of(",mbps=x"), &of(",mbps=x")));
    }
}
