//! Metadata that libvirt stores for domains, and the domains that use the target of a copy.

use vmhost::{Metadata, quoted};

use super::AT_ONCE;
use super::operations::LibvirtOperations;
use crate::images::is_same;
use crate::machines::Copied;
use crate::virsh::Answer;

impl LibvirtOperations<'_> {
    /// Reads the metadata of domains, in their order; an error where it cannot be read.
    ///
    /// # Errors
    /// Why libvirt does not answer.
    pub(super) fn metadata(
        &self,
        uuids: &[String],
    ) -> Result<Vec<Result<Metadata, String>>, String> {
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

    /// Looks who names the old image or the new one now.
    ///
    /// # Errors
    /// The domain that uses the target, or why the images of a domain cannot be read.
    pub(super) fn check_target(&self, copied: &Copied<'_>) -> Result<(), String> {
        let Copied {
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
                    return Err("its domain uses another image than its definition names".into());
                }
                for (image, which) in [(from, "its image"), (to, "its target")] {
                    if is_same(&at, &image.at) && !(itself && which == "its image") {
                        return Err(format!("domain {} also uses {which}", other.name));
                    }
                }
            }
            let paths = [from.at.file(), to.at.file()];
            let mut below = other.below.iter();
            if let Some(path) = below.find(|b| paths.contains(&Some(b.as_str()))) {
                return Err(format!(
                    "an image of domain {} is based on {path}",
                    other.name
                ));
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

fn read(answers: &[Answer]) -> Result<Metadata, String> {
    let [snapshots, checkpoints, job] = answers else {
        return Err("the output of virsh is incomplete".into());
    };
    Ok(Metadata {
        snapshots: !snapshots.text()?.is_empty(),
        checkpoints: !checkpoints.text()?.is_empty(),
        job: job_of(job.text()?)?,
    })
}

/// The job in the answer of `virsh domjobinfo`.
fn job_of(text: &str) -> Result<Option<String>, String> {
    let value = |key: &str| {
        let mut lines = text.lines();
        lines.find_map(|l| Some(l.strip_prefix(key)?.trim().to_owned()))
    };
    let kind = value("Job type:").ok_or("virsh does not report whether it has a job")?;
    Ok((kind != "None").then(|| value("Operation:").unwrap_or(kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_known_only_where_all_was_answered() {
        let text = |text: &str| Answer::Text(text.into());
        let none = || text("Job type:         None");
        let plain = read(&[Answer::Empty, Answer::Empty, none()]);
        assert_eq!(plain, Ok(Metadata::default()));
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
