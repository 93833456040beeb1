"""What is to be done at a later time, for a loop that asks when it must be back."""

import heapq
from collections.abc import Callable
from itertools import count

#: Called with the time at which it is run.
Action = Callable[[float], None]


class Timers:
    """Actions by time, in seconds on the caller's clock. `run` is to be called whenever `due_in` says so."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def at(self, time: float, action: Action) -> None:
        """Have something done at a time. Of one time the first that was asked for goes first."""
        heapq.heappush(self._waiting, (time, next(self._numbers), action))

    def due_in(self, now: float) -> float | None:
        """Seconds until something is to be done; None where nothing is."""
        return max(0.0, self._waiting[0][0] - now) if self._waiting else None

    def run(self, now: float) -> None:
        """Do what is due."""
        while self._waiting and self._waiting[0][0] <= now:
            heapq.heappop(self._waiting)[-1](now)
