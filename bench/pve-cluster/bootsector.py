"""Boot sector of a guest that loads its disk: random reads and writes of 4 KiB by the BIOS, so many per timer tick.

The guest prints one `T` on the serial port, then repeats: N requests, one after the other, and a halt until the next tick
(18.2 a second). Half of them are writes. Blocks have odd numbers, so that the boot sector stays.
"""

import struct

ORIGIN = 0x7C00
BUFFER = 0x8000
BLOCK = 4096


def boot_sector(requests_per_tick: int, disk_bytes: int) -> bytes:
    if not 0 < requests_per_tick < 1 << 16:
        raise ValueError(f"{requests_per_tick} requests per tick are not between 1 and 65535")
    mask = (1 << (disk_bytes // BLOCK).bit_length() - 1) - 1
    # Data at the end: the BIOS's number of the drive, the state of the generator, the address packet of a request.
    drive, seed, packet = ORIGIN + 0x180, ORIGIN + 0x184, ORIGIN + 0x190
    code = bytearray()
    code += b"\x31\xc0\x8e\xd8\x8e\xc0\x8e\xd0\xbc\x00\x7c\xfb"  # xor ax, ax; mov ds, es, ss, ax; mov sp, 0x7c00; sti
    code += b"\x88\x16" + struct.pack("<H", drive)  # mov [drive], dl
    code += b"\xba\xf8\x03\xb0T\xee"  # mov dx, 0x3f8; mov al, 'T'; out dx, al
    tick = len(code)
    code += b"\xb9" + struct.pack("<H", requests_per_tick)  # mov cx, requests
    request = len(code)
    code += b"\x51"  # push cx
    code += b"\x66\xa1" + struct.pack("<H", seed)  # mov eax, [seed]
    code += b"\x66\x69\xc0\x6d\x4e\xc6\x41\x66\x05\x39\x30\x00\x00"  # imul eax, eax, 0x41c64e6d; add eax, 12345
    code += b"\x66\xa3" + struct.pack("<H", seed)  # mov [seed], eax
    code += b"\x66\x89\xc3\x66\xc1\xe8\x0a"  # mov ebx, eax; shr eax, 10
    code += b"\x66\x25" + struct.pack("<I", mask)  # and eax, mask
    code += b"\x66\x83\xc8\x01\x66\xc1\xe0\x03"  # or eax, 1; shl eax, 3
    code += b"\x66\xa3" + struct.pack("<H", packet + 8)  # mov [packet + 8], eax
    code += b"\x66\xff\x06" + struct.pack("<H", BUFFER)  # inc dword [buffer]
    code += b"\xbe" + struct.pack("<H", packet)  # mov si, packet
    code += b"\x8a\x16" + struct.pack("<H", drive)  # mov dl, [drive]
    code += b"\xb8\x00\x42\xf6\xc7\x02\x74\x03\xb8\x00\x43"  # mov ax, 0x4200; test bh, 2; jz over; mov ax, 0x4300
    code += b"\xcd\x13\x59"  # int 0x13; pop cx
    code += b"\xe2" + struct.pack("<b", request - len(code) - 2)  # loop request
    code += b"\xf4\xeb" + struct.pack("<b", tick - len(code) - 3)  # hlt; jmp tick
    image = bytearray(512)
    image[: len(code)] = code
    struct.pack_into("<I", image, seed - ORIGIN, 1)
    struct.pack_into("<BBHHHQ", image, packet - ORIGIN, 16, 0, BLOCK // 512, BUFFER, 0, 0)
    image[510:] = b"\x55\xaa"
    return bytes(image)
