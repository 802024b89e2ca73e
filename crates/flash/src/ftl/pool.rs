//! A pool: erase blocks that one garbage collection works on.

use std::collections::VecDeque;

use super::blocks::{Block, Buckets, Life, NIL};
use super::config::FtlConfig;
use crate::FlashError;

/// A block that is being filled, or none ([`NIL`]).
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub block: u32,
    /// Position of the next page.
    pub next: u32,
}

/// Blocks with their free and open ones.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    /// Free blocks. First in, first out: all of them take their turns, which levels wear.
    pub free: VecDeque<u32>,
    /// The open block of each stream.
    pub opens: Box<[Open]>,
    /// Sealed blocks.
    pub buckets: Buckets,
    /// All blocks, in no order.
    pub members: Vec<u32>,
    /// Logical pages that may come to lie here; where a tenant's blocks follow its data, those that do.
    pub pages: u64,
}

impl Pool {
    /// Without blocks.
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

    /// Adds a free block that belongs to nobody else.
    pub(super) fn take_in(&mut self, block: u32, lives: &mut [Life]) {
        self.enlist(block, lives);
        self.free.push_back(block);
    }

    /// Gives a free block away.
    pub(super) fn give_up(&mut self, lives: &mut [Life]) -> Option<u32> {
        let block = self.free.pop_front()?;
        self.strike(block, lives);
        Some(block)
    }

    /// A block is one of this pool's from now on.
    pub(super) fn enlist(&mut self, block: u32, lives: &mut [Life]) {
        lives[block as usize].member = self.members.len() as u32;
        self.members.push(block);
    }

    /// A block is none of this pool's any more.
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
    /// When there is none: the reserve is sized so that this cannot be.
    pub(super) fn open(&mut self, stream: usize, blocks: &mut [Block]) -> u32 {
        let block = self.free.pop_front();
        let block =
            block.expect("the reserve has a free block for every stream that collection writes to");
        blocks[block as usize].set_open();
        self.opens[stream] = Open { block, next: 0 };
        block
    }

    /// The open block of a stream is open no more.
    pub(super) fn close(&mut self, stream: usize) -> u32 {
        std::mem::replace(&mut self.opens[stream].block, NIL)
    }

    /// Bytes of state.
    pub(super) fn bytes(&self) -> usize {
        let lists = (self.free.capacity() + self.members.capacity()) * 4;
        size_of::<Self>() + lists + self.opens.len() * size_of::<Open>()
    }
}

/// Whether `blocks` are enough for `pages` of data, so that collection always finds a block that is not full.
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
