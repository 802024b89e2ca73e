//! Disks on LVM, ZFS, block devices and networks as volumes of tiers.

use manager::wire::{HandMove, filled};
use vmhost::builds::CopyInitiator;
use vmhost::stored::{StoredVolume, lvm, zfs};
use vmhost::*;

use crate::{known, place};

/// Domain with a disk of each kind.
const DB: &str = "<domain type='kvm' id='4'>
  <name>db</name>
  <uuid>b03dd36f-4a51-4d9f-82e2-5069d986b23f</uuid>
  <devices>
    <disk type='block' device='disk'>
      <driver name='qemu' type='raw'/><source dev='/dev/vg0/db'/><backingStore/><target dev='vda'/>
    </disk>
    <disk type='block' device='disk'>
      <driver name='qemu' type='raw'/>
      <source dev='/dev/zvol/tank/vm/web'><slices><slice type='storage' offset='0' size='1000'/></slices></source>
      <backingStore/><target dev='vdb'/>
    </disk>
    <disk type='block' device='disk'>
      <driver name='qemu' type='raw'/><source dev='/dev/sdx'/><backingStore/><target dev='vdc'/>
    </disk>
    <disk type='network' device='disk'>
      <driver name='qemu' type='raw'/>
      <auth username='libvirt'><secret type='ceph' uuid='7b1'/></auth>
      <source protocol='rbd' name='ssd/db'>
        <host name='mon1' port='6789'/>
        <auth username='libvirt'>
          <secret type='ceph' uuid='7b1'/>
        </auth>
      </source>
      <backingStore/><target dev='vdd'/>
    </disk>
    <disk type='network' device='disk'>
      <driver name='qemu' type='raw'/>
      <source protocol='iscsi' name='iqn.2013-07.com.example:a/2'><host name='t' port='3260'/></source>
      <backingStore/><target dev='vde'/>
    </disk>
  </devices>
</domain>";

fn stats() -> Vec<DomainStats> {
    let disks = ["vda", "vdb", "vdc", "vdd", "vde"].iter().enumerate();
    let lines = disks.map(|(n, disk)| {
        format!(
            "  block.{n}.name={disk}\n  block.{n}.capacity=1073741824\n  block.{n}.physical={}\n",
            // QEMU reports the size of a device, and nothing for a network.
            if n < 3 { 1_073_741_824 } else { 0 }
        )
    });
    domain_stats(&format!("Domain: 'db'\n{}", lines.collect::<String>())).unwrap()
}

/// Returns the volumes of the recorded listings.
fn volumes() -> Vec<StoredVolume> {
    let report = serde_json::from_str(include_str!("../data/lvs.json")).unwrap();
    let mut volumes = lvm::volumes(&report).unwrap();
    volumes.extend(zfs::volumes(include_str!("../data/zfs-volumes.txt")).unwrap());
    volumes
}

fn with<T>(of: impl FnOnce(Inventory<'_>) -> T) -> T {
    let mut known = known(DB);
    for (target, facts) in &mut known.disks {
        facts.storage = match &**target {
            "vdd" => Some(StayReason::Network("rbd".into())),
            "vde" => Some(StayReason::Network("iscsi".into())),
            _ => Some(StayReason::BlockDevice),
        };
    }
    let names = [
        "lvm:vg0",
        "lvm:vg0/thin",
        "zfs:tank/vm",
        "/dev/sdx",
        "rbd:ssd",
    ];
    let mut places: Vec<Place> = names.iter().map(|n| place(n, "fast", n)).collect();
    places.push(place("iscsi:a", "slow", "iscsi:iqn.2013-07.com.example:a"));
    of(Inventory {
        tiers: &["fast".to_owned(), "slow".to_owned()],
        places: &places,
        pools: &[],
        stored: &volumes(),
        domains: vec![&known],
        stats: &stats(),
        by: CopyInitiator::Libvirt,
    })
}

#[test]
fn disks_without_files_are_volumes_with_their_usage() {
    with(|inventory| {
        let snapshot = inventory.snapshot(|_| "c".into());
        let seen: Vec<_> = snapshot
            .volumes
            .iter()
            .map(|v| {
                (
                    &*v.name,
                    &*v.placed[0].device,
                    v.size_bytes >> 20,
                    v.placed[0].bytes >> 20,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("db:vda", "lvm:vg0/thin", 1024, 256),
                ("db:vdb", "zfs:tank/vm", 1024, 1024),
                ("db:vdc", "/dev/sdx", 1024, 1024),
                ("db:vdd", "rbd:ssd", 1024, 1024),
                ("db:vde", "iscsi:a", 1024, 1024),
            ]
        );
        assert!(inventory.left_out().is_empty());
        let places: Vec<_> = snapshot
            .devices
            .iter()
            .map(|d| d.place.as_deref())
            .collect();
        let expected = [
            "lvm:vg0",
            "lvm:vg0/thin",
            "zfs:tank/vm",
            "device:/dev/sdx",
            "rbd:ssd",
        ];
        assert_eq!(places[..5], expected.map(Some), "no directories");
        for v in &snapshot.volumes {
            let bound = v.bound.as_ref().expect("the agent does not move it");
            assert!(bound.by_hand, "{}: {}", v.name, bound.why);
            assert!(
                matches!(v.by_hand, Some(HandMove::Command { .. })),
                "{:?}",
                v.by_hand
            );
        }
        let why = |n: usize| snapshot.volumes[n].bound.as_ref().unwrap().why.clone();
        assert!(
            why(3).contains("`rbd migration` needs the guest shut off"),
            "{}",
            why(3)
        );
        assert!(why(4).contains("a network (iscsi)"), "{}", why(4));
        assert_eq!(
            inventory.sizes_of("db:vda"),
            (Some(1 << 30), Some(256 << 20))
        );
    });
}

#[test]
fn commands_create_the_target_with_the_size_of_the_disk() {
    with(|inventory| {
        let snapshot = inventory.snapshot(|_| "c".into());
        let command = |n: usize, kind: &str| {
            let Some(HandMove::Command { text, storages, .. }) = &snapshot.volumes[n].by_hand
            else {
                panic!("{:?}", snapshot.volumes[n].by_hand)
            };
            match kind {
                "" => Some(text.clone()),
                kind => storages
                    .iter()
                    .find(|s| s.storage == kind)
                    .map(|s| s.text.clone()),
            }
        };
        let copy = "virsh blockcopy 'db' 'vda'";
        let ends = "--transient-job --synchronous-writes --wait --verbose --pivot";
        assert_eq!(
            filled(&command(0, "").unwrap(), "/srv/it's", "", ""),
            format!("{copy} '/srv/it'\\''s/db-vda.raw' --format raw {ends}")
        );
        let xml = |source: &str| {
            format!(
                "printf \"<disk type='block'><driver type='raw'/><source dev='/dev/{source}/db-vda'>\
                 <slices><slice type='storage' offset='0' size='4194304'/></slices></source></disk>\""
            )
        };
        let copy = format!("{copy} --xml /dev/stdin --reuse-external {ends}");
        for (kind, place, create, source, of) in [
            (
                "lvm",
                "vg0",
                "lvcreate --yes --size 4194304b --name 'db-vda' \"$p\"",
                "%s",
                "\"$p\"",
            ),
            (
                "thin",
                "vg0/thin",
                "lvcreate --yes --virtualsize 4194304b --thinpool \"$p\" --name 'db-vda'",
                "%s",
                "\"${p%%/*}\"",
            ),
            (
                "zfs",
                "tank/vm",
                "zfs create -V 4194304 \"$p/db-vda\" && udevadm settle",
                "zvol/%s",
                "\"$p\"",
            ),
        ] {
            assert_eq!(
                filled(&command(0, kind).unwrap(), place, "", ""),
                format!("p='{place}' && {create} && {} {of} | {copy}", xml(source))
            );
        }
        // Only a disk of the cluster has the credentials for it.
        assert_eq!(command(0, "rbd"), None);
        let rbd = filled(&command(3, "rbd").unwrap(), "hdd", "", "");
        let created = "p='hdd' && rbd create --size 4M \"$p/db-vdd\" && ";
        let access = "<host name='mon1' port='6789'/><auth username='libvirt'><secret type='ceph' uuid='7b1'/></auth>";
        assert!(rbd.starts_with(created) && rbd.contains(access), "{rbd}");
    });
}

#[test]
fn pool_of_devices_finds_disks_by_its_volume_group() {
    let pool = "<pool type='logical'><name>p</name><target><path>/dev/vg0</path></target></pool>";
    let pools = [Pool::of_xml(pool).unwrap()];
    let source = Source::Volume {
        pool: "p".into(),
        volume: "db".into(),
    };
    let at = source.at(|name| directory_of(&pools, name)).unwrap();
    assert_eq!(at.device(), Some("/dev/vg0/db"));
    assert_eq!(pools[0].directory(), None);
}
