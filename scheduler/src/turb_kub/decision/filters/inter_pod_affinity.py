"""Keeps a pod near those it requires, and apart from those that either of them will not have near.

Source: kubernetes.io, "Assigning Pods to Nodes: Inter-pod affinity and anti-affinity". Anti-affinity holds both ways: a
placed pod keeps others away for as long as it is there.
"""

from collections.abc import Iterable

import numpy as np

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.cluster.domains import NOWHERE
from turb_kub.cluster.pod_counts import Counts, Holding, Kind, Matching
from turb_kub.decision.filters.base import PodFilter, Refusal
from turb_kub.objects.affinity import PodTerm
from turb_kub.objects.pod import Pod

NAME = "InterPodAffinity"
NOT_NEAR = "node(s) didn't match pod affinity rules"
NOT_APART = "node(s) didn't match pod anti-affinity rules"
KEPT_AWAY = "node(s) didn't satisfy existing pods anti-affinity rules"


def near(cluster: Cluster, counts: Counts, topology_key: str) -> Bools:
    """Return, for each slot, whether a node of its domain holds any of the pods counted."""
    numbers, count = cluster.topology.domains(cluster, topology_key)
    # One more for `NOWHERE`, the last one from the end.
    holds: Bools = np.zeros(count + 1, dtype=np.bool_)
    holds[numbers[counts > 0]] = True
    holds[NOWHERE] = False
    return holds[numbers]


def _refused(cluster: Cluster, pod: Pod) -> Bools | None:
    refused: Bools | None = None
    for found in (_without_company(cluster, pod), _near_avoided(cluster, pod), _near_avoiding(cluster, pod)):
        if found is not None:
            refused = found if refused is None else refused | found
    return refused


def _without_company(cluster: Cluster, pod: Pod) -> Bools | None:
    terms = pod.affinity.required
    if not terms:
        return None
    size = cluster.size
    company = Matching(terms)
    counts = cluster.pod_counts.of(cluster, company)
    labelled: Bools = np.ones(size, dtype=np.bool_)
    met: Bools = np.ones(size, dtype=np.bool_)
    anywhere = False
    for term in terms:
        found = near(cluster, counts, term.topology_key)
        anywhere = anywhere or bool(found.any())
        met &= found
        labelled &= cluster.topology.domains(cluster, term.topology_key)[0] != NOWHERE
    # The first of pods that want each other's company finds none, and may go to any node with the labels.
    return ~labelled if not anywhere and company.meets(cluster, pod) else ~met


def _near_avoided(cluster: Cluster, pod: Pod) -> Bools | None:
    return _any_near(cluster, [(term, Matching((term,))) for term in pod.affinity.required_anti])


def _near_avoiding(cluster: Cluster, pod: Pod) -> Bools | None:
    return _any_near(cluster, [(term, Holding(term)) for term in cluster.standing_terms.meaning(pod)])


def _any_near(cluster: Cluster, kinds: list[tuple[PodTerm, Matching | Holding]]) -> Bools | None:
    if not kinds:
        return None
    found: Bools = np.zeros(cluster.size, dtype=np.bool_)
    for term, kind in kinds:
        found |= near(cluster, cluster.pod_counts.of(cluster, kind), term.topology_key)
    return found


def _reasons(cluster: Cluster, pod: Pod, refused: Bools) -> Iterable[Refusal]:
    left = refused
    for reason, find in ((NOT_NEAR, _without_company), (NOT_APART, _near_avoided), (KEPT_AWAY, _near_avoiding)):
        found = find(cluster, pod)
        if found is not None:
            yield Refusal(NAME, reason, left & found)
            left = left & ~found


def _details(cluster: Cluster, pod: Pod, slot: int) -> tuple[str, ...]:
    labels = cluster.node_at(slot).labels
    company = _without_company(cluster, pod)
    if company is not None and company[slot]:
        return (f"requires {', '.join(map(str, pod.affinity.required))} and finds none at this node",)
    kinds: list[tuple[Kind, PodTerm, str]] = [
        *((Matching((term,)), term, "it avoids") for term in pod.affinity.required_anti),
        *((Holding(term), term, "that avoids it") for term in cluster.standing_terms.meaning(pod)),
    ]
    return tuple(
        f"{term.topology_key}={labels.get(term.topology_key)} holds a pod {how} ({term.selector})"
        for kind, term, how in kinds
        if near(cluster, cluster.pod_counts.of(cluster, kind), term.topology_key)[slot]
    )


FILTER = PodFilter(NAME, _refused, _reasons, _details)
