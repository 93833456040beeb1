"""Several processes of the scheduler on one API server and one lease, each of which may be paused, cut off or killed.

Each process has an event loop of its own on a clock that all share. A loop that gets no turn stands still while the
clock goes on, as a process does between SIGSTOP and SIGCONT: its timers are due when it comes back.
"""

import math
from typing import Any, cast

from turb_kub.api.errors import ApiError
from turb_kub.decision.policy import LeastRequestedMemory
from turb_kub.loop.election import Elector, LeaseLost
from turb_kub.loop.metrics import Metrics
from turb_kub.loop.scheduler import Scheduler
from turb_kub.settings import Settings

from tests.simulation.server import Call, Object, SimulatedClient, SimulatedServer
from tests.simulation.virtual_time import VirtualLoop

WRITES = ("pods/binding", "pods/status", "events")
#: Seconds until a process that has ended is started anew.
STARTS_AFTER = 1.0


class Clock:
    """What time it is for all."""

    def __init__(self) -> None:
        self.now = 1000.0


class SharedLoop(VirtualLoop):
    """A loop that `Replicas` gives its turns."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def time(self) -> float:
        return self._clock.now

    def select(self, timeout: float | None) -> list[Any]:
        self._clock.now += timeout or 0.0  # never more than 0, but at the end
        return []

    def due_at(self) -> float | None:
        """When there is something to do; None where there never will be."""
        loop = cast(Any, self)
        if loop._ready:
            return self.time()
        return min((timer.when() for timer in loop._scheduled if not timer.cancelled()), default=None)

    def turn(self) -> None:
        """Do what is due, once round."""
        self.call_soon(self.stop)
        self.run_forever()


class LeaseServer(SimulatedServer):
    """The API server with leases. It audits each write: only who holds the lease may bind."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop)
        #: By name, and each write that was carried out: when, and what.
        self.leases: dict[str, Object] = {}
        self.lease_writes: list[tuple[float, Object]] = []
        #: All that was sent: by whom, verb, resource, and the query.
        self.asked: list[tuple[str, str, str, dict[str, str]]] = []

    @property
    def holder(self) -> str:
        found = [str(lease["spec"].get("holderIdentity") or "") for lease in self.leases.values()]
        return found[0] if found else ""

    def put_lease(self, lease: Object) -> Object:
        self.version += 1
        stored = lease | {"metadata": lease["metadata"] | {"resourceVersion": str(self.version)}}
        self.leases[stored["metadata"]["name"]] = stored
        self.lease_writes.append((self.loop.time(), stored))
        return stored

    def label_lease(self) -> None:
        """Change something of the lease that is nobody's business."""
        for lease in list(self.leases.values()):
            self.put_lease(lease | {"metadata": lease["metadata"] | {"labels": {"seen": str(self.version)}}})
            self.lease_writes.pop()

    def send(self, call: Call, timeout: float) -> None:
        elector = elector_of(call.client)
        self.asked.append((elector.identity, call.verb, call.resource, dict(call.query)))
        if call.resource in WRITES and call.verb != "GET" and not (call.client.dead or elector.active):
            self.violations.append(f"{call.verb} {call.resource} was sent by {elector.identity}, which is not active")
        super().send(call, timeout)

    def _carry_out(self, call: Call) -> Object:
        if call.resource != "leases":
            return super()._carry_out(call)
        name = call.body["metadata"]["name"] if call.verb == "POST" else call.path.rpartition("/")[2]
        found = self.leases.get(name)
        match call.verb:
            case "POST" if found is not None:
                raise ApiError(409, "AlreadyExists", "there is one")
            case "POST":
                return self.put_lease(call.body | {"metadata": call.body["metadata"] | {"uid": f"u{self.version}"}})
            case _ if found is None:
                raise ApiError(404, "NotFound", "there is none")
            case "GET":
                return found
        if any(call.body["metadata"][one] != found["metadata"][one] for one in ("uid", "resourceVersion")):
            raise ApiError(409, "Conflict", "it has changed")
        return self.put_lease(call.body)

    def _patch(self, call: Call) -> Object:
        pod = self._pod(call)
        if call.known < (version := int(pod["metadata"]["resourceVersion"])):
            # The replica before it may have written the same, and its watch has not told of that yet.
            self.verdict_unsure[pod["metadata"]["uid"]] = version
        return super()._patch(call)

    def _bind(self, call: Call) -> Object:
        bound = super()._bind(call)
        if elector_of(call.client).identity != self.holder:
            self.violations.append(f"{elector_of(call.client).identity} bound while {self.holder!r} held the lease")
        return bound


class Replica:
    """One process after another in the same place."""

    def __init__(self, clock: Clock, server: LeaseServer, settings: Settings) -> None:
        self._clock = clock
        self._server = server
        self._settings = settings
        self.paused_until = 0.0
        self.starts_at: float | None = None
        #: Whether it is started again when it has ended.
        self.restarts = True
        #: Why the last one ended.
        self.ended_by: BaseException | None = None
        self.start()

    def start(self) -> None:
        self.starts_at = None
        self.loop = SharedLoop(self._clock)
        self.client = SimulatedClient(self._server, self.loop)
        self.scheduler = self.client.scheduler = Scheduler(
            cast(Any, self.client),
            self._settings,
            LeastRequestedMemory(),
            Metrics(self._settings.scheduler_name),
            clock=self.loop.time,
            lease_clock=self.loop.time,
        )
        self.process = self.loop.create_task(self.scheduler.run())

    @property
    def elector(self) -> Elector:
        return elector_of(self.client)

    @property
    def runs(self) -> bool:
        return self.starts_at is None

    @property
    def active(self) -> bool:
        return self.runs and self.elector.active

    def due_at(self) -> float | None:
        """When it has something to do."""
        due = self.loop.due_at() if self.starts_at is None else self.starts_at
        return None if due is None else max(due, self.paused_until)

    def turn(self) -> None:
        if self.starts_at is not None:
            self.start()
            return
        self.loop.turn()
        if self.process.done():
            self.ended_by = self.process.exception()
            assert self.ended_by is None or isinstance(self.ended_by, LeaseLost), self.ended_by
            self._end()

    def kill(self) -> None:
        """SIGKILL. What it has sent is under way, and may still take effect."""
        self.ended_by = None
        self.process.cancel()
        self._end()

    def _end(self) -> None:
        self.client.dead = True
        self._server.clients.remove(self.client)
        self.loop.end()
        self.paused_until = 0.0
        self.starts_at = self._clock.now + STARTS_AFTER if self.restarts else math.inf

    def close(self) -> None:
        if self.runs:
            self.kill()


class Replicas:
    """The server and its schedulers. `run` lets time pass for all."""

    def __init__(self, settings: Settings, count: int = 2) -> None:
        self.clock = Clock()
        self.server_loop = SharedLoop(self.clock)
        self.server = LeaseServer(self.server_loop)
        #: What the server itself stumbled over: a fault of the test.
        self.troubles: list[Any] = []
        self.server_loop.set_exception_handler(lambda _, context: self.troubles.append(context))
        self.replicas = [Replica(self.clock, self.server, settings) for _ in range(count)]

    @property
    def now(self) -> float:
        return self.clock.now

    @property
    def active(self) -> list[Replica]:
        return [one for one in self.replicas if one.active]

    def standby(self) -> Replica:
        """The one that is not active, of two of which one is."""
        (found,) = [one for one in self.replicas if not one.active]
        return found

    def run(self, seconds: float) -> None:
        until = self.clock.now + seconds
        turns: tuple[SharedLoop | Replica, ...] = (self.server_loop, *self.replicas)
        while True:
            due = [(at, number) for number, one in enumerate(turns) if (at := one.due_at()) is not None]
            at, number = min(due, default=(until + 1.0, 0))
            if at > until:
                break
            self.clock.now = max(self.clock.now, at)
            turns[number].turn()
            assert not self.troubles
            assert len(self.active) <= 1, "two replicas may bind"
        self.clock.now = until

    def until_one_leads(self) -> Replica:
        for _ in range(1000):
            if self.active:
                return self.active[0]
            self.run(0.1)
        raise AssertionError("nobody leads")

    def close(self) -> None:
        for one in self.replicas:
            one.close()
        self.server_loop.end()


def elector_of(client: SimulatedClient) -> Elector:
    assert client.scheduler is not None
    assert client.scheduler.elector is not None
    return client.scheduler.elector
