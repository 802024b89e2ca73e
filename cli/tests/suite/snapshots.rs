//! Snapshots as an operator uses them: created, listed, backed up incrementally with ordinary NBD clients, restored,
//! deleted.

use testkit::needs;

use crate::support::Site;

/// Script that writes blocks of 64 KiB; its arguments are value, first block and number of blocks.
const WRITE: &str = r#"
import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
for value, first, count in (map(int, a.split(":")) for a in sys.argv[2:]):
    h.pwrite(bytes([value]) * (65536 * count), 65536 * first)
h.flush()
h.shutdown()
"#;

/// Script that copies the first export to a file, then only the changes of each later export since the previous one.
const BACK_UP: &str = r#"
import nbd, sys
backup, base, *later = sys.argv[1:]
def connect(uri, since=None):
    h = nbd.NBD()
    if since:
        h.add_meta_context("qemu:dirty-bitmap:" + since)
        h.add_meta_context("base:allocation")
    h.connect_uri(uri)
    return h
def copy(h, f, offset, length):
    while length > 0:
        n = min(length, 1 << 20)
        f.seek(offset)
        f.write(h.pread(n, offset))
        offset, length = offset + n, length - n
name = lambda uri: uri.split("?")[0].split("/")[-1].split("@")[-1]
with open(backup, "w+b") as f:
    h = connect(base)
    f.truncate(h.get_size())
    copy(h, f, 0, h.get_size())
    since = name(base)
    for uri in later:
        h = connect(uri, since)
        context = "qemu:dirty-bitmap:" + since
        assert h.can_meta_context(context) and h.can_meta_context("base:allocation"), context
        dirty, at = [], 0
        def told(metacontext, offset, entries, error):
            if metacontext == context:
                for length, flags in zip(entries[::2], entries[1::2]):
                    if flags & 1:
                        dirty.append((offset, length))
                    offset += length
                told.end = offset
        while at < h.get_size():
            h.block_status(min(h.get_size() - at, 1 << 30), at, told)
            at = told.end
        for offset, length in dirty:
            copy(h, f, offset, length)
        print(sum(length for _, length in dirty) >> 20)
        since = name(uri)
    f.seek(0)
    h = connect(later[-1])
    at = 0
    while at < h.get_size():
        assert f.read(1 << 20) == bytes(h.pread(1 << 20, at)), at
        at += 1 << 20
print("0 bytes differ")
"#;

#[test]
fn snapshots_are_created_backed_up_restored_and_deleted() {
    if !needs::programs(&["/usr/bin/python3", "nbdinfo"]) {
        return;
    }
    let mut site = Site::new(&[("data", 64), ("other", 8)]);
    let not_served = site.run(&["volume", "snapshot", "create", "data", "early"]);
    let why = String::from_utf8_lossy(&not_served.stderr).into_owned();
    assert!(
        !not_served.status.success() && why.contains("is not served"),
        "{why}"
    );
    site.serve(&[]);
    let python = |script: &str, args: &[&str]| {
        let args: Vec<&str> = ["-c", script].iter().chain(args).copied().collect();
        site.client("/usr/bin/python3", &args)
    };
    let write = |what: &[&str]| {
        let uri = site.uri("data");
        let args: Vec<&str> = [uri.as_str()].iter().chain(what).copied().collect();
        python(WRITE, &args);
    };
    write(&["1:0:320"]);
    site.ok(&["volume", "snapshot", "create", "data", "mon"]);
    write(&["2:16:1", "2:600:1"]);
    site.ok(&["volume", "snapshot", "create", "data", "tue"]);
    // Changes count by extent: these three blocks are in two extents. A snapshot of another volume changes nothing.
    site.ok(&["volume", "snapshot", "create", "other", "tue"]);
    write(&["3:0:1", "3:16:1", "3:17:1"]);
    site.ok(&["volume", "snapshot", "create", "data", "wed"]);
    let uris = ["data@mon", "data@tue", "data@wed"].map(|name| site.uri(name));
    let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
    let backup = [&["backup.img"], &uris[..]].concat();
    // Extents of 1 MiB: two on Tuesday, two on Wednesday.
    assert_eq!(python(BACK_UP, &backup), "2\n2\n0 bytes differ\n");
    // After the deletion of the snapshot in between, the last snapshot has the changes of both days.
    site.ok(&["volume", "snapshot", "delete", "data@tue", "--yes"]);
    let backup = ["backup.img", uris[0], uris[2]];
    assert_eq!(python(BACK_UP, &backup), "3\n0 bytes differ\n");

    let list = site.json(&["volume", "snapshot", "list", "data"]);
    assert_eq!(list["schema"], "terrace.volume.snapshot.list/1");
    let names = list["snapshots"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["data@mon", "data@wed"]);
    let all = site.ok(&["volume", "snapshot", "list"]);
    assert!(all.contains("other@tue") && all.contains("taken"), "{all}");
    assert!(!site.ok(&["volume", "list"]).contains('@'));

    for (words, why) in [
        (&["delete", "data@mon"][..], "add --yes"),
        (&["restore", "data@mon"], "add --yes"),
        (&["delete", "data", "--yes"], "is not a snapshot"),
        (&["restore", "other", "--yes"], "is not a snapshot"),
        (&["create", "dato", "x"], "did you mean"),
        (&["create", "data", "mon"], "already"),
        (&["list", "dato"], "did you mean"),
    ] {
        let words = [&["volume", "snapshot"], words].concat();
        let out = site.run(&words);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(
            !out.status.success() && said.contains(why),
            "{words:?}: {said}"
        );
    }
    site.ok(&["volume", "snapshot", "restore", "data@mon", "--yes"]);
    let restored = ["backup.img", uris[0], &site.uri("data")];
    let restored = python(
        &BACK_UP.replace("h = connect(uri, since)", "continue"),
        &restored,
    );
    assert_eq!(restored, "0 bytes differ\n");
    // The snapshots survive a kill of the server.
    site.kill();
    site.serve(&[]);
    let uris = ["data@mon", "data@wed"].map(|name| site.uri(name));
    let again = site.client(
        "/usr/bin/python3",
        &["-c", BACK_UP, "backup.img", &uris[0], &uris[1]],
    );
    assert_eq!(again, "3\n0 bytes differ\n");
    site.stop();
    site.ok(&["volume", "check"]);
}
