//! Image files with their content, and the part of it that survives the end of QEMU or a power loss.

use std::collections::BTreeMap;

use vmhost::moving::FileId;

/// Content of an image: all writes to a disk up to one of its versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    pub disk: u32,
    pub version: u64,
}

#[derive(Debug, Clone)]
pub struct File {
    pub path: String,
    /// Allocated bytes.
    pub bytes: u64,
    /// Size that a guest sees.
    pub capacity: u64,
    /// Content; `None` if no guest can use it.
    pub content: Option<Content>,
    /// Content that survives a kill of its QEMU, because metadata of an image may be in memory.
    pub flushed: Option<Content>,
}

/// Directories, one per device: `/DEVICE/NAME`.
#[derive(Debug, Clone)]
pub struct Files {
    /// Name and size.
    pub devices: Vec<(String, u64)>,
    all: BTreeMap<(u64, u64), File>,
}

impl Files {
    pub fn new(devices: Vec<(String, u64)>) -> Self {
        Self {
            devices,
            all: BTreeMap::new(),
        }
    }

    /// Returns the device of a path.
    pub fn device_of(&self, path: &str) -> usize {
        let name = path.split('/').nth(1);
        let found = self.devices.iter().position(|d| Some(&*d.0) == name);
        found.unwrap_or_else(|| panic!("{path} is on no device"))
    }

    pub fn all(&self) -> impl Iterator<Item = &File> {
        self.all.values()
    }

    pub fn used(&self, device: usize) -> u64 {
        let here = self.all.iter().filter(|(id, _)| id.0 == device as u64);
        here.map(|(_, f)| f.bytes).sum()
    }

    pub fn free(&self, device: usize) -> u64 {
        self.devices[device].1 - self.used(device)
    }

    /// Returns the file at a path; `None` for paths outside of all devices.
    pub fn at(&self, path: &str) -> Option<FileId> {
        let found = self.all.iter().find(|(_, f)| f.path == path)?;
        Some(FileId {
            device: found.0.0,
            inode: found.0.1,
        })
    }

    pub fn get(&self, id: FileId) -> &File {
        &self.all[&(id.device, id.inode)]
    }

    pub fn get_mut(&mut self, id: FileId) -> &mut File {
        let found = self.all.get_mut(&(id.device, id.inode));
        found.expect("a file that is used is there")
    }

    /// Creates a file. Numbers of files are reused at once, as file systems do.
    pub fn make(&mut self, path: &str) -> Result<FileId, String> {
        if self.at(path).is_some() {
            return Err(format!("{path} cannot be made: it exists"));
        }
        let device = self.device_of(path) as u64;
        let free = (11..).find(|inode| !self.all.contains_key(&(device, *inode)));
        let inode = free.expect("there are enough");
        let file = File {
            path: path.into(),
            bytes: 0,
            capacity: 0,
            content: None,
            flushed: None,
        };
        self.all.insert((device, inode), file);
        Ok(FileId { device, inode })
    }

    pub fn remove(&mut self, id: FileId) {
        self.all.remove(&(id.device, id.inode));
    }

    pub fn rename(&mut self, from: &str, to: &str) -> Result<(), String> {
        let said = |why: &str| format!("{from} cannot be renamed to {to}: {why}");
        let id = self.at(from).ok_or_else(|| said("it is not there"))?;
        if self.at(to).is_some() {
            return Err(said("something is there"));
        }
        self.get_mut(id).path = to.into();
        Ok(())
    }

    /// Allocates more space. Returns true if there was enough.
    #[must_use]
    pub fn grow(&mut self, id: FileId, bytes: u64) -> bool {
        let fits = self.free(id.device as usize) >= bytes;
        if fits {
            self.get_mut(id).bytes += bytes;
        }
        fits
    }

    /// Drops the content that was only in memory.
    pub fn lose(&mut self, id: FileId) {
        let file = self.get_mut(id);
        file.content = file.flushed;
    }

    /// Simulates a power loss.
    pub fn lose_all(&mut self) {
        for file in self.all.values_mut() {
            file.content = file.flushed;
        }
    }
}
