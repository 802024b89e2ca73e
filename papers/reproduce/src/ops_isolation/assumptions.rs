//! Assumptions for details that are not published, as text. Other choices may be reasonable as well.

use super::setup::Setup;

/// Stand-ins for loads.
const LOADS: &[&str] = &[
    "Financial, MSN, Exchange and Proj are stand-ins: mixes of kind, size and skew typical of these traces' families (23, 67, 50 and 15 % reads; \
     4 to 8, 8 to 64, 8 to 32 and 4 to 64 KiB; Zipf 1.0, 0.8, 0.8 and 0.6; in Proj every eighth request starts a run of 256 KiB); no parameter was fitted. \
     The paper captured its own traces while the virtual machines ran.",
    "The file server is a stand-in for fio's: files of 128 KiB are read or written as a whole or appended to, 32 KiB at a time, in bursts of mostly \
     one kind. Random writes are uniform over a virtual machine's space.",
    "The paper does not describe the replay of the traces. Readings: closed loops of one depth, of fewer requests, of unequal depths, and open arrivals. \
     For open arrivals, the rate that one pool serves is measured first, in closed loops of 16 for a fifth of the time.",
    "The weights of the four virtual machines are not published: 1, 2, 5 and 10 are assumed; groups of two and three use the ends of that range.",
];

/// Stand-ins for devices.
const DEVICES: &[&str] = &[
    "The drive of part 1's measurements is four units of the slides' table on four channels; that of the simulations is one unit, as in the \
     cost formula. Clean: filled once, half of the flash free, too short a run for collection. Aged: overwritten by chance until steady, \
     then by the loads themselves.",
    "The drive of part 2 (Samsung 850 PRO) is eight such units on eight channels with a write buffer of 8 MiB; \"1CH\" is one of them. Erase \
     blocks of the drives of part 1's measurements and of part 2, scaled down as they are, are a quarter of the slides', to have enough \
     of them; so are those of the simulated SSD with four elements, which has 32 tags. The disk has 7,200 revolutions per minute.",
];

/// Service of requests.
const SERVICE: &[&str] = &[
    "Host weights are start-time fair queueing of bytes in front of the device, without idling. Linux's CFQ of 2014 shares time in slices, \
     idles on disks and not on SSDs with queues. The disk therefore runs with one request at a time, and SSDs with 32 tags.",
    "Device time is shared by deficit round robin on the nanoseconds that the unit was busy. Garbage collection is charged to the virtual machine whose write \
     started it, also in one pool and with handles, where it moves pages of other virtual machines.",
    "Definition of fairness: the formula gives the IOPS of a virtual machine while the device serves it. Under first come, first served, equal \
     depths give equal IOPS for any spare space. The slides name no scheduling between virtual machines, so all are run.",
];

/// Sharing of flash.
const SHARING: &[&str] = &[
    "\"Dynamically adjust OPS\" is a controller of ours: every 10 s it moves a fiftieth of the spare blocks from the virtual machine with the highest IOPS for \
     its weight to the one with the lowest, and the donor's collection is charged to the donor. It starts with equal numbers; on four elements it runs every 2.5 s. \"By model\" is \
     the cost formula with Menon's relation of utilization and spare space, solved for IOPS in proportion to weights.",
    "Reserve: collection starts when fewer than 2 erase blocks are free, in one pool or in the blocks of each isolated \
     virtual machine. With persistent handles it starts at one block for each tenant and one more (5 with four tenants), since \
     collection writes to a block of each tenant; with initial handles it starts at 2. All of these blocks are part of the same OPS of 5 %.",
    "Handles \"initially\" collect into the open block of the first virtual machine, in one stream, as on the simulated drive without handles.",
    "An isolated virtual machine has at least 3 spare blocks, independent of model and controller: with fewer its collection could lack a block to write to.",
];

/// Returns all assumptions, including those that follow from the setup.
pub(super) fn assumptions(setup: &Setup) -> Vec<String> {
    let size = format!(
        "Every virtual machine has {} MiB, since small drives reach a steady state sooner. On a small drive, the reserve and the open blocks are a larger \
         part of the spare blocks.",
        setup.tenant_mib
    );
    let all = [LOADS, DEVICES, SERVICE, SHARING].concat();
    all.into_iter().map(String::from).chain([size]).collect()
}
