"""Makes nodes and pods on the API server, lets the pods go, and watches when each gets its node.

It shares the machine with what is measured. So it asks for as little as will do: bound pods come by a watch for those
that have a node, and events are counted by the API server, and only once all is placed.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from turb_kub.api.client import Client
from turb_kub.objects.wire import Decoder

from bench import shapes
from bench.shapes import NAMESPACE, Shape, Trigger

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
IN_FLIGHT = 24
#: Seconds in which any one thing must be over.
PATIENCE = 300.0
#: Seconds without a new event after which no more are awaited.
EVENTS_QUIET = 0.8
POLL = 0.05
HOLDER = "bench"
MERGE = "application/merge-patch+json"


class Stuck(Exception):
    """Something was not over in time; the text says what."""


class _Meta(msgspec.Struct):
    name: str = ""
    resourceVersion: str = ""
    remainingItemCount: int = 0


class _Spec(msgspec.Struct):
    nodeName: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Event(msgspec.Struct):
    type: str
    object: _Pod


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[_Pod] = []


_REQUESTS = "apiserver_request_total{"
_events = Decoder(_Event)
_lists = Decoder(_List)


class Workload:
    """The nodes and pods of one API server.

    Attributes:
        made: when the API server had answered that a pod was made, by name, on this machine's monotonic clock.
        bound: when the watch told of its node, by name, of those that a scheduler placed.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._nodes: tuple[int, int] = (0, 0)
        self._added = 0
        self._more = asyncio.Event()
        self.made: dict[str, float] = {}
        self.bound: dict[str, float] = {}

    async def _call(
        self, verb: str, path: str, body: Any = None, kind: str = "application/json", **query: str
    ) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        return await self._client.request(
            verb, path, resource="", query=query, body=data, content_type=kind, timeout=PATIENCE
        )

    async def nodes(self, count: int, places: int = shapes.PODS_A_NODE) -> None:
        """Have so many nodes, with room for so many pods each, and none besides."""
        if self._nodes == (count, places):
            return
        await self._call("DELETE", "/api/v1/nodes")
        await _all(self._call("POST", "/api/v1/nodes", shapes.node(i, places=places)) for i in range(count))
        self._nodes = (count, places)

    async def empty(self) -> None:
        """Delete all pods and events, and nodes that were added."""
        await self._call("DELETE", PODS, gracePeriodSeconds="0")
        await self._call("DELETE", EVENTS)
        for name in [f"added-{i:05}" for i in range(self._added)]:
            await self._call("DELETE", f"/api/v1/nodes/{name}")
        self._added = 0
        self.made.clear()
        self.bound.clear()

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Note for as long as the block lasts when pods get their nodes."""
        version = _lists.decode(await self._call("GET", PODS, limit="1")).metadata.resourceVersion
        watching = asyncio.create_task(self._watch(version))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self, version: str) -> None:
        while True:
            # The API server ends a watch whose reader is slow: it is taken up where it ended.
            query = {"watch": "1", "resourceVersion": version, "fieldSelector": "spec.nodeName!="}
            async for line in self._client.lines(PODS, resource="", query=query, read_timeout=PATIENCE):
                event = _events.decode(line)
                if event.type == "ERROR":
                    raise Stuck(f"the watch of pods ended: {line.decode()}")
                version = event.object.metadata.resourceVersion
                if event.type == "ADDED":
                    self.bound.setdefault(event.object.metadata.name, time.monotonic())
                    self._more.set()

    async def _make(self, body: dict[str, Any]) -> None:
        await self._call("POST", PODS, body)
        self.made[body["metadata"]["name"]] = time.monotonic()

    async def make(self, shape: Shape, count: int, nodes: int, scheduler: str) -> None:
        """Make pods as fast as the API server takes them; first those that fill the nodes or fit nowhere."""
        if shape.trigger in (Trigger.DELETE, Trigger.NODES):
            names = [shapes.node(i)["metadata"]["name"] for i in range(nodes)]
            places = self._nodes[1]
            await _all(self._make(shapes.filling_pod(i, names[i // places])) for i in range(nodes * places))
        await _all(self._make(shapes.hopeless_pod(i, scheduler)) for i in range(int(count * shape.hopeless)))
        await _all(self._make(shapes.pod(shape, i, nodes, scheduler)) for i in range(count))

    async def stream(self, shape: Shape, count: int, nodes: int, scheduler: str, rate: float) -> None:
        """Make pods at so many a second, each at its time whether or not those before are placed."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                due = began + number / rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                group.create_task(self._make(shapes.pod(shape, number, nodes, scheduler)))

    async def let_go(self, trigger: Trigger, count: int) -> None:
        """Do what lets so many pods be placed, where that is not to give the lease up."""
        if trigger is Trigger.UNGATE:
            patch = {"spec": {"schedulingGates": None}}
            await _all(self._call("PATCH", f"{PODS}/pod-{i:05}", patch, MERGE) for i in range(count))
        elif trigger is Trigger.DELETE:
            await _all(self._call("DELETE", f"{PODS}/filling-{i:05}", gracePeriodSeconds="0") for i in range(count))
        elif trigger is Trigger.NODES:
            self._added = -(-count // shapes.PODS_A_NODE)
            await _all(self._call("POST", "/api/v1/nodes", shapes.node(i, prefix="added")) for i in range(self._added))

    async def all_bound(self, count: int) -> None:
        """Wait until so many of the pods that are to be placed have a node. Raises `Stuck`."""

        def placed() -> int:
            return sum(1 for name in self.bound if name.startswith("pod-"))

        deadline = time.monotonic() + PATIENCE
        while placed() < count:
            self._more.clear()
            try:
                await asyncio.wait_for(self._more.wait(), 5.0)
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise Stuck(f"after {PATIENCE:.0f} s only {placed()} of {count} pods have a node") from None

    async def events_written(self) -> tuple[int, float]:
        """Wait until no more events come. Returns how many there are, and when the last had come."""
        count, since = -1, time.monotonic()
        while time.monotonic() - since < EVENTS_QUIET:
            metadata = _lists.decode(await self._call("GET", EVENTS, limit="1"))
            now = len(metadata.items) + metadata.metadata.remainingItemCount
            if now != count:
                count, since = now, time.monotonic()
            await asyncio.sleep(POLL)
        return count, since

    async def hold(self, lease: str) -> None:
        """Take a lease that nobody has yet, so that a scheduler stands by for it."""
        await self._call("DELETE", LEASES, fieldSelector=f"metadata.name={lease}")
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        spec = {"holderIdentity": HOLDER, "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now}
        await self._call("POST", LEASES, {"metadata": {"name": lease}, "spec": spec})

    async def release(self, lease: str) -> None:
        """Give the lease up, so that whoever stands by takes it."""
        await self._call("PATCH", f"{LEASES}/{lease}", {"spec": {"holderIdentity": ""}}, MERGE)

    async def taken(self, lease: str) -> None:
        """Wait until somebody else has the lease. Raises `Stuck`."""
        deadline = time.monotonic() + PATIENCE
        while json.loads(await self._call("GET", f"{LEASES}/{lease}"))["spec"].get("holderIdentity", "") in {
            "",
            HOLDER,
        }:
            if time.monotonic() > deadline:
                raise Stuck(f"nobody takes the lease {lease} within {PATIENCE:.0f} s")
            await asyncio.sleep(POLL)

    async def requests(self) -> Counter[tuple[str, str]]:
        """Return how many requests the API server has answered, by verb and resource."""
        counts: Counter[tuple[str, str]] = Counter()
        # The others are many times as many, and nobody asks for them.
        lines = [
            line for line in (await self._call("GET", "/metrics")).decode().splitlines() if line.startswith(_REQUESTS)
        ]
        for family in text_string_to_metric_families("\n".join((*lines, ""))):
            for sample in family.samples:
                what = "/".join(filter(None, (sample.labels["resource"], sample.labels["subresource"])))
                counts[sample.labels["verb"], what] += int(sample.value)
        return counts


async def _all(calls: Iterable[Awaitable[object]]) -> None:
    """Make calls, so many at once as there are connections."""
    waiting = iter(calls)

    async def work() -> None:
        for call in waiting:
            await call

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
