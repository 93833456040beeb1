"""What a process has used, as Linux tells it (proc(5))."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
#: Seconds without work after which a process counts as idle; one tick of work is 10 ms.
QUIET = 0.4
_IDLE_TICKS = 1


@dataclass(frozen=True)
class Usage:
    """Of one process and all of its threads.

    Attributes:
        cpu: seconds of processor time since its start, in user space and in the kernel.
        peak: most bytes of memory that were resident at once.
    """

    cpu: float
    peak: int


def usage(pid: int) -> Usage:
    """Return what a running process has used so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return Usage(_ticks(pid) / _TICKS, int(peak.split()[1]) * 1024)


def _ticks(pid: int) -> int:
    # The second field is the program's name in brackets, which may have spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


class Idle:
    """Tells whether a process has had nothing to do for a while: it has taken in what it was told."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ticks = _ticks(pid)
        self._since = time.monotonic()

    def reached(self) -> bool:
        """Whether it has been idle for `QUIET` seconds; to be asked again and again."""
        now, ticks = time.monotonic(), _ticks(self._pid)
        if now - self._since < QUIET:
            return False
        idle = ticks - self._ticks <= _IDLE_TICKS
        self._since, self._ticks = now, ticks
        return idle
