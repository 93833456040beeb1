"""Which nodes every filter passes, and what refuses the others."""

from collections import Counter
from collections.abc import Collection

import numpy as np

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.decision.filters import NODE_FILTERS
from turb_kub.decision.filters.base import PodFilter
from turb_kub.decision.node_verdicts import PASSES, Codes, node_verdicts
from turb_kub.decision.pod_filters import POD_FILTERS, PRE_FILTERS
from turb_kub.objects.pod import Pod

#: Codes of the pod filters follow those of the node filters (see `node_verdicts`).
_FIRST_POD_FILTER = 1 + len(NODE_FILTERS)


def pod_refusal(cluster: Cluster, pod: Pod) -> tuple[str, str] | None:
    """Return filter and text of a refusal that concerns the pod rather than any node; None where there is none."""
    for one in PRE_FILTERS:
        text = one.refusal(cluster, pod)
        if text is not None:
            return one.name, text
    return None


def feasible(cluster: Cluster, pod: Pod, *, leaving_out: Collection[PodFilter] = ()) -> Bools:
    """Return, for each slot, whether it holds a node that every filter passes."""
    passes: Bools = node_verdicts(cluster, pod.constraints) == PASSES
    for one in POD_FILTERS:
        if one not in leaving_out:
            refused = one.refused(cluster, pod)
            if refused is not None:
                passes &= ~refused
    return passes


def filter_codes(cluster: Cluster, pod: Pod) -> Codes:
    """Return, for each slot, the code of the first filter that refuses it, `PASSES` or `EMPTY_SLOT`."""
    codes = node_verdicts(cluster, pod.constraints).copy()
    for place, one in enumerate(POD_FILTERS, start=_FIRST_POD_FILTER):
        refused = one.refused(cluster, pod)
        if refused is not None:
            codes[(codes == PASSES) & refused] = place
    return codes


def reasons(cluster: Cluster, pod: Pod, codes: Codes) -> tuple[Counter[str], frozenset[str]]:
    """Return how many nodes are refused for each reason, and the filters that refuse any, by name."""
    counts: Counter[str] = Counter()
    filters = set()
    for place, node_filter in enumerate(NODE_FILTERS, start=1):
        count = int(np.count_nonzero(codes == place))
        if count:
            counts[node_filter.reason] += count
            filters.add(node_filter.name)
    for place, pod_filter in enumerate(POD_FILTERS, start=_FIRST_POD_FILTER):
        refused = codes == place
        if refused.any():
            for refusal in pod_filter.reasons(cluster, pod, refused):
                count = int(np.count_nonzero(refusal.slots))
                if count:
                    counts[refusal.reason] += count
                    filters.add(refusal.filter)
    return counts, frozenset(filters)


def details(cluster: Cluster, pod: Pod, slot: int, codes: Codes) -> tuple[str, ...]:
    """Say what refuses a node, with the numbers; nothing where nothing does."""
    code = int(codes[slot])
    if code >= _FIRST_POD_FILTER:
        return POD_FILTERS[code - _FIRST_POD_FILTER].details(cluster, pod, slot)
    if code != PASSES:
        return (NODE_FILTERS[code - 1].detail(cluster.node_at(slot), pod.constraints),)
    return ()
