//! Storage backend of a redb database on a simulated disk.

use std::io;

use redb::StorageBackend;

use crate::CrashDisk;

impl StorageBackend for CrashDisk {
    fn len(&self) -> io::Result<u64> {
        CrashDisk::len(self)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        CrashDisk::read(self, offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        CrashDisk::set_len(self, len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        CrashDisk::write(self, offset, data)
    }
}
