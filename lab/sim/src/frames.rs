//! Places of extents inside a drive: frames of some megabytes, allocated at the first access and freed with the extent.
//!
//! A slot has addresses for a whole extent, but the last extent of a volume is usually partial. With frames, only data
//! uses pages of the drive, and the spare space is correct.

use units::Bytes;

use crate::slots::Slots;

/// Approximate size of frames.
const FRAME: u64 = 4 << 20;
/// Unit of frames: they are whole pages of most drives.
const PAGE: u64 = 4096;
const NONE: u32 = u32::MAX;

/// Division of extents into frames.
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

    /// Returns the number of frames of a part of an extent.
    pub(crate) fn of_bytes(self, part: Bytes) -> u64 {
        part.0.div_ceil(self.bytes)
    }

    /// Returns the number of frames of a capacity, if all extents were complete.
    pub(crate) fn room(self, capacity: Bytes) -> u64 {
        let (whole, rest) = (capacity.0 / self.extent, capacity.0 % self.extent);
        whole * self.in_extent + self.of_bytes(Bytes(rest))
    }
}

/// Frames of one drive.
#[derive(Debug, Clone)]
pub(crate) struct Frames {
    size: FrameSize,
    /// Frame by slot and index within the slot.
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

    /// Returns the address in the drive for the device's address `at`, and the number of bytes from there to the end of
    /// the frame.
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

    /// Frees the frames of a slot and returns the first byte of each.
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

    /// Returns the number of used frames.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.free.taken()
    }

    /// Returns the size of a frame.
    pub(crate) fn bytes(&self) -> u64 {
        self.size.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_cover_extents_without_overlap_and_are_returned() {
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
            // Another slot reuses the frames of a freed one.
            let mut back = frames.give_back(1);
            assert_eq!(frames.give_back(1), [0u64; 0]);
            let (first, _) = frames.locate(7 * extent);
            assert_eq!(Some(first), back.pop());
        }
    }

    #[test]
    fn partial_extents_use_only_the_frames_they_need() {
        let size = FrameSize::of(Bytes::mib(64));
        assert_eq!((size.in_extent, size.bytes), (16, 4 << 20));
        assert_eq!(size.of_bytes(Bytes::mib(52)), 13);
        assert_eq!(size.room(Bytes::gib(8)), 2048);
        assert_eq!(size.room(Bytes(Bytes::gib(8).0 + 1)), 2049);
    }
}
