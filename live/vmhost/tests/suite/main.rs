//! Tests of parsers and inventories with texts of libvirt.

mod moving;
mod qemu;
mod stored;
mod verdict;

use manager::wire::{DeviceIoCounts, HandMove, Placed, filled};
use proptest::prelude::*;
use serde_json::json;
use vmhost::builds::CopyInitiator;
use vmhost::*;

const WEB: &str = "<domain type='qemu' id='4'>
  <name>web</name>
  <uuid>b03dd36f-4a51-4d9f-82e2-5069d986b23f</uuid>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/>
      <source file='/pools/slow/web.raw' index='3'/>
      <backingStore/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <disk type='volume' device='disk'>
      <driver name='qemu' type='qcow2'/>
      <source pool='fast' volume='data.qcow2'/>
      <backingStore type='file'>
        <format type='qcow2'/>
        <source file='/pools/fast/base.qcow2'/>
        <backingStore/>
      </backingStore>
      <target dev='vdb' bus='virtio'/>
      <iotune><total_iops_sec>500</total_iops_sec></iotune>
    </disk>
    <disk type='file' device='cdrom'><target dev='sda' bus='sata'/><readonly/></disk>
    <disk type='block' device='disk'>
      <driver name='qemu' type='raw'/><source dev='/dev/vg/web'/><backingStore/><target dev='vdc'/>
    </disk>
  </devices>
</domain>";

const STATS: &str = "Domain: 'web'
  block.count=3
  block.0.name=vda
  block.0.path=/pools/slow/web.raw
  block.0.rd.reqs=352
  block.0.rd.bytes=1438208
  block.0.rd.times=703788674
  block.0.wr.reqs=113
  block.0.wr.bytes=462848
  block.0.wr.times=559184060
  block.0.fl.reqs=2
  block.0.fl.times=1000
  block.0.capacity=67108864
  block.0.physical=466944
  block.1.name=vdb
  block.1.path=/pools/fast/data.qcow2
  block.1.capacity=1073741824
  block.1.physical=200704
  block.2.name=sda

Domain: 'it's'
  block.count=0
";

fn disk(with: &str) -> Disk {
    let text = format!(
        "<domain><name>v</name><uuid>u</uuid><devices><disk type='file' device='disk'>
         <driver type='raw'/><source file='/a/b'/><backingStore/><target dev='vda'/>{with}</disk></devices></domain>"
    );
    Domain::of_xml(&text).unwrap().disks.remove(0)
}

fn info(said: &serde_json::Value) -> Result<ImageInfo, HostError> {
    Ok(ImageInfo::of(said).unwrap())
}

/// Returns a domain whose disks may move, as far as its definition permits.
fn known(xml: &str) -> RunningDomain {
    let domain = Domain::of_xml(xml).unwrap();
    let facts = |d: &Disk| {
        let plain = json!({
            "virtual-size": 4194304, "cluster-size": 65536,
            "format-specific": { "type": "qcow2", "data": { "compat": "1.1" } },
        });
        let facts = DiskFacts {
            info: info(&plain),
            named_by: None,
            renamable: true,
            storage: None,
        };
        (d.target.clone(), facts)
    };
    RunningDomain {
        disks: domain.disks.iter().map(facts).collect(),
        domain: Domain {
            id: Some(4),
            ..domain
        },
        id: 4,
        build: Ok(builds::of_program("QEMU emulator version 7.2.22").unwrap()),
        metadata: Ok(Metadata::default()),
    }
}

fn fixed(of: &str) -> Option<String> {
    let known = known(of);
    let verdict = known.verdict(&known.domain.disks[0], CopyInitiator::Libvirt);
    verdict.err().map(|why| why.to_string())
}

#[test]
fn domain_has_its_disks_and_immovable_ones_have_a_reason() {
    let known = known(WEB);
    let web = &known.domain;
    assert_eq!((web.name.as_str(), web.platform), ("web", None));
    let disks: Vec<_> = web
        .disks
        .iter()
        .map(|d| {
            (
                d.target.as_str(),
                known.verdict(d, CopyInitiator::Libvirt).err(),
            )
        })
        .collect();
    assert_eq!(
        disks,
        [
            ("vda", None),
            ("vdb", Some(StayReason::Chain(1))),
            ("sda", Some(StayReason::NoDisk)),
            ("vdc", None),
        ]
    );
    assert!(web.disks[1].limited && !web.disks[0].limited);
    let plain = "<domain><name>v</name><uuid>u</uuid><devices><disk type='file'><source file='/a/b'/><target dev='vda'/>";
    let with = |more: &str| fixed(&format!("{plain}{more}</disk></devices></domain>")).unwrap();
    assert!(with("<backingStore/>").contains("must not be guessed"));
    assert!(with("<driver type='raw'/>").contains("its image may have backing images"));
    assert!(with("<driver type='vmdk'/><backingStore/>").contains("\"vmdk\""));
    let copied = disk("<mirror type='file' job='copy' ready='yes'><format type='raw'/><source file='/c'/></mirror>").mirror.unwrap();
    assert_eq!(
        (copied.to.unwrap().to_string(), copied.ready),
        ("/c (raw)".into(), true)
    );
    assert!(
        disk("<mirror type='file' job='active-commit'/>")
            .mirror
            .unwrap()
            .to
            .is_none()
    );
    assert!(disk("<shareable/>").shareable && disk("<transient/>").transient);
    let owned = "<domain><name>v</name><uuid>u</uuid>
        <metadata><nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'/></metadata>
        <devices><disk type='file'><driver type='raw'/><source file='/a'/><backingStore/><target dev='vda'/></disk></devices></domain>";
    assert_eq!(
        fixed(owned).unwrap(),
        "OpenStack owns its domain: move the disk with the tools of that platform"
    );
}

#[test]
fn invalid_domain_xml_is_refused_with_its_line() {
    for (text, said) in [
        ("<domain><name>", "domain: not XML: "),
        (
            "<pool/>",
            "domain, line 1: the root element is not <domain>",
        ),
        (
            "<domain>\n<uuid>u</uuid></domain>",
            "domain, line 1: <name> is missing",
        ),
        ("<domain><name>v</name></domain>", "<uuid> is missing"),
        (
            "<domain><name>v</name><uuid>u</uuid>\n<devices>\n<disk/></devices></domain>",
            "domain \"v\", line 3: a disk has no <target dev=…>",
        ),
        (
            "<domain><name>v</name><uuid>u</uuid><devices><disk device='tape'><target dev='x'/></disk></devices></domain>",
            "disk x: unknown device=\"tape\"",
        ),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><domain/>", "not XML: "),
    ] {
        let got = Domain::of_xml(text).unwrap_err().to_string();
        assert!(got.contains(said), "{got}");
    }
}

#[test]
fn lists_and_statistics_are_read_and_invalid_lines_named() {
    let domains = listed("b03d 4 web\n\n a1 - my old one  \n").unwrap();
    assert_eq!(
        domains
            .iter()
            .map(|l| (l.id, l.name.as_str()))
            .collect::<Vec<_>>(),
        [(Some(4), "web"), (None, "my old one")]
    );
    let wrong = listed("b03d 4 web\nb03d x web\n").unwrap_err().to_string();
    assert!(wrong.contains("line 2: the id is not a number"), "{wrong}");
    assert!(listed("alone\n").is_err());
    let stats = domain_stats(STATS).unwrap();
    assert_eq!(stats[1].domain, "it's");
    let vda = &stats[0].blocks[0];
    assert_eq!(vda.target, "vda");
    assert_eq!(
        vda.writes,
        Some(Direction {
            requests: 113,
            bytes: 462_848,
            time_ns: 559_184_060
        })
    );
    assert_eq!(stats[0].blocks[1].reads, None);
    for (text, said) in [
        (
            "block.count=1",
            "line 1: \"block.count=1\" does not belong to a domain",
        ),
        (
            "Domain: 'a'\nnonsense",
            "line 2: \"nonsense\" is not key=value",
        ),
        (
            "Domain: 'a'\nblock.0.rd.reqs=-1",
            "rd.reqs is not a number: \"-1\"",
        ),
        (
            "Domain: 'a'\nblock.1.name=vda",
            "block 1 comes before block 0",
        ),
        ("Domain: 'a", "has no closing quote"),
    ] {
        let got = domain_stats(text).unwrap_err().to_string();
        assert!(got.contains(said), "{got}");
    }
}

fn place(name: &str, tier: &str, path: &str) -> Place {
    Place {
        name: name.into(),
        tier: tier.into(),
        path: path.into(),
        size: 1 << 40,
        used: 1 << 30,
        io: None,
        connected: true,
    }
}

#[test]
fn inventory_is_reported_as_an_array_of_disks() {
    let tiers = ["fast".to_owned(), "slow".to_owned()];
    let places = [
        place("fast", "fast", "/pools/fast"),
        Place {
            io: Some(DeviceIoCounts {
                reads: 7,
                ..DeviceIoCounts::default()
            }),
            ..place("/pools/slow", "slow", "/pools/slow")
        },
        place("all", "slow", "/pools"),
    ];
    let pools = [Pool::of_xml(
        "<pool type='dir'><name>fast</name><target><path>/pools/fast</path></target></pool>",
    )
    .unwrap()];
    let stats = domain_stats(STATS).unwrap();
    let of_life = |id| RunningDomain { id, ..known(WEB) };
    let (four, five) = (of_life(4), of_life(5));
    let inventory = Inventory {
        tiers: &tiers,
        places: &places,
        pools: &pools,
        stored: &[],
        domains: vec![&four],
        stats: &stats,
        by: CopyInitiator::Libvirt,
    };
    let snapshot = inventory.snapshot(|name| format!("class of {name}"));
    let volumes: Vec<_> = snapshot.volumes.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(volumes, ["web:vda", "web:vdb"]);
    let vda = &snapshot.volumes[0];
    assert_eq!((vda.home.as_str(), vda.size_bytes), ("slow", 67_108_864));
    assert_eq!(vda.class, "class of web:vda");
    let on = |device: &str, bytes| {
        vec![Placed {
            device: device.into(),
            bytes,
        }]
    };
    assert_eq!(
        vda.placed,
        on("/pools/slow", 466_944),
        "the innermost place"
    );
    let counts = vda.counts.as_ref().unwrap();
    assert_eq!((counts.since_ns, counts.total.writes.ios), (4, 115));
    assert_eq!(counts.total.depth_ns, 703_788_674 + 559_184_060 + 1000);
    assert_eq!(snapshot.volumes[1].counts, None, "nobody said");
    assert_eq!(
        inventory.left_out(),
        [(
            "web:vdc".to_owned(),
            "/dev/vg/web is not in the storage of any tier".to_owned()
        )]
    );
    let (_, disk) = inventory.disk_of("web:vdb").unwrap();
    let image = disk.image(|pool| inventory.directory_of(pool)).unwrap();
    assert_eq!(image.to_string(), "/pools/fast/data.qcow2 (qcow2)");
    assert_eq!(vda.bound, None);
    let bound = snapshot.volumes[1].bound.as_ref().unwrap();
    assert_eq!(
        (bound.why.as_str(), bound.by_hand),
        ("backing images below its image: 1", false)
    );
    let Some(HandMove::Command {
        text, needed_bytes, ..
    }) = &vda.by_hand
    else {
        panic!("{:?}", vda.by_hand)
    };
    assert_eq!(*needed_bytes, 4_194_304 + SPARE_BYTES);
    let command = filled(text, &places[0].path, "", "");
    let to = format!("'{}/web.raw' --format raw", places[0].path);
    assert!(command.contains(&to), "{command}");
    let why = "backing images below its image: 1";
    let refused = HandMove::None { why: why.into() };
    assert_eq!(snapshot.volumes[1].by_hand, Some(refused));
    // Counters of the kernel are used if there are any. Otherwise those of the disks are used, which restart with a
    // domain.
    assert_eq!(snapshot.devices[1].io.reads, 7);
    let again = Inventory {
        domains: vec![&five],
        ..inventory.clone()
    };
    let again = again.snapshot(|_| "c".into());
    assert_ne!(snapshot.devices[0].since_ns, again.devices[0].since_ns);
    assert_eq!(snapshot.devices[1].since_ns, again.devices[1].since_ns);
    let untold = Inventory {
        places: &places[..1],
        ..inventory.clone()
    };
    let left_out = untold.left_out();
    assert_eq!(
        left_out[0].1,
        "/pools/slow/web.raw is not in the storage of any tier"
    );
}

#[test]
fn directory_pool_has_a_path() {
    let pool = |text: &str| Pool::of_xml(text);
    let dir = pool("<pool type='dir'>\n<name>p</name><target><path> /a/ </path></target></pool>")
        .unwrap();
    assert_eq!(dir.directory(), Some("/a"));
    let rbd = pool("<pool type='rbd'><name>p</name></pool>").unwrap();
    assert_eq!(rbd.directory(), None);
    assert!(
        pool("<pool><name>p</name></pool>")
            .unwrap_err()
            .to_string()
            .contains("is not <pool type=…>")
    );
    assert!(
        pool("<pool type='dir'/>")
            .unwrap_err()
            .to_string()
            .contains("<name> is missing")
    );
}

#[test]
fn media_are_ranked_by_kernel_information() {
    let of = |transport, rotational| {
        guessed(Medium {
            transport,
            rotational,
        })
    };
    assert_eq!(of(Transport::Nvme, Some(false)).preset, "nvme-tlc");
    assert!(of(Transport::Nvme, None) < of(Transport::Scsi, Some(false)));
    assert!(of(Transport::Sata, Some(false)) < of(Transport::Sata, Some(true)));
}

proptest! {
    /// No text causes a panic.
    #[test]
    fn damaged_input_does_not_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), which in 0usize..2) {
        let mut text = [WEB, STATS][which].as_bytes().to_vec();
        let at = at.index(text.len());
        text[at] = byte;
        let text = String::from_utf8_lossy(&text);
        let _ = (Domain::of_xml(&text), domain_stats(&text), listed(&text), Pool::of_xml(&text));
    }
}
