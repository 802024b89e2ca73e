//! Unused QMP sockets of QEMU processes on this machine. They are found in command lines, without a connection.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Component, Path, PathBuf};

use crate::error::{AgentError, Result, file_error};

/// Directory names of libvirt and Proxmox VE, which own the monitors of their QEMU processes.
const OWNERS: [&str; 2] = ["libvirt", "qemu-server"];

/// Beginnings of the names of QEMU's programs.
const PROGRAMS: [&str; 3] = ["qemu-system-", "qemu-kvm", "kvm"];

/// States of a socket in `/proc/net/unix`.
const LISTENS: &str = "01";
const CONNECTED: &str = "03";

/// Write permission of group and others.
const OTHERS_WRITE: u32 = 0o022;

/// Largest number of characters of a machine's name in the name of a link.
const NAME_MAX: usize = 60;

/// Unused QMP socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Socket {
    /// Plain name of its machine.
    pub machine: String,
    pub path: PathBuf,
}

/// Returns the unused sockets of visible processes, one for each machine.
pub(super) fn sockets() -> Vec<Socket> {
    let mut found: Vec<Socket> = vec![];
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    for pid in pids {
        let of = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
        let line = fs::read(of("cmdline")).unwrap_or_default();
        let words: Vec<String> = line
            .split(|b| *b == 0)
            .map(|w| String::from_utf8_lossy(w).into_owned())
            .collect();
        let paths = own_sockets(&words);
        if paths.is_empty() || !is_trusted(pid) {
            continue;
        }
        let table = fs::read_to_string(of("net/unix")).unwrap_or_default();
        let Some(path) = paths.into_iter().find(|path| is_free(&table, path)) else {
            continue;
        };
        let directory = fs::read_link(of("cwd")).unwrap_or_default();
        let mut machine = name(&words).unwrap_or_else(|| format!("qemu-{pid}"));
        if found.iter().any(|s| s.machine == machine) {
            machine = format!("{machine}-{pid}");
        }
        let path = directory.join(path);
        found.push(Socket { machine, path });
    }
    found
}

/// Returns true if a process can be trusted to be QEMU: its program and its user belong to root or to this user, others
/// cannot write the program, and it shares this process's mount and network namespaces.
fn is_trusted(pid: u32) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let is_ours = |uid: u32| uid == 0 || uid == own;
    let path = |name: &str| format!("/proc/{pid}/{name}");
    let Ok(program) = fs::metadata(path("exe")) else {
        return false; // of another user, or ended
    };
    let name = fs::read_link(path("exe")).unwrap_or_default();
    let is_here = |kind: &str| {
        let space = fs::read_link(path(&format!("ns/{kind}")));
        let own = fs::read_link(format!("/proc/self/ns/{kind}"));
        space.is_ok_and(|space| own.is_ok_and(|own| own == space))
    };
    is_qemu(&name)
        && is_ours(program.uid())
        && program.mode() & OTHERS_WRITE == 0
        && fs::metadata(path("")).is_ok_and(|process| is_ours(process.uid()))
        && ["mnt", "net"].into_iter().all(is_here)
}

fn is_qemu(program: &Path) -> bool {
    let name = program.file_name().and_then(|n| n.to_str());
    name.is_some_and(|name| PROGRAMS.iter().any(|p| name.starts_with(p)))
}

/// Returns the paths of QMP sockets in a command line of QEMU, unless another program owns the process.
fn own_sockets(words: &[String]) -> Vec<String> {
    let program = words.first().map(Path::new);
    if !program.is_some_and(is_qemu) || words.iter().any(|w| is_owned(w)) {
        return vec![];
    }
    let after = |option: &str| {
        let pairs = words.windows(2).filter(move |pair| {
            let given = pair[0].trim_start_matches('-');
            pair[0].starts_with('-') && given == option
        });
        pairs.map(|pair| pair[1].clone()).collect::<Vec<String>>()
    };
    let mut paths = vec![];
    for value in ["qmp", "qmp-pretty"].into_iter().flat_map(after) {
        let path = value.strip_prefix("unix:").unwrap_or_default();
        paths.extend(path.split(',').next().map(str::to_owned));
    }
    let chardevs = after("chardev");
    for monitor in after("mon") {
        if key(&monitor, "mode") != Some("control") {
            continue;
        }
        let of =
            key(&monitor, "chardev").unwrap_or_else(|| monitor.split(',').next().unwrap_or(""));
        let mut socket = chardevs.iter().filter(|c| c.starts_with("socket,"));
        let socket = socket.find(|c| key(c, "id") == Some(of));
        paths.extend(socket.and_then(|s| key(s, "path")).map(str::to_owned));
    }
    paths.retain(|p| !p.is_empty());
    paths
}

/// Returns the value of a key in a list such as `socket,id=a,path=/b`.
fn key<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = list.split(',').filter_map(|part| part.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Returns true if a word of a command line has a path in a directory of an owner.
pub(super) fn is_owned(word: &str) -> bool {
    word.split([',', '=', ':', '"']).any(|part| {
        let mut components = Path::new(part).components();
        part.starts_with('/')
            && components
                .any(|c| matches!(c, Component::Normal(n) if OWNERS.iter().any(|o| n == *o)))
    })
}

/// Returns the plain name of a machine from `-name`.
fn name(words: &[String]) -> Option<String> {
    let mut pairs = words
        .windows(2)
        .filter(|p| p[0].trim_start_matches('-') == "name");
    let value = &pairs.next()?[1];
    let name = key(value, "guest").or_else(|| value.split(',').next())?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let name: String = name
        .chars()
        .filter(|c| is_plain(*c))
        .take(NAME_MAX)
        .collect();
    (!name.is_empty() && !name.starts_with('.')).then_some(name)
}

/// Returns true if a socket in a table of the kernel listens and has no connection.
fn is_free(table: &str, path: &str) -> bool {
    let states = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(7..)?.join(" ") == path).then(|| words[5].to_owned())
    });
    let states: Vec<String> = states.collect();
    states.iter().any(|s| s == LISTENS) && !states.iter().any(|s| s == CONNECTED)
}

/// Creates links to sockets in a directory of this user, with the names that the agent expects. A link to a missing
/// socket is replaced.
///
/// # Errors
/// The directory belongs to another user or others can write it, or another file has the name of a link.
pub(super) fn link(sockets: &[Socket], dir: &Path) -> Result<()> {
    if sockets.is_empty() {
        return Ok(());
    }
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(file_error("", dir)(e)),
        _ => {}
    }
    let found = fs::symlink_metadata(dir).map_err(file_error("", dir))?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_dir() || !is_own || found.mode() & OTHERS_WRITE != 0 {
        return Err(AgentError::Refused(format!(
            "{}: it must be a directory that only its owner, this user, can write",
            dir.display()
        )));
    }
    for socket in sockets {
        let link = dir.join(format!("{}.qmp", socket.machine));
        match fs::read_link(&link) {
            Ok(to) if to == socket.path => continue,
            Ok(to) if !to.exists() => fs::remove_file(&link).map_err(file_error("", &link))?,
            Ok(_) | Err(_) => {}
        }
        symlink(&socket.path, &link).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => AgentError::InUse(format!(
                "{}: it exists and is not a link to this machine's socket: remove it if it is no longer needed",
                link.display()
            )),
            _ => file_error("", &link)(e),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn qmp_sockets_are_found_in_both_option_forms() {
        for (line, found) in [
            (
                "/usr/bin/qemu-system-x86_64 -qmp unix:/run/a.qmp,server=on,wait=off",
                vec!["/run/a.qmp"],
            ),
            ("qemu-kvm --qmp unix:a.sock -name web", vec!["a.sock"]),
            (
                "kvm -chardev socket,id=q,path=/run/q,server=on -mon chardev=q,mode=control",
                vec!["/run/q"],
            ),
            (
                "kvm -chardev socket,id=q,path=/run/q -mon chardev=q,mode=readline",
                vec![],
            ),
            (
                "kvm -chardev socket,id=q,path=/run/q -mon chardev=r,mode=control",
                vec![],
            ),
            ("kvm -qmp tcp:localhost:4444", vec![]),
            ("grep -qmp unix:/run/a.qmp", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(own_sockets(&words(line)), found, "{line}");
        }
    }

    #[test]
    fn monitors_of_libvirt_and_proxmox_are_not_used() {
        for line in [
            "qemu-system-x86_64 -qmp unix:/a -object {\"file\":\"/var/lib/libvirt/qemu/domain-1-a/master-key.aes\"}",
            "kvm -id 100 -chardev socket,id=qmp,path=/var/run/qemu-server/100.qmp,server=on -mon chardev=qmp,mode=control",
        ] {
            assert_eq!(own_sockets(&words(line)), [""; 0], "{line}");
        }
        // A name that only contains the word is not theirs.
        let own = "kvm -qmp unix:/srv/libvirt-test/a.qmp";
        assert_eq!(own_sockets(&words(own)), ["/srv/libvirt-test/a.qmp"]);
    }

    #[test]
    fn occupied_and_foreign_sockets_are_not_used() {
        let row = |state: &str, path: &str| {
            format!("0000000000000000: 00000002 00000000 00010000 0001 {state} 12345 {path}\n")
        };
        let listening = row(LISTENS, "/run/a b.qmp");
        assert!(is_free(&listening, "/run/a b.qmp"));
        assert!(!is_free(&listening, "/run/a"));
        let occupied = listening + &row(CONNECTED, "/run/a b.qmp");
        assert!(!is_free(&occupied, "/run/a b.qmp"));
        assert!(!is_free("", "/run/a b.qmp"));
    }

    #[test]
    fn machine_names_are_sanitized() {
        let of = |line: &str| name(&words(line));
        assert_eq!(
            of("kvm -name guest=web,debug-threads=on").as_deref(),
            Some("web")
        );
        assert_eq!(of("kvm -name ../db/1").as_deref(), None);
        assert_eq!(of("kvm -name db/1").as_deref(), Some("db1"));
        assert_eq!(of("kvm"), None);
    }

    #[test]
    fn links_replace_no_file_and_no_link_to_a_socket() {
        let dir = tempfile::tempdir().unwrap();
        let links = dir.path().join("links");
        let path = |name: &str| dir.path().join(name);
        let socket = |name: &str| Socket {
            machine: "web".into(),
            path: path(name),
        };
        let to = || fs::read_link(links.join("web.qmp")).unwrap();
        for name in ["gone", "a", "a"] {
            link(&[socket(name)], &links).unwrap();
            assert_eq!(to(), path(name));
        }
        fs::write(path("a"), "").unwrap();
        let why = link(&[socket("b")], &links).unwrap_err().to_string();
        assert!(
            why.contains("web.qmp: it exists and is not a link"),
            "{why}"
        );
        assert_eq!(to(), path("a"));
    }

    #[test]
    fn planted_link_directory_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let socket = [Socket {
            machine: "web".into(),
            path: "/run/a".into(),
        }];
        let (open, planted) = (dir.path().join("open"), dir.path().join("planted"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        symlink(dir.path(), &planted).unwrap();
        for links in [open, planted] {
            let why = link(&socket, &links).err();
            assert!(
                why.is_some_and(|w| w.to_string().contains("only its owner")),
                "{links:?}"
            );
            assert!(fs::symlink_metadata(links.join("web.qmp")).is_err());
        }
    }

    #[test]
    fn process_with_only_the_name_of_qemu_is_not_trusted() {
        assert!(!is_trusted(std::process::id()));
        assert!(is_qemu(Path::new("/usr/bin/qemu-system-x86_64")));
        assert!(!is_qemu(Path::new("/usr/bin/python3.11")));
    }
}
