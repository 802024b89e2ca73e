//! A storage pool.

use roxmltree::Document;

use crate::HostError;

/// A pool, as libvirt's XML has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// `dir`, `fs`, `netfs`, `logical`, `rbd` and so on.
    pub kind: String,
    /// Where it is in the file system, if it is there.
    pub path: Option<String>,
}

impl Pool {
    /// From `virsh pool-dumpxml`.
    ///
    /// # Errors
    /// What is wrong, with the line.
    pub fn of_xml(text: &str) -> Result<Self, HostError> {
        let document = Document::parse(text).map_err(|e| HostError::Xml {
            what: "pool".into(),
            why: e.to_string(),
        })?;
        let root = document.root_element();
        let fault = |why: &str| HostError::Element {
            what: "pool".into(),
            line: document.text_pos_at(root.range().start).row,
            why: why.into(),
        };
        let of = |name: &str| {
            let found = root.children().find(|c| c.has_tag_name(name))?;
            Some(found).filter(|c| c.is_element())
        };
        let kind = root.attribute("type").filter(|_| root.has_tag_name("pool"));
        let name = of("name").and_then(|n| n.text()).map(str::trim);
        let target = of("target").and_then(|t| {
            let mut children = t.children();
            children.find(|c| c.has_tag_name("path"))?.text()
        });
        Ok(Self {
            name: name.ok_or_else(|| fault("it has no <name>"))?.into(),
            kind: kind.ok_or_else(|| fault("it is no <pool type=…>"))?.into(),
            path: target.map(|path| path.trim().into()),
        })
    }

    /// Whether its volumes are files below its path.
    pub fn has_files(&self) -> bool {
        matches!(self.kind.as_str(), "dir" | "fs" | "netfs")
    }
}
