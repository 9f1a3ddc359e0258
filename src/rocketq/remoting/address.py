"""Addresses as text: `host:port`, with brackets around an IPv6 host."""

from __future__ import annotations

from rocketq.errors import ConfigError


def split_addr(addr: str) -> tuple[str, int]:
    """Host and port of an address."""
    host, colon, port = addr.strip().rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
        raise ConfigError(f"{addr!r} is not an address of the form host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_addr(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
