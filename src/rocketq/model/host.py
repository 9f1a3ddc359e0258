"""A host and port as the store and message ids hold them."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Host:
    """IP bytes (4 or 16) and a port."""

    ip: bytes
    port: int

    def __post_init__(self) -> None:
        if len(self.ip) not in (4, 16):
            raise ValueError(f"an IP address has 4 or 16 bytes, not {len(self.ip)}")
        if not 0 <= self.port <= 0xFFFF:
            raise ValueError(f"port {self.port} is outside 0..65535")

    @classmethod
    def of(cls, ip: str, port: int) -> Host:
        """From the text form of an address; an IPv6 scope (`%eth0`) is dropped."""
        return cls(ipaddress.ip_address(ip.partition("%")[0]).packed, port)

    @property
    def is_ipv6(self) -> bool:
        return len(self.ip) == 16

    def packed(self) -> bytes:
        """IP then port as a big-endian i32: the form of records and message ids."""
        return self.ip + self.port.to_bytes(4, "big")

    @classmethod
    def unpack(cls, data: bytes) -> Host:
        return cls(bytes(data[:-4]), int.from_bytes(data[-4:], "big") & 0xFFFF)

    def __str__(self) -> str:
        text = str(ipaddress.ip_address(self.ip))
        return f"[{text}]:{self.port}" if self.is_ipv6 else f"{text}:{self.port}"


LOOPBACK = Host(b"\x7f\x00\x00\x01", 0)
