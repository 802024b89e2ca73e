//! Which extent a page belongs to, and which volume an extent.

use std::sync::Arc;

use crate::page_cache::PAGES_PER_EXTENT;

/// For policies that look at more than single pages. Tables are shared: many caches over one universe have one.
#[derive(Debug, Clone)]
pub enum PageLayout {
    /// Pages of an extent have consecutive numbers; all is one volume.
    Consecutive {
        /// Pages of an extent, at least 1.
        pages_per_extent: u32,
    },
    /// The same, and every extent has its volume: of caches in front of volumes, whose numbers begin with an extent each.
    Volumes {
        /// Pages of an extent, at least 1.
        pages_per_extent: u32,
        /// By extent: its volume.
        volume_of: Arc<[u32]>,
    },
    /// By tables.
    Tables {
        /// By page: its extent.
        extent_of: Arc<[u32]>,
        /// By extent: its volume.
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
    /// The extent of a page.
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

    /// The volume of an extent.
    #[inline]
    pub fn volume(&self, extent: u32) -> u32 {
        match self {
            Self::Consecutive { .. } => 0,
            Self::Volumes { volume_of, .. } | Self::Tables { volume_of, .. } => {
                volume_of[extent as usize]
            }
        }
    }

    /// Extents of pages `0..universe`.
    pub fn extents(&self, universe: u32) -> u32 {
        match self {
            Self::Consecutive { pages_per_extent } => universe.div_ceil((*pages_per_extent).max(1)),
            Self::Volumes { volume_of, .. } | Self::Tables { volume_of, .. } => {
                volume_of.len() as u32
            }
        }
    }

    /// Volumes, at least one.
    pub fn volumes(&self) -> u32 {
        match self {
            Self::Consecutive { .. } => 1,
            Self::Volumes { volume_of, .. } | Self::Tables { volume_of, .. } => {
                volume_of.iter().max().map_or(1, |v| v + 1)
            }
        }
    }
}
