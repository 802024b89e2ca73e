//! Metadata that libvirt stores for domains, and the domains that use the target of a copy.

use vmhost::{Metadata, quoted};

use super::AT_ONCE;
use super::operations::LibvirtOperations;
use crate::error::{AgentError, Result};
use crate::images::is_same;
use crate::machines::DiskCopy;
use crate::virsh::{Answer, incomplete};

impl LibvirtOperations<'_> {
    /// Reads the metadata of domains, in their order. An element is an error if the metadata of that domain cannot be
    /// read.
    ///
    /// # Errors
    /// libvirt does not answer; the error has the reason.
    pub(super) fn metadata(&self, uuids: &[String]) -> Result<Vec<Result<Metadata>>> {
        let mut found = Vec::with_capacity(uuids.len());
        for some in uuids.chunks(AT_ONCE) {
            let ask: Vec<String> = some.iter().flat_map(|uuid| questions(uuid)).collect();
            for (uuid, answers) in some.iter().zip(self.virsh.ask(&ask)?.chunks(3)) {
                let metadata = match read(answers) {
                    Ok(metadata) => Ok(metadata),
                    // The error may be that of another domain, which has ended.
                    Err(_) => read(&self.virsh.ask(&questions(uuid))?),
                };
                found.push(metadata);
            }
        }
        Ok(found)
    }

    /// Checks that no other domain uses the old or the new image.
    ///
    /// # Errors
    /// The domain that uses the target, or why the images of a domain cannot be read.
    pub(super) fn check_target(&self, copied: &DiskCopy<'_>) -> Result<()> {
        let DiskCopy {
            domain,
            disk,
            from,
            to,
        } = *copied;
        let directory_of = |pool: &str| self.directory_of(pool);
        for other in self.everybody()? {
            let own = other.uuid == domain.uuid;
            for d in &other.disks {
                let Some(at) = d.source.at(directory_of) else {
                    continue;
                };
                let itself = own && d.target == disk.target;
                if itself && d.image(directory_of).as_ref() != Some(from) {
                    return Err(AgentError::Changed(
                        "its domain uses another image than its definition names".into(),
                    ));
                }
                for (image, which) in [(from, "its image"), (to, "its target")] {
                    if is_same(&at, &image.at) && !(itself && which == "its image") {
                        let user = &other.name;
                        return Err(AgentError::InUse(format!(
                            "domain {user} also uses {which}"
                        )));
                    }
                }
            }
            let paths = [from.at.file(), to.at.file()];
            let mut below = other.below.iter();
            if let Some(path) = below.find(|b| paths.contains(&Some(b.as_str()))) {
                return Err(AgentError::InUse(format!(
                    "an image of domain {} is based on {path}",
                    other.name
                )));
            }
        }
        Ok(())
    }
}

fn questions(uuid: &str) -> [String; 3] {
    let uuid = quoted(uuid);
    [
        format!("snapshot-list --name {uuid}"),
        format!("checkpoint-list --name {uuid}"),
        format!("domjobinfo {uuid}"),
    ]
}

fn read(answers: &[Answer]) -> Result<Metadata> {
    let [snapshots, checkpoints, job] = answers else {
        return Err(incomplete());
    };
    Ok(Metadata {
        snapshots: !snapshots.text()?.is_empty(),
        checkpoints: !checkpoints.text()?.is_empty(),
        job: job_of(job.text()?)?,
    })
}

/// Returns the job in the output of `virsh domjobinfo`.
fn job_of(text: &str) -> Result<Option<String>> {
    let value = |key: &str| {
        let mut lines = text.lines();
        lines.find_map(|l| Some(l.strip_prefix(key)?.trim().to_owned()))
    };
    let unknown = || AgentError::Unknown("virsh does not report whether it has a job".into());
    let kind = value("Job type:").ok_or_else(unknown)?;
    Ok((kind != "None").then(|| value("Operation:").unwrap_or(kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libvirt_metadata_is_known_only_if_all_queries_succeed() {
        let text = |text: &str| Answer::Text(text.into());
        let none = || text("Job type:         None");
        let plain = read(&[Answer::Empty, Answer::Empty, none()]);
        assert_eq!(plain.unwrap(), Metadata::default());
        let backup = text("Job type:         Unbounded   \nOperation:        Backup      \n");
        let found = read(&[text("one"), Answer::Empty, backup]).unwrap();
        assert!(found.snapshots && !found.checkpoints);
        assert_eq!(found.job.as_deref(), Some("Backup"));
        let failed = || Answer::Failed("lost".into());
        for answers in [
            [failed(), Answer::Empty, none()],
            [Answer::Empty, failed(), none()],
            [Answer::Empty, Answer::Empty, failed()],
            [Answer::Empty, Answer::Empty, Answer::Empty],
        ] {
            assert!(read(&answers).is_err(), "{answers:?}");
        }
    }
}
