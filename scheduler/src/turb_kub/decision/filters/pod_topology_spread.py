"""Keeps matching pods spread over the domains of a topology key within the skew that the pod allows.

Source: kubernetes.io, "Pod Topology Spread Constraints". As in kube-scheduler an empty selector counts no pod.
"""

from collections.abc import Iterable

import msgspec
import numpy as np

from turb_kub.cluster.cluster import Bools, Cluster, Int64s
from turb_kub.cluster.domains import NOWHERE, Numbers
from turb_kub.cluster.pod_counts import Spreading
from turb_kub.decision.filters.base import PodFilter, Refusal
from turb_kub.decision.node_verdicts import admitted_nodes, tolerated_nodes
from turb_kub.objects.pod import Pod
from turb_kub.objects.spread import SpreadConstraint

NAME = "PodTopologySpread"
TOO_SKEWED = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{TOO_SKEWED} (missing required label)"


class Distribution(msgspec.Struct):
    """How matching pods are spread as one constraint sees it.

    Attributes:
        numbers: for each slot the number of its domain, `NOWHERE` where its node lacks the label.
        held: for each domain, by number, how many matching pods it holds.
        least: how many the least filled domain holds; None where there is no domain at all.
        own: 1 where the pod itself matches, else 0.
    """

    numbers: Numbers
    held: Int64s
    least: int | None
    own: int


def spread_by(cluster: Cluster, pod: Pod, constraint: SpreadConstraint, among: Bools) -> Distribution:
    """Return how pods are spread.

    Args:
        among: for each slot whether its node has the labels of all the constraints that go together.
    """
    numbers, count = cluster.topology.domains(cluster, constraint.topology_key)
    counted = among
    if constraint.honours_affinity:
        counted = counted & admitted_nodes(cluster, pod.constraints)
    if constraint.honours_taints:
        counted = counted & tolerated_nodes(cluster, pod.constraints)
    here = numbers[counted]
    exists: Bools = np.zeros(count, dtype=np.bool_)
    exists[here] = True
    held = np.zeros(count, dtype=np.int64)
    if constraint.selector is not None and constraint.selector.expressions:
        pods = cluster.pod_counts.of(cluster, Spreading(pod.namespace, constraint.selector))
        held = np.bincount(here, weights=pods[counted], minlength=count).astype(np.int64)
    domains = int(np.count_nonzero(exists))
    least = int(held[exists].min()) if domains else None
    if domains < constraint.min_domains:
        least = 0
    return Distribution(numbers, held, least, int(constraint.matches(pod.labels)))


def with_all_labels(cluster: Cluster, constraints: Iterable[SpreadConstraint]) -> Bools:
    """Return, for each slot, whether its node has the label of every constraint."""
    among = cluster.present[: cluster.size].copy()
    for constraint in constraints:
        among &= cluster.topology.domains(cluster, constraint.topology_key)[0] != NOWHERE
    return among


def _required(pod: Pod) -> list[SpreadConstraint]:
    return [constraint for constraint in pod.spread if constraint.required]


def _refused(cluster: Cluster, pod: Pod) -> Bools | None:
    constraints = _required(pod) if pod.spread else []
    if not constraints:
        return None
    among = with_all_labels(cluster, constraints)
    refused: Bools = ~among
    for constraint in constraints:
        refused |= _skewed(spread_by(cluster, pod, constraint, among), constraint)
    return refused


def _skewed(spread: Distribution, constraint: SpreadConstraint) -> Bools:
    if spread.least is None:
        return np.zeros(len(spread.numbers), dtype=np.bool_)
    most = constraint.max_skew + spread.least - spread.own
    # One more for `NOWHERE`, the last one from the end.
    return np.append(spread.held > most, False)[spread.numbers]


def _reasons(cluster: Cluster, pod: Pod, refused: Bools) -> Iterable[Refusal]:
    among = with_all_labels(cluster, _required(pod))
    return (Refusal(NAME, NO_LABEL, refused & ~among), Refusal(NAME, TOO_SKEWED, refused & among))


def _details(cluster: Cluster, pod: Pod, slot: int) -> tuple[str, ...]:
    constraints = _required(pod)
    labels = cluster.node_at(slot).labels
    missing = [constraint.topology_key for constraint in constraints if constraint.topology_key not in labels]
    if missing:
        return (f"the node lacks the label {', '.join(missing)}",)
    among = with_all_labels(cluster, constraints)
    found = []
    for constraint in constraints:
        spread = spread_by(cluster, pod, constraint, among)
        if _skewed(spread, constraint)[slot]:
            held = int(spread.held[spread.numbers[slot]])
            found.append(
                f"{constraint.topology_key}={labels[constraint.topology_key]} holds {held} pods {constraint.selector}, "
                f"the least filled holds {spread.least}: {held + spread.own} would exceed that by more than "
                f"maxSkew {constraint.max_skew}"
            )
    return tuple(found)


FILTER = PodFilter(NAME, _refused, _reasons, _details)
