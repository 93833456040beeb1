"""Policies: which of the feasible nodes a pod should rather go to.

A policy of one's own is a class with a `name` and a `rank`, registered under the entry point group
`turb_kub.policies` of any installed package and chosen by TURB_KUB_POLICY.
"""

from abc import ABC, abstractmethod
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import numpy.typing as npt

from turb_kub.cluster.cluster import Cluster
from turb_kub.objects.pod import Pod

ENTRY_POINTS = "turb_kub.policies"


class PolicyError(ValueError):
    """A policy that does not exist or cannot be used."""


class Policy(ABC):
    """Ranks nodes for a pod. Instances hold settings, never state that changes with decisions."""

    #: The name by which it is chosen and reported.
    name: str

    @abstractmethod
    def rank(self, cluster: Cluster, pod: Pod) -> npt.NDArray[Any]:
        """Return a number for each of the `cluster.size` slots; the lowest feasible one wins, ties end by node name.

        Numbers of empty slots and of nodes that a filter refuses are not looked at. Must not change the cluster.
        """

    def tie_width(self, cluster: Cluster, slot: int) -> float:
        """Return by how much a node may rank behind the best one (in `slot`) and still be tied with it."""
        return 0


class LeastRequestedMemory(Policy):
    """The least load first: bytes of memory requested by the pods that the node holds or is about to hold."""

    name = "least-requested-memory"

    def __init__(self, tie_percent: float = 1.0) -> None:
        self.tie_percent = tie_percent

    def rank(self, cluster: Cluster, pod: Pod) -> npt.NDArray[np.int64]:
        return cluster.load[: cluster.size]

    def tie_width(self, cluster: Cluster, slot: int) -> float:
        return float(cluster.ceiling[slot]) * self.tie_percent / 100


def load_policy(name: str, tie_percent: float = 1.0) -> Policy:
    """Return the policy of that name. Raises `PolicyError` with the names there are."""
    if name == LeastRequestedMemory.name:
        return LeastRequestedMemory(tie_percent)
    found = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in found:
        known = ", ".join(sorted({LeastRequestedMemory.name, *found}))
        raise PolicyError(f"there is no policy {name!r}; installed are: {known}")
    try:
        policy = found[name].load()()
    except Exception as error:  # another package's code: whatever it raises is its author's to mend
        raise PolicyError(f"policy {name!r} could not be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(policy, Policy):
        raise PolicyError(f"policy {name!r} is no subclass of turb_kub.decision.policy.Policy")
    return policy
