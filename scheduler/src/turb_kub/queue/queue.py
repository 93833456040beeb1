"""The scheduling queue: active, backoff, unschedulable, gated.

The parts and their names are kube-scheduler's. A pod is in one of them or being decided, never in two:

* active: to be decided, highest priority first, then the one that has waited longest;
* backoff: to be decided again after a time that doubles with every failed attempt, from 1 s to 10 s;
* unschedulable: fits nowhere; woken by an event that could help it, or by the slow flush;
* gated: has scheduling gates; only a change of the pod itself helps.
"""

import heapq
from itertools import count

import msgspec

from turb_kub.objects.pod import Pod
from turb_kub.queue.wakeups import Event, helping_events

INITIAL_BACKOFF = 1.0
LONGEST_BACKOFF = 10.0
#: How long a pod may stay unschedulable before it is tried again without an event. Every rescue by this is a missed
#: event, and is counted.
FLUSH_AFTER = 300.0


class Queued(msgspec.Struct, eq=False):
    """A pod in the queue. Times are seconds on the caller's clock."""

    pod: Pod
    #: When the pod first came; of two pods of one priority the earlier goes first.
    since: float
    attempts: int = 0
    #: Why it is unschedulable, as the events that could help.
    helps: Event = Event(0)
    parked_at: float = 0.0
    part: str = ""
    #: Which heap entry of the pod is the true one; older ones are dropped when they surface.
    entry: int = 0
    #: Whether the slow flush, not an event, got it moving last.
    flushed: bool = False


#: Order within the heap (two keys), the entry's number, the pod.
Heap = list[tuple[float, float, int, Queued]]


class SchedulingQueue:
    """Pods that wait for a node, by uid."""

    def __init__(self) -> None:
        self._pods: dict[str, Queued] = {}
        self._active: Heap = []
        self._backoff: Heap = []
        self._errors: Heap = []
        self._entries = count(1)
        #: Pods that only the slow flush got moving and that then found a node.
        self.rescued_by_flush = 0

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def get(self, uid: str) -> Pod | None:
        queued = self._pods.get(uid)
        return queued.pod if queued else None

    def attempts(self, uid: str) -> int:
        queued = self._pods.get(uid)
        return queued.attempts if queued else 0

    def pods(self) -> list[Pod]:
        return [queued.pod for queued in self._pods.values()]

    def counts(self) -> dict[str, int]:
        """How many pods each part holds, by kube-scheduler's names; one being decided counts as active."""
        counts = {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}
        for queued in self._pods.values():
            counts["backoff" if queued.part == "error" else queued.part or "active"] += 1
        return counts

    def add(self, pod: Pod, now: float) -> None:
        """Take a pod that waits for a node, or the new state of one that is here already.

        A pod that asks something else than before is decided afresh; any other change (our own condition among them)
        leaves it where it is. An older state than the one known is ignored.
        """
        queued = self._pods.get(pod.uid)
        if queued is None:
            queued = self._pods[pod.uid] = Queued(pod, since=now)
            self._place(queued)
            return
        before = queued.pod
        if pod.resource_version < before.resource_version:
            return
        if pod.raw_spec is not None and before.fields is not None and not _asks_otherwise(before, pod):
            pod.fields, pod.raw_spec = before.fields, None
        queued.pod = pod
        if _asks_otherwise(before, pod) and queued.part:
            queued.attempts = 0
            self._place(queued)

    def seen_version(self, uid: str, resource_version: int) -> None:
        """Take the resourceVersion that one of our own writes gave the pod; never goes back."""
        queued = self._pods.get(uid)
        if queued is not None and resource_version > queued.pod.resource_version:
            queued.pod.resource_version = resource_version

    def remove(self, uid: str) -> None:
        """Forget a pod: deleted, bound by others or no longer ours."""
        queued = self._pods.pop(uid, None)
        if queued is not None:
            queued.part, queued.entry = "gone", 0

    def pop(self, now: float) -> Pod | None:
        """Return the pod to decide now; None where none is due. It stays known here until `placed` or `remove`.

        Where no pod is active, one that backs off after it did not fit need not wait: there is nothing else to do.
        One that backs off after an error does wait.
        """
        while self._top(self._errors) and self._errors[0][0] <= now:
            self._place(heapq.heappop(self._errors)[-1])
        while self._top(self._backoff) and self._backoff[0][0] <= now:
            self._place(heapq.heappop(self._backoff)[-1])
        heap = self._active if self._top(self._active) else self._backoff
        if not self._top(heap):
            return None
        queued = heapq.heappop(heap)[-1]
        queued.part, queued.entry = "", 0
        queued.attempts += 1
        return queued.pod

    def unschedulable(self, uid: str, filters: frozenset[str], now: float) -> None:
        """Park a pod that fits nowhere until an event could help it."""
        queued = self._pods.get(uid)
        if queued is not None:
            queued.helps = helping_events(filters)
            queued.parked_at = now
            queued.part, queued.entry = "unschedulable", 0

    def retry(self, uid: str, now: float, after: float = 0.0) -> None:
        """Try a pod again after an error: back off first, at least `after` seconds."""
        queued = self._pods.get(uid)
        if queued is not None:
            queued.part = "error"
            self._push(self._errors, queued, now + max(after, _backoff(queued.attempts)), 0.0)

    def retry_at_once(self, uid: str) -> None:
        """Try a pod again at once: what failed was our knowledge of it, which has been mended."""
        queued = self._pods.get(uid)
        if queued is not None:
            queued.attempts = max(0, queued.attempts - 1)
            self._place(queued)

    def placed(self, uid: str) -> None:
        """Forget a pod that was bound, and count it where no event had got it moving."""
        queued = self._pods.get(uid)
        if queued is not None and queued.flushed:
            self.rescued_by_flush += 1
        self.remove(uid)

    def wake(self, event: Event, now: float) -> int:
        """Move every unschedulable pod that the event could help. Returns how many."""
        return self._move([queued for queued in self._parked() if queued.helps & event], now, flushed=False)

    def flush(self, now: float) -> int:
        """Move pods that have been unschedulable for `FLUSH_AFTER` seconds. Returns how many."""
        overdue = [queued for queued in self._parked() if now - queued.parked_at >= FLUSH_AFTER]
        return self._move(overdue, now, flushed=True)

    def due_in(self, now: float) -> float | None:
        """Seconds until `pop` has something; None where only a new pod or an event can change that."""
        if self._top(self._active) or self._top(self._backoff):
            return 0.0
        return max(0.0, self._errors[0][0] - now) if self._top(self._errors) else None

    def _parked(self) -> list[Queued]:
        return [queued for queued in self._pods.values() if queued.part == "unschedulable"]

    def _move(self, pods: list[Queued], now: float, *, flushed: bool) -> int:
        for queued in pods:
            queued.flushed = flushed
            ready_at = queued.parked_at + _backoff(queued.attempts)
            if ready_at <= now:
                self._place(queued)
            else:
                queued.part = "backoff"
                self._push(self._backoff, queued, ready_at, 0.0)
        return len(pods)

    def _place(self, queued: Queued) -> None:
        if queued.pod.gates:
            queued.part, queued.entry = "gated", 0
        else:
            queued.part = "active"
            self._push(self._active, queued, -queued.pod.priority, queued.since)

    def _push(self, heap: Heap, queued: Queued, first: float, second: float) -> None:
        queued.entry = next(self._entries)
        heapq.heappush(heap, (first, second, queued.entry, queued))

    @staticmethod
    def _top(heap: Heap) -> bool:
        """Drop entries that are no longer true from the top; tell whether one is left."""
        while heap and heap[0][-1].entry != heap[0][-2]:
            heapq.heappop(heap)
        return bool(heap)


def _backoff(attempts: int) -> float:
    return min(INITIAL_BACKOFF * 2.0 ** min(max(0, attempts - 1), 16), LONGEST_BACKOFF)


def _asks_otherwise(before: Pod, after: Pod) -> bool:
    return (before.requests, before.constraints, before.gates, before.priority) != (
        after.requests,
        after.constraints,
        after.gates,
        after.priority,
    )
