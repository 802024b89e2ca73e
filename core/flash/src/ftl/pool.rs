//! Pool: set of erase blocks with a common garbage collection.

use std::collections::VecDeque;

use super::blocks::{Block, Buckets, Life, NIL};
use super::config::FtlConfig;
use crate::FlashError;

/// Block that is being filled, or none ([`NIL`]).
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub block: u32,
    /// Position of the next page.
    pub next: u32,
}

/// Blocks of a pool, with its free and open ones.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    /// Free blocks, first in, first out. All blocks are used in turn, which levels wear.
    pub free: VecDeque<u32>,
    /// Open block of each stream.
    pub opens: Box<[Open]>,
    /// Sealed blocks.
    pub buckets: Buckets,
    /// All blocks, in no order.
    pub members: Vec<u32>,
    /// Number of logical pages that may be placed here; if a tenant's blocks follow its data, the number that are.
    pub pages: u64,
}

impl Pool {
    /// Creates a pool without blocks.
    pub(super) fn new(config: &FtlConfig) -> Self {
        let none = Open {
            block: NIL,
            next: 0,
        };
        Self {
            free: VecDeque::new(),
            opens: vec![none; config.pool_streams() as usize].into(),
            buckets: Buckets::new(config.data_pages()),
            members: Vec::new(),
            pages: 0,
        }
    }

    #[inline]
    pub(super) fn has_open(&self, stream: usize) -> bool {
        self.opens[stream].block != NIL
    }

    /// Adds a free block without an owner.
    pub(super) fn take_in(&mut self, block: u32, lives: &mut [Life]) {
        self.enlist(block, lives);
        self.free.push_back(block);
    }

    /// Removes a free block.
    pub(super) fn give_up(&mut self, lives: &mut [Life]) -> Option<u32> {
        let block = self.free.pop_front()?;
        self.strike(block, lives);
        Some(block)
    }

    /// Adds a block to this pool's members.
    pub(super) fn enlist(&mut self, block: u32, lives: &mut [Life]) {
        lives[block as usize].member = self.members.len() as u32;
        self.members.push(block);
    }

    /// Removes a block from this pool's members.
    pub(super) fn strike(&mut self, block: u32, lives: &mut [Life]) {
        let at = lives[block as usize].member as usize;
        self.members.swap_remove(at);
        if let Some(moved) = self.members.get(at) {
            lives[*moved as usize].member = at as u32;
        }
    }

    /// Opens a free block for a stream.
    ///
    /// # Panics
    /// If no block is free. The reserve is sized so that this cannot happen.
    pub(super) fn open(&mut self, stream: usize, blocks: &mut [Block]) -> u32 {
        let block = self.free.pop_front();
        let block =
            block.expect("the reserve has a free block for every stream that collection writes to");
        blocks[block as usize].set_open();
        self.opens[stream] = Open { block, next: 0 };
        block
    }

    /// Closes the open block of a stream.
    pub(super) fn close(&mut self, stream: usize) -> u32 {
        std::mem::replace(&mut self.opens[stream].block, NIL)
    }

    /// Returns the bytes of state.
    pub(super) fn bytes(&self) -> usize {
        let lists = (self.free.capacity() + self.members.capacity()) * 4;
        size_of::<Self>() + lists + self.opens.len() * size_of::<Open>()
    }
}

/// Checks that `blocks` suffice for `pages` of data, so collection always finds a block that is not full.
pub(super) fn check_room(config: &FtlConfig, blocks: u32, pages: u64) -> Result<(), FlashError> {
    let needed = u64::from(config.spare_blocks_min(blocks));
    let per_block = u64::from(config.data_pages());
    if u64::from(blocks) * per_block > pages + needed * per_block {
        return Ok(());
    }
    Err(FlashError::SpareTooSmall {
        blocks: blocks.into(),
        data_pages: pages,
        needed,
        spare: f64::from(blocks) - pages as f64 / per_block as f64,
    })
}
