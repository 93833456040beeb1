"""Carries a decision out: assume, bind in the background, and settle what the answer leaves open.

Before the bind the node's pods are read fresh where another scheduler fills it (`shared_nodes`):

| what the read says | then |
|---|---|
| the pod still fits | it is bound |
| it fits no more | decided again at once, without an event |
| the node could not be read | assumption dropped, tried again after backing off |

| what became of the binding | then |
|---|---|
| bound | the watch confirms it; where it does not within `CONFIRM_WITHIN` seconds, the pod is read |
| uncertain: any 404 or 409 | the pod is read, see below |
| lost: 5xx, time-out, connection lost | the pod is read after a moment, in which it may still take effect |
| throttled | assumption dropped, tried again no sooner than asked |
| refused | assumption dropped, condition and event say why, tried again after backing off |

| the pod as read | then |
|---|---|
| not there, or another uid | forgotten |
| malformed | counted where it is bound, set aside where it is not |
| bound, to whichever node | counted there |
| being deleted, no longer ours, gated | as the watch would have said |
| waiting, changed since the decision | decided again at once, without an event |
| waiting, unchanged | tried again after backing off |
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from turb_kub.api.client import Client
from turb_kub.api.errors import ApiError, MalformedPod, Unreachable
from turb_kub.api.log_limit import LogLimit
from turb_kub.api.pods import Answer, bind, read_pod
from turb_kub.cluster.cluster import Cluster
from turb_kub.cluster.volumes import VolumePlan
from turb_kub.decision.decide import Decision
from turb_kub.decision.volume_matching import plan_volumes
from turb_kub.loop.ingest import PodSink
from turb_kub.loop.metrics import Metrics
from turb_kub.loop.reporter import Reporter
from turb_kub.loop.shared_nodes import SharedNodeGuard
from turb_kub.loop.volumes import NotBound, VolumeBinder
from turb_kub.objects.pod import Pod
from turb_kub.queue.queue import SchedulingQueue
from turb_kub.queue.signature import asks

log = logging.getLogger(__name__)

CONFIRM_WITHIN = 30.0
#: Seconds before an unanswered pod is read, and before it is read again where that failed.
FIRST_WAIT = 0.2
LONGEST_WAIT = 10.0


class Binder:
    """Bindings under way, at most `in_flight` of them.

    Args:
        timeout: seconds after which a binding counts as lost.
        may_write: whether this replica may bind at this moment, asked right before each binding.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        queue: SchedulingQueue,
        pods: PodSink,
        reporter: Reporter,
        metrics: Metrics,
        guard: SharedNodeGuard,
        volumes: VolumeBinder,
        *,
        in_flight: int,
        timeout: float,
        may_write: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._queue = queue
        self._pods = pods
        self._reporter = reporter
        self._metrics = metrics
        self._guard = guard
        self._volumes = volumes
        self._clock = clock
        self._timeout = timeout
        self._may_write = may_write
        self._slots = asyncio.Semaphore(in_flight)
        self._tasks: set[asyncio.Task[None]] = set()
        #: Called with the seconds from the start of a bind, the read before it included, to its answer.
        self.took: Callable[[float], None] = lambda seconds: None
        #: Those that wait for volumes, perhaps for minutes: they hold no slot, and are dropped at the end.
        self._waiting: set[asyncio.Task[None]] = set()
        #: When each pod was bound that the watch has not confirmed yet, by uid.
        self._unconfirmed: dict[str, float] = {}
        self._limit = LogLimit(log)
        self.notify: Callable[[], None] = lambda: None

    async def slot(self) -> None:
        """Wait until one more binding may be started; `start` or `release` must follow."""
        await self._slots.acquire()

    def release(self) -> None:
        self._slots.release()

    def start(self, pod: Pod, decision: Decision, began: float) -> None:
        """Assume the pod on its node and bind it in the background. Takes the slot that was waited for."""
        if decision.node is None:
            raise ValueError("a decision without a node cannot be bound")
        plan = plan_volumes(self._cluster, pod, decision.node) if pod.claims else None
        assumed = msgspec.structs.replace(pod, node_name=decision.node)
        self._cluster.assume(assumed)
        self._queue.assumed(pod.uid)
        if plan is None:
            self._start_bind(pod, assumed, decision, began)
        else:
            self._cluster.volumes.reserve(pod.uid, plan)
            task = asyncio.create_task(self._bind_volumes(assumed, plan, decision, began))
            self._waiting.add(task)
            task.add_done_callback(self._done_waiting)

    def _start_bind(self, pod: Pod, assumed: Pod, decision: Decision, began: float) -> None:
        task = asyncio.create_task(self._bind(pod, assumed, decision, began))
        if not self._tasks:
            self._reporter.binding(True)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def drain(self, within: float) -> bool:
        """Wait for the bindings under way, at most `within` seconds; tell whether all have ended.

        Pods that wait for volumes are dropped.
        """
        for task in self._waiting:
            task.cancel()
        if not self._tasks:
            return True
        _, pending = await asyncio.wait(self._tasks, timeout=within)
        return not pending

    async def confirm(self) -> None:
        """Read the pods whose binding the watch has not confirmed in time."""
        now = self._clock()
        for uid, since in list(self._unconfirmed.items()):
            pod = self._cluster.placed(uid)
            if pod is None or not self._cluster.is_assumed(uid):
                self._unconfirmed.pop(uid, None)
            elif now - since >= CONFIRM_WITHIN:
                self._limit.warning("bindings are not confirmed by the watch in time, reading the pods")
                log.debug("pod %s: its binding is not confirmed", pod.key)
                await self._settle(pod, pod, "")
                if not self._cluster.is_assumed(uid):
                    self._unconfirmed.pop(uid, None)
                self.notify()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._reporter.binding(False)
        self._slots.release()
        self._complain(task)

    def _done_waiting(self, task: asyncio.Task[None]) -> None:
        self._waiting.discard(task)
        self._complain(task)

    def _complain(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._limit.warning(f"a binding failed in a way that is a bug here: {type(error).__name__}: {error}")
            log.debug("the trace of that", exc_info=error)

    async def _bind(self, pod: Pod, assumed: Pod, decision: Decision, began: float) -> None:
        try:
            await self._carry_out(pod, assumed, decision, began)
        except Exception:
            # Whatever became of it, `confirm` reads the pod and settles it: its room is not lost, nor given away.
            self._unconfirmed[pod.uid] = self._clock()
            raise

    async def _bind_volumes(self, assumed: Pod, plan: VolumePlan, decision: Decision, began: float) -> None:
        """Have a pod's volumes bound, then bind the pod. Gives the slot back for the time of the wait."""
        uid = assumed.uid
        holds_slot = True

        def wrote() -> None:
            nonlocal holds_slot
            holds_slot = False
            self.release()

        try:
            await self._volumes.bind(assumed, plan, wrote=wrote)
            await self.slot()
            holds_slot = True
            current = self._queue.get(uid)
            if current is not None and self._cluster.is_assumed(uid):
                if asks(current) == asks(assumed):
                    holds_slot = False
                    self._start_bind(current, assumed, decision, began)
                else:
                    self._give_up(assumed)
                    self._queue.retry_at_once(uid)
        except NotBound as error:
            self._give_up(assumed)
            self._queue.retry(uid, self._clock(), error.retry_after)
            waits = self._queue.get(uid)
            if waits is not None and str(error):
                self._metrics.observe_attempt("error", self._clock() - began)
                self._reporter.error(waits, str(error))
        except Exception:
            self._unconfirmed[uid] = self._clock()
            raise
        finally:
            if holds_slot:
                self.release()
        self.notify()

    async def _may_bind(self, pod: Pod, assumed: Pod) -> bool:
        """Ask the guard of shared nodes. Where the answer is no, the pod is taken care of."""
        if not self._guard.guards(assumed.node_name):
            return True
        try:
            fits = await self._guard.still_fits(assumed)
        except (ApiError, Unreachable) as error:
            self._give_up(pod)
            self._queue.retry(pod.uid, self._clock(), error.retry_after)
            self._limit.warning(f"the pods of nodes cannot be read before binding, trying again: {error}")
            return False
        if not fits and self._cluster.is_assumed(pod.uid):
            log.debug("pod %s: others have taken its room on %s, deciding again", pod.key, assumed.node_name)
            self._give_up(pod)
            self._queue.retry_at_once(pod.uid)
        return fits

    async def _carry_out(self, pod: Pod, assumed: Pod, decision: Decision, began: float) -> None:
        started = self._clock()
        if not await self._may_bind(pod, assumed):
            self.notify()
            return
        if not self._may_write():
            # The lease ran out since the decision; where that is not the end, the pod is decided again.
            self._give_up(pod)
            self._queue.retry(pod.uid, self._clock())
            self.notify()
            return
        outcome = await bind(self._client, pod, assumed.node_name, self._timeout)
        self.took(self._clock() - started)
        match outcome.answer:
            case Answer.BOUND:
                if self._cluster.is_assumed(pod.uid):
                    self._unconfirmed[pod.uid] = self._clock()
                self._bound(pod, decision, began)
            case Answer.UNCERTAIN | Answer.LOST:
                if outcome.answer is Answer.LOST:
                    await asyncio.sleep(FIRST_WAIT)
                if await self._settle(pod, assumed, outcome.message):
                    self._bound(pod, decision, began)
            case Answer.THROTTLED:
                self._give_up(pod)
                self._queue.retry(pod.uid, self._clock(), outcome.retry_after)
            case Answer.REFUSED:
                self._give_up(pod)
                self._metrics.observe_attempt("error", self._clock() - began)
                self._queue.retry(pod.uid, self._clock())
                self._reporter.error(self._queue.get(pod.uid) or pod, f"binding was refused: {outcome.message}")
        self.notify()

    def _bound(self, pod: Pod, decision: Decision, began: float) -> None:
        self._metrics.observe_attempt("scheduled", self._clock() - began)
        self._reporter.scheduled(pod, decision)
        log.debug("pod %s is bound to %s", pod.key, decision.node)

    async def _settle(self, pod: Pod, assumed: Pod, cause: str) -> bool:
        """Read a pod until it is known what became of it. Tells whether it is bound where we meant it to be."""
        wait = FIRST_WAIT
        while True:
            if self._cluster.placed(pod.uid) is None and pod.uid not in self._queue:
                return False  # deleted, as the watch says
            if not self._cluster.is_assumed(pod.uid):
                placed = self._cluster.placed(pod.uid)
                return placed is not None and placed.node_name == assumed.node_name
            try:
                current = await read_pod(self._client, pod)
            except MalformedPod as error:
                if not error.remains.node_name:
                    self._give_up(pod)
                self._pods.malformed(error.remains, error)
                return error.remains.node_name == assumed.node_name
            except (ApiError, Unreachable) as error:
                await asyncio.sleep(max(wait, error.retry_after))
                wait = min(2 * wait, LONGEST_WAIT)
                continue
            return self._take(pod, assumed, current, cause)

    def _take(self, pod: Pod, assumed: Pod, current: Pod | None, cause: str) -> bool:
        if current is None:
            self._pods.gone(pod)
            return False
        if current.node_name:
            self._pods.read(current)
            return current.node_name == assumed.node_name
        self._give_up(pod)
        self._pods.read(current)
        if current.resource_version != pod.resource_version:
            log.debug("pod %s changed while it was being bound, deciding again: %s", pod.key, cause)
            self._queue.retry_at_once(pod.uid)
        else:
            log.info("pod %s was not bound, trying again: %s", pod.key, cause)
            self._queue.retry(pod.uid, self._clock())
        return False

    def _give_up(self, pod: Pod) -> None:
        if self._cluster.is_assumed(pod.uid):
            self._cluster.remove_pod(pod.uid)
