"""The in-memory cluster: nodes in slots, placed and assumed pods, and the sums over them.

Works without I/O and without a clock. Invariant, after every call: the sums of each slot equal those over the pods
that `pods_on` names for its node (`check` recomputes them).
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
import numpy as np
import numpy.typing as npt

from turb_kub.cluster.accounting import Accounting
from turb_kub.cluster.changes import Changes
from turb_kub.cluster.cooling import CoolingNodes
from turb_kub.cluster.domains import Topology
from turb_kub.cluster.foreign import ForeignPods
from turb_kub.cluster.journal import Journal
from turb_kub.cluster.namespaces import Namespaces
from turb_kub.cluster.nominated import NominatedPods
from turb_kub.cluster.pod_counts import PodCounts
from turb_kub.cluster.ports import TakenPorts
from turb_kub.cluster.standing_terms import StandingTerms
from turb_kub.cluster.tables import discard
from turb_kub.cluster.volumes import Volumes
from turb_kub.objects.node import Node
from turb_kub.objects.pod import Pod

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Slots = npt.NDArray[np.intp]

CPU, MEMORY, STORAGE, PODS = range(4)
_FIRST_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods")
_FIRST_SLOTS = 16
#: How many comings and goings of pods are remembered for those that count pods.
_LONGEST_MOVES = 16_384
#: The fields of a placed pod that anything is counted by.
_COUNTED = (
    *("node_name", "namespace", "scheduler_name", "requests", "labels", "affinity", "host_ports", "deleting"),
    *("claims", "of_every_node"),
)
#: The arrays that hold amounts, by name.
_AMOUNTS = ("allocatable", "requested", "free", "ceiling", "budgeted", "headroom", "load", "others")


class Cluster:
    """Nodes by slot, pods by uid.

    Attributes (arrays hold one element or row a slot; `size` slots are in use, some perhaps empty):
        present: whether the slot holds a node.
        allocatable, requested, free: [slot, column] amounts; a column a resource, `columns` names them. The column
            "pods" counts pods. Free is what is allocatable less what is requested, so perhaps negative.
        ceiling: bytes; the smaller of the node's memory limit and its allocatable memory.
        budgeted: bytes taken of the ceiling.
        headroom: bytes left under the ceiling, perhaps negative.
        load: bytes by which nodes are ranked.
        others: how many pods of other schedulers the node holds, static and DaemonSet ones left out.
        name_rank: the node's place when all are sorted by name; ties end there.
        changes: what happened that could let a waiting pod in, for the queue to take.
    """

    def __init__(self, accounting: Accounting | None = None) -> None:
        self.accounting = accounting or Accounting()
        self.columns: dict[str, int] = {name: column for column, name in enumerate(_FIRST_RESOURCES)}
        self.nodes: list[Node | None] = []
        self.present: Bools = np.zeros(_FIRST_SLOTS, dtype=np.bool_)
        # A filter compares one column of all slots at a time: in this order a column lies in one piece.
        self.allocatable: Int64s = np.zeros((_FIRST_SLOTS, len(self.columns)), dtype=np.int64, order="F")
        self.requested: Int64s = np.zeros_like(self.allocatable)
        self.free: Int64s = np.zeros_like(self.allocatable)
        self.ceiling: Int64s = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self.budgeted: Int64s = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self.headroom: Int64s = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self.load: Int64s = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self.others: Int64s = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self.name_rank: Int64s = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        #: Slots whose node (not its pods) changed.
        self._changed_slots: Journal[int] = Journal()
        self._slots: dict[str, int] = {}
        self._empty: list[int] = []
        self._ranks_are_stale = False
        #: Whether the slots happen to be in the order of their nodes' names: true where nodes came by one list.
        self._in_name_order = True
        #: Pods put on a node (+1) or taken from it (-1).
        self._moves: Journal[tuple[Pod, int]] = Journal()
        self.changes = Changes()
        self.namespaces = Namespaces()
        #: Host ports that are taken.
        self.ports = TakenPorts()
        #: Required anti-affinity of placed pods.
        self.standing_terms = StandingTerms(self.namespaces)
        self.topology = Topology()
        self.pod_counts = PodCounts()
        #: Pods of other schedulers.
        self.foreign = ForeignPods(self.accounting.scheduler_name, self.changes)
        #: Unbound pods for which room was made.
        self.nominated = NominatedPods()
        #: Nodes whose kubelet turned pods away.
        self.cooling = CoolingNodes()
        #: Claims, volumes and classes.
        self.volumes = Volumes(self.changes)
        self._placed: dict[str, Pod] = {}
        self._by_node: dict[str, dict[str, Pod]] = {}
        self._assumed: set[str] = set()
        #: Nodes that take no pods for now: by name why, by whom (a pod's uid, or the node's own name).
        self._closed: dict[str, dict[str, str]] = {}
        self._closed_by: dict[str, str] = {}

    # Nodes

    @property
    def size(self) -> int:
        """How many slots are in use; arrays are longer, see `present`."""
        return len(self.nodes)

    @property
    def node_count(self) -> int:
        return len(self._slots)

    def slot(self, name: str) -> int | None:
        return self._slots.get(name)

    def node(self, name: str) -> Node | None:
        slot = self._slots.get(name)
        return None if slot is None else self.nodes[slot]

    def slots_of(self, names: Iterable[str]) -> list[int]:
        """The slots of the nodes of these names; those that are not there are left out."""
        return [slot for name in names if (slot := self._slots.get(name)) is not None]

    def mask(self, slots: list[int] | Slots) -> Bools:
        """Return one boolean a slot, true for these."""
        mask: Bools = np.zeros(self.size, dtype=np.bool_)
        mask[slots] = True
        return mask

    def node_at(self, slot: int) -> Node:
        """The node in a slot that is present. Raises `LookupError` for an empty one."""
        node = self.nodes[slot]
        if node is None:
            raise LookupError(f"slot {slot} is empty")
        return node

    def each_node(self) -> Iterator[tuple[int, Node]]:
        """Slots and their nodes, by name."""
        for name in sorted(self._slots):
            slot = self._slots[name]
            yield slot, self.node_at(slot)

    def set_node(self, node: Node) -> bool:
        """Add a node or take its new state. Tells whether anything a decision sees has changed."""
        slot = self._slots.get(node.name)
        if slot is None:
            slot = self._take_slot(node.name)
        elif self.nodes[slot] == node:
            return False
        before, self.nodes[slot] = self.nodes[slot], node
        if before is None or (before.labels, before.taints) != (node.labels, node.taints):
            self.changes.domains = True
        for name, _ in node.allocatable:
            if name not in self.columns:
                self._add_column(name)
        self.allocatable[slot] = 0
        for name, amount in node.allocatable:
            self.allocatable[slot, self.columns[name]] = amount
        self.free[slot] = self.allocatable[slot] - self.requested[slot]
        self.ceiling[slot] = self._ceiling(node, int(self.allocatable[slot, MEMORY]))
        self.headroom[slot] = self.ceiling[slot] - self.budgeted[slot]
        self._note_change(slot)
        self._note_slot(slot)
        return True

    def remove_node(self, name: str) -> bool:
        """Forget a node. Its pods are kept, and counted again should it come back. Tells whether it was there."""
        slot = self._slots.pop(name, None)
        if slot is None:
            return False
        self.nodes[slot] = None
        self.changes.domains = True
        self.present[slot] = False
        self.foreign.forget_slot(slot)
        for array in self._amounts():
            array[slot] = 0
        self._empty.append(slot)
        self._ranks_are_stale = True
        self._note_change(slot)
        return True

    def changes_since(self, position: int) -> tuple[set[int] | None, int]:
        """Return the slots whose node changed since a position, as `Journal.since`."""
        slots, now = self._changed_slots.since(position)
        return None if slots is None else set(slots), now

    def ranks(self) -> Int64s:
        """`name_rank`, brought up to date."""
        if self._ranks_are_stale:
            for rank, name in enumerate(sorted(self._slots)):
                self.name_rank[self._slots[name]] = rank
            self._ranks_are_stale = False
            taken = self.name_rank[: self.size][self.present[: self.size]]
            self._in_name_order = bool((taken[1:] > taken[:-1]).all())
        return self.name_rank[: self.size]

    def first_by_name(self, slots: Slots) -> int:
        """Return the one of some slots (ascending, at least one, none empty) whose node's name comes first."""
        ranks = self.ranks()
        return int(slots[0] if self._in_name_order else slots[ranks[slots].argmin()])

    # Pods

    @property
    def pod_count(self) -> int:
        return len(self._placed)

    @property
    def assumed_count(self) -> int:
        return len(self._assumed)

    def placed(self, uid: str) -> Pod | None:
        """The pod of that uid, if a node holds it or is about to."""
        return self._placed.get(uid)

    def is_assumed(self, uid: str) -> bool:
        return uid in self._assumed

    def placed_uids(self) -> set[str]:
        return set(self._placed)

    def pods_on(self, node_name: str) -> list[Pod]:
        """Pods that the node holds or is about to hold, terminal ones left out."""
        return list(self._by_node.get(node_name, {}).values())

    def others_on(self, node_name: str) -> int:
        """How many pods of other schedulers a node holds, static and DaemonSet ones left out."""
        slot = self._slots.get(node_name)
        return 0 if slot is None else int(self.others[slot])

    def assume(self, pod: Pod) -> None:
        """Count a pod on `pod.node_name` before the API server has confirmed it."""
        self._put(pod)
        self._assumed.add(pod.uid)

    def set_pod(self, pod: Pod) -> None:
        """Take what the API server says of a bound pod."""
        if pod.terminal:
            self.remove_pod(pod.uid)
            return
        before = self._placed.get(pod.uid)
        if before is not None and all(getattr(before, name) == getattr(pod, name) for name in _COUNTED):
            # Most of what a pod's status tells changes nothing here.
            self._placed[pod.uid] = self._by_node[pod.node_name][pod.uid] = pod
        else:
            self._put(pod)
        self._assumed.discard(pod.uid)

    def remove_pod(self, uid: str) -> None:
        """Forget a pod that is gone, or was assumed in vain."""
        pod = self._take_out(uid)
        self._assumed.discard(uid)
        if pod is not None:
            self.note_relief(pod.node_name)

    @contextmanager
    def without(self, uid: str) -> Iterator[None]:
        """Leave a placed pod out while the block runs, which must not wait for anything; to ask what fits beside it."""
        with self.changes.unnoted():
            pod = self._take_out(uid)
            try:
                yield
            finally:
                if pod is not None:
                    self._put(pod)

    @contextmanager
    def holding(self, nominated: Iterable[Pod]) -> Iterator[None]:
        """Count pods on the nodes to which they are nominated while the block runs, which must not wait for anything.

        One that is placed or assumed by now is counted where it is.
        """
        added = [pod for pod in nominated if pod.uid not in self._placed]
        with self.changes.unnoted():
            try:
                for pod in added:
                    self._put(msgspec.structs.replace(pod, node_name=pod.nominated_node))
                yield
            finally:
                for pod in added:
                    self._take_out(pod.uid)

    def nominate(self, pod: Pod) -> None:
        """Take an unbound pod that is nominated to a node. An older state than the one known is ignored."""
        known = self.nominated.get(pod.uid)
        if known is None or known.resource_version <= pod.resource_version:
            if known is not None and known.nominated_node != pod.nominated_node:
                self.withdraw(pod.uid)
            self.nominated.put(msgspec.structs.replace(pod, raw_spec=None))

    def withdraw(self, uid: str) -> None:
        """Forget that a pod is nominated: it is bound, gone, or nominated no more."""
        pod = self.nominated.remove(uid)
        if pod is not None:
            self.note_relief(pod.nominated_node)
            # It kept pods away from its node, and with a term from more than that.
            self.changes.everywhere |= bool(pod.affinity.required_anti)

    def note_arrival(self, pod: Pod) -> None:
        """Take note that another scheduler has just put a pod on its node; `foreign.settle` ends that."""
        slot = self._slots.get(pod.node_name)
        if slot is not None:
            columns, amounts = self.taken(pod)
            self.foreign.arrive(pod.uid, slot, columns, amounts, self.accounting.budget(pod))

    def note_relief(self, node_name: str) -> None:
        """Take note that a node may take pods now that it did not take before."""
        slot = self._slots.get(node_name)
        if slot is not None:
            self._note_slot(slot)

    def moves_since(self, position: int) -> tuple[list[tuple[Pod, int]] | None, int]:
        """Return the pods put on a node (+1) or taken from it (-1) since a position, as `Journal.since`."""
        return self._moves.since(position)

    # Namespaces

    def set_namespace(self, name: str, labels: Mapping[str, str]) -> bool:
        """Take a namespace's labels. Tells whether they are new."""
        changed = self.namespaces.put(name, labels)
        self.changes.everywhere |= changed
        return changed

    def remove_namespace(self, name: str) -> bool:
        """Forget a namespace. Tells whether it was known."""
        known = self.namespaces.remove(name)
        self.changes.everywhere |= known
        return known

    # Nodes that cannot be counted on

    @property
    def closed_nodes(self) -> Iterator[str]:
        """Names of nodes that take no pods for now; some may not be there."""
        return iter(self._closed)

    def why_closed(self, node_name: str) -> list[str]:
        """What closes a node; nothing where it is open."""
        return list(self._closed.get(node_name, {}).values())

    def close_node(self, node_name: str, by: str, why: str) -> None:
        """Let a node take no pods until `reopen_node`: its own state, or what one of its pods takes, is not known.

        Args:
            by: the pod's uid, or the node's name.
        """
        if self._closed_by.get(by) not in {None, node_name}:
            self.reopen_node(by)
        self._closed.setdefault(node_name, {})[by] = why
        self._closed_by[by] = node_name

    def reopen_node(self, by: str) -> bool:
        """Take back `close_node`. Tells whether it was in force."""
        node_name = self._closed_by.pop(by, None)
        if node_name is None:
            return False
        discard(self._closed, node_name, by)
        if node_name not in self._closed:
            self.note_relief(node_name)
        return True

    # Sums

    def taken(self, pod: Pod) -> tuple[list[int], list[int]]:
        """Return the columns and amounts that a placed pod takes of its node, its slot in the pod count included.

        Resources that no node has are left out: a pod may name any number of them, and no node gives them anyway.
        """
        columns, amounts = [PODS], [1]
        for name, amount in pod.requests:
            column = self.columns.get(name)
            if column is not None:
                columns.append(column)
                amounts.append(amount)
        return columns, amounts

    def check(self, slots: Iterable[int] | None = None) -> list[str]:
        """Recompute the sums of these nodes, or of all; return one line for each that differs: there is a bug then.

        Takes some 15 µs a pod.
        """
        wrong = []
        for slot in [slot for slot, _ in self.each_node()] if slots is None else slots:
            node = self.node_at(slot)
            requested = np.zeros_like(self.requested[slot])
            budgeted = load = others = 0
            for pod in self.pods_on(node.name):
                columns, amounts = self.taken(pod)
                requested[columns] += np.array(amounts, dtype=np.int64)
                budgeted += self.accounting.budget(pod)
                load += self.accounting.load(pod)
                others += self.foreign.counts(pod)
            if not np.array_equal(requested, self.requested[slot]):
                wrong.append(
                    f"{node.name}: requested {self.requested[slot].tolist()}, pods sum to {requested.tolist()}"
                )
            if not np.array_equal(self.allocatable[slot] - requested, self.free[slot]):
                wrong.append(f"{node.name}: free is not what is allocatable less what is requested")
            if int(self.headroom[slot]) != int(self.ceiling[slot]) - budgeted:
                wrong.append(f"{node.name}: headroom is not what the ceiling leaves")
            if (budgeted, load) != (int(self.budgeted[slot]), int(self.load[slot])):
                wrong.append(f"{node.name}: budget and load {budgeted}, {load} differ from the sums kept")
            if others != int(self.others[slot]):
                wrong.append(f"{node.name}: {others} pods of other schedulers differ from the count kept")
        return wrong

    def recount(self, slot: int) -> None:
        """Set the sums of a node to what `check` computes."""
        node = self.node_at(slot)
        self.requested[slot] = 0
        self.free[slot] = self.allocatable[slot]
        self.budgeted[slot] = self.load[slot] = self.others[slot] = 0
        self.headroom[slot] = self.ceiling[slot]
        for pod in self.pods_on(node.name):
            self._count(pod, +1)
        self.note_relief(node.name)

    def _put(self, pod: Pod) -> None:
        before = self._take_out(pod.uid)
        self._placed[pod.uid] = pod
        self._by_node.setdefault(pod.node_name, {})[pod.uid] = pod
        self.ports.take(pod)
        self.standing_terms.take(pod)
        self._note_move(pod, +1)
        if pod.claims:
            self.volumes.use(pod)
        self._count(pod, +1)
        if before is not None and self._shrank(before, pod):
            self.note_relief(before.node_name)

    def _take_out(self, uid: str) -> Pod | None:
        pod = self._placed.pop(uid, None)
        if pod is None:
            return None
        discard(self._by_node, pod.node_name, uid)
        self.ports.release(pod)
        if pod.affinity.required_anti:
            # It kept pods away from its whole domain.
            self.changes.everywhere = True
        self.standing_terms.release(pod)
        self._note_move(pod, -1)
        if pod.claims:
            self.volumes.leave(pod)
        self._count(pod, -1)
        return pod

    def _shrank(self, before: Pod, after: Pod) -> bool:
        """Whether a pod takes less of the node that held it, of anything."""
        if before.node_name != after.node_name or not set(before.host_ports) <= set(after.host_ports):
            return True
        if before.requests == after.requests:
            return False
        # A pod that begins to state a request counts as that, no longer as the default.
        if self.accounting.budget(after) < self.accounting.budget(before):
            return True
        return any(after.amount(name) < amount for name, amount in before.requests)

    def _count(self, pod: Pod, sign: int) -> None:
        slot = self._slots.get(pod.node_name)
        if slot is None:
            return
        columns, amounts = self.taken(pod)
        for column, amount in zip(columns, amounts, strict=True):
            self.requested[slot, column] += sign * amount
            self.free[slot, column] -= sign * amount
        budget = self.accounting.budget(pod)
        self.budgeted[slot] += sign * budget
        self.headroom[slot] -= sign * budget
        self.load[slot] += sign * self.accounting.load(pod)
        self.others[slot] += sign * self.foreign.counts(pod)

    def _ceiling(self, node: Node, allocatable: int) -> int:
        limit = node.memory_limit if node.memory_limit is not None else self.accounting.node_memory_limit
        return allocatable if limit is None else min(limit, allocatable)

    def _note_slot(self, slot: int) -> None:
        self.changes.slots.add(slot)
        # Where one more node can take what another scheduler has still to place, less of it goes to each of the others.
        self.changes.everywhere |= self.foreign.expected

    def _note_change(self, slot: int) -> None:
        self._changed_slots.add(slot, 4 * self.size + 1024)

    def _note_move(self, pod: Pod, sign: int) -> None:
        self.changes.note_move(pod, sign)
        self._moves.add((pod, sign), _LONGEST_MOVES)

    def _take_slot(self, name: str) -> int:
        if self._empty:
            slot = self._empty.pop()
        else:
            slot = len(self.nodes)
            self.nodes.append(None)
            if slot >= len(self.present):
                self._grow()
        self._slots[name] = slot
        self.present[slot] = True
        self._ranks_are_stale = True
        for pod in self.pods_on(name):
            self._count(pod, +1)
        return slot

    def _grow(self) -> None:
        more = len(self.present)
        for name in ("present", "name_rank", *_AMOUNTS):
            array = getattr(self, name)
            grown = np.pad(array, ((0, more), (0, 0)) if array.ndim == 2 else (0, more))
            setattr(self, name, np.asfortranarray(grown))

    def _add_column(self, resource: str) -> None:
        column = self.columns[resource] = len(self.columns)
        for name in ("allocatable", "requested", "free"):
            array = getattr(self, name)
            setattr(self, name, np.asfortranarray(np.pad(array, ((0, 0), (0, 1)))))
        for pod in self._placed.values():
            slot, amount = self._slots.get(pod.node_name), pod.amount(resource)
            if slot is not None and amount:
                self.requested[slot, column] += amount
                self.free[slot, column] -= amount

    def _amounts(self) -> list[Int64s]:
        return [getattr(self, name) for name in _AMOUNTS]
