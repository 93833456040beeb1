"""Pods that other schedulers put on nodes: noted as they come, and for how long as much is expected to come once more.

What counts is the time between our last look at a node and the moment when our bind to it takes effect. It can't be
known beforehand; the slowest of our last binds, the read before each included, is a measure of it, and `TIMES` that is
how far back is looked, so that a scheduler which comes by each node now and then is not overlooked.

A scheduler is at work until as long after the last that was seen of it. How many pods it may place in that time is
known once it was seen for `BUSY_SECONDS` with pods enough to place: no more than in the busiest of its seconds.
"""

import math
from collections import deque
from collections.abc import Callable

import msgspec

from turb_kub.cluster.cluster import Cluster
from turb_kub.loop.timers import Timers
from turb_kub.objects.pod import Pod

TIMES = 3.0
#: Seconds.
SHORTEST = 1.0
LONGEST = 10.0
BUSY_SECONDS = 5
_LAST_BINDS = 64


class _Work(msgspec.Struct):
    """What was seen of one scheduler. Times are seconds on the caller's clock."""

    #: When its work is over if nothing more is seen of it; it may be over.
    until: float = 0.0
    #: When the second began in which its binds are counted, and how many they are.
    second: float = 0.0
    binds: int = 0
    busiest: int = 0
    busy_seconds: int = 0


class Arrivals:
    """Notes what other schedulers do, and ends that again by the timers."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float], timers: Timers) -> None:
        self._cluster = cluster
        self._clock = clock
        self._binds: deque[float] = deque(maxlen=_LAST_BINDS)
        self._work: dict[str, _Work] = {}
        self._timers = timers

    @property
    def window(self) -> float:
        """Seconds for which what has just come to a node is expected to come once more."""
        return min(max(SHORTEST, TIMES * max(self._binds, default=0.0)), LONGEST)

    def bind_took(self, seconds: float) -> None:
        """Take the time of one bind of ours, from the start of the read before it to its answer."""
        self._binds.append(seconds)

    def note(self, pod: Pod) -> None:
        """Take a pod that another scheduler has just put on a node; to be called once for each."""
        now = self._clock()
        self._cluster.note_arrival(pod)
        self._timers.at(now + self.window, lambda _: self._cluster.foreign.settle(pod.uid))
        work = self._work.setdefault(pod.scheduler_name, _Work())
        if now - work.second >= 1.0:
            # Only a second at whose end it has more to place shows how fast it is.
            work.busy_seconds += work.binds > 0 and self._cluster.foreign.backlog(pod.scheduler_name) > 0
            work.second, work.binds = now, 0
        work.binds += 1
        work.busiest = max(work.busiest, work.binds)
        self.note_work(pod.scheduler_name)

    def note_work(self, scheduler_name: str) -> None:
        """Take note that something was seen of another scheduler."""
        now, window = self._clock(), self.window
        work = self._work.setdefault(scheduler_name, _Work())
        if work.until == 0.0:
            self._timers.at(now + window, lambda later: self._end_work(scheduler_name, later))
        work.until = now + window
        known = work.busy_seconds >= BUSY_SECONDS
        self._cluster.foreign.work(scheduler_name, math.ceil(work.busiest * window) if known else None)

    def _end_work(self, scheduler_name: str, now: float) -> None:
        work = self._work[scheduler_name]
        if work.until > now:
            self._timers.at(work.until, lambda later: self._end_work(scheduler_name, later))
        else:
            work.until = 0.0
            if not work.busy_seconds:
                del self._work[scheduler_name]
            self._cluster.foreign.end_work(scheduler_name)
