"""Compares the cache with a fresh list now and then, and mends what differs.

A watch is to tell everything, and a cache that it feeds is to be right. Where an event is lost all the same (a bug of
ours, of the API server's, of a proxy's between them), a pod that is gone takes room until the next restart, or one
that nobody counts lets a node be overfilled. So every ten minutes or so nodes and pods are listed and compared, page by
page, and nothing but what seems to differ is kept.

What differs may only be late. A list is the state at one resourceVersion. Once the watch has told all up to there:

| difference | is real where |
|---|---|
| held, not in the list | it is still held: what was held before the list began and is not in it was deleted by then |
| in the list, not held or held otherwise | read once more, the watch has passed its state, which is not what is held |

Everything else has changed meanwhile, and the watch tells of it or the next check finds it. The sums over the pods are
computed anew as well, some nodes at a time.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from turb_kub.api.client import Client
from turb_kub.api.errors import ApiError, Unreachable
from turb_kub.api.lists import pages
from turb_kub.api.log_limit import LogLimit
from turb_kub.api.reflector import Reflector
from turb_kub.cluster.cluster import Cluster
from turb_kub.loop.metrics import Metrics
from turb_kub.objects.malformed import Remains, remains_of
from turb_kub.objects.pod import resource_version
from turb_kub.objects.wire import WireList

log = logging.getLogger(__name__)

#: Seconds, give or take a fifth.
CHECK_EVERY = 600.0
#: Seconds in which the watch must get to where the list was; the API server's bookmarks come once a minute.
CATCH_UP_WITHIN = 180.0
LOOK_EVERY = 0.5
#: Nodes whose sums are computed between two turns of the event loop.
NODES_A_TURN = 20
#: Differences named in the log.
NAMED = 5
SUMS = "sums"


class Kept(Protocol):
    """What a cache holds of one kind of object. A key tells objects of the kind apart."""

    def key_of(self, item: Remains) -> str:
        """The key of an object that was listed."""

    def held(self) -> dict[str, str]:
        """Keys of all that is held, each with what tells an object from one made anew under the same key."""

    def holds(self, key: str, which: str) -> bool:
        """Whether that very object is still held."""

    def agrees(self, item: msgspec.Raw) -> bool:
        """Whether an object is held as this state of it says, or as a newer one does; of a malformed one always."""

    def changed(self, item: msgspec.Raw) -> None:
        """Take a state."""

    def forget(self, key: str) -> None:
        """Forget an object."""


class SelfCheck:
    """`run` for ever, or `check` once.

    Args:
        kinds: the cached kinds by name, each with its reflector.
    """

    def __init__(
        self, client: Client, cluster: Cluster, metrics: Metrics, kinds: dict[str, tuple[Kept, Reflector]]
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._metrics = metrics
        self._kinds = kinds
        self._limit = LogLimit(log)

    async def run(self) -> None:
        """Check every `CHECK_EVERY` seconds until cancelled."""
        while True:
            await asyncio.sleep(CHECK_EVERY * random.uniform(0.8, 1.2))
            try:
                await self.check()
            except (ApiError, Unreachable) as error:
                self._metrics.cache_checks.labels("failed").inc()
                self._limit.warning(f"the cache could not be compared with the API server: {error}")

    async def check(self) -> None:
        """Compare all kinds and all sums, mend what differs, count it, and log one line where there was anything.

        Raises:
            ApiError, Unreachable: a list failed; what it would have found the next check finds.
        """
        done = True
        for kind, (kept, reflector) in self._kinds.items():
            differing = await self._compare(kept, reflector)
            done = done and differing is not None
            self._tell(kind, differing or [])
        self._tell(SUMS, await self._sums())
        self._metrics.cache_checks.labels("done" if done else "given up").inc()

    async def _compare(self, kept: Kept, reflector: Reflector) -> list[str] | None:
        """Return what differed, mended by now; None where the watch did not get far enough to tell."""
        unlisted = kept.held()
        suspects: dict[str, Remains] = {}
        version = 0
        async for page in self._pages(reflector, {}):
            version = resource_version(page.metadata.resourceVersion)
            for item in page.items or ():
                identity = remains_of(item)
                unlisted.pop(kept.key_of(identity), None)
                if not kept.agrees(item):
                    suspects[kept.key_of(identity)] = identity
            await asyncio.sleep(0)
        if not (unlisted or suspects):
            return []
        if not await self._caught_up(reflector, version):
            return None
        differing = []
        for key, which in unlisted.items():
            if kept.holds(key, which):
                kept.forget(key)
                differing.append(f"{key} is gone")
        for identity in suspects.values():
            differing += await self._look_again(kept, reflector, identity)
        return differing

    async def _look_again(self, kept: Kept, reflector: Reflector, identity: Remains) -> list[str]:
        selector = f"metadata.name={identity.name}"
        if identity.namespace:
            selector += f",metadata.namespace={identity.namespace}"
        differing = []
        async for page in self._pages(reflector, {"fieldSelector": selector}):
            for item in page.items or ():
                told = resource_version(remains_of(item).resource_version) <= reflector.version
                if told and not kept.agrees(item):
                    kept.changed(item)
                    differing.append(f"{identity.key} was not as it is")
        return differing

    async def _caught_up(self, reflector: Reflector, version: int) -> bool:
        """Wait until the watch has told all up to a version; False where it does not in time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + CATCH_UP_WITHIN
        while reflector.version < version:
            if loop.time() >= until:
                return False
            await asyncio.sleep(LOOK_EVERY)
        return True

    def _pages(self, reflector: Reflector, query: dict[str, str]) -> AsyncIterator[WireList]:
        return pages(self._client, reflector.path, resource=reflector.resource, query=query)

    async def _sums(self) -> list[str]:
        slots = [slot for slot, _ in self._cluster.each_node()]
        wrong = []
        for first in range(0, len(slots), NODES_A_TURN):
            some = [slot for slot in slots[first : first + NODES_A_TURN] if self._cluster.nodes[slot] is not None]
            found = self._cluster.check(some)
            if found:
                for slot in some:
                    self._cluster.recount(slot)
            wrong += found
            await asyncio.sleep(0)
        return wrong

    def _tell(self, kind: str, differing: list[str]) -> None:
        if not differing:
            return
        self._metrics.cache_differences.labels(kind).inc(len(differing))
        named = "; ".join(differing[:NAMED])
        log.warning(
            "the cache differed from the truth and was mended: %d %s: %s%s",
            len(differing),
            kind,
            named,
            "; …" if len(differing) > NAMED else "",
        )
