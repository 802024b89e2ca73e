//! What stands against a copy of a domain's disk, or would not be in it.

use vmhost::quoted;

use super::operations::LibvirtOperations;
use crate::images::is_same;
use crate::machines::Copied;

impl LibvirtOperations<'_> {
    /// What a new image would not have, and who else names the old one or the new one.
    ///
    /// # Errors
    /// What it is, or why nobody can say.
    pub(super) fn check(&self, copied: &Copied<'_>) -> Result<(), String> {
        let Copied {
            domain,
            disk,
            from,
            to,
        } = *copied;
        let uuid = quoted(&domain.uuid);
        for what in ["snapshot", "checkpoint"] {
            let ask = [format!("{what}-list --name {uuid}")];
            let answer = self.virsh.ask(&ask)?;
            let found = answer[0].text();
            let found = found.map_err(|e| format!("whether it has {what}s is not known: {e}"))?;
            if !found.is_empty() {
                return Err(format!(
                    "its domain has {what}s, which a new image would not have"
                ));
            }
        }
        let directory_of = |pool: &str| self.directory_of(pool);
        for other in self.everybody()? {
            let own = other.uuid == domain.uuid;
            for d in &other.disks {
                let Some(at) = d.source.at(directory_of) else {
                    continue;
                };
                let itself = own && d.target == disk.target;
                if itself && d.image(directory_of).as_ref() != Some(from) {
                    return Err("its domain's definition names another image than it uses".into());
                }
                for (image, which) in [(from, "its image"), (to, "its target")] {
                    let named = is_same(&at, &image.at);
                    if named && !(itself && which == "its image") {
                        return Err(format!("domain {} names {which} too", other.name));
                    }
                }
            }
            let paths = [from.at.file(), to.at.file()];
            let mut below = other.below.iter();
            if below.any(|b| paths.contains(&Some(b.as_str()))) {
                return Err(format!("an image of domain {} is on top of it", other.name));
            }
        }
        Ok(())
    }
}
