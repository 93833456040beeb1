"""`decide`: the one place where a node is chosen."""

import re
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from turb_kub.cluster.cluster import Cluster, Slots
from turb_kub.decision.feasibility import details, feasible, filter_codes, pod_refusal, reasons
from turb_kub.decision.fields import FIELDS, field_refusal
from turb_kub.decision.node_verdicts import EMPTY_SLOT
from turb_kub.decision.policy import Policy
from turb_kub.decision.preferences import best_liked
from turb_kub.objects.pod import Pod

#: How many nodes a decision reports on; enough to see why, small enough for an annotation on a large cluster.
REPORTED_NODES = 5
#: Of so many nodes one pass over all costs next to nothing.
_MANY = 64
#: In how many parts very many nodes are looked at.
_CHUNKS = 256
BY_NAME = "name"
BY_PREFERENCE = "preference"
NO_NODES = "no nodes available to schedule pods"


class NodeReport(msgspec.Struct, frozen=True):
    """One node as the decision saw it. Amounts in bytes; `refusals` is empty where the pod fits."""

    name: str
    rank: float
    requested: int
    ceiling: int
    refusals: tuple[str, ...] = ()


class Decision(msgspec.Struct, frozen=True):
    """Where a pod goes, or why nowhere.

    Attributes:
        node: the chosen node; None where there is none.
        policy: the name of the policy that ranked.
        asked: bytes of memory that the pod takes of a ceiling.
        feasible: how many nodes every filter passed.
        evaluated: how many nodes there are.
        reasons: why nodes were refused, with how many; empty where a node was found.
        filters: the filters that refused, by name.
        nodes: `REPORTED_NODES` nodes, the chosen one first, then the best of the others or those tied with it; of a
            failed decision those nearest to fitting.
        tie: what decided among tied nodes, `BY_NAME` or `BY_PREFERENCE`; "" where one node ranked before all others.
        pod_refusal: a refusal that concerns the pod rather than any node, without a final stop.
    """

    node: str | None
    policy: str
    asked: int
    feasible: int
    evaluated: int
    reasons: tuple[tuple[str, int], ...] = ()
    filters: frozenset[str] = frozenset()
    nodes: tuple[NodeReport, ...] = ()
    pod_refusal: str | None = None
    tie: str = ""

    @property
    def message(self) -> str:
        """kube-scheduler's text for a pod that fits nowhere; "" for one that was placed."""
        if self.node is not None:
            return ""
        if not self.evaluated:
            return NO_NODES
        if self.pod_refusal is not None:
            return f"0/{self.evaluated} nodes are available: {self.pod_refusal}."
        counted = ", ".join(sorted(f"{count} {reason}" for reason, count in self.reasons))
        return f"0/{self.evaluated} nodes are available: {counted}."


#: A count of nodes in a message: "0/3 " at its start, "2 " before each reason.
_COUNTS = re.compile(r"(^|(?<=[:,] ))[0-9]+(/[0-9]+)? ")


def without_numbers(message: str) -> str:
    """Return a decision's message without its counts: what must change before it is written to the pod again."""
    return _COUNTS.sub("", message)


def decide(cluster: Cluster, pod: Pod, policy: Policy, *, unknown_fields_fail: bool = True) -> Decision:
    """Choose a node for a pod, or say why there is none. Changes nothing.

    Args:
        unknown_fields_fail: whether a field of the pod's spec that is not in the table keeps the pod from being placed.
    """
    size = cluster.size
    refusal = _pod_refusal(cluster, pod, unknown_fields_fail)
    if refusal is not None:
        name, text = refusal
        return _nowhere(cluster, pod, policy, filters=frozenset({name}), pod_refusal=text)
    # Here and below methods of arrays: NumPy's functions take twice as long for some hundred nodes.
    slots = feasible(cluster, pod).nonzero()[0]
    rank = policy.rank(cluster, pod)[:size]
    if not len(slots):
        return _refused(cluster, pod, policy, rank)
    # Most often every node is feasible, and with 100,000 nodes each pass that is left out counts.
    ranked = rank if len(slots) == size else rank[slots]
    best = int(ranked.argmin())
    within = ranked <= ranked[best] + policy.tie_width(cluster, int(slots[best]))
    tied = slots if np.count_nonzero(within) == len(slots) else slots[within.nonzero()[0]]
    chosen, tie = int(slots[best]), ""
    if len(tied) > 1:
        liked = best_liked(cluster, pod, tied)
        chosen, tie = cluster.first_by_name(liked), BY_NAME if len(liked) == len(tied) else BY_PREFERENCE
    # Of many tied nodes any few will do: they differ by next to nothing.
    others = tied[:_MANY] if len(tied) >= REPORTED_NODES else slots
    first = _first(cluster, others, rank, REPORTED_NODES)
    return Decision(
        node=cluster.node_at(chosen).name,
        policy=policy.name,
        asked=cluster.accounting.budget(pod),
        feasible=len(slots),
        evaluated=cluster.node_count,
        nodes=tuple(
            report(cluster, slot, rank)
            for slot in [chosen, *(slot for slot in first if slot != chosen)][:REPORTED_NODES]
        ),
        tie=tie,
    )


def _pod_refusal(cluster: Cluster, pod: Pod, unknown_fields_fail: bool) -> tuple[str, str] | None:
    refusal = field_refusal(pod, unknown_fail=unknown_fields_fail)
    return (FIELDS, refusal) if refusal is not None else pod_refusal(cluster, pod)


def _nowhere(cluster: Cluster, pod: Pod, policy: Policy, **why: Any) -> Decision:
    asked = cluster.accounting.budget(pod)
    return Decision(None, policy.name, asked, feasible=0, evaluated=cluster.node_count, **why)


def _refused(cluster: Cluster, pod: Pod, policy: Policy, rank: npt.NDArray[Any]) -> Decision:
    codes = filter_codes(cluster, pod)
    counts, filters = reasons(cluster, pod, codes)
    # The later the filter that refuses a node, the nearer it came.
    nearest: list[int] = []
    for code in range(int(codes.max(initial=EMPTY_SLOT)), EMPTY_SLOT, -1):
        nearest += _first(cluster, np.flatnonzero(codes == code), rank, REPORTED_NODES - len(nearest))
    return _nowhere(
        cluster,
        pod,
        policy,
        reasons=tuple(sorted(counts.items())),
        filters=filters,
        nodes=tuple(report(cluster, slot, rank, details(cluster, pod, slot, codes)) for slot in nearest),
    )


def _first(cluster: Cluster, slots: Slots, rank: npt.NDArray[Any], most: int) -> list[int]:
    """The best slots, at most `most`, in order of rank, then name."""
    if len(slots) > most:
        slots = slots[_least(rank if len(slots) == len(rank) else rank[slots], most)]
    names = cluster.ranks()
    found = zip(rank[slots].tolist(), names[slots].tolist(), slots.tolist(), strict=True)
    return [slot for _, _, slot in sorted(found)]


def _least(numbers: npt.NDArray[Any], most: int) -> Slots:
    """Where the `most` least of more numbers are, in any order."""
    if most == 0:
        return np.zeros(0, dtype=np.intp)
    if len(numbers) <= _CHUNKS * _MANY:
        return numbers.argpartition(most - 1)[:most]
    # They lie in the chunks with the least minimum, as many: a chunk that is none of those has so many better ones.
    bounds = np.linspace(0, len(numbers), _CHUNKS + 1, dtype=np.intp)
    chunks = np.argpartition(np.minimum.reduceat(numbers, bounds[:-1]), most - 1)[:most]
    among = np.concatenate([np.arange(bounds[chunk], bounds[chunk + 1]) for chunk in chunks])
    least: Slots = among[np.argpartition(numbers[among], most - 1)[:most]]
    return least


def report(cluster: Cluster, slot: int, rank: npt.NDArray[Any], refused: tuple[str, ...] = ()) -> NodeReport:
    """Return a node as a decision sees it."""
    return NodeReport(
        name=cluster.node_at(slot).name,
        rank=float(rank[slot]),
        requested=int(cluster.budgeted[slot]),
        ceiling=int(cluster.ceiling[slot]),
        refusals=refused,
    )
