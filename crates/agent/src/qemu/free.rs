//! QMP sockets of QEMU processes on this machine that no program uses: found in command lines, without a connection to any.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Owners of QEMU processes whose monitors are theirs, by the names of their directories.
const OWNERS: [&str; 2] = ["libvirt", "qemu-server"];

/// Beginnings of the names of QEMU's programs.
const PROGRAMS: [&str; 3] = ["qemu-system-", "qemu-kvm", "kvm"];

/// States of a socket in `/proc/net/unix`.
const LISTENS: &str = "01";
const CONNECTED: &str = "03";

/// Most characters of a machine's name in the name of a link.
const NAME_MAX: usize = 60;

/// Free QMP socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Socket {
    /// Name of its machine, which is plain.
    pub machine: String,
    pub path: PathBuf,
}

/// Returns the free sockets of processes that are visible, one for each machine.
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
        if paths.is_empty() {
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

/// Paths of QMP sockets in a command line of QEMU, if nobody else owns the process.
fn own_sockets(words: &[String]) -> Vec<String> {
    let program = words
        .first()
        .and_then(|w| Path::new(w).file_name()?.to_str());
    let is_qemu = program.is_some_and(|name| PROGRAMS.iter().any(|p| name.starts_with(p)));
    if !is_qemu || words.iter().any(|w| is_owned(w)) {
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

/// The value of a key in a list such as `socket,id=a,path=/b`.
fn key<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = list.split(',').filter_map(|part| part.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// True if a word of a command line has a path in a directory of an owner.
fn is_owned(word: &str) -> bool {
    word.split([',', '=', ':', '"']).any(|part| {
        let mut components = Path::new(part).components();
        part.starts_with('/')
            && components
                .any(|c| matches!(c, Component::Normal(n) if OWNERS.iter().any(|o| n == *o)))
    })
}

/// The plain name of a machine, by `-name`.
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

/// True if a socket in a table of the kernel listens, and nobody is connected to it.
fn is_free(table: &str, path: &str) -> bool {
    let states = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(7..)?.join(" ") == path).then(|| words[5].to_owned())
    });
    let states: Vec<String> = states.collect();
    states.iter().any(|s| s == LISTENS) && !states.iter().any(|s| s == CONNECTED)
}

/// Makes links to sockets in a directory, by the names that the agent expects.
///
/// # Errors
/// The directory or a link cannot be made, or another file has its name.
pub(super) fn link(sockets: &[Socket], dir: &Path) -> Result<(), String> {
    if sockets.is_empty() {
        return Ok(());
    }
    let said = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    fs::create_dir_all(dir).map_err(|e| said(dir, e))?;
    for socket in sockets {
        let link = dir.join(format!("{}.qmp", socket.machine));
        match fs::read_link(&link) {
            Ok(to) if to == socket.path => {}
            _ => std::os::unix::fs::symlink(&socket.path, &link).map_err(|e| said(&link, e))?,
        }
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
    fn sockets_are_those_of_qmp_in_both_forms() {
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
    fn monitors_of_libvirt_and_proxmox_are_left_alone() {
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
    fn occupied_and_foreign_sockets_are_not_free() {
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
    fn names_of_machines_become_plain() {
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
    fn links_replace_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let links = dir.path().join("links");
        let socket = |path: &str| Socket {
            machine: "web".into(),
            path: path.into(),
        };
        link(&[socket("/run/a")], &links).unwrap();
        link(&[socket("/run/a")], &links).unwrap();
        assert_eq!(
            fs::read_link(links.join("web.qmp")).unwrap(),
            Path::new("/run/a")
        );
        assert!(
            link(&[socket("/run/b")], &links)
                .unwrap_err()
                .contains("web.qmp")
        );
    }
}
