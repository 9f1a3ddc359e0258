"""Standard input, output and error, as supervisors and shells leave them."""

from __future__ import annotations

import errno
import os
from typing import Final

_COUNT: Final = 3
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


def hold_standard_files() -> None:
    """Where one is closed, the next socket would take its place, and what is meant for people would go to a peer."""
    for number in range(_COUNT):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one


def lacks_room(error: OSError) -> bool:
    """Whether it is the disk that some output goes to."""
    return error.errno in _NO_ROOM
