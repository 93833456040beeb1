"""`decide`: the one place where a node is chosen."""

import re
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.decision.fields import checked_fields
from turb_kub.decision.filters import FILTERS, NODE_FILTERS, POD_FILTERS
from turb_kub.decision.filters.node_resources import Need, fitting, need_of, refusals, shortages
from turb_kub.decision.node_verdicts import PASSES, Codes, node_misgivings, node_verdicts
from turb_kub.decision.policy import Policy
from turb_kub.objects.pod import Pod

#: How many nodes a decision reports on; enough to see why, small enough for an annotation on a large cluster.
REPORTED_NODES = 5
FIELDS = "PodSpecFields"
BY_NAME = "name"
BY_PREFERENCE = "preference"
#: Codes of the pod filters follow those of the node filters (see `node_verdicts`).
_FIRST_POD_FILTER = 1 + len(NODE_FILTERS)
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
        nodes: the first `REPORTED_NODES` nodes, best first; of a failed decision those nearest to fitting.
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
    need = need_of(cluster, pod)
    refusal = _field_refusal(pod, unknown_fields_fail)
    if refusal is not None:
        return Decision(
            None, policy.name, need.budget, 0, cluster.node_count, filters=frozenset({FIELDS}), pod_refusal=refusal
        )
    codes = filter_codes(cluster, pod)
    slots = np.flatnonzero((codes == PASSES) & fitting(cluster, need))
    rank = policy.rank(cluster, pod)[:size]
    if not len(slots):
        return _refused(cluster, pod, need, policy, codes, rank)
    ranked = rank[slots]
    best = slots[ranked.argmin()]
    tied = slots[ranked <= ranked.min() + policy.tie_width(cluster, int(best))]
    chosen, tie = _of_tied(cluster, pod, tied) if len(tied) > 1 else (int(best), "")
    return Decision(
        node=cluster.node_at(chosen).name,
        policy=policy.name,
        asked=need.budget,
        feasible=len(slots),
        evaluated=cluster.node_count,
        nodes=tuple(report(cluster, slot, rank) for slot in _first(cluster, slots, rank, chosen)),
        tie=tie,
    )


def filter_codes(cluster: Cluster, pod: Pod) -> Codes:
    """Return, for each slot, the code of the first filter that refuses it, room left aside (see `node_verdicts`)."""
    codes = node_verdicts(cluster, pod.constraints)
    for place, pod_filter in enumerate(POD_FILTERS, start=_FIRST_POD_FILTER):
        refused = pod_filter.refused(cluster, pod)
        if refused is not None:
            codes = np.where((codes == PASSES) & refused, place, codes).astype(np.int8)
    return codes


def _of_tied(cluster: Cluster, pod: Pod, tied: npt.NDArray[np.intp]) -> tuple[int, str]:
    """Return the tied node that the pod's preferences like best, the first by name of several, and what decided."""
    misgivings = node_misgivings(cluster, pod.constraints)
    preferred = tied if misgivings is None else tied[misgivings[tied] == misgivings[tied].min()]
    chosen = int(preferred[cluster.ranks()[preferred].argmin()])
    return chosen, BY_NAME if len(preferred) == len(tied) else BY_PREFERENCE


def _refused(cluster: Cluster, pod: Pod, need: Need, policy: Policy, codes: Codes, rank: npt.NDArray[Any]) -> Decision:
    passed: Bools = codes == PASSES
    reasons: Counter[str] = Counter()
    filters = set()
    for place, one in enumerate(FILTERS, start=1):
        count = int(np.count_nonzero(codes == place))
        if count:
            reasons[one.reason] += count
            filters.add(one.name)
    for name, reason, where in refusals(cluster, need, passed):
        reasons[reason] += int(np.count_nonzero(where))
        filters.add(name)
    # Nodes that only lack room come first: they are what a person can do something about.
    candidates = np.flatnonzero(passed)
    nearest = _first(cluster, candidates if len(candidates) else np.flatnonzero(codes > PASSES), rank, None)
    return Decision(
        node=None,
        policy=policy.name,
        asked=need.budget,
        feasible=0,
        evaluated=cluster.node_count,
        reasons=tuple(sorted(reasons.items())),
        filters=frozenset(filters),
        nodes=tuple(report(cluster, slot, rank, details(cluster, slot, pod, need, codes)) for slot in nearest),
    )


def details(cluster: Cluster, slot: int, pod: Pod, need: Need, codes: Codes) -> tuple[str, ...]:
    """Say what refuses a node, with the numbers; nothing where nothing does."""
    code = int(codes[slot])
    if code >= _FIRST_POD_FILTER:
        return (POD_FILTERS[code - _FIRST_POD_FILTER].detail(cluster, slot, pod),)
    if code != PASSES:
        return (NODE_FILTERS[code - 1].detail(cluster.node_at(slot), pod.constraints),)
    return tuple(shortage.detail() for shortage in shortages(cluster, slot, need))


def _first(cluster: Cluster, slots: npt.NDArray[np.intp], rank: npt.NDArray[Any], chosen: int | None) -> list[int]:
    """The best `REPORTED_NODES` of the slots in order of rank, then name; the chosen one always first."""
    if len(slots) > REPORTED_NODES:
        slots = slots[np.argpartition(rank[slots], REPORTED_NODES - 1)[:REPORTED_NODES]]
    names = cluster.ranks()
    ordered = sorted((int(slot) for slot in slots), key=lambda slot: (rank[slot], names[slot]))
    if chosen is None:
        return ordered
    return [chosen, *(slot for slot in ordered if slot != chosen)][:REPORTED_NODES]


def report(cluster: Cluster, slot: int, rank: npt.NDArray[Any], refused: tuple[str, ...] = ()) -> NodeReport:
    """Return a node as a decision sees it."""
    return NodeReport(
        name=cluster.node_at(slot).name,
        rank=float(rank[slot]),
        requested=int(cluster.budgeted[slot]),
        ceiling=int(cluster.ceiling[slot]),
        refusals=refused,
    )


def _field_refusal(pod: Pod, unknown_fields_fail: bool) -> str | None:
    unsupported, unknown = checked_fields(pod)
    if unsupported:
        return f"pod uses {', '.join(unsupported)}, which turb-kub does not support"
    if unknown and unknown_fields_fail:
        return f"pod uses {', '.join(unknown)}, which this version of turb-kub does not know"
    return None
