"""An asyncio event loop whose clock moves only when nothing is left to do, and then at once to the next timer.

Hours pass in milliseconds, and the same program takes the same steps each time: there are no sockets and no threads,
and callbacks run in the order in which they became due.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any


class VirtualLoop(asyncio.BaseEventLoop):
    """Use `run` to let time pass, and `close` at the end."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0
        # What the base class asks for events, with the seconds until the next timer.
        self._selector = self

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise AssertionError("nothing is due and nothing ever will be")
        self._now += timeout
        return []

    def _process_events(self, events: list[Any]) -> None:
        pass

    def run(self, seconds: float) -> None:
        """Let time pass, and run all that is due by then."""
        self.run_until_complete(asyncio.sleep(seconds))

    def end(self, *, leaving: Coroutine[Any, Any, None] | None = None) -> None:
        """Cancel every task and close."""
        for task in asyncio.all_tasks(self):
            task.cancel()
        self.run_until_complete(asyncio.sleep(0.001))
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()
