"""Elects one active replica by a Lease; the others stand by.

Whoever renews the Lease is active. Nobody compares clocks with another machine: a Lease is over when its record has not
changed for its duration by the own clock of whoever watches it. And who holds it may bind only until the renew deadline
after the last renewal that succeeded, counted from when that was sent. A bind ends within its time-out. So with

    renew deadline + bind time-out < lease duration

the last bind of a replica is over before another may take the Lease (the settings are checked for it).

| what happens | then |
|---|---|
| nobody holds it, or not renewed for its duration | taken, if the write is the first |
| renewal fails, no answer, 5xx, 429 | tried again until the renew deadline |
| changed meanwhile (409), and still ours | renewed as it is now: an answer was lost, or somebody set a label |
| changed meanwhile, and another's | lost |
| deleted | created anew by the holder; the others wait as long as if it were still there |
| renew deadline passed | lost |
| clean end | given up, so that the next takes it at once |

Lost means `LeaseLost`, and the process is to end, as kube-scheduler does: what it has assumed is of no use to anybody,
and one that starts anew begins with the truth.
"""

import asyncio
import logging
import random
import socket
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

from turb_kub.api.client import Client
from turb_kub.api.errors import ApiError, Unreachable
from turb_kub.api.leases import RELEASED, Lease, create_lease, read_lease, write_lease
from turb_kub.api.log_limit import LogLimit
from turb_kub.settings import Settings

log = logging.getLogger(__name__)

#: A standby waits for the retry period and up to this many times more, so that several do not ask in step (client-go).
JITTER = 1.2
#: One try takes at most this share of the renew deadline, so that one answer that never comes is not the end.
SHARE_OF_DEADLINE = 0.5
#: Seconds beyond the lease duration after which an election that does nothing is stuck (kube-scheduler's tolerance).
TOLERANCE = 20.0
#: Seconds that a clean end may take to give the Lease up.
RELEASE_WITHIN = 5.0


class LeaseLost(Exception):
    """Another replica may be the active one by now. The text says why."""


def uptime() -> float:
    """Seconds on a clock that never stands still: where there is one, on that which counts while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def identity_of_process() -> str:
    """Return a name that no other process has, before or after: the host's (in a cluster the pod's) and a number."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Elector:
    """One candidate. `run` until `LeaseLost`; `release` at a clean end.

    Attributes:
        identity: its name in the Lease.
        leading: whether it has become the active one.
        changed: called when it does.
    """

    def __init__(self, client: Client, settings: Settings, *, clock: Callable[[], float] = uptime) -> None:
        self._client = client
        self._namespace = settings.lease_namespace
        self._name = settings.lease_name or settings.scheduler_name
        self._duration = settings.lease_duration_seconds
        self._deadline = settings.renew_deadline_seconds
        self._period = settings.retry_period_seconds
        self._clock = clock
        self._limit = LogLimit(log)
        self.identity = identity_of_process()
        self.leading = False
        self.changed: Callable[[], None] = lambda: None
        #: As read or written last; None where that is not what is there any more.
        self._lease: Lease | None = None
        #: What of it the others' renewals change, since when it has been so by our clock, and for how long it holds.
        self._state: tuple[object, ...] = ()
        self._since = 0.0
        self._holds_for = 0.0
        self._holder = ""
        self._may_bind_until = float("-inf")
        self._beat_at: float | None = None
        self._in_trouble = False

    @property
    def key(self) -> str:
        return f"{self._namespace}/{self._name}"

    @property
    def active(self) -> bool:
        """Whether this replica may bind at this moment, and be sure that no other does."""
        return self._clock() < self._may_bind_until

    @property
    def stuck(self) -> bool:
        """Whether the election has done nothing for longer than it ever should, once it has begun."""
        return self._beat_at is not None and self._clock() - self._beat_at > self._duration + TOLERANCE

    async def run(self) -> None:
        """Stand by until the Lease can be had, then keep it.

        Raises:
            LeaseLost: it was had, and is had no more.
        """
        log.info("standing by for the lease %s as %s", self.key, self.identity)
        while not await self._stand_by():
            pass
        self.leading = True
        log.info("this replica leads: it has taken the lease %s", self.key)
        self.changed()
        while True:
            await asyncio.sleep(self._period)
            await self._renew()

    async def release(self) -> None:
        """Give the Lease up, if it is ours. To be called when `run` has ended and nothing is bound any more."""
        if not self.active:
            return
        until = min(self._may_bind_until, self._clock() + RELEASE_WITHIN)
        self._may_bind_until = float("-inf")
        self.leading = False
        try:
            # Read, since a renewal may have been cut off on its way: what it came to is not known.
            found = await read_lease(self._client, self._namespace, self._name, self._left(until))
            if found is not None and found.holder == self.identity:
                await self._write(found, "", RELEASED, self._left(until))
                log.info("the lease %s is given up", self.key)
        except (ApiError, Unreachable) as error:
            log.warning("the lease %s was not given up, another takes it in %d s: %s", self.key, self._duration, error)

    async def _stand_by(self) -> bool:
        """Try once, and wait where it was in vain. Tells whether the Lease was had."""
        self._beat_at = self._clock()
        pause = 0.0
        try:
            if await self._try(self._deadline * SHARE_OF_DEADLINE):
                return True
            self._recovered()
        except (ApiError, Unreachable) as error:
            pause = min(error.retry_after, self._deadline)
            self._complain(f"cannot take part in the election by the lease {self.key}, trying again: {error}")
        await asyncio.sleep(max(pause, self._period * (1.0 + JITTER * random.random())))
        return False

    async def _renew(self) -> None:
        why = "another was always faster to write it"
        while (left := self._may_bind_until - self._clock()) > 0:
            self._beat_at = self._clock()
            pause = self._period
            try:
                if await self._try(min(left, self._deadline * SHARE_OF_DEADLINE)):
                    self._recovered()
                    return
                # Read at once: it may be another's by now.
                pause /= 10
            except (ApiError, Unreachable) as error:
                why, pause = str(error), max(pause, error.retry_after)
                self._complain(f"the lease {self.key} cannot be renewed, trying again: {error}")
            await asyncio.sleep(max(0.0, min(pause, self._may_bind_until - self._clock())))
        raise LeaseLost(f"the lease {self.key} could not be renewed for {self._deadline:g} s: {why}")

    async def _try(self, within: float) -> bool:
        """Take or renew the Lease. Tells whether it is ours by this; False where another holds it or was faster.

        Args:
            within: seconds for all requests of this try together.

        Raises:
            ApiError, Unreachable: whether it is, is not known.
            LeaseLost: it was ours, and another holds it.
        """
        until = self._clock() + within
        if self.leading and self._lease is not None:
            # Where the write fails, it is read before it is written again: what came of it may not be known.
            lease, self._lease = self._lease, None
            try:
                return await self._hold(lease, within)
            except ApiError as error:
                if not error.object_is_another:
                    raise
        found = await read_lease(self._client, self._namespace, self._name, self._left(until))
        if found is not None:
            self._observe(found)
        if self._is_anothers(gone=found is None):
            if self.leading and found is not None:
                self._may_bind_until = float("-inf")
                raise LeaseLost(f"the lease {self.key} is held by {self._holder}")
            return False
        try:
            return await self._hold(found, self._left(until))
        except ApiError as error:
            if error.status == 409:
                return False
            raise

    def _is_anothers(self, *, gone: bool) -> bool:
        if self._holder in {"", self.identity}:
            return False
        if self.leading and not gone:
            return True
        # Deleted or not, its holder goes on until it has heard of it.
        return self._clock() - self._since < self._holds_for

    async def _hold(self, lease: Lease | None, within: float) -> bool:
        sent_at = self._clock()
        if lease is None:
            now = datetime.now(UTC)
            lease = await create_lease(
                self._client, self._namespace, self._name, self.identity, self._duration, now, within
            )
        else:
            lease = await self._write(lease, self.identity, self._duration, within)
        self._lease = lease
        self._observe(lease)
        self._may_bind_until = sent_at + self._deadline
        return True

    async def _write(self, lease: Lease, holder: str, duration: int, within: float) -> Lease:
        now = datetime.now(UTC)
        return await write_lease(self._client, self._namespace, self._name, lease, holder, duration, now, within)

    def _observe(self, lease: Lease) -> None:
        """Take note of the Lease's record, and of the moment where it is another than before."""
        if lease.state == self._state:
            return
        if lease.holder not in {"", self._holder, self.identity}:
            log.info("%s holds the lease %s", lease.holder, self.key)
        self._state, self._since = lease.state, self._clock()
        self._holder = lease.holder
        self._holds_for = float(self._duration) if lease.duration is None else lease.duration

    def _left(self, until: float) -> float:
        left = until - self._clock()
        if left <= 0:
            raise Unreachable("timed out")
        return left

    def _complain(self, text: str) -> None:
        if self._limit.warning(text):
            self._in_trouble = True

    def _recovered(self) -> None:
        if self._in_trouble:
            log.info("the lease %s can be read and written again", self.key)
            self._in_trouble = False
