//! Parser of LVM's JSON reports of volume groups, thin pools and logical volumes.

use serde_json::Value;

use super::{Space, StoredVolume, VolumeId, number};
use crate::HostError;
use crate::qemu::Field;

/// Options of each report: JSON, sizes in bytes.
const FORM: [&str; 5] = ["--reportformat", "json", "--units", "b", "--nosuffix"];

/// Largest share in a report, in hundredths of a percent.
const PERCENT_MAX: u64 = 10_000;

/// Arguments of `lvs` for [`volumes`].
pub fn volumes_arguments() -> Vec<String> {
    let columns =
        "vg_name,lv_name,lv_uuid,lv_path,lv_dm_path,lv_size,lv_role,lv_layout,pool_lv,data_percent";
    arguments(columns, None)
}

/// Arguments of `vgs` for [`group_space`].
pub fn group_arguments(group: &str) -> Vec<String> {
    arguments("vg_size,vg_free,vg_extent_size", Some(group))
}

/// Arguments of `lvs` for [`pool_space`].
pub fn pool_arguments(group: &str, pool: &str) -> Vec<String> {
    arguments("lv_size,data_percent", Some(&format!("{group}/{pool}")))
}

fn arguments(columns: &str, of: Option<&str>) -> Vec<String> {
    let words = FORM.into_iter().chain(["-o", columns]).chain(of);
    words.map(String::from).collect()
}

/// Parses a report of `lvs`. Returns the logical volumes with a device.
///
/// # Errors
/// The field that is missing or wrong.
pub fn volumes(report: &Value) -> Result<Vec<StoredVolume>, HostError> {
    let rows = rows("lvs", report, "lv")?;
    let volumes = rows.iter().filter_map(|row| volume(row).transpose());
    volumes.collect()
}

fn volume(row: &Field<'_>) -> Result<Option<StoredVolume>, HostError> {
    let text = |name: &str| row.field(name).text();
    let (group, name) = (text("vg_name")?, text("lv_name")?);
    // A cached or compressed volume also names a pool, which is internal.
    let is_thin = text("lv_layout")?.split(',').any(|l| l == "thin");
    let pool = if is_thin { text("pool_lv")? } else { "" };
    let path = text("lv_path")?;
    let roles: Vec<&str> = text("lv_role")?.split(',').collect();
    // Pools and their parts have no device for guests.
    if path.is_empty() || !roles.contains(&"public") {
        return Ok(None);
    }
    let size = bytes(row, "lv_size")?;
    let used = match pool {
        "" => size,
        _ => share(row, "data_percent", size)?.unwrap_or(size),
    };
    let snapshots = roles.contains(&"origin").then(|| "snapshots".to_owned());
    let paths = [path, text("lv_dm_path")?];
    Ok(Some(StoredVolume {
        name: match pool {
            "" => format!("lvm:{group}/{name}"),
            pool => format!("lvm:{group}/{pool}/{name}"),
        },
        paths: paths.map(String::from).to_vec(),
        aliases: vec![],
        id: VolumeId::Lvm(text("lv_uuid")?.into()),
        size,
        used,
        snapshots: snapshots.into_iter().collect(),
    }))
}

/// Returns the space of a volume group and the size of its extents, from a report of `vgs`.
///
/// # Errors
/// The field that is missing or wrong.
pub fn group_space(report: &Value) -> Result<(Space, u64), HostError> {
    let row = only("vgs", report, "vg")?;
    let (size, free) = (bytes(&row, "vg_size")?, bytes(&row, "vg_free")?);
    let used = size.saturating_sub(free);
    Ok((Space { size, used }, bytes(&row, "vg_extent_size")?))
}

/// Returns the space of a thin pool, from a report of `lvs`. A pool of unknown use counts as full.
///
/// # Errors
/// The field that is missing or wrong.
pub fn pool_space(report: &Value) -> Result<Space, HostError> {
    let row = only("lvs", report, "lv")?;
    let size = bytes(&row, "lv_size")?;
    let used = share(&row, "data_percent", size)?.unwrap_or(size);
    Ok(Space { size, used })
}

fn rows<'a>(
    program: &'static str,
    report: &'a Value,
    of: &str,
) -> Result<Vec<Field<'a>>, HostError> {
    let reports = Field::root(program, report).field("report").items()?;
    let mut all = vec![];
    for report in reports {
        all.extend(report.field(of).items()?);
    }
    Ok(all)
}

fn only<'a>(program: &'static str, report: &'a Value, of: &str) -> Result<Field<'a>, HostError> {
    let mut rows = rows(program, report, of)?;
    match rows.len() {
        1 => Ok(rows.remove(0)),
        n => {
            let report = Field::root(program, report).field("report");
            Err(report.fault(&format!("{n} rows instead of one")))
        }
    }
}

fn bytes(row: &Field<'_>, name: &str) -> Result<u64, HostError> {
    let field = row.field(name);
    number(field.text()?, |why| field.fault(why))
}

/// Returns a share of a size; `None` if the report has no percentage, for example for an inactive volume.
fn share(row: &Field<'_>, name: &str, of: u64) -> Result<Option<u64>, HostError> {
    let field = row.field(name);
    let text = field.text()?;
    if text.is_empty() {
        return Ok(None);
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, "00"));
    let fault = || field.fault("not a percentage with two decimals");
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if part.len() != 2 || !digits(whole) || !digits(part) {
        return Err(fault());
    }
    let hundredths: u64 = format!("{whole}{part}").parse().map_err(|_| fault())?;
    if hundredths > PERCENT_MAX {
        return Err(fault());
    }
    let share = u128::from(of) * u128::from(hundredths) / u128::from(PERCENT_MAX);
    Ok(Some(share as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str) -> Value {
        let text = match name {
            "lvs" => include_str!("../../tests/data/lvs.json"),
            _ => include_str!("../../tests/data/vgs.json"),
        };
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn logical_volumes_have_name_size_and_usage() {
        let volumes = volumes(&report("lvs")).unwrap();
        let seen: Vec<_> = volumes
            .iter()
            .map(|v| (&*v.name, v.size >> 20, v.used >> 20, v.snapshots.len()))
            .collect();
        assert_eq!(
            seen,
            [
                ("lvm:vg0/web", 12, 12, 0),
                ("lvm:vg0/thin/db", 1024, 256, 1),
                ("lvm:vg0/thin/db-nightly", 1024, 256, 0),
                ("lvm:vg0/thin/off", 1024, 1024, 0),
                ("lvm:vg0/cached", 1024, 1024, 0),
            ]
        );
        let web = &volumes[0];
        assert_eq!(web.paths, ["/dev/vg0/web", "/dev/mapper/vg0-web"]);
        let uuid = "2cvE0b-nB3n-XPhY-YeCX-mIyu-Su2s-Uubueg".to_owned();
        assert_eq!(web.id, VolumeId::Lvm(uuid));
        let found = super::super::volume_at(&volumes, "/dev/mapper/vg0-db");
        assert_eq!(found.unwrap().name, "lvm:vg0/thin/db");
    }

    #[test]
    fn space_of_a_group_and_of_a_pool_is_read() {
        let (space, extent) = group_space(&report("vgs")).unwrap();
        assert_eq!((space.size >> 20, space.used >> 20), (196, 12));
        assert_eq!(extent, 4 << 20);
        let pool = |percent: &str| serde_json::json!({ "report": [{ "lv": [{ "lv_size": "1000", "data_percent": percent }] }] });
        let used = |percent: &str| pool_space(&pool(percent)).map(|s| s.used);
        assert_eq!(used("41.25"), Ok(412));
        assert_eq!(used(""), Ok(1000), "not active: nobody knows");
        for wrong in ["101.00", "4.5", "x.00", "-1.00", "4.5678"] {
            let why = used(wrong).unwrap_err().to_string();
            let said = "lvs, return.report[0].lv[0].data_percent: not a percentage";
            assert!(why.starts_with(said), "{why}");
        }
    }

    #[test]
    fn invalid_lvm_report_is_refused_with_its_field() {
        for (report, said) in [
            (serde_json::json!({}), "vgs, return.report: not a list"),
            (
                serde_json::json!({ "report": [{ "vg": [] }] }),
                "vgs, return.report: 0 rows instead of one",
            ),
            (
                serde_json::json!({ "report": [{ "vg": [{ "vg_size": "1 GiB" }] }] }),
                "vgs, return.report[0].vg[0].vg_size: not a number",
            ),
        ] {
            assert_eq!(group_space(&report).unwrap_err().to_string(), said);
        }
    }
}
