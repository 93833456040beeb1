"""Logs what goes wrong once, not at each try.

Trouble on the wire comes back as often as it is tried again, in slightly different words (a port, a byte's place) and
with good moments in between. A reader of the log needs each kind of it once, and now and then a reminder.
"""

import logging
import re
import time
from collections.abc import Callable

#: Seconds after which a text is worth telling again.
AGAIN_AFTER = 300.0
MOST = 5
LONGEST = 500
_NUMBERS = re.compile(r"[0-9]+")


class LogLimit:
    """A logger's warnings: a text once in `AGAIN_AFTER` seconds, and no more than `most` texts in that time.

    What is held back is still logged at level DEBUG.
    """

    def __init__(self, log: logging.Logger, *, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._most = most
        self._clock = clock
        #: When each text was told last; at most `most` of them.
        self._told: dict[str, float] = {}
        self._hinted_at = float("-inf")

    def warning(self, text: str, about: str | None = None) -> bool:
        """Log the text, or hold it back. Tells which: True where it was logged.

        Args:
            about: what is told once; by default the text without its numbers.
        """
        now = self._clock()
        text = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
        gist = _NUMBERS.sub("0", text) if about is None else about
        for old in [old for old, told in self._told.items() if now - told >= AGAIN_AFTER]:
            del self._told[old]
        if gist not in self._told and len(self._told) < self._most:
            self._told[gist] = now
            self._log.warning("%s", text)
            return True
        if gist not in self._told and now - self._hinted_at >= AGAIN_AFTER:
            self._hinted_at = now
            self._log.warning("%s (more like this is logged at level debug only)", text)
        self._log.debug("%s", text)
        return False
