"""A decision explained on every node, and what would have to change where there is none.

For people, once in a while: it looks at each node in turn, which `decide` avoids.
"""

import msgspec
import numpy as np

from turb_kub.cluster.cluster import Cluster
from turb_kub.decision.decide import Decision, NodeReport, decide, report
from turb_kub.decision.feasibility import details, feasible, filter_codes
from turb_kub.decision.filters import node_resources
from turb_kub.decision.filters.node_resources import LIMIT, Need, Shortage, shortages
from turb_kub.decision.fits import fits
from turb_kub.decision.node_verdicts import EMPTY_SLOT
from turb_kub.decision.policy import Policy
from turb_kub.objects.pod import Pod
from turb_kub.objects.quantity import MEBIBYTE, format_amount


class Explanation(msgspec.Struct, frozen=True):
    """A decision, every node by rank (feasible ones first), and the nearest fixes where no node was found."""

    decision: Decision
    nodes: tuple[NodeReport, ...]
    fixes: tuple[str, ...]


def explain(cluster: Cluster, pod: Pod, policy: Policy, *, unknown_fields_fail: bool = True) -> Explanation:
    """Decide about a pod and say of every node what speaks against it. Changes nothing that lasts."""
    decision = decide(cluster, pod, policy, unknown_fields_fail=unknown_fields_fail)
    codes = filter_codes(cluster, pod)
    rank = policy.rank(cluster, pod)
    reports = [
        report(cluster, int(slot), rank, details(cluster, pod, int(slot), codes))
        for slot in np.flatnonzero(codes != EMPTY_SLOT)
    ]
    reports.sort(key=lambda node: (bool(node.refusals), node.name != decision.node, node.rank, node.name))
    fixes: tuple[str, ...] = ()
    if decision.node is None and decision.pod_refusal is None:
        lacking = feasible(cluster, pod, leaving_out=(node_resources.FILTER,))
        fixes = _fixes(cluster, node_resources.need_of(cluster, pod), [int(slot) for slot in np.flatnonzero(lacking)])
        fixes = fixes or _without_a_neighbour(cluster, pod, [node.name for node in decision.nodes])
    return Explanation(decision, tuple(reports), fixes)


def _fixes(cluster: Cluster, need: Need, slots: list[int]) -> tuple[str, ...]:
    """The smallest ceiling that would do, and the smallest pod whose leaving would do, each on its best node."""
    ceilings: list[tuple[int, str]] = []
    leavers: list[tuple[int, str, str]] = []
    for slot in slots:
        name = cluster.node_at(slot).name
        found = shortages(cluster, slot, need)
        if all(shortage.filter == LIMIT for shortage in found):
            # Whole MiB, rounded up: that is what the limit is set in.
            ceilings += [(-(-(shortage.used + shortage.asked) // MEBIBYTE), name) for shortage in found]
        leavers += [(pod.memory, pod.key, name) for pod in cluster.pods_on(name) if _would_do(cluster, pod, found)]
    fixes = []
    if ceilings:
        mebibytes, name = min(ceilings)
        fixes.append(f"{name} would take it under a ceiling of {mebibytes}Mi")
    if leavers:
        fixes.append(_leaver(*min(leavers)))
    return tuple(fixes)


def _without_a_neighbour(cluster: Cluster, pod: Pod, node_names: list[str]) -> tuple[str, ...]:
    """The smallest pod on one of these nodes whose leaving would let the pod in there, whatever refuses it now."""
    found = []
    for name in node_names:
        slot = cluster.slot(name)
        for other in cluster.pods_on(name):
            with cluster.without(other.uid):
                if slot is not None and fits(cluster, pod, (slot,)):
                    found.append((other.memory, other.key, name))
    return (_leaver(*min(found)),) if found else ()


def _leaver(memory: int, key: str, node_name: str) -> str:
    return f"{node_name} would take it without {key} ({format_amount('memory', memory)})"


def _would_do(cluster: Cluster, pod: Pod, found: list[Shortage]) -> bool:
    """Whether a pod's leaving frees enough of everything that is short."""
    for shortage in found:
        if shortage.resource == "pods":
            freed = 1
        elif shortage.filter == LIMIT:
            freed = cluster.accounting.budget(pod)
        else:
            freed = pod.amount(shortage.resource)
        if freed < shortage.short:
            return False
    return True
