"""A small NBD client over a unix socket: size, read, write, flush, one request at a time."""

import socket
import struct
from urllib.parse import parse_qs, urlsplit

READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
OPTION_MAGIC = 0x49484156454F5054
EXPORT_NAME = 1
# Fixed newstyle, no zeroes after the flags.
CLIENT_FLAGS = 3


class Nbd:
    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(parse_qs(parts.query)["socket"][0])
        if self._receive(16) != b"NBDMAGIC" + struct.pack(">Q", OPTION_MAGIC):
            raise ConnectionError("the server is not a newstyle NBD server")
        self._receive(2)
        name = parts.path.lstrip("/").encode()
        self.socket.sendall(struct.pack(">IQII", CLIENT_FLAGS, OPTION_MAGIC, EXPORT_NAME, len(name)) + name)
        self.size = struct.unpack(">QH", self._receive(10))[0]
        self.handle = 0

    def _receive(self, count: int) -> bytes:
        parts = b""
        while len(parts) < count:
            part = self.socket.recv(count - len(parts))
            if not part:
                raise ConnectionError("the NBD server closed the connection")
            parts += part
        return parts

    def _request(self, kind: int, offset: int, length: int, data: bytes = b"") -> bytes:
        self.handle += 1
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, kind, self.handle, offset, length) + data)
        magic, error, handle = struct.unpack(">IIQ", self._receive(16))
        if magic != 0x67446698 or handle != self.handle:
            raise ConnectionError("the reply of the NBD server belongs to no request")
        if error:
            raise OSError(error, f"NBD request {kind} at {offset} failed")
        return self._receive(length) if kind == READ else b""

    def read(self, offset: int, length: int) -> bytes:
        return self._request(READ, offset, length)

    def write(self, offset: int, data: bytes) -> None:
        self._request(WRITE, offset, len(data), data)

    def flush(self) -> None:
        self._request(FLUSH, 0, 0)

    def close(self) -> None:
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, DISCONNECT, 0, 0, 0))
        self.socket.close()
