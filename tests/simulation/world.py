"""One scheduler with its server on a virtual clock: what it asks of the server and what it decides are counted."""

from typing import Any, cast

import pytest
from turb_kub.decision.decide import decide
from turb_kub.decision.policy import LeastRequestedMemory
from turb_kub.loop.metrics import Metrics
from turb_kub.loop.scheduler import Scheduler
from turb_kub.settings import Settings

from tests.simulation.server import SimulatedClient, SimulatedServer
from tests.simulation.virtual_time import VirtualLoop

#: In virtual seconds: all that an event leads to is over, and the slow flush is far.
SETTLED = 5.0


class World:
    """`start` once all is in place that the first lists are to hold; `end` at the end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = VirtualLoop()
        self.server = SimulatedServer(self.loop)
        #: The names of the pods that were decided, in order.
        self.decided: list[str] = []

        def counted(cluster: Any, pod: Any, *how: Any, **more: Any) -> Any:
            self.decided.append(pod.name)
            return decide(cluster, pod, *how, **more)

        monkeypatch.setattr("turb_kub.loop.scheduler.decide", counted)

    def start(self, **settings: Any) -> None:
        chosen = Settings(**settings)
        client = SimulatedClient(self.server)
        self.scheduler = client.scheduler = Scheduler(
            cast(Any, client),
            chosen,
            LeastRequestedMemory(),
            Metrics(chosen.scheduler_name),
            clock=self.loop.time,
            lease_clock=self.loop.time,
        )
        self.process = self.loop.create_task(self.scheduler.run())

    def run(self, seconds: float = SETTLED) -> None:
        self.loop.run(seconds)
        assert not self.process.done()

    def forget_counts(self) -> None:
        self.decided.clear()
        self.server.requests.clear()

    def node_of(self, name: str) -> str | None:
        found: str | None = self.server.pods[name]["spec"].get("nodeName")
        return found

    def end(self) -> None:
        self.loop.end()
        assert not self.server.violations
