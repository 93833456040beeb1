"""Which of several tied nodes a pod would rather have.

In this order: the fewest PreferNoSchedule taints that it does not tolerate; the greatest sum of the weights of its
preferred affinity, where a term on pods counts once for each pod it finds; the fewest matching pods in the domains of
its spread constraints with ScheduleAnyway.
"""

import numpy as np

from turb_kub.cluster.cluster import Cluster, Int64s, Slots
from turb_kub.cluster.pod_counts import Matching
from turb_kub.decision.filters.pod_topology_spread import spread_by, with_all_labels
from turb_kub.decision.node_verdicts import node_misgivings
from turb_kub.objects.pod import Pod

#: Keeps what a great many pods weigh below what one taint does.
_MOST = 2**31


def best_liked(cluster: Cluster, pod: Pod, tied: Slots) -> Slots:
    """Return those of the slots that the pod's preferences like best; all of them where it has none."""
    misgivings = node_misgivings(cluster, pod.constraints)
    if pod.affinity.preferred:
        weights = np.clip(_company(cluster, pod), -_MOST, _MOST)
        misgivings = -weights if misgivings is None else misgivings - weights
    if misgivings is not None:
        tied = _least(tied, misgivings)
    if any(not constraint.required for constraint in pod.spread):
        tied = _least(tied, _crowd(cluster, pod))
    return tied


def _company(cluster: Cluster, pod: Pod) -> Int64s:
    """For each slot the weight of the pods near it that preferred inter-pod affinity finds."""
    total = np.zeros(cluster.size, dtype=np.int64)
    for weight, term in pod.affinity.preferred:
        numbers, count = cluster.topology.domains(cluster, term.topology_key)
        pods = cluster.pod_counts.of(cluster, Matching((term,)))
        # One more for `NOWHERE`, the last one from the end.
        held = np.bincount(numbers + 1, weights=pods, minlength=count + 1).astype(np.int64)
        held[0] = 0
        total += weight * held[numbers + 1]
    return total


def _crowd(cluster: Cluster, pod: Pod) -> Int64s:
    """For each slot how many matching pods the domains of its node hold; one without all domains comes last."""
    constraints = [constraint for constraint in pod.spread if not constraint.required]
    among = with_all_labels(cluster, constraints)
    total = np.zeros(cluster.size, dtype=np.int64)
    for constraint in constraints:
        spread = spread_by(cluster, pod, constraint, among)
        total += np.append(spread.held, 0)[spread.numbers]
    return np.where(among, total, np.iinfo(np.int64).max)


def _least(slots: Slots, cost: Int64s) -> Slots:
    here = cost[slots]
    least: Slots = slots[here == here.min()]
    return least
