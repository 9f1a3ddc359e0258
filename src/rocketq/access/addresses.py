"""Source addresses: the patterns of ACL 1.0, and the addresses and networks of ACL 2.0.

    patterns := pattern ("," pattern)*        each a single address where there are several
    pattern  := "*" | "*.*.*.*" | "*:*:*:*:*:*:*:*" | ipv4 | ipv6
    ipv4     := part "." part "." part "." (part | "{" number ("," number)* "}")
    part     := number | "*" | number "-" number
    ipv6     := address | prefix ":" ("*" | hex "-" hex | "{" hex ("," hex)* "}")

A blank text matches nothing. A network (10.0.0.0/8) is for ACL 2.0 only, as at Apache.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketq.errors import ConfigError

_EVERYTHING: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_NUMBER: Final = re.compile(r"[0-9]{1,3}", re.ASCII)
_HEX: Final = re.compile(r"[0-9a-fA-F]{1,4}", re.ASCII)
_FIRST_RANGE: Final = 1  # the first part of an IPv4 pattern is a number
_Matcher = Callable[[int], bool]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class BadAddressError(ConfigError):
    """A text that is no address pattern, said as Apache's brokers and tools say it."""

    def __init__(self, text: str) -> None:
        super().__init__(f"Netaddress examine Exception netaddress is {text}")
        self.text = text


def parse_address(text: str) -> Address | None:
    """An address; one that is IPv4 within IPv6 is the IPv4 one. None when the text is no address."""
    try:
        found = ipaddress.ip_address(text.strip().strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def is_loopback(text: str) -> bool:
    found = parse_address(text)
    return found is not None and found.is_loopback


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Which numbers are allowed at each place, of addresses of one version."""

    version: int
    places: tuple[_Matcher, ...]

    def matches(self, address: Address) -> bool:
        if address.version != self.version:
            return False
        width = 1 if self.version == 4 else 2
        data = address.packed
        numbers = [int.from_bytes(data[at : at + width]) for at in range(0, len(data), width)]
        return all(place(number) for place, number in zip(self.places, numbers, strict=True))


@dataclass(frozen=True, slots=True)
class AddressPattern:
    """What a whiteRemoteAddress or an entry of globalWhiteRemoteAddresses matches."""

    text: str
    patterns: tuple[_Pattern, ...] = ()
    everything: bool = False

    @classmethod
    def parse(cls, text: str) -> AddressPattern:
        text = text.strip()
        if not text:
            return cls(text)
        if text in _EVERYTHING:
            return cls(text, everything=True)
        if "," in text and not text.endswith("}"):
            return cls(text, tuple(_single(part.strip()) for part in text.split(",")))
        return cls(text, (_pattern_v6(text) if ":" in text else _pattern_v4(text),))

    def matches(self, source: str) -> bool:
        if self.everything:
            return True
        address = parse_address(source) if self.patterns else None
        return address is not None and any(pattern.matches(address) for pattern in self.patterns)


def _single(text: str) -> _Pattern:
    address = parse_address(text)
    if address is None:
        raise BadAddressError(text)
    return _exactly(address)


def _exactly(address: Address) -> _Pattern:
    width = 1 if address.version == 4 else 2
    data = address.packed
    numbers = [int.from_bytes(data[at : at + width]) for at in range(0, len(data), width)]
    return _Pattern(address.version, tuple(_one_of(frozenset({number})) for number in numbers))


def _pattern_v4(text: str) -> _Pattern:
    parts = text.split(".", 3)
    if len(parts) != 4:
        raise BadAddressError(text)
    places, ranges = [], 0
    for at, part in enumerate(parts):
        place = _place(part, _NUMBER, 10, 255, text, listed=at == 3)
        is_range = not _NUMBER.fullmatch(part)
        ranges += is_range
        if is_range and at < _FIRST_RANGE:
            raise BadAddressError(text)
        places.append(place)
    return _Pattern(4, tuple(places))


def _pattern_v6(text: str) -> _Pattern:
    address = parse_address(text)
    if address is not None:
        return _exactly(address)
    head, _, last = text.rpartition(":")
    if head.endswith(":"):  # the gap is before the last place
        head += ":"
    filled = parse_address(f"{head}0" if head.endswith("::") else f"{head}:0")
    if filled is None or filled.version != 6:
        raise BadAddressError(text)
    data = filled.packed
    numbers = [int.from_bytes(data[at : at + 2]) for at in range(0, 14, 2)]
    places = [_one_of(frozenset({number})) for number in numbers]
    return _Pattern(6, (*places, _place(last, _HEX, 16, 0xFFFF, text, listed=True)))


def _place(part: str, number: re.Pattern[str], base: int, largest: int, text: str, *, listed: bool) -> _Matcher:
    def read(digits: str) -> int:
        if not number.fullmatch(digits) or int(digits, base) > largest:
            raise BadAddressError(text)
        return int(digits, base)

    if part == "*":
        return lambda _: True
    if part.startswith("{") and part.endswith("}") and listed:
        return _one_of(frozenset(read(each.strip()) for each in part[1:-1].split(",")))
    if "-" in part:
        low, _, high = part.partition("-")
        return _between(read(low), read(high), text)
    return _one_of(frozenset({read(part)}))


def _one_of(numbers: frozenset[int]) -> _Matcher:
    return numbers.__contains__


def _between(low: int, high: int, text: str) -> _Matcher:
    if low > high:
        raise BadAddressError(text)
    return lambda number: low <= number <= high


@dataclass(frozen=True, slots=True)
class SourceNetworks:
    """The sourceIps of a policy entry: addresses and networks; none means from anywhere."""

    texts: tuple[str, ...] = ()
    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()

    @classmethod
    def parse(cls, texts: tuple[str, ...]) -> SourceNetworks:
        """ValueError when one is neither an address nor a network."""
        kept = tuple(text.strip() for text in texts if text.strip())
        return cls(kept, tuple(ipaddress.ip_network(text, strict=False) for text in kept))

    def matches(self, source: str) -> bool:
        if not self.networks:
            return True
        address = parse_address(source)
        return address is not None and any(
            address.version == network.version and address in network for network in self.networks
        )
