"""Which of several tied nodes a pod would rather have."""

import numpy as np
import numpy.typing as npt

from turb_kub.cluster.cluster import Cluster
from turb_kub.decision.node_verdicts import node_misgivings
from turb_kub.objects.pod import Pod

Slots = npt.NDArray[np.intp]


def best_liked(cluster: Cluster, pod: Pod, tied: Slots) -> Slots:
    """Return those of the slots that the pod's preferences like best; all of them where it has none."""
    misgivings = node_misgivings(cluster, pod.constraints)
    return tied if misgivings is None else _least(tied, misgivings)


def _least(slots: Slots, cost: npt.NDArray[np.int64]) -> Slots:
    here = cost[slots]
    least: Slots = slots[here == here.min()]
    return least
