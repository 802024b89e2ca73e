//! Where extents lie inside a drive: in frames of some megabytes, given when they are first touched and given back with the extent.
//!
//! A slot is an address for a whole extent, and the last extent of a volume is seldom whole. With frames the drive's pages are those of
//! the data, and so is its spare space.

use units::Bytes;

use crate::slots::Slots;

/// About so large are frames.
const FRAME: u64 = 4 << 20;
/// Frames are whole pages of most drives.
const PAGE: u64 = 4096;
const NONE: u32 = u32::MAX;

/// How extents are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameSize {
    pub extent: u64,
    /// Frames of an extent; the last may be smaller.
    pub in_extent: u64,
    pub bytes: u64,
}

impl FrameSize {
    pub(crate) fn of(extent: Bytes) -> Self {
        let in_extent = extent.0.div_ceil(FRAME).max(1);
        Self {
            extent: extent.0,
            in_extent,
            bytes: extent.0.div_ceil(in_extent).next_multiple_of(PAGE),
        }
    }

    /// Frames of a part of an extent.
    pub(crate) fn of_bytes(self, part: Bytes) -> u64 {
        part.0.div_ceil(self.bytes)
    }

    /// Frames that so many bytes of extents take, but for ends of volumes.
    pub(crate) fn room(self, capacity: Bytes) -> u64 {
        let (whole, rest) = (capacity.0 / self.extent, capacity.0 % self.extent);
        whole * self.in_extent + self.of_bytes(Bytes(rest))
    }
}

/// The frames of one drive.
#[derive(Debug, Clone)]
pub(crate) struct Frames {
    size: FrameSize,
    /// By slot and place in it.
    given: Vec<u32>,
    free: Slots,
}

impl Frames {
    pub(crate) fn new(size: FrameSize) -> Self {
        Self {
            size,
            given: Vec::new(),
            free: Slots::default(),
        }
    }

    /// The first byte in the drive of what is at `at` on the device, and how many bytes from there are in one frame.
    pub(crate) fn locate(&mut self, at: u64) -> (u64, u64) {
        let (slot, within) = (at / self.size.extent, at % self.size.extent);
        let place = within / self.size.bytes;
        let index = (slot * self.size.in_extent + place) as usize;
        if self.given.len() <= index {
            self.given.resize(index + 1, NONE);
        }
        if self.given[index] == NONE {
            self.given[index] = self.free.take();
        }
        let into = within - place * self.size.bytes;
        let ends = ((place + 1) * self.size.bytes).min(self.size.extent);
        (
            u64::from(self.given[index]) * self.size.bytes + into,
            ends - within,
        )
    }

    /// Takes back the frames of a slot; the first byte of each.
    pub(crate) fn give_back(&mut self, slot: u32) -> Vec<u64> {
        let first = (u64::from(slot) * self.size.in_extent) as usize;
        let last = (first + self.size.in_extent as usize).min(self.given.len());
        let mut out = Vec::new();
        for frame in self
            .given
            .get_mut(first.min(last)..last)
            .unwrap_or_default()
        {
            let frame = std::mem::replace(frame, NONE);
            if frame != NONE {
                self.free.give_back(frame);
                out.push(u64::from(frame) * self.size.bytes);
            }
        }
        out
    }

    /// How many are in use.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.free.taken()
    }

    /// Bytes of one.
    pub(crate) fn bytes(&self) -> u64 {
        self.size.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_cover_extents_without_overlap_and_come_back() {
        for extent in [4096, 1 << 20, 10_000_000, 64 << 20] {
            let size = FrameSize::of(Bytes(extent));
            assert!(size.bytes * size.in_extent >= extent);
            assert!(size.bytes * size.in_extent < extent + size.in_extent * PAGE);
            let mut frames = Frames::new(size);
            let (mut at, mut seen) = (0, Vec::new());
            while at < 3 * extent {
                let (first, bytes) = frames.locate(at);
                seen.push(first..first + bytes);
                at += bytes;
            }
            assert_eq!(at, 3 * extent, "frames end with their extent");
            seen.sort_by_key(|r| r.start);
            assert!(seen.windows(2).all(|w| w[0].end <= w[1].start));
            assert_eq!(seen.len() as u64, 3 * size.in_extent);
            // Another slot has the frames of one that was given back.
            let mut back = frames.give_back(1);
            assert_eq!(frames.give_back(1), [0u64; 0]);
            let (first, _) = frames.locate(7 * extent);
            assert_eq!(Some(first), back.pop());
        }
    }

    #[test]
    fn ends_of_volumes_take_what_they_need() {
        let size = FrameSize::of(Bytes::mib(64));
        assert_eq!((size.in_extent, size.bytes), (16, 4 << 20));
        assert_eq!(size.of_bytes(Bytes::mib(52)), 13);
        assert_eq!(size.room(Bytes::gib(8)), 2048);
        assert_eq!(size.room(Bytes(Bytes::gib(8).0 + 1)), 2049);
    }
}
