"""The scheduling queue: active, backoff, unschedulable, gated.

The parts and their names are kube-scheduler's. A pod is in one of them or being decided, never in two:

* active: to be decided, highest priority first, then the one that has waited longest;
* backoff: to be decided again after a time that doubles with every failed attempt, from 1 s to 10 s;
* unschedulable: fits nowhere; woken when the cluster changes so that it could fit, or by the slow flush;
* gated: has scheduling gates; only a change of the pod itself helps.

Of unschedulable pods of one signature (see `signature`) one at a time is woken, the first of them: once it has a node
the next one is looked at, and where it fits no more all of them stay where they are.
"""

import heapq
from collections.abc import Hashable
from itertools import count

import msgspec

from turb_kub.cluster.changes import Changes
from turb_kub.cluster.cluster import Cluster
from turb_kub.decision.feasibility import pod_refusal
from turb_kub.decision.fields import FIELDS
from turb_kub.decision.fits import fits
from turb_kub.decision.pod_filters import PRE_FILTER_NAMES
from turb_kub.objects.pod import Pod
from turb_kub.queue.signature import asks, signature_of
from turb_kub.queue.wakeups import could_help, looks_at_neighbours

INITIAL_BACKOFF = 1.0
LONGEST_BACKOFF = 10.0
#: How long a pod may stay unschedulable before it is tried again without an event: its verdict may have changed. That
#: it fits by then is a missed event, and is counted.
FLUSH_AFTER = 300.0
#: How many signatures a decision may cost a look at, on average, while other pods are active: where the pods that wait
#: ask thousands of different things, what changed is gathered over some decisions, so that those need not wait for it.
LOOKS_A_DECISION = 64
#: Entries of a heap that may be no longer true, besides as many again as there are pods.
SPARE_ENTRIES = 1000


class Queued(msgspec.Struct, eq=False):
    """A pod in the queue. Times are seconds on the caller's clock."""

    pod: Pod
    #: When the pod first came; of two pods of one priority the earlier goes first.
    since: float
    attempts: int = 0
    parked_at: float = 0.0
    part: str = ""
    #: Which heap entry of the pod is the true one; older ones are dropped when they surface.
    entry: int = 0
    #: What was given out to be decided, and how often changes of the cluster had been taken by then.
    given: Pod | None = None
    given_at: int = 0
    #: Where it is parked, or was woken from and is not decided yet.
    peers: "Peers | None" = None
    #: Whether the slow flush found that it fits by now, although no event had woken it.
    rescued: bool = False


#: Order within the heap (two keys), the entry's number, the pod.
Heap = list[tuple[float, float, int, Queued]]


class Peers(msgspec.Struct, eq=False):
    """Unschedulable pods that ask the same."""

    key: tuple[Hashable, ...]
    #: Whether only a change of the pods themselves helps.
    hopeless: bool
    parked: Heap
    #: Whether they were refused for what they ask (a claim that is not there, say) rather than by nodes.
    refused: bool = False
    #: The one that was woken and is not decided yet; as long as there is one, the others wait for what becomes of it.
    woken: Queued | None = None
    #: Whether all nodes must be looked at, not only those that changed.
    unsure: bool = False


class SchedulingQueue:
    """Pods that wait for a node, by uid. Reads the cluster, and takes its `changes`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pods: dict[str, Queued] = {}
        self._active: Heap = []
        self._backoff: Heap = []
        self._errors: Heap = []
        self._entries = count(1)
        self._peers: dict[tuple[Hashable, ...], Peers] = {}
        #: Those of them that look at the pods around a node: a pod that is placed can help no others.
        self._sociable: dict[tuple[Hashable, ...], Peers] = {}
        self._unsure: list[Peers] = []
        self._changes_taken = 0
        self._decisions_since_wake = 0
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
        """Take a pod that waits for a node, or the new state of one that is here already."""
        if pod.uid in self._pods:
            self.update(pod)
        else:
            queued = self._pods[pod.uid] = Queued(pod, since=now)
            self._place(queued)

    def update(self, pod: Pod) -> None:
        """Take the new state of a pod, where it is here.

        A pod that asks something else than before is decided afresh; any other change (our own condition among them)
        leaves it where it is. An older state than the one known is ignored.
        """
        queued = self._pods.get(pod.uid)
        if queued is None or pod.resource_version < queued.pod.resource_version:
            return
        before = queued.pod
        asks_otherwise = asks(before) != asks(pod)
        if pod.raw_spec is not None and before.fields is not None and not asks_otherwise:
            pod.fields, pod.raw_spec = before.fields, None
        queued.pod = pod
        if asks_otherwise and queued.part:
            queued.attempts = 0
            peers = queued.peers
            self._leave_peers(queued)
            self._place(queued)
            self._drop_if_empty(peers)

    def remove(self, uid: str) -> None:
        """Forget a pod: deleted, bound by others or no longer ours."""
        queued = self._pods.pop(uid, None)
        if queued is not None:
            peers = queued.peers
            self._leave_peers(queued)
            queued.part, queued.entry = "gone", 0
            self._drop_if_empty(peers)

    def pop(self, now: float) -> Pod | None:
        """Return the pod to decide now; None where none is due. It stays known here until `placed` or `remove`.

        Where no pod is active, one that backs off after it did not fit need not wait: there is nothing else to do.
        One that backs off after an error does wait.
        """
        self._decisions_since_wake += 1
        if not self._top(self._active) or self._decisions_since_wake * LOOKS_A_DECISION >= len(self._peers):
            self._wake(now)
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
        queued.given, queued.given_at = queued.pod, self._changes_taken
        return queued.pod

    def unschedulable(self, uid: str, filters: frozenset[str], now: float) -> None:
        """Park a pod that these filters kept from every node until the cluster changes so that it could fit."""
        queued = self._pods.get(uid)
        if queued is None:
            return
        if queued.given is not None and asks(queued.given) != asks(queued.pod):
            # The verdict is on what it asked before.
            self.retry_at_once(uid)
            return
        queued.given = None  # an older state of it, mostly, which is not to be kept as long as it waits
        key = signature_of(queued.pod)
        peers = self._peers.get(key)
        if peers is None:
            peers = self._peers[key] = Peers(key, FIELDS in filters, [])
            if looks_at_neighbours(queued.pod):
                self._sociable[key] = peers
        peers.refused = not PRE_FILTER_NAMES.isdisjoint(filters)
        if queued.peers is peers:
            # No look at the next one: where this one does not fit, none does.
            peers.woken = None
        else:
            self._leave_peers(queued)
        if queued.given_at != self._changes_taken:
            self._look_at(peers)
        queued.parked_at = now
        queued.part, queued.peers, queued.rescued = "unschedulable", peers, False
        self._push(peers.parked, queued, -queued.pod.priority, queued.since)

    def retry(self, uid: str, now: float, after: float = 0.0) -> None:
        """Try a pod again after an error: back off first, at least `after` seconds."""
        queued = self._pods.get(uid)
        if queued is not None:
            self._leave_peers(queued)
            queued.part = "error"
            self._push(self._errors, queued, now + max(after, _backoff(queued.attempts)), 0.0)

    def retry_at_once(self, uid: str) -> None:
        """Try a pod again at once: what failed was our knowledge of it, which has been mended."""
        queued = self._pods.get(uid)
        if queued is not None:
            self._leave_peers(queued)
            queued.attempts = max(0, queued.attempts - 1)
            self._place(queued)

    def assumed(self, uid: str) -> None:
        """Take note that a pod has a node, whatever becomes of its binding: the next of its peers may fit too."""
        queued = self._pods.get(uid)
        if queued is not None:
            self._leave_peers(queued)

    def placed(self, uid: str) -> None:
        """Forget a pod that was bound, and count it where no event had got it moving."""
        queued = self._pods.get(uid)
        if queued is not None and queued.rescued:
            self.rescued_by_flush += 1
        self.remove(uid)

    def flush(self, now: float) -> int:
        """Move pods that have been unschedulable for `FLUSH_AFTER` seconds. Returns how many."""
        self._wake(now)
        overdue = [
            queued
            for queued in self._pods.values()
            if queued.part == "unschedulable" and now - queued.parked_at >= FLUSH_AFTER
        ]
        missed: dict[Peers | None, bool] = {}
        for queued in overdue:
            peers = queued.peers
            if peers is not None and peers not in missed:
                missed[peers] = not peers.hopeless and peers.woken is None and fits(self._cluster, queued.pod)
            queued.rescued = missed[peers]
            queued.peers = None
            self._move(queued, now)
        return len(overdue)

    def due_in(self, now: float) -> float | None:
        """Seconds until `pop` has something; None where only a new pod or an event can change that."""
        if not self._top(self._active):
            self._wake(now)
        if self._top(self._active) or self._top(self._backoff):
            return 0.0
        return max(0.0, self._errors[0][0] - now) if self._top(self._errors) else None

    def _wake(self, now: float) -> None:
        """Move the first of all pods of one signature where it fits since the cluster changed."""
        self._decisions_since_wake = 0
        changes = self._cluster.changes.take() if self._cluster.changes else None
        unsure, self._unsure = self._unsure, []
        if changes is not None:
            self._changes_taken += 1
        asked = {} if changes is None else self._sociable if changes.only_moves else self._peers
        for peers in [*asked.values(), *unsure]:
            look_everywhere, peers.unsure = peers.unsure, False
            if peers.woken is not None:
                continue
            if not self._top(peers.parked):
                self._drop_if_empty(peers)
            elif not peers.hopeless and self._is_helped(peers, None if look_everywhere else changes):
                queued = peers.woken = heapq.heappop(peers.parked)[-1]
                self._move(queued, now)

    def _is_helped(self, peers: Peers, changes: Changes | None) -> bool:
        pod = peers.parked[0][-1].pod
        if peers.refused and pod_refusal(self._cluster, pod) is None:
            # What it said it lacked is there: even where it still fits nowhere, it must not say so any longer.
            return True
        return fits(self._cluster, pod) if changes is None else could_help(self._cluster, changes, pod)

    def _leave_peers(self, queued: Queued) -> None:
        """Part a pod from its peers; where they were waiting for it, have them looked at."""
        peers, queued.peers = queued.peers, None
        if peers is not None and peers.woken is queued:
            peers.woken = None
            self._look_at(peers)

    def _drop_if_empty(self, peers: Peers | None) -> None:
        """Forget peers of whom nobody waits. Those that are still to be looked at are forgotten then."""
        if peers is not None and not (peers.unsure or peers.woken is not None or self._top(peers.parked)):
            self._peers.pop(peers.key, None)
            self._sociable.pop(peers.key, None)

    def _look_at(self, peers: Peers) -> None:
        if not peers.unsure:
            peers.unsure = True
            self._unsure.append(peers)

    def _move(self, queued: Queued, now: float) -> None:
        ready_at = queued.parked_at + _backoff(queued.attempts)
        if ready_at <= now:
            self._place(queued)
        else:
            queued.part = "backoff"
            self._push(self._backoff, queued, ready_at, 0.0)

    def _place(self, queued: Queued) -> None:
        if queued.pod.gates:
            queued.part, queued.entry = "gated", 0
        else:
            queued.part = "active"
            self._push(self._active, queued, -queued.pod.priority, queued.since)

    def _push(self, heap: Heap, queued: Queued, first: float, second: float) -> None:
        if len(heap) > SPARE_ENTRIES + 2 * len(self._pods):
            # What is no longer true surfaces late, and where nobody takes the top (a replica that stands by) never.
            heap[:] = [entry for entry in heap if entry[-1].entry == entry[-2]]
            heapq.heapify(heap)
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
