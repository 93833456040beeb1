"""Leaves the room on a node to pods of equal or higher priority that are nominated to it.

As in kube-scheduler a node must pass the other filters twice: as it is, and as if the pods nominated to it were there.
The first because they may go elsewhere in the end, the second because the room was made for them. Pods nominated to
other nodes count in neither.

Sources: kubernetes.io, "Pod Priority and Preemption"; `RunFilterPluginsWithNominatedPods` in kube-scheduler.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.decision.filters.base import PodFilter, Refusal
from turb_kub.objects.pod import Pod

NAME = "NominatedPods"


def filter_of(others: tuple[PodFilter, ...]) -> PodFilter:
    """Return the filter that asks these once more, with nominated pods in place. Their reasons are its own."""

    def refused(cluster: Cluster, pod: Pod) -> Bools | None:
        if not cluster.nominated:
            return None
        slots = []
        for slot, there in _reserved(cluster, pod):
            with cluster.holding(there):
                if _refusing(cluster, pod, slot) is not None:
                    slots.append(slot)
        return cluster.mask(slots) if slots else None

    def reasons(cluster: Cluster, pod: Pod, refused: Bools) -> Iterable[Refusal]:
        found: dict[tuple[str, str], Bools] = defaultdict(lambda: np.zeros(cluster.size, dtype=np.bool_))
        for slot, there in _reserved(cluster, pod):
            if not refused[slot]:
                continue
            with cluster.holding(there):
                one = _refusing(cluster, pod, slot)
                for refusal in one.reasons(cluster, pod, cluster.mask([slot])) if one is not None else ():
                    found[refusal.filter, refusal.reason] |= refusal.slots
        return [Refusal(name, reason, slots) for (name, reason), slots in found.items()]

    def details(cluster: Cluster, pod: Pod, slot: int) -> tuple[str, ...]:
        there = cluster.nominated.before(pod, cluster.node_at(slot).name)
        with cluster.holding(there):
            one = _refusing(cluster, pod, slot)
            found = one.details(cluster, pod, slot) if one is not None else ()
        names = ", ".join(sorted(nominated.key for nominated in there))
        return tuple(f"{text} (with {names} nominated to the node)" for text in found)

    def _refusing(cluster: Cluster, pod: Pod, slot: int) -> PodFilter | None:
        for one in others:
            by_it = one.refused(cluster, pod)
            if by_it is not None and by_it[slot]:
                return one
        return None

    return PodFilter(NAME, refused, reasons, details)


def _reserved(cluster: Cluster, pod: Pod) -> list[tuple[int, list[Pod]]]:
    """Slots of nodes with pods nominated to them that this one must leave room for, and those pods."""
    return [
        (slot, there)
        for name in cluster.nominated.nodes
        if (slot := cluster.slot(name)) is not None and (there := cluster.nominated.before(pod, name))
    ]
