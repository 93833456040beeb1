"""Pods of other schedulers: who of them waits, what they took of each node lately, and so what they may take next.

Between the last look at a node and the moment in which our bind takes effect there is some time, in which another
scheduler binds on. What it took of a node just now it may take once more in that time, and so it may place one of the
pods that it has not tried yet: so much is left to it. Without a clock: whoever notes that ends it.

Static pods and pods of a DaemonSet do not count. Every node has some, and they say nothing of who else places pods.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

import msgspec
import numpy as np
import numpy.typing as npt

from turb_kub.cluster.changes import Changes
from turb_kub.objects.constraints import NodeConstraints
from turb_kub.objects.pod import Pod
from turb_kub.objects.requests import Requests

Int64s = npt.NDArray[np.int64]

#: Of pods that wait, so many that ask different things are looked at: those that came first, and go first.
_MOST_KINDS = 16


class Kind(msgspec.Struct, frozen=True):
    """What a pod that waits for another scheduler asks; `budget` is bytes that it takes of a ceiling."""

    scheduler_name: str
    requests: Requests
    constraints: NodeConstraints
    budget: int


class _Arrival(msgspec.Struct, frozen=True):
    slot: int
    columns: list[int]
    amounts: list[int]
    budget: int


class ForeignPods:
    """Attributes:
    waiting: uids of those that wait for a node and may get one at any moment.
    active: whether anything is to be left to other schedulers on any node.

    Args:
        scheduler_name: whose pods are ours.
        changes: takes note of room that need no longer be left.
    """

    def __init__(self, scheduler_name: str, changes: Changes) -> None:
        self._scheduler_name = scheduler_name
        self._changes = changes
        self.waiting: set[str] = set()
        self.active = False
        self._untried: dict[str, Kind] = {}
        #: How many of each wait untried, the one that has waited longest first.
        self._kinds: dict[Kind, int] = {}
        #: How many wait untried, by scheduler.
        self._backlogs: Counter[str] = Counter()
        #: Schedulers that are at work, with how many pods each may place in the time that matters; None: any number.
        self._at_work: dict[str, int | None] = {}
        self._arrived: dict[str, _Arrival] = {}
        self._by_slot: dict[int, set[str]] = {}
        self._amounts: Int64s = np.zeros((0, 0), dtype=np.int64, order="F")
        self._budgets: Int64s = np.zeros(0, dtype=np.int64)

    def counts(self, pod: Pod) -> bool:
        """Whether a pod is one of those that this is about."""
        return pod.scheduler_name != self._scheduler_name and not pod.of_every_node

    # Those that wait

    def wait(self, pod: Pod, budget: int) -> bool:
        """Take note of a pod that waits. Tells whether that, or what its scheduler said of it, is news."""
        verdict = pod.verdict
        tried = verdict is not None and verdict.status == "False" and verdict.reason == "Unschedulable"
        kind = None if tried else Kind(pod.scheduler_name, pod.requests, pod.constraints, budget)
        if pod.uid in self.waiting and self._untried.get(pod.uid) == kind:
            return False
        self.waiting.add(pod.uid)
        self._forget_untried(pod.uid)
        if kind is not None:
            self._untried[pod.uid] = kind
            self._kinds[kind] = self._kinds.get(kind, 0) + 1
            self._backlogs[kind.scheduler_name] += 1
        return True

    def wait_no_more(self, uid: str) -> None:
        self.waiting.discard(uid)
        self._forget_untried(uid)

    def keep_only(self, listed: set[str]) -> None:
        """Forget all that wait and are not among these."""
        for uid in self.waiting - listed:
            self.wait_no_more(uid)

    @property
    def expected(self) -> bool:
        """Whether a scheduler at work has pods that it has not tried yet: nodes that can take them share them."""
        return any(self._backlogs[name] > 0 for name in self._at_work)

    def backlog(self, scheduler_name: str) -> int:
        """How many pods wait that this scheduler has not tried yet."""
        return self._backlogs[scheduler_name]

    def work(self, scheduler_name: str, most: int | None) -> None:
        """From now on leave room for what this scheduler has not tried yet, for `most` pods in all if that is known."""
        most = None if most is None else _rounded(most)
        before = self._at_work.get(scheduler_name, 0)
        self._at_work[scheduler_name] = most
        self.active = True
        if most is not None and (before is None or before > most):
            self._changes.everywhere = True

    def end_work(self, scheduler_name: str) -> None:
        self._at_work.pop(scheduler_name, None)
        self._set_active()
        self._changes.everywhere |= self._backlogs[scheduler_name] > 0

    def next_kinds(self) -> Iterator[tuple[Kind, int]]:
        """What pods ask that wait untried for schedulers which are at work, and how many pods such a one may place."""
        at_work = ((kind, self._at_work.get(kind.scheduler_name, 0)) for kind in self._kinds)
        for kind, most in islice(((kind, most) for kind, most in at_work if most != 0), _MOST_KINDS):
            backlog = _rounded(self._backlogs[kind.scheduler_name])
            yield kind, backlog if most is None else min(backlog, most)

    # Those that came to a node

    def arrive(self, uid: str, slot: int, columns: list[int], amounts: list[int], budget: int) -> None:
        """Take note of what a pod has just taken of the node in a slot; `columns` and `amounts` as `Cluster.taken`."""
        self._leave(uid)
        self._reach(slot + 1, max(columns) + 1)
        self._arrived[uid] = _Arrival(slot, columns, amounts, budget)
        self._by_slot.setdefault(slot, set()).add(uid)
        self._amounts[slot, columns] += amounts
        self._budgets[slot] += budget
        self.active = True

    def settle(self, uid: str) -> None:
        """Expect no more that what this pod took is taken once more."""
        arrival = self._leave(uid)
        if arrival is not None:
            self._changes.slots.add(arrival.slot)

    def forget_slot(self, slot: int) -> None:
        """Forget what came to a node that is gone."""
        for uid in list(self._by_slot.get(slot, ())):
            self._leave(uid)

    def arrived(self, column: int, size: int) -> Int64s:
        """How much of a resource was taken lately, for each of `size` slots. Read only."""
        self._reach(size, column + 1)
        return self._amounts[:size, column]

    def arrived_budget(self, size: int) -> Int64s:
        """Bytes of the ceiling that were taken lately, for each of `size` slots. Read only."""
        self._reach(size, 0)
        return self._budgets[:size]

    def _leave(self, uid: str) -> _Arrival | None:
        arrival = self._arrived.pop(uid, None)
        if arrival is None:
            return None
        there = self._by_slot[arrival.slot]
        there.discard(uid)
        if not there:
            del self._by_slot[arrival.slot]
        self._amounts[arrival.slot, arrival.columns] -= arrival.amounts
        self._budgets[arrival.slot] -= arrival.budget
        self._set_active()
        return arrival

    def _reach(self, slots: int, columns: int) -> None:
        """Make the arrays large enough."""
        have_slots, have_columns = self._amounts.shape
        if slots > have_slots or columns > have_columns:
            more = max(slots, 2 * have_slots) - have_slots if slots > have_slots else 0
            wide = max(0, columns - have_columns)
            self._amounts = np.asfortranarray(np.pad(self._amounts, ((0, more), (0, wide))))
            self._budgets = np.pad(self._budgets, (0, more))

    def _forget_untried(self, uid: str) -> None:
        kind = self._untried.pop(uid, None)
        if kind is None:
            return
        name = kind.scheduler_name
        self._kinds[kind] -= 1
        self._backlogs[name] -= 1
        less = _rounded(self._backlogs[name]) < _rounded(self._backlogs[name] + 1)
        if not self._backlogs[name]:
            del self._backlogs[name]
        if not self._kinds[kind]:
            del self._kinds[kind]
            less = True
        self._changes.everywhere |= less and name in self._at_work

    def _set_active(self) -> None:
        self.active = bool(self._arrived or self._at_work)


def _rounded(number: int) -> int:
    """The next power of two, so that waiting pods are looked at in few steps as a number falls, not at each."""
    return 1 << (number - 1).bit_length() if number else 0
