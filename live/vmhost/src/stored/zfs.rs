//! Parser of the output of `zfs list` for datasets and volumes.

use super::{Space, StoredVolume, VolumeId, number};
use crate::HostError;

/// Arguments of `zfs` for [`volumes`].
pub const VOLUMES_ARGUMENTS: [&str; 6] = [
    "list",
    "-Hp",
    "-t",
    "volume",
    "-o",
    "name,guid,volsize,used",
];

/// Arguments of `zfs` for [`space`].
pub fn space_arguments(dataset: &str) -> [&str; 5] {
    ["list", "-Hp", "-o", "used,available", dataset]
}

/// Arguments of `zfs` for [`snapshots`]; volumes without snapshots have no line.
pub fn snapshots_arguments<'a>(volumes: &[&'a str]) -> Vec<&'a str> {
    let words = ["list", "-Hp", "-d", "1", "-t", "snapshot", "-o", "name"];
    words.into_iter().chain(volumes.iter().copied()).collect()
}

/// Parses a listing of volumes; their snapshots are not included.
///
/// # Errors
/// The line that has another form.
pub fn volumes(listing: &str) -> Result<Vec<StoredVolume>, HostError> {
    let lines = listing.lines().enumerate();
    let volume = |(n, line): (usize, &str)| {
        let [name, guid, size, used] = columns(line, n)?;
        let number = |text: &str| number(text, |why| fault(n, &format!("{text:?}: {why}")));
        Ok(StoredVolume {
            name: format!("zfs:{name}"),
            paths: vec![format!("/dev/zvol/{name}")],
            aliases: vec![],
            id: VolumeId::Zfs(number(guid)?),
            size: number(size)?,
            used: number(used)?,
            snapshots: vec![],
        })
    };
    lines.map(volume).collect()
}

/// Returns the snapshots of a volume in a listing.
pub fn snapshots(listing: &str, volume: &str) -> Vec<String> {
    let of_it = |line: &&str| {
        line.strip_prefix(volume)
            .is_some_and(|l| l.starts_with('@'))
    };
    listing.lines().filter(of_it).map(String::from).collect()
}

/// Returns the space of a dataset.
///
/// # Errors
/// The listing has another form.
pub fn space(listing: &str) -> Result<Space, HostError> {
    let line = listing.lines().next().unwrap_or("");
    let [used, available] = columns(line, 0)?;
    let number = |text: &str| number(text, |why| fault(0, &format!("{text:?}: {why}")));
    let (used, available) = (number(used)?, number(available)?);
    Ok(Space {
        size: used.saturating_add(available),
        used,
    })
}

fn columns<const N: usize>(line: &str, n: usize) -> Result<[&str; N], HostError> {
    let columns: Vec<&str> = line.split('\t').collect();
    let said = |c: Vec<&str>| fault(n, &format!("{} columns instead of {N}", c.len()));
    columns.try_into().map_err(said)
}

fn fault(line: usize, why: &str) -> HostError {
    HostError::Line {
        what: "zfs list",
        line: line + 1,
        why: why.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUMES: &str = include_str!("../../tests/data/zfs-volumes.txt");
    const SNAPSHOTS: &str = include_str!("../../tests/data/zfs-snapshots.txt");

    #[test]
    fn zfs_volumes_have_name_size_and_usage() {
        let volumes = volumes(VOLUMES).unwrap();
        let seen: Vec<_> = volumes
            .iter()
            .map(|v| (&*v.name, v.size >> 30, v.used >> 20, v.id.clone()))
            .collect();
        assert_eq!(
            seen,
            [
                (
                    "zfs:tank/vm/db",
                    32,
                    33_792,
                    VolumeId::Zfs(8_174_630_287_552_930_107)
                ),
                (
                    "zfs:tank/vm/web",
                    8,
                    1_536,
                    VolumeId::Zfs(13_407_215_983_774_264_209)
                ),
            ]
        );
        assert_eq!(volumes[0].paths, ["/dev/zvol/tank/vm/db"]);
        let of = |volume| snapshots(SNAPSHOTS, volume);
        assert_eq!(
            of("tank/vm/web"),
            ["tank/vm/web@monday", "tank/vm/web@tuesday"]
        );
        assert!(of("tank/vm/we").is_empty() && of("tank/vm/db").is_empty());
    }

    #[test]
    fn dataset_space_is_used_plus_available() {
        let found = space("1000\t5000\n").unwrap();
        assert_eq!((found.size, found.used), (6000, 1000));
        for (text, said) in [
            ("", "zfs list, line 1: 1 columns instead of 2"),
            ("1000\t-\n", "zfs list, line 1: \"-\": not a number"),
            ("1\t2\t3\n", "3 columns instead of 2"),
        ] {
            let why = space(text).unwrap_err().to_string();
            assert!(why.contains(said), "{why}");
        }
        let why = volumes("a\t1\t2\t3\nb\tx\t2\t3\n").unwrap_err().to_string();
        assert_eq!(why, "zfs list, line 2: \"x\": not a number");
    }
}
