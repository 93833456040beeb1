"""Tells the users: events, and the condition of pods that fit nowhere.

Both are written in the background, a few at a time, and only when the verdict changes, that is the message without its
counts. An event is given up after some tries: it informs, nothing depends on it. A condition is tried for as long as
the verdict holds: cluster autoscalers act on it, and the pod itself may not be attempted again for long.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from turb_kub.api.client import Client
from turb_kub.api.errors import ApiError, Unreachable
from turb_kub.api.events import PodEvent, failed, post_event, rejected, scheduled
from turb_kub.api.log_limit import LogLimit
from turb_kub.api.pods import set_unscheduled
from turb_kub.decision.decide import Decision, without_numbers
from turb_kub.decision.report import encode_report
from turb_kub.loop.metrics import Metrics
from turb_kub.objects.pod import Pod, Verdict
from turb_kub.queue.queue import SchedulingQueue

log = logging.getLogger(__name__)

UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
#: At most so many requests at once, and at most this share of all: bindings must always find a connection.
IN_FLIGHT = 8
SHARE = 4
#: So many of them while pods are being bound, since a pod waits for its binding and nobody for an event; with more
#: events than `PATIENT` to write, all.
WHILE_BINDING = 2
PATIENT = 1_000
#: Events that may wait to be written; the oldest is dropped beyond that.
LONGEST_BACKLOG = 20_000
TRIES = 3
#: Seconds between tries, where the server asks for no longer pause; doubled with each try at a condition.
WAIT = 1.0
LONGEST_WAIT = 60.0


class _Unwritten(msgspec.Struct, frozen=True):
    """A verdict that the pod's condition does not show yet."""

    verdict: Verdict
    #: What the condition says, as far as is known.
    before: Verdict | None
    tries: int = 0


class Reporter:
    """Writes events and conditions. `run` must be running for anything to be written.

    Args:
        may_write: whether this replica is the active one, asked before each write; what may not be written is dropped.
    """

    def __init__(
        self,
        client: Client,
        queue: SchedulingQueue,
        metrics: Metrics,
        *,
        controller: str,
        instance: str,
        in_flight: int,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._may_write = may_write
        self._workers = max(1, min(IN_FLIGHT, in_flight // SHARE))
        self._client = client
        self._queue = queue
        self._metrics = metrics
        self._controller = controller
        self._instance = instance
        self._events: deque[PodEvent] = deque()
        self._verdicts: dict[str, tuple[Pod, _Unwritten]] = {}
        self._work = asyncio.Semaphore(0)
        self._limit = LogLimit(log)
        #: How many conditions and events are to be written or being written.
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._binding = False
        self._may_help = asyncio.Event()
        self._may_help.set()

    def scheduled(self, pod: Pod, decision: Decision) -> None:
        if decision.node is not None:
            self._enqueue(scheduled(pod, decision.node, encode_report(decision)))

    def unschedulable(self, pod: Pod, decision: Decision) -> None:
        self._failed(pod, UNSCHEDULABLE, decision.message, encode_report(decision))

    def error(self, pod: Pod, message: str) -> None:
        """Report that a pod could not be bound although there is a node for it."""
        self._failed(pod, SCHEDULER_ERROR, message, "")

    def rejected(self, pod: Pod, note: str) -> None:
        """Report that the kubelet turned a pod away, and what follows."""
        self._enqueue(rejected(pod, note))

    async def drain(self, within: float) -> None:
        """Wait until all is written, at most `within` seconds."""
        try:
            await asyncio.wait_for(self._idle.wait(), within)
        except TimeoutError:
            log.warning("%d events were not written in time", self._open)

    async def run(self) -> None:
        """Write what there is to write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._worker(helps=number >= WHILE_BINDING))

    def binding(self, under_way: bool) -> None:
        """Learn that pods are being bound, or that no pod is any more."""
        self._binding = under_way
        self._let_help()

    def _let_help(self) -> None:
        if not self._binding or self._open > PATIENT:
            self._may_help.set()
        else:
            self._may_help.clear()

    def _failed(self, pod: Pod, reason: str, message: str, decision: str) -> None:
        before, now = pod.verdict, Verdict("False", reason, message)
        if _says_the_same(before, now):
            return
        log.info("pod %s: %s", pod.key, message)
        self._enqueue(failed(pod, message, decision))
        if pod.uid in self._verdicts:
            # The last one has not been written yet; what the pod bears is the one before it.
            before = self._verdicts[pod.uid][1].before
            if _says_the_same(before, now):
                pod.verdict = before
                del self._verdicts[pod.uid]
                return
        pod.verdict = now
        self._to_write(pod, _Unwritten(now, before))

    def _to_write(self, pod: Pod, unwritten: _Unwritten) -> None:
        if pod.uid not in self._verdicts:
            self._announce()
        self._verdicts[pod.uid] = (pod, unwritten)

    def _enqueue(self, event: PodEvent) -> None:
        if len(self._events) >= LONGEST_BACKLOG:
            self._events.popleft()
            self._metrics.events_dropped.inc()
        else:
            self._announce()
        self._events.append(event)

    def _announce(self) -> None:
        self._open += 1
        self._idle.clear()
        self._let_help()
        self._work.release()

    async def _worker(self, *, helps: bool) -> None:
        while True:
            if helps:
                await self._may_help.wait()
            await self._work.acquire()
            if helps and not self._may_help.is_set():
                # It was set when there was no work yet.
                self._work.release()
                continue
            try:
                if self._verdicts:
                    await self._write_verdict(*self._verdicts.pop(next(iter(self._verdicts))))
                elif self._events:
                    await self._write_event(self._events.popleft())
            except Exception as error:  # whatever one pod's report meets, others are still to be written
                self._limit.warning(f"a report failed in a way that is a bug here: {type(error).__name__}: {error}")
                log.debug("the trace of that", exc_info=error)
            finally:
                self._open -= 1
                self._let_help()
                if not self._open:
                    self._idle.set()

    async def _write_verdict(self, pod: Pod, unwritten: _Unwritten) -> None:
        verdict, before = unwritten.verdict, unwritten.before
        if pod.verdict is not verdict or pod.uid not in self._queue or not self._may_write():
            return
        changed = None if before is not None and before.status == "False" else datetime.now(UTC)
        try:
            current = await set_unscheduled(self._client, pod, verdict.reason, verdict.message, changed)
        except (ApiError, Unreachable) as error:
            if not error.object_is_another:
                self._limit.warning(f"cannot write conditions of pods: {error}")
                log.debug("pod %s: its condition is not written", pod.key)
            if not (error.object_is_another or _malformed(error)):
                wait = max(error.retry_after, min(WAIT * 2.0**unwritten.tries, LONGEST_WAIT))
                again = msgspec.structs.replace(unwritten, tries=unwritten.tries + 1)
                asyncio.get_running_loop().call_later(wait, self._write_again, pod.uid, again)
            elif pod.verdict is verdict:
                # The next attempt at this pod writes it again.
                pod.verdict = before
            return
        if current is not None:
            self._queue.update(current)

    def _write_again(self, uid: str, unwritten: _Unwritten) -> None:
        pod = self._queue.get(uid)
        if pod is None or uid in self._verdicts:
            return
        if pod.verdict == unwritten.before:
            # A new state of the pod, as it was before it got the verdict.
            pod.verdict = unwritten.verdict
        if pod.verdict is unwritten.verdict:
            self._to_write(pod, unwritten)

    async def _write_event(self, event: PodEvent) -> None:
        for attempt in range(1, TRIES + 1):
            if not self._may_write():
                return
            try:
                await post_event(self._client, event, controller=self._controller, instance=self._instance)
            except (ApiError, Unreachable) as error:
                if _final(error) or attempt == TRIES:
                    self._metrics.events_dropped.inc()
                    # In a namespace that is being deleted no event can be written; nobody needs to hear of that.
                    if not (isinstance(error, ApiError) and (error.status == 404 or "being terminated" in str(error))):
                        self._limit.warning(f"cannot write events: {error}")
                    return
                await asyncio.sleep(max(error.retry_after, WAIT))
            else:
                return


def _final(error: ApiError | Unreachable) -> bool:
    """Whether trying again would be refused in the same way."""
    return isinstance(error, ApiError) and not (error.ambiguous or error.status == 429)


def _malformed(error: ApiError | Unreachable) -> bool:
    return isinstance(error, ApiError) and error.status in {400, 422}


def _says_the_same(before: Verdict | None, now: Verdict) -> bool:
    if before is None or (before.status, before.reason) != (now.status, now.reason):
        return False
    return without_numbers(before.message) == without_numbers(now.message)
