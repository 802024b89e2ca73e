//! Storage pools.

use crate::HostError;
use crate::xml::{Xml, child, parsed};

/// Storage pool of libvirt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    /// `dir`, `fs`, `netfs`, `logical`, `rbd` and so on.
    pub kind: String,
    /// Path in the file system without a slash at its end; `None` for a pool without a path.
    pub path: Option<String>,
}

/// Returns the directory of a pool's volumes, by the pool's name: a directory of files, or one below `/dev` for block
/// devices.
pub fn directory_of<'a>(pools: &'a [Pool], name: &str) -> Option<&'a str> {
    let pool = pools.iter().find(|p| p.name == name)?;
    let of_devices = matches!(pool.kind.as_str(), "logical" | "zfs" | "disk");
    let devices = pool
        .path
        .as_deref()
        .filter(|p| of_devices && p.starts_with("/dev/"));
    pool.directory().or(devices)
}

impl Pool {
    /// Parses the output of `virsh pool-dumpxml`.
    ///
    /// # Errors
    /// The fault, with its line.
    pub fn of_xml(text: &str) -> Result<Self, HostError> {
        let document = parsed("pool", text)?;
        let xml = Xml {
            document: &document,
            what: "pool",
        };
        let root = document.root_element();
        let kind = root.attribute("type").filter(|_| root.has_tag_name("pool"));
        let kind = kind.ok_or_else(|| xml.fault(root, "the root element is not <pool type=…>"))?;
        let path = child(root, "target").and_then(|t| child(t, "path")?.text());
        Ok(Self {
            name: xml.text(root, "name")?,
            kind: kind.into(),
            path: path.map(|path| path.trim().trim_end_matches('/').into()),
        })
    }

    /// Returns the directory of the pool, if its volumes are files.
    pub fn directory(&self) -> Option<&str> {
        let of_files = matches!(self.kind.as_str(), "dir" | "fs" | "netfs");
        self.path.as_deref().filter(|_| of_files)
    }
}
