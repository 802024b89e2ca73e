//! Slow zeroing on a device: the guest that requested it waits, other volumes of the same worker do not.

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use datapath::{IoChoice, ServerConfig};
use testkit::needs;

use crate::support::{MIB, Site, wait_for};

/// File behind a server that pauses on command.
struct StillFile {
    path: PathBuf,
    control: UnixStream,
    server: Child,
    mount: Child,
}

impl StillFile {
    /// Replaces a file by a mount with its bytes. `zeroes` selects whether the mount supports zeroing of ranges.
    fn over(path: &Path, dir: &Path, zeroes: bool) -> Self {
        let there = std::fs::metadata(path).unwrap();
        let (bytes, socket) = (dir.join("bytes"), dir.join("still.sock"));
        let control = dir.join("pause.sock");
        std::fs::copy(path, &bytes).unwrap();
        let mut server = Command::new("nbdkit");
        server.args(["--foreground", "--unix"]).arg(&socket);
        if zeroes {
            server.args(["--filter=pause", "file"]).arg(&bytes);
        } else {
            // Server that supports only reads and writes.
            let file = bytes.display();
            server.args(["--filter=nozero", "--filter=pause", "eval"]);
            server.arg(format!("get_size=stat -Lc %s {file}"));
            server.arg(format!(
                "pread=dd if={file} skip=$4 count=$3 iflag=count_bytes,skip_bytes status=none"
            ));
            server.arg(format!(
                "pwrite=dd of={file} seek=$4 conv=notrunc oflag=seek_bytes status=none"
            ));
        }
        server.arg(format!("pause-control={}", control.display()));
        let server = server.spawn().unwrap();
        wait_for("the server listens", || socket.exists());
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let mount = Command::new("nbdfuse").arg(path).arg(uri).spawn().unwrap();
        let mounted = |m: std::fs::Metadata| m.dev() != there.dev();
        wait_for("the file is in place", || {
            std::fs::metadata(path).is_ok_and(mounted)
        });
        wait_for("it can be told", || UnixStream::connect(&control).is_ok());
        Self {
            path: path.into(),
            control: UnixStream::connect(&control).unwrap(),
            server,
            mount,
        }
    }

    fn tell(&mut self, word: &[u8; 1], answer: u8) {
        self.control.write_all(word).unwrap();
        let mut said = [0];
        self.control.read_exact(&mut said).unwrap();
        assert_eq!(said[0], answer);
    }
}

impl Drop for StillFile {
    fn drop(&mut self) {
        let _ = self.control.write_all(b"r");
        let _ = Command::new("fusermount3")
            .args(["-u", "-z"])
            .arg(&self.path)
            .status();
        for child in [&mut self.mount, &mut self.server] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn check_other_volumes_are_served(io: IoChoice, zeroes: bool) {
    if !needs::programs(&["nbdkit", "nbdfuse", "fusermount3"]) {
        return;
    }
    if std::fs::File::open("/dev/fuse").is_err() {
        return needs::skipped("/dev/fuse");
    }
    let mut site = Site::empty();
    site.add("fast", "fast", 64, None);
    site.add("slow", "slow", 64, None);
    let device = std::fs::read_dir(site.path("slow")).unwrap();
    let device = device.flatten().next().unwrap().path();
    let mut still = StillFile::over(&device, &site.path(""), zeroes);
    site.serve_as(ServerConfig {
        io,
        workers: 1,
        ..ServerConfig::default()
    });
    site.create("quick", 16, "fast");
    site.create("slow", 32, "slow");
    let mut quick = site.connect("quick").unwrap();
    let mut slow = site.connect("slow").unwrap();
    let whole = vec![7; 8 << 20];
    slow.write(0, &whole).unwrap();
    slow.flush().unwrap();
    quick.write(0, &[1; 4096]).unwrap();

    still.tell(b"p", b'P');
    // All except the ends, so no extent is freed as a whole at either end.
    let zeroed = 512..whole.len() - 512;
    let length = zeroed.len() as u32;
    let asked = std::thread::spawn(move || {
        slow.zero(512, length).unwrap();
        slow
    });
    wait_for("zeroes are asked for", || {
        let volumes = site.samples().volumes;
        let of = volumes.iter().find(|v| v.name == "slow").unwrap();
        of.stages.measure.counts.as_ref().unwrap().outstanding > 0
    });
    // The device hangs until all of these requests have answers.
    for round in 0..50 {
        quick
            .write(MIB * (round % 16), &[round as u8; 4096])
            .unwrap();
        quick.flush().unwrap();
        let read = quick.read(MIB * (round % 16), 4096).unwrap();
        assert_eq!(read, [round as u8; 4096]);
    }
    assert!(!asked.is_finished(), "the slow device stands still");
    still.tell(b"r", b'R');
    let mut slow = asked.join().unwrap();
    let mut expected = whole;
    expected[zeroed].fill(0);
    assert!(slow.read(0, 8 << 20).unwrap() == expected);
    drop((quick, slow));
    site.stop();
}

#[test]
fn slow_zero_requests_do_not_delay_other_volumes() {
    check_other_volumes_are_served(IoChoice::Auto, true);
    check_other_volumes_are_served(IoChoice::Threads, true);
}

#[test]
fn written_zero_requests_do_not_delay_other_volumes() {
    check_other_volumes_are_served(IoChoice::Auto, false);
    check_other_volumes_are_served(IoChoice::Threads, false);
}
