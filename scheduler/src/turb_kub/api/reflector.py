"""Keeps a sink equal to one resource of the API server: a list, then a watch that is taken up again for ever.

Rules (kubernetes.io, "Kubernetes API Concepts: Efficient detection of changes"): the watch goes on from the last
resourceVersion seen, bookmarks included; 410, as a status or as an ERROR event, means a new list; a stream that falls
silent for longer than the bookmarks' rhythm is half-open and is taken up again; between failures waits a jittered,
doubling time, or what Retry-After asks. Where the watch can't get past one place, a list does. A failure is logged when
it begins and when it is over, not at each try.
"""

import asyncio
import logging
import random
import time
from contextlib import aclosing
from typing import Any, Protocol

import msgspec

from turb_kub.api.client import Client, Pool
from turb_kub.api.errors import ApiError, Expired, Unreachable
from turb_kub.api.lists import is_version, pages, read_page
from turb_kub.api.log_limit import LogLimit
from turb_kub.objects.malformed import MALFORMED
from turb_kub.objects.pod import resource_version
from turb_kub.objects.wire import Decoder, Identified, Status, WatchEvent

log = logging.getLogger(__name__)

#: The API server sends a bookmark about once a minute; two missed and a half are a dead connection.
READ_TIMEOUT = 150.0
FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
#: Tries to watch from one place before a list gets past it.
MISSES = 3
#: A watch that ends sooner than this counts as a failure, so that a server that closes at once is not hammered.
SHORTEST_WATCH = 1.0

_events = Decoder(WatchEvent)
_identities = Decoder(Identified)


class Sink(Protocol):
    """Where a reflector puts what it hears. Objects come undecoded; a sink must not raise on a malformed one."""

    def replace(self, items: list[msgspec.Raw]) -> None:
        """Take the whole truth: what is not among the items is gone."""

    def changed(self, item: msgspec.Raw) -> None:
        """Take the new state of one object."""

    def deleted(self, item: msgspec.Raw) -> None:
        """Forget one object; the item is its last state."""


class Reflector:
    """One resource, all namespaces.

    Attributes:
        path, resource: what is listed and watched.
        synced: set once the first list is in the sink.
        settled: set then too, or once the server has refused to list (403) or does not know the resource (404).
    """

    def __init__(self, client: Client, path: str, resource: str, sink: Sink) -> None:
        self._client = client
        self.path = path
        self.resource = resource
        self._sink = sink
        self._version: str | None = None
        self._wait = FIRST_WAIT
        self._limit = LogLimit(log)
        self._in_trouble = False
        #: How often in a row the server would not watch from where we are, or sent what cannot be read.
        self._misses = 0
        self.synced = asyncio.Event()
        self.settled = asyncio.Event()

    @property
    def version(self) -> int:
        """The resourceVersion up to which the sink has been told all; 0 where a list is under way."""
        return resource_version(self._version or "")

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                if self._version is None:
                    await self._list()
                await self._watch()
            except Expired:
                log.info("watch of %s is too old, listing again", self.resource)
                self._version = None
            except ApiError as error:
                if error.status != 429:
                    self._missed()
                await self._pause(error)
            except Unreachable as error:
                await self._pause(error)

    async def _list(self) -> None:
        items: list[msgspec.Raw] = []
        version = ""
        how: Any = {"resource": self.resource, "pool": Pool.WATCHES}
        try:
            async for page in pages(self._client, self.path, **how):
                items += page.items or []
                version = page.metadata.resourceVersion
        except ApiError as error:
            if error.status != 410 or not version:
                raise
            # The list grew too old between two pages. In one piece it can't, so that this ends.
            page = await read_page(self._client, self.path, query={}, **how)
            items, version = page.items or [], page.metadata.resourceVersion
        self._sink.replace(items)
        self._version = version
        self._recovered()
        self.synced.set()
        self.settled.set()

    async def _watch(self) -> None:
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            # Spread out, so that watches of many clients do not end together.
            "timeoutSeconds": str(random.randint(300, 600)),
        }
        began, heard = time.monotonic(), False
        lines = self._client.lines(self.path, resource=self.resource, query=query, read_timeout=READ_TIMEOUT)
        # Closed at once where an event ends the watch: the next one must not stand beside it.
        async with aclosing(lines):
            async for line in lines:
                try:
                    event = _events.decode(line)
                except MALFORMED as error:
                    self._missed()
                    raise Unreachable(f"a line of the watch is no event: {error}") from error
                self._take(event)
                if not heard:
                    heard = True
                    self._recovered()
        if not heard and time.monotonic() - began < SHORTEST_WATCH:
            raise Unreachable("the watch was closed as soon as it was opened")
        self._recovered()

    def _missed(self) -> None:
        self._misses += 1
        if self._misses >= MISSES:
            self._version, self._misses = None, 0

    def _take(self, event: WatchEvent) -> None:
        match event.type:
            case "ADDED" | "MODIFIED":
                self._sink.changed(event.object)
            case "DELETED":
                self._sink.deleted(event.object)
            case "BOOKMARK":
                pass
            case "ERROR":
                raise _error_of(event.object)
            case _:
                self._limit.warning(f"watch of {self.resource}: unknown event type {event.type!r}, left out")
                return
        try:
            version = _identities.decode(event.object).metadata.resourceVersion
        except MALFORMED:
            version = ""
        if not is_version(version):
            # The next event or bookmark moves the version on; until then a new watch repeats this event.
            self._limit.warning(f"watch of {self.resource}: an event without a resourceVersion")
        elif resource_version(version) >= resource_version(self._version or ""):
            # An event told again does not take the next watch back to what is behind us.
            self._version = version

    async def _pause(self, error: ApiError | Unreachable) -> None:
        if isinstance(error, ApiError) and error.status in {403, 404}:
            self.settled.set()
        if self._limit.warning(f"cannot read {self.resource}, trying again: {error}"):
            self._in_trouble = True
        await asyncio.sleep(max(error.retry_after, self._wait * random.uniform(0.5, 1.0)))
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def _recovered(self) -> None:
        self._wait, self._misses = FIRST_WAIT, 0
        if self._in_trouble:
            log.info("reading %s again", self.resource)
            self._in_trouble = False


def _error_of(item: msgspec.Raw) -> Exception:
    try:
        status = msgspec.json.decode(item, type=Status)
    except MALFORMED:
        return Unreachable("the watch ended with an error that cannot be read")
    if status.code == 410 or status.reason in {"Expired", "Gone"}:
        return Expired(status.message)
    return ApiError(status.code, status.reason, status.message)
