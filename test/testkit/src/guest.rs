//! Guest without an operating system that verifies its own disk, for tests that move a disk in use.
//!
//! A PC boots it from its first disk. It writes, reads the data back, and reports each acknowledged request on its
//! first serial port. [`Log`] verifies this report, and compares the disk's image with it. One request is in flight at
//! a time.
//!
//! ```text
//! sector   0            1              2 ..= 7   8 ..= 15   16 ..= 23   …
//!          this program boots (u32)    unused    block 0    block 1     …
//!
//! block    512 times its sequence number (u32) and its own number (u32); zeroes before it is first written
//!
//! report   at each boot: 9 times 0xff, 'B', the boot's first sequence number less one (u32)
//!          then records of 9 bytes: a tag, the block (u32), a value (u32)
//!            'W'  acknowledged write                          its sequence number
//!            'R'  acknowledged read                           the sequence number found, 0 if never written
//!            'T'  acknowledged read of data never written     the sequence number in its first 4 bytes
//!            'E'  request that failed                         status of int 13h, then 0x42 (read) or 0x43 (write), 0, 0
//! ```
//!
//! All numbers are little-endian. The top 8 bits of a sequence number are the number of the boot. The boot is counted
//! on the disk, and that write is acknowledged before the first other one, so the numbers also rise over resets and
//! restarts. Within a boot each write takes the next number, acknowledged or not. The run of 0xff occurs in no record,
//! so a record that a reset has cut short is distinguishable from the following boot.
//!
//! # Limits
//!
//! It does not test flushes, because int 13h has none. A disk that keeps acknowledged writes in QEMU's own memory (such
//! as metadata of qcow2 without `cache=writethrough`) correctly loses them when QEMU is killed.

mod log;

pub use log::{Log, LostWrite};

/// Bytes of a block, the unit of each request.
pub const BLOCK_BYTES: usize = 4096;
/// Largest number of blocks of a guest's disk. The bit that selects read or write must not overlap with those that
/// select the block.
pub const BLOCKS_MAX: u32 = 1 << 22;
/// Smallest disk. SeaBIOS does not boot from a virtio disk of less than a cylinder (16 heads of 63 sectors).
const DISK_BYTES_MIN: u64 = 1 << 20;
/// Beginning of a boot's report.
const MARK: [u8; 10] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, b'B'];
/// Number of bits of a sequence number below the boot's number.
const BOOT_SHIFT: u8 = 24;

/// Guest and its rate of requests.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    /// Requests at each tick of its clock, 18.2 times a second. If the disk is slower, the requests follow each other
    /// directly.
    pub requests_per_tick: u16,
    /// Number of blocks that it reads and writes, a power of two up to [`BLOCKS_MAX`].
    pub blocks: u32,
}

impl Guest {
    /// Returns the size of its disk. Only [`Guest::boot_sector`] must be written before the first boot.
    pub fn disk_bytes(&self) -> u64 {
        DISK_BYTES_MIN.max(BLOCK_BYTES as u64 * (1 + u64::from(self.blocks)))
    }

    /// Returns the first sector of its disk.
    ///
    /// # Panics
    /// The number of requests is 0, or the number of blocks is not a power of two up to [`BLOCKS_MAX`].
    pub fn boot_sector(&self) -> [u8; 512] {
        assert!(self.requests_per_tick > 0, "no requests");
        assert!(
            self.blocks.is_power_of_two() && self.blocks <= BLOCKS_MAX,
            "{} blocks",
            self.blocks
        );
        let code = program(self);
        let mut sector = [0; 512];
        sector[..code.len()].copy_from_slice(&code);
        assert!(code.len() <= usize::from(DATA - AT), "{}", code.len());
        let mut at = usize::from(DATA - AT);
        for part in [&MARK[..], &[0; 4], &[0; 9], &PACKET_AT_START] {
            sector[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        sector
    }
}

/// Address to which the BIOS loads the sector.
const AT: u16 = 0x7c00;
/// Address of the block that is read or written.
const BUFFER: u16 = 0x8000;
/// Variables: the mark followed by the last sequence number; the record; the packet with the arguments of int 13h;
/// variables without an initial value.
const DATA: u16 = AT + 0x1c0;
const SEQUENCE: u16 = DATA + MARK.len() as u16;
const RECORD: u16 = SEQUENCE + 4;
const PACKET: u16 = RECORD + 9;
const RANDOM: u16 = PACKET + 16;
const DRIVE: u16 = RANDOM + 4;
/// Packet for one sector, the second, to the buffer.
const PACKET_AT_START: [u8; 16] = [16, 0, 1, 0, 0x00, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// Machine code, assembled by hand, in 16-bit real mode.
struct Code(Vec<u8>);

impl Code {
    fn here(&self) -> usize {
        self.0.len()
    }

    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends an instruction that ends with an address or a number.
    fn put16(&mut self, instruction: &[u8], operand: u16) {
        self.put(instruction);
        self.put(&operand.to_le_bytes());
    }

    fn put32(&mut self, instruction: &[u8], operand: u32) {
        self.put(instruction);
        self.put(&operand.to_le_bytes());
    }

    /// Appends a jump or call with a 16-bit distance.
    fn far(&mut self, instruction: &[u8], to: usize) {
        let after = self.here() + instruction.len() + 2;
        self.put16(instruction, (to as u16).wrapping_sub(after as u16));
    }

    /// Appends a backward jump.
    fn back(&mut self, instruction: u8, to: usize) {
        let distance = i8::try_from(to as i64 - self.here() as i64 - 2);
        let distance = distance.expect("near enough");
        self.put(&[instruction, distance.cast_unsigned()]);
    }

    /// Appends a forward jump. [`Code::land`] with the returned position sets its target.
    fn ahead(&mut self, instruction: u8) -> usize {
        self.put(&[instruction, 0]);
        self.here()
    }

    fn land(&mut self, from: usize) {
        let distance = i8::try_from(self.here() - from).expect("near enough");
        self.0[from - 1] = distance.cast_unsigned();
    }
}

const JB: u8 = 0x72;
const JE: u8 = 0x74;
const JNE: u8 = 0x75;
const JMP: u8 = 0xeb;
const LOOP: u8 = 0xe2;
const CALL: &[u8] = &[0xe8];

fn program(guest: &Guest) -> Vec<u8> {
    let mut code = Code(vec![]);
    let main = code.ahead(JMP);

    // Performs the function in BH (42h: read, 43h: write) with the packet. Carry and AH are those of int 13h.
    let disk = code.here();
    code.put(&[0x88, 0xfc, 0xb0, 0x00]); // mov ah, bh; mov al, 0
    code.put16(&[0x8a, 0x16], DRIVE); // mov dl, [drive]
    code.put16(&[0xbe], PACKET); // mov si, packet
    code.put(&[0xcd, 0x13, 0xc3]); // int 13h; ret

    // Sends CX bytes at SI to the serial port, each after the previous one has been sent.
    let report = code.here();
    code.put(&[0xac, 0xba, 0xf8, 0x03, 0xee]); // lodsb; mov dx, 3f8h; out dx, al
    code.put(&[0xb2, 0xfd]); // mov dl, 0fdh: line status
    let busy = code.here();
    code.put(&[0xec, 0xa8, 0x40]); // in al, dx; test al, 40h: transmitter is empty
    code.back(JE, busy);
    code.back(LOOP, report);
    code.put(&[0xc3]); // ret

    code.land(main);
    code.put(&[0xfa, 0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0]); // cli; xor ax, ax; mov ds, es, ss, ax
    code.put16(&[0xbc], AT); // mov sp, 7c00h
    code.put(&[0xfb, 0xfc]); // sti; cld
    code.put16(&[0x88, 0x16], DRIVE); // mov [drive], dl

    // Counts the boot, and repeats until the disk has acknowledged it.
    let count = code.here();
    code.put(&[0xb7, 0x42]); // mov bh, 42h
    code.far(CALL, disk);
    code.back(JB, count);
    code.put16(&[0x66, 0xff, 0x06], BUFFER); // inc dword [buffer]
    code.put(&[0xb7, 0x43]); // mov bh, 43h
    code.far(CALL, disk);
    code.back(JB, count);
    code.put16(&[0x66, 0xa1], BUFFER); // mov eax, [buffer]
    code.put16(&[0x66, 0xa3], RANDOM); // mov [random], eax
    code.put(&[0x66, 0xc1, 0xe0, BOOT_SHIFT]); // shl eax, 24
    code.put16(&[0x66, 0xa3], SEQUENCE); // mov [sequence], eax
    code.put16(&[0xc6, 0x06], PACKET + 2); // mov byte [packet.sectors], 8
    code.put(&[8]);
    code.put16(&[0xbe], DATA); // mov si, mark
    code.put16(&[0xb9], RECORD - DATA); // mov cx, bytes of the mark and the sequence number
    code.far(CALL, report);

    let tick = code.here();
    code.put(&[0xf4]); // hlt: until the next interrupt
    code.put16(&[0xb9], guest.requests_per_tick); // mov cx, requests
    let again = code.here();
    code.put(&[0x51]); // push cx
    code.put16(&[0x66, 0x69, 0x06], RANDOM); // imul eax, [random], 1103515245
    code.put(&1_103_515_245_u32.to_le_bytes());
    code.put32(&[0x66, 0x05], 12345); // add eax, 12345
    code.put16(&[0x66, 0xa3], RANDOM); // mov [random], eax
    // Bit 9 selects read or write; the top bits select the block.
    code.put(&[0x88, 0xe7, 0xd0, 0xef]); // mov bh, ah; shr bh, 1
    code.put(&[0x80, 0xe7, 0x01, 0x80, 0xcf, 0x42]); // and bh, 1; or bh, 42h
    code.put32(&[0x66, 0xb9], guest.blocks); // mov ecx, blocks
    code.put(&[0x66, 0xf7, 0xe1]); // mul ecx: edx is the block
    code.put16(&[0x66, 0x89, 0x16], RECORD + 1); // mov [record.block], edx
    code.put(&[0x66, 0x89, 0xd0, 0x66, 0x40]); // mov eax, edx; inc eax
    code.put(&[0x66, 0xc1, 0xe0, 0x03]); // shl eax, 3: eight sectors each
    code.put16(&[0x66, 0xa3], PACKET + 8); // mov [packet.sector], eax
    code.put(&[0xf6, 0xc7, 0x01]); // test bh, 1
    let read = code.ahead(JE);
    code.put16(&[0x66, 0xff, 0x06], SEQUENCE); // inc dword [sequence]
    code.put16(&[0x66, 0xa1], SEQUENCE); // mov eax, [sequence]
    code.put16(&[0x66, 0xa3], BUFFER); // mov [buffer], eax
    code.put16(&[0x66, 0x89, 0x16], BUFFER + 4); // mov [buffer + 4], edx
    all_but_the_last_pair(&mut code);
    code.put(&[0xf3, 0x66, 0xa5]); // rep movsd: each pair into the next
    code.land(read);

    code.far(CALL, disk);
    let failed = code.ahead(JB);
    code.put16(&[0x66, 0xa1], BUFFER); // mov eax, [buffer]
    code.put(&[0xb3, b'W', 0xf6, 0xc7, 0x01]); // mov bl, 'W'; test bh, 1
    let written = code.ahead(JNE);
    all_but_the_last_pair(&mut code);
    code.put(&[0xb3, b'T', 0xf3, 0x66, 0xa7]); // mov bl, 'T'; repe cmpsd: each pair with the next
    let torn = code.ahead(JNE);
    code.put(&[0x66, 0x85, 0xc0]); // test eax, eax
    let never_written = code.ahead(JE);
    code.put16(&[0x66, 0x8b, 0x16], BUFFER + 4); // mov edx, [buffer + 4]
    code.put16(&[0x66, 0x3b, 0x16], RECORD + 1); // cmp edx, [record.block]
    let elsewhere = code.ahead(JNE);
    code.land(never_written);
    code.put(&[0xb3, b'R']); // mov bl, 'R'
    let whole = code.ahead(JMP);
    code.land(failed);
    code.put(&[0x88, 0xe0, 0x88, 0xfc]); // mov al, ah; mov ah, bh
    code.put(&[0x66, 0x0f, 0xb7, 0xc0, 0xb3, b'E']); // movzx eax, ax; mov bl, 'E'
    for from in [written, torn, elsewhere, whole] {
        code.land(from);
    }
    code.put16(&[0x88, 0x1e], RECORD); // mov [record.tag], bl
    code.put16(&[0x66, 0xa3], RECORD + 5); // mov [record.value], eax
    code.put16(&[0xbe], RECORD); // mov si, record
    code.put16(&[0xb9], PACKET - RECORD); // mov cx, bytes of a record
    code.far(CALL, report);
    code.put(&[0x59, 0x49]); // pop cx; dec cx
    code.far(&[0x0f, 0x85], again); // jnz again
    code.far(&[0xe9], tick); // jmp tick
    code.0
}

/// Points SI at the buffer and DI eight bytes further, and sets CX to the number of double words from DI to the end of
/// the buffer.
fn all_but_the_last_pair(code: &mut Code) {
    code.put16(&[0xbe], BUFFER); // mov si, buffer
    code.put16(&[0xbf], BUFFER + 8); // mov di, buffer + 8
    code.put16(&[0xb9], BLOCK_BYTES as u16 / 4 - 2); // mov cx, 1022
}
