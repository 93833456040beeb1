"""What of verdicts is written, and what need not be."""

import asyncio
from typing import Any, cast

import pytest
from turb_kub.decision.decide import decide
from turb_kub.decision.policy import LeastRequestedMemory
from turb_kub.loop.metrics import Metrics
from turb_kub.loop.reporter import PATIENT, Reporter
from turb_kub.objects.pod import Verdict
from turb_kub.queue.queue import SchedulingQueue

from tests.unit.objects import cluster_of, node, pod


class Recorder:
    """In the place of the API client: answers every request with the pod unchanged, and remembers it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def request(self, verb: str, path: str, *, resource: str, **_: Any) -> bytes:
        self.asked.append((verb, resource))
        return b'{"metadata":{"name":"p","uid":"uid-default-p","resourceVersion":"9"},"spec":{}}'


async def test_a_verdict_that_was_taken_back_before_it_was_written_is_not_written():
    cluster = cluster_of(node("a", memory="1Gi"))
    queue, client = SchedulingQueue(cluster), Recorder()
    reporter = Reporter(cast(Any, client), queue, Metrics("x"), controller="x", instance="x", in_flight=4)
    waiting = pod("p", memory="2Gi")
    decision = decide(cluster, waiting, LeastRequestedMemory())
    waiting.verdict = Verdict("False", "Unschedulable", decision.message)
    queue.add(waiting, 0)
    reporter.error(waiting, "binding was refused: no")
    reporter.unschedulable(waiting, decision)
    assert waiting.verdict.reason == "Unschedulable"
    writing = asyncio.create_task(reporter.run())
    await reporter.drain(5)
    writing.cancel()
    assert client.asked == [("POST", "events")] * 2


class Slow(Recorder):
    """Answers nothing until it is let go, and remembers how many requests were open at once."""

    def __init__(self) -> None:
        super().__init__()
        self.open = self.most = 0
        self.answering = asyncio.Event()
        #: Set when so many are open.
        self.awaited, self.reached = 0, asyncio.Event()

    async def request(self, verb: str, path: str, *, resource: str, **more: Any) -> bytes:
        self.open += 1
        self.most = max(self.most, self.open)
        if self.open == self.awaited:
            self.reached.set()
        await self.answering.wait()
        self.open -= 1
        return await super().request(verb, path, resource=resource, **more)

    async def has_open(self, count: int) -> None:
        self.awaited = count
        self.reached.clear()
        if self.open != count:
            await asyncio.wait_for(self.reached.wait(), 5)


async def turns():
    """Let every task that can go on do so."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize("earlier", [True, False], ids=["helpers wait for work", "work waits for helpers"])
async def test_while_pods_are_bound_two_events_are_written_at_once_and_then_eight(earlier):
    cluster, client = cluster_of(node("a", memory="1Gi")), Slow()
    queue = SchedulingQueue(cluster)
    reporter = Reporter(cast(Any, client), queue, Metrics("x"), controller="x", instance="x", in_flight=32)
    bound = pod("p", memory="1Mi")
    decision = decide(cluster, bound, LeastRequestedMemory())
    if not earlier:
        reporter.binding(True)
    writing = asyncio.create_task(reporter.run())
    await turns()
    reporter.binding(True)
    for _ in range(20):
        reporter.scheduled(bound, decision)
    await client.has_open(2)
    await turns()
    assert client.most == 2
    reporter.binding(False)
    await client.has_open(8)
    await turns()
    assert client.most == 8
    client.answering.set()
    await reporter.drain(5)
    writing.cancel()
    assert client.asked == [("POST", "events")] * 20


async def test_with_many_events_to_write_all_help_also_while_pods_are_bound():
    cluster, client = cluster_of(node("a", memory="1Gi")), Slow()
    queue = SchedulingQueue(cluster)
    reporter = Reporter(cast(Any, client), queue, Metrics("x"), controller="x", instance="x", in_flight=32)
    bound = pod("p", memory="1Mi")
    decision = decide(cluster, bound, LeastRequestedMemory())
    reporter.binding(True)
    writing = asyncio.create_task(reporter.run())
    for _ in range(PATIENT + 1):
        reporter.scheduled(bound, decision)
    await client.has_open(8)
    client.answering.set()
    await reporter.drain(5)
    writing.cancel()
    assert len(client.asked) == PATIENT + 1
