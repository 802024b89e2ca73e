//! Mapping of pages to extents, and of extents to volumes.

use std::sync::Arc;

use crate::page_cache::PAGES_PER_EXTENT;

/// Layout for policies that use more than single pages. Tables are shared: many caches over one universe use the same
/// ones.
#[derive(Debug, Clone)]
pub enum PageLayout {
    /// Pages of an extent have consecutive numbers; all extents belong to one volume.
    Consecutive {
        /// Number of pages in an extent, at least 1.
        pages_per_extent: u32,
    },
    /// Consecutive pages as above, and every extent has its volume. For caches in front of volumes, whose numbers start
    /// at an extent.
    Volumes {
        /// Number of pages in an extent, at least 1.
        pages_per_extent: u32,
        /// Volume of each extent.
        volume_of: Arc<[u32]>,
    },
    /// Tables.
    Tables {
        /// Extent of each page.
        extent_of: Arc<[u32]>,
        /// Volume of each extent.
        volume_of: Arc<[u32]>,
    },
}

impl Default for PageLayout {
    fn default() -> Self {
        Self::Consecutive {
            pages_per_extent: PAGES_PER_EXTENT,
        }
    }
}

impl PageLayout {
    /// Returns the extent of a page.
    #[inline]
    pub fn extent(&self, page: u32) -> u32 {
        match self {
            Self::Consecutive { pages_per_extent }
            | Self::Volumes {
                pages_per_extent, ..
            } => page / (*pages_per_extent).max(1),
            Self::Tables { extent_of, .. } => extent_of[page as usize],
        }
    }

    /// Returns the volume of an extent.
    #[inline]
    pub fn volume(&self, extent: u32) -> u32 {
        match self {
            Self::Consecutive { .. } => 0,
            Self::Volumes { volume_of, .. } | Self::Tables { volume_of, .. } => {
                volume_of[extent as usize]
            }
        }
    }

    /// Returns the number of extents of pages `0..universe`.
    pub fn extents(&self, universe: u32) -> u32 {
        match self {
            Self::Consecutive { pages_per_extent } => universe.div_ceil((*pages_per_extent).max(1)),
            Self::Volumes { volume_of, .. } | Self::Tables { volume_of, .. } => {
                volume_of.len() as u32
            }
        }
    }

    /// Returns the number of volumes, at least one.
    pub fn volumes(&self) -> u32 {
        match self {
            Self::Consecutive { .. } => 1,
            Self::Volumes { volume_of, .. } | Self::Tables { volume_of, .. } => {
                volume_of.iter().max().map_or(1, |v| v + 1)
            }
        }
    }
}
