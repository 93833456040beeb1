"""What of verdicts is written, and what need not be."""

import asyncio
from typing import Any, cast

from turb_kub.decision.decide import decide
from turb_kub.decision.policy import LeastRequestedMemory
from turb_kub.loop.metrics import Metrics
from turb_kub.loop.reporter import Reporter
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
