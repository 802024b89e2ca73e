//! Device, operation and error of a failed request reach the operator.

use std::process::Command;

use datapath::control_server::{ControlRequest, NewDevice, NewSource, ProblemKind};
use datapath::{LastMove, add_device};
use model::{DirectIo, IoFailure};
use testkit::needs;
use units::BytesPerSec;

use crate::support::{MIB, Site, wait_for};

#[test]
fn failed_move_reports_device_and_error_of_its_target() {
    if !needs::programs(&["nbdkit"]) {
        return;
    }
    let mut site = Site::empty();
    site.add("fast", "fast", 64, None);
    let (socket, broken) = (site.path("far.sock"), site.path("broken"));
    let mut server = Command::new("nbdkit");
    server.args(["--foreground", "--exit-with-parent", "--unix"]);
    server.arg(&socket);
    server.args(["--filter=error", "memory", "size=64M"]);
    server.arg("error-pwrite=EIO");
    server.arg(format!("error-pwrite-file={}", broken.display()));
    server.arg("error-pwrite-rate=100%");
    let mut server = server.spawn().unwrap();
    wait_for("the server listens", || socket.exists());
    let far = NewDevice {
        tier: "far".into(),
        source: NewSource::Nbd(format!("nbd+unix:///?socket={}", socket.display())),
        size: None,
        emulate: None,
        direct: DirectIo::Off,
        force: false,
        thin: false,
    };
    add_device(&site.path("array"), None, far).unwrap();
    site.serve(&[]);
    site.create("data", 8, "fast");
    let mut guest = site.connect("data").unwrap();
    guest.write(0, &[7; MIB as usize]).unwrap();
    wait_for("the far device is there", || {
        site.samples().devices.iter().all(|d| d.connected)
    });

    std::fs::write(&broken, "").unwrap();
    site.done(ControlRequest::Move {
        volume: "data".into(),
        to: "far".into(),
        device: None,
        bandwidth: BytesPerSec(1 << 30),
        extents: None,
    });
    let ended = || site.samples().volumes.remove(0).last_move;
    wait_for("the move ends", || ended().is_some());
    let Some(LastMove::Stopped { why, failed, .. }) = ended() else {
        panic!("it cannot have moved: {:?}", ended());
    };
    let device = site.samples().devices.remove(1);
    let expected = IoFailure {
        device: device.name.clone(),
        op: "write".into(),
        errno: "EIO".into(),
    };
    assert_eq!(failed, Some(expected));
    let name = device.name;
    let wanted = format!("the target failed a write (write on device {name}: EIO)");
    assert_eq!(why, wanted);
    let counted = &device.errors[0];
    assert_eq!((&*counted.op, &*counted.errno), ("write", "EIO"));
    wait_for("the array says so", || {
        let problems = site.samples().problems;
        let of_it = |t: &&_| matches!(t, datapath::control_server::Problem { kind, .. } if *kind == ProblemKind::DeviceErrors);
        let found = problems.iter().find(of_it);
        found.is_some_and(|t| t.about == name && t.what.contains("of write with EIO"))
    });
    // The guest's data is unchanged.
    assert_eq!(guest.read(0, MIB as u32).unwrap(), [7; MIB as usize]);
    drop(guest);
    site.stop();
    let _ = server.kill();
    let _ = server.wait();
}
