//! Typed dense ids. An id indexes an array of its inventory; it is not stable across inventories (names are).

use serde::{Deserialize, Serialize};

macro_rules! dense_id {
    ($(#[$doc:meta])* $name:ident, $int:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $int);

        impl $name {
            /// Returns the id as an array index.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// Returns the id for array index `index`. Panics if the index does not fit the id type.
            #[inline]
            pub fn from_index(index: usize) -> Self {
                Self(<$int>::try_from(index).expect(concat!(stringify!($name), " out of range")))
            }
        }
    };
}

dense_id!(
    /// Virtual disk that a guest sees.
    VolumeId, u32
);
dense_id!(
    /// Virtual machine; owns volumes.
    VmId, u32
);
dense_id!(
    /// SSD, disk, directory or export.
    DeviceId, u16
);
dense_id!(
    /// Class of similar devices; tiers are ordered high end first.
    TierId, u16
);
dense_id!(
    /// Service class (SLO class).
    ClassId, u16
);
