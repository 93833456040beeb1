"""The scheduling loop, and what runs beside it."""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from turb_kub.api.client import Client
from turb_kub.api.reflector import Reflector
from turb_kub.api.storage import STORAGE_KINDS
from turb_kub.cluster.accounting import Accounting
from turb_kub.cluster.cluster import Cluster
from turb_kub.decision.decide import decide
from turb_kub.decision.policy import Policy
from turb_kub.loop.arrivals import Arrivals
from turb_kub.loop.binder import Binder
from turb_kub.loop.election import Elector, LeaseLost, uptime
from turb_kub.loop.ingest import NamespaceSink, NodeSink, PodSink
from turb_kub.loop.metrics import Metrics
from turb_kub.loop.rejections import Rejections
from turb_kub.loop.reporter import Reporter
from turb_kub.loop.self_check import SelfCheck
from turb_kub.loop.shared_nodes import NEVER, SharedNodeGuard
from turb_kub.loop.storage import StorageSink
from turb_kub.loop.timers import Timers
from turb_kub.loop.volumes import VolumeBinder
from turb_kub.objects.pod import Pod
from turb_kub.queue.queue import SchedulingQueue
from turb_kub.settings import Settings

log = logging.getLogger(__name__)

DRAIN_WITHIN = 8.0
#: Connections besides those for bindings, watches included.
BESIDE_BINDINGS = 8
FLUSH_EVERY = 30.0
CONFIRM_EVERY = 5.0
#: Decisions after which the event loop gets a turn, so that a long backlog does not hold up the watches.
DECISIONS_A_TURN = 8


def accounting_of(settings: Settings) -> Accounting:
    """Return the part of the settings that says what a pod counts."""
    return Accounting(
        scheduler_name=settings.scheduler_name,
        node_memory_limit=settings.node_mem_limit_mb,
        default_request=settings.default_request_mb,
        namespaces=settings.accounting_namespaces,
    )


def requests_in_flight(settings: Settings) -> int:
    """Return how many connections there may be for all but watches.

    So many that the API server never sees more than `BESIDE_BINDINGS` besides one for each binding in flight; at least
    one, which with few bindings in flight is beyond that, since each watch and the lease need one of their own.
    """
    watches = 3 + len(STORAGE_KINDS) + settings.leader_elect
    return max(1, min(settings.binds_in_flight, settings.binds_in_flight + BESIDE_BINDINGS - watches))


class Scheduler:
    """One running scheduler: `await run()` until `stop()`.

    Attributes:
        cluster, queue, metrics, self_check, elector: its state, for health checks and tests; not to be changed.
            `elector` is None where there is no election.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        policy: Policy,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        lease_clock: Callable[[], float] = uptime,
    ) -> None:
        self._clock = clock
        self.elector = Elector(client, settings, clock=lease_clock) if settings.leader_elect else None
        self._bind_timeout = settings.bind_timeout_seconds
        self._policy = policy
        self._unknown_fields_fail = settings.unknown_fields == "fail"
        self.metrics = metrics
        self.cluster = Cluster(accounting_of(settings))
        self.queue = SchedulingQueue(self.cluster)
        self._nodes = NodeSink(self.cluster, metrics)
        self._namespaces = NamespaceSink(self.cluster, metrics)
        self._pods = PodSink(self.cluster, self.queue, metrics, clock)
        self.reporter = Reporter(
            client,
            self.queue,
            metrics,
            controller=settings.scheduler_name,
            instance=f"{settings.scheduler_name}-{socket.gethostname()}",
            in_flight=settings.binds_in_flight,
            may_write=self._is_active,
        )
        self._timers = Timers()
        rejections = Rejections(self.cluster, self.reporter, metrics, clock, self._timers)
        self._pods.rejected = rejections.note
        self._reflectors = (
            nodes := Reflector(client, "/api/v1/nodes", "nodes", self._nodes),
            Reflector(client, "/api/v1/namespaces", "namespaces", self._namespaces),
            pods := Reflector(client, "/api/v1/pods", "pods", self._pods),
        )
        self._volumes = VolumeBinder(client, self.cluster, self.queue, clock, self._is_active)
        self._guard = SharedNodeGuard(
            client, self.cluster, self._pods, metrics, lambda: pods.version, settings.shared_node_guard
        )
        self._pods.left = self._volumes.gone
        self._binder = Binder(
            client,
            self.cluster,
            self.queue,
            self._pods,
            self.reporter,
            metrics,
            self._guard,
            self._volumes,
            in_flight=settings.binds_in_flight,
            timeout=self._bind_timeout,
            may_write=self._is_active,
            clock=clock,
        )
        arrivals = Arrivals(self.cluster, clock, self._timers)
        if settings.shared_node_guard != NEVER:
            self._pods.arrived, self._pods.at_work = arrivals.note, arrivals.note_work
            self._binder.took = arrivals.bind_took
        self.self_check = SelfCheck(
            client, self.cluster, metrics, {"node": (self._nodes, nodes), "pod": (self._pods, pods)}
        )
        storage = [StorageSink(kind, self.cluster, metrics) for kind in STORAGE_KINDS]
        self._storage_reflectors = tuple(
            Reflector(client, kind.path, kind.resource, sink) for kind, sink in zip(STORAGE_KINDS, storage, strict=True)
        )
        self._work = asyncio.Event()
        sources: tuple[Binder | NamespaceSink | NodeSink | PodSink | StorageSink, ...] = (
            self._nodes,
            self._namespaces,
            self._pods,
            self._binder,
            *storage,
        )
        for sink in storage:
            sink.seen = self._volumes.seen
        for source in sources:
            source.notify = self._work.set
        self._stopping = asyncio.Event()
        if self.elector is not None:
            self.elector.changed = self._take_over
            metrics.leads(settings.lease_name or settings.scheduler_name, self._is_active)
        metrics.watch(self)

    @property
    def reflectors(self) -> tuple[Reflector, ...]:
        """What fills the cluster and the queue, while `run` runs it."""
        return (*self._reflectors, *self._storage_reflectors)

    @property
    def synced(self) -> bool:
        """Whether nodes, namespaces, pods and storage are all known; nothing is placed before.

        Storage that the server does not let us read counts as known: only pods that claim volumes wait for it.
        """
        return all(reflector.synced.is_set() for reflector in self._reflectors) and all(
            reflector.settled.is_set() for reflector in self._storage_reflectors
        )

    @property
    def leads(self) -> bool:
        """Whether this replica is the one that places pods; without an election it always is."""
        return self.elector is None or self.elector.leading

    def stop(self) -> None:
        """Ask `run` to finish the bindings under way and return."""
        self._stopping.set()
        self._work.set()

    def pending_pods(self) -> dict[str, int]:
        return self.queue.counts()

    def cache_size(self) -> dict[str, int]:
        return {
            "nodes": self.cluster.node_count,
            "pods": self.cluster.pod_count,
            "assumed_pods": self.cluster.assumed_count,
        }

    def scheduled_after_flush(self) -> int:
        return self.queue.rescued_by_flush

    async def run(self) -> None:
        """Schedule until `stop` is called, then drain and give the lease up.

        Raises:
            LeaseLost: this replica is no longer the active one, and has stopped binding.
        """
        helpers = [
            asyncio.create_task(reflector.run(), name=f"reflector {number}")
            for number, reflector in enumerate(self.reflectors)
        ]
        helpers += [
            asyncio.create_task(self.reporter.run(), name="reporter"),
            asyncio.create_task(self.self_check.run(), name="self-check"),
            asyncio.create_task(self._every(FLUSH_EVERY, self._flush), name="flush"),
            asyncio.create_task(self._every(CONFIRM_EVERY, self._binder.confirm), name="confirm"),
        ]
        if self.elector is not None:
            helpers.append(asyncio.create_task(self._elect(self.elector), name="election"))
        main = asyncio.create_task(self._schedule(), name="schedule")
        bindings_ended = False
        try:
            done, _ = await asyncio.wait([main, *helpers], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a helper never returns: what ended it must be seen
            bindings_ended = await self._binder.drain(DRAIN_WITHIN)
            await self.reporter.drain(DRAIN_WITHIN)
        except LeaseLost:
            # No new ones are sent. Those under way end before the lease can be another's.
            main.cancel()
            await self._binder.drain(self._bind_timeout)
            raise
        finally:
            for task in (main, *helpers):
                task.cancel()
            await asyncio.gather(main, *helpers, return_exceptions=True)
        if self.elector is not None and bindings_ended:
            # Else it is left to run out: the next replica must not begin beside a binding of ours.
            await self.elector.release()

    def _is_active(self) -> bool:
        """Whether this replica may write at this moment."""
        return self.elector is None or self.elector.active

    async def _elect(self, elector: Elector) -> None:
        """Take part in the election once all is known, so that no replica leads that can't place anything yet."""
        await self._all_known()
        await elector.run()

    def _take_over(self) -> None:
        self._guard.catch_up()
        self._work.set()

    async def _stand_by(self) -> None:
        """Wait to be the active replica, where there is an election.

        What the watches tell is taken all the while, and what is due is done.
        """
        while not (self._stopping.is_set() or self.leads):
            self._work.clear()
            now = self._clock()
            self._timers.run(now)
            await self._wait_for_work(self._timers.due_in(now))

    async def _all_known(self) -> None:
        for reflector in self._reflectors:
            await reflector.synced.wait()
        for reflector in self._storage_reflectors:
            await reflector.settled.wait()

    async def _schedule(self) -> None:
        await self._unless_stopping(self._all_known())
        unread = self.cluster.volumes.unread
        if unread and not self._stopping.is_set():
            log.warning("pods that claim volumes wait until %s can be read", ", ".join(sorted(unread)))
        await self._stand_by()
        log.info("%d nodes and %d placed pods known, scheduling", self.cluster.node_count, self.cluster.pod_count)
        while not self._stopping.is_set():
            self._work.clear()
            now = self._clock()
            self._timers.run(now)
            due = self.queue.due_in(now)
            if due != 0.0:
                await self._wait_for_work(_earliest(due, self._timers.due_in(now)))
                continue
            await self._binder.slot()
            taken = 0
            while not self._stopping.is_set() and self._decide_one():
                await self._binder.slot()
                taken += 1
                if taken % DECISIONS_A_TURN == 0:
                    await asyncio.sleep(0)
            self._binder.release()

    def _decide_one(self) -> bool:
        """Decide the next pod. Tells whether the binder's slot was taken for it; where not, nothing was due."""
        self._timers.run(self._clock())
        while (pod := self.queue.pop(self._clock())) is not None:
            began = self._clock()
            try:
                decision = decide(self.cluster, pod, self._policy, unknown_fields_fail=self._unknown_fields_fail)
            except Exception as error:  # a policy of the user's may raise anything; other pods must not wait for it
                self._could_not_decide(pod, error, began)
                continue
            if decision.node is not None:
                self._binder.start(pod, decision, began)
                return True
            self.queue.unschedulable(pod.uid, decision.filters, self._clock())
            self.metrics.observe_attempt("unschedulable", self._clock() - began)
            self.reporter.unschedulable(pod, decision)
        return False

    def _could_not_decide(self, pod: Pod, error: Exception, began: float) -> None:
        log.debug("pod %s could not be decided", pod.key, exc_info=error)
        self.queue.retry(pod.uid, self._clock())
        self.metrics.observe_attempt("error", self._clock() - began)
        self.reporter.error(pod, f"policy {self._policy.name} failed: {type(error).__name__}: {error}")

    async def _wait_for_work(self, due: float | None) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._work.wait(), due)

    async def _unless_stopping(self, awaitable: Awaitable[object]) -> None:
        waiting = asyncio.ensure_future(awaitable)
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, stopping):
            task.cancel()

    async def _flush(self) -> None:
        if self.queue.flush(self._clock()):
            self._work.set()

    async def _every(self, seconds: float, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await action()


def _earliest(*times: float | None) -> float | None:
    return min((time for time in times if time is not None), default=None)
