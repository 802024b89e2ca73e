//! Ownership of remote tiers: of several servers started from copies of one array directory, only
//! one uses the export.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use datapath::Reach;
use datapath::control_server::{ControlAnswer, ControlRequest, ProblemKind};

use crate::support::{Site, signal, wait_for};

/// Size of the export, which its server keeps in memory.
const EXPORT_BYTES: u64 = 16 << 20;

/// Offset of the first slot (docs/formats/array.md).
const DATA_START: u64 = 1 << 20;

/// Creates an array with one tier on an export, and a volume in that tier.
fn remote_site() -> Site {
    let site = Site::empty();
    let export = site.path("export.sock");
    testkit::export::serve(&export, usize::MAX);
    site.ok(&["tier", "add", "far", "--nbd", &export_uri(&site)]);
    site.ok(&["volume", "create", "db", "--size", "8 MiB", "--tier", "far"]);
    site
}

fn export_uri(site: &Site) -> String {
    format!("nbd+unix:///?socket={}", site.path("export.sock").display())
}

/// Copies the array directory, even while it is served.
fn copied(site: &Site, name: &str) -> PathBuf {
    let to = site.path(name);
    let _ = std::fs::remove_dir_all(&to);
    std::fs::create_dir(&to).unwrap();
    for entry in std::fs::read_dir(site.path("array")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
    to
}

/// Server of a copy of the array directory.
struct Second {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Second {
    fn start(site: &Site, array: &Path, more: &[&str]) -> Self {
        let name = array.file_name().unwrap().to_str().unwrap();
        let (socket, log) = (
            site.path(&format!("{name}.sock")),
            site.path(&format!("{name}.log")),
        );
        let _ = std::fs::remove_file(&socket);
        let listen = format!("unix:{}", socket.display());
        let file = std::fs::File::create(&log).unwrap();
        let mut command: Command = site.command(&["volume", "export", "--listen", &listen]);
        let child = command
            .args(more)
            .env("TERRACE_ARRAY", array)
            .stdout(Stdio::from(file.try_clone().unwrap()))
            .stderr(Stdio::from(file))
            .spawn()
            .unwrap();
        Self { child, socket, log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until the server serves or ends; returns true if it serves.
    fn serves(&mut self) -> bool {
        let mut serves = false;
        wait_for("the second server serves or ends", || {
            serves = std::os::unix::net::UnixStream::connect(&self.socket).is_ok();
            serves || self.child.try_wait().unwrap().is_some()
        });
        serves
    }

    fn stop(mut self) {
        signal(self.child.id(), "-TERM");
        assert!(self.child.wait().unwrap().success(), "{}", self.log());
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(uri: &str) -> datapath::Client {
    datapath::Client::connect(&uri.parse().unwrap()).unwrap()
}

/// Returns the bytes of the superblocks and of all slots.
fn device_bytes(site: &Site) -> Vec<u8> {
    let mut export = connect(&export_uri(site));
    let mut bytes = export.read(0, array::SUPERBLOCKS_BYTES as u32).unwrap();
    let length = (EXPORT_BYTES - DATA_START) as u32;
    bytes.extend(export.read(DATA_START, length).unwrap());
    bytes
}

fn not_owned(site: &Site) -> Option<String> {
    let reach = Reach::find(&site.path("array")).unwrap();
    let Ok(ControlAnswer::Samples(samples)) = reach.ask(ControlRequest::Samples) else {
        return None;
    };
    let of_owner = samples
        .problems
        .into_iter()
        .find(|t| t.kind == ProblemKind::RemoteNotOwned);
    of_owner.map(|t| t.what)
}

#[test]
fn second_server_from_a_copied_array_is_refused() {
    let mut site = remote_site();
    site.serve(&[]);
    let mut guest = connect(&site.uri("db"));
    guest.write(0, &[7; 4096]).unwrap();
    let copy = copied(&site, "copy");
    for more in [&[][..], &["--force-remote"]] {
        let mut second = Second::start(&site, &copy, more);
        assert!(!second.serves(), "{}", second.log());
        let log = second.log();
        let why = "another server owns the export and runs";
        assert!(
            log.contains(why) && log.contains("device \"far-0\""),
            "{log}"
        );
        let pid = format!("process {}", site.server_pid());
        assert!(log.contains(&pid), "{log}");
        assert_eq!(guest.read(0, 4096).unwrap(), [7; 4096]);
        guest.write(0, &[7; 4096]).unwrap();
    }
    assert_eq!(not_owned(&site), None);
    // Commands on the copy are refused as well.
    let mut create: Command = site.command(&["volume", "create", "other", "--size", "1 MiB"]);
    let out = create.args(["--tier", "far"]).env("TERRACE_ARRAY", &copy);
    let out = out.output().unwrap();
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success(), "a volume was created: {why}");
    assert!(why.contains("another server owns the export"), "{why}");
    site.stop();
}

#[test]
fn simultaneous_starts_of_two_copies_have_at_most_one_owner() {
    let mut site = remote_site();
    for round in 0..3 {
        // The first rounds start two copies. The last one starts a copy and the directory that
        // released the export.
        let first = match round < 2 {
            true => copied(&site, "first"),
            false => site.path("array"),
        };
        let second = copied(&site, "second");
        let mut both = [
            Second::start(&site, &first, &[]),
            Second::start(&site, &second, &[]),
        ];
        let serve = both.each_mut().map(Second::serves);
        let logs = both.each_ref().map(Second::log);
        assert!(serve != [true, true], "round {round}: {logs:?}");
        if round == 2 {
            assert_eq!(serve, [true, false], "{logs:?}");
        }
        for (server, serves) in both.into_iter().zip(serve) {
            if serves {
                let dir = server.socket.with_extension("");
                server.stop();
                // The next round starts from the directory of this round's owner.
                if dir != site.path("array") {
                    std::fs::remove_dir_all(site.path("array")).unwrap();
                    std::fs::rename(&dir, site.path("array")).unwrap();
                }
            }
        }
    }
    site.serve(&[]);
    site.stop();
}

#[test]
fn suspended_owner_does_not_write_after_a_take_over() {
    let mut site = remote_site();
    site.serve(&[]);
    connect(&site.uri("db")).write(0, &[1; 65536]).unwrap();
    let (uri, copy) = (site.uri("db"), copied(&site, "copy"));
    let guests: Vec<_> = (0..4)
        .map(|guest| {
            // Connects before the server is stopped, because a stopped server accepts no connection.
            let mut client = connect(&uri);
            std::thread::spawn(move || {
                let mut at = guest << 20;
                while client.write(at, &[0xee; 65536]).is_ok() {
                    at = guest << 20 | (at + 65536) & 0xf_ffff;
                }
            })
        })
        .collect();
    wait_for("guests write", || site.outstanding("db") > 0);
    let pid = site.server_pid();
    signal(pid, "-STOP");
    let mut refused = Second::start(&site, &copy, &[]);
    assert!(!refused.serves());
    let why = "sends no heartbeats";
    assert!(refused.log().contains(why), "{}", refused.log());
    let mut second = Second::start(&site, &copy, &["--force-remote"]);
    assert!(second.serves(), "{}", second.log());
    let socket = second.socket.display();
    let mut guest = connect(&format!("nbd+unix:///db?socket={socket}"));
    guest.write(0, &vec![2; 8 << 20]).unwrap();
    guest.flush().unwrap();
    let before = device_bytes(&site);
    signal(pid, "-CONT");
    wait_for(
        "the former owner sees that it does not own the tier",
        || not_owned(&site).is_some_and(|what| what.contains("took the export over")),
    );
    std::thread::sleep(Duration::from_secs(2));
    assert!(device_bytes(&site) == before, "the former owner wrote");
    assert_eq!(guest.read(0, 8 << 20).unwrap(), vec![2; 8 << 20]);
    second.stop();
    site.kill();
    for guest in guests {
        guest.join().unwrap();
    }
}

#[test]
fn killed_or_stopped_owner_restarts_without_an_operator() {
    let mut site = remote_site();
    site.serve(&[]);
    connect(&site.uri("db")).write(0, &[5; 4096]).unwrap();
    site.kill();
    site.serve(&[]);
    let read = |site: &Site| connect(&site.uri("db")).read(0, 4096).unwrap();
    assert_eq!(read(&site), [5; 4096]);
    site.stop();
    site.serve(&[]);
    assert_eq!(read(&site), [5; 4096]);
    site.stop();
    // A copy may start after an orderly release.
    let mut copy = Second::start(&site, &copied(&site, "copy"), &[]);
    assert!(copy.serves(), "{}", copy.log());
    copy.stop();
}

#[test]
fn owner_suspended_beyond_its_lease_regains_its_device() {
    let mut site = remote_site();
    site.serve(&[]);
    let mut guest = connect(&site.uri("db"));
    guest.write(0, &[1; 4096]).unwrap();
    signal(site.server_pid(), "-STOP");
    // Longer than the lease: the owner must first confirm that no server took the export over.
    std::thread::sleep(Duration::from_secs(6));
    signal(site.server_pid(), "-CONT");
    guest.write(0, &[2; 4096]).unwrap();
    assert_eq!(guest.read(0, 4096).unwrap(), [2; 4096]);
    assert_eq!(not_owned(&site), None);
    site.stop();
}
