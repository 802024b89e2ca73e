//! Typed dense ids. An id indexes an array of its inventory; it is not stable across inventories (names are).

use serde::{Deserialize, Serialize};

macro_rules! dense_id {
    ($(#[$doc:meta])* $name:ident, $int:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $int);

        impl $name {
            /// The id as an array index.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// The id for array index `index`; panics if the index does not fit the id type.
            #[inline]
            pub fn from_index(index: usize) -> Self {
                Self(<$int>::try_from(index).expect(concat!(stringify!($name), " out of range")))
            }
        }
    };
}

dense_id!(
    /// A virtual disk that a guest sees.
    VolumeId, u32
);
dense_id!(
    /// A virtual machine; owns volumes.
    VmId, u32
);
dense_id!(
    /// One SSD (or disk, directory, export).
    DeviceId, u16
);
dense_id!(
    /// A class of like devices; tiers are ordered high end first.
    TierId, u16
);
dense_id!(
    /// A service class (SLO class).
    ClassId, u16
);
