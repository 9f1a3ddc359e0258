"""The wall clock of one process jumps; its monotonic clock, and everybody else's, go on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long jump_s(void)
{
    char text[32];
    const char *path = getenv("ROCKETQ_CLOCK_JUMP");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    text[size > 0 ? size : 0] = 0;
    return atol(text);
}

int clock_gettime(clockid_t which, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, which, now);
    if (result == 0 && which == CLOCK_REALTIME)
        now->tv_sec += jump_s();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (into)
        *into = exact.tv_sec;
    return exact.tv_sec;
}
"""


class JumpingClock:
    """A library to be loaded before others: it adds as many seconds to the time of day as a file says."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        assert compiler is not None
        self._folder = folder
        self._library = folder / "jump.so"
        command = [compiler, "-x", "c", "-", "-shared", "-fPIC", "-O1", "-o", str(self._library)]
        subprocess.run(command, input=SOURCE, text=True, check=True, timeout=60)

    def environment(self, number: int) -> dict[str, str]:
        """For process `number`."""
        return {"LD_PRELOAD": str(self._library), "ROCKETQ_CLOCK_JUMP": str(self._file(number))}

    def jump(self, number: int, seconds: int) -> None:
        self._file(number).write_text(str(seconds))

    def _file(self, number: int) -> Path:
        return self._folder / f"clock{number}"
