"""Keeps a node's requests within its allocatable resources, its pod slots and its memory ceiling.

Sources: kubernetes.io, "Resource Management for Pods and Containers" and "Node Allocatable". The ceiling is ours: the
smaller of NODE_MEM_LIMIT_MB (or the node's annotation) and the allocatable memory. A resource of which a pod asks
nothing is not looked at, so a node that is over its limit already still takes a pod that asks nothing of it.
"""

from collections.abc import Iterable

import msgspec
import numpy as np

from turb_kub.cluster.cluster import MEMORY, PODS, Bools, Cluster
from turb_kub.decision.filters.base import PodFilter, Refusal
from turb_kub.objects.pod import Pod
from turb_kub.objects.quantity import format_amount

FIT = "NodeResourcesFit"
LIMIT = "NodeMemoryLimit"
TOO_MANY_PODS = "Too many pods"
OVER_LIMIT = "node(s) exceeded NODE_MEM_LIMIT_MB"


class Shortage(msgspec.Struct, frozen=True, gc=False):
    """One amount that does not fit: `used` + `asked` > `limit`, in the resource's whole amounts."""

    filter: str
    reason: str
    resource: str
    used: int
    asked: int
    limit: int

    @property
    def short(self) -> int:
        return self.used + self.asked - self.limit

    def detail(self) -> str:
        bound = "ceiling" if self.filter == LIMIT else "allocatable"
        if self.resource == "pods":
            return f"{self.used} pods of {self.limit}"
        used, asked, limit, short = (
            format_amount(self.resource, amount) for amount in (self.used, self.asked, self.limit, self.short)
        )
        what = "" if self.resource == "memory" else f" {self.resource}"
        return f"{used}{what} requested + {asked} asked > {limit} {bound}, short by {short}"


class Need(msgspec.Struct):
    """What a pod asks, ready to be compared with arrays.

    Attributes:
        columns: pairs of column and amount, the pod's slot in the pod count first.
        unknown: resources asked for that no node and no pod of the cluster has named.
        budget: bytes that it takes of a ceiling.
    """

    columns: list[tuple[int, int]]
    unknown: list[tuple[str, int]]
    budget: int


def need_of(cluster: Cluster, pod: Pod) -> Need:
    """Return what a pod asks of any node of this cluster."""
    need = Need(columns=[(PODS, 1)], unknown=[], budget=cluster.accounting.budget(pod))
    for name, amount in pod.requests:
        column = cluster.columns.get(name)
        if column is None:
            need.unknown.append((name, amount))
        else:
            need.columns.append((column, amount))
    return need


def _refused(cluster: Cluster, pod: Pod) -> Bools | None:
    size = cluster.size
    need = need_of(cluster, pod)
    if need.unknown:
        return np.ones(size, dtype=np.bool_)
    (column, amount), *others = need.columns
    refused: Bools = cluster.free[:size, column] < amount
    for column, amount in others:
        refused |= cluster.free[:size, column] < amount
    if need.budget:
        refused |= cluster.headroom[:size] < need.budget
    return refused


def _reasons(cluster: Cluster, pod: Pod, refused: Bools) -> Iterable[Refusal]:
    size = cluster.size
    need = need_of(cluster, pod)
    names = {column: name for name, column in cluster.columns.items()}
    found = [Refusal(FIT, f"Insufficient {name}", refused) for name, _ in need.unknown]
    memory_short: Bools = np.zeros(size, dtype=np.bool_)
    for column, amount in need.columns:
        short = refused & (cluster.free[:size, column] < amount)
        if column == MEMORY:
            memory_short = short
        found.append(Refusal(FIT, TOO_MANY_PODS if column == PODS else f"Insufficient {names[column]}", short))
    if need.budget:
        over = refused & ~memory_short & (cluster.headroom[:size] < need.budget)
        # A ceiling that is the allocatable memory itself (no limit set, or a larger one) is no limit of ours.
        own = cluster.ceiling[:size] < cluster.allocatable[:size, MEMORY]
        found.append(Refusal(LIMIT, OVER_LIMIT, over & own))
        found.append(Refusal(FIT, "Insufficient memory", over & ~own))
    return found


def _details(cluster: Cluster, pod: Pod, slot: int) -> tuple[str, ...]:
    return tuple(shortage.detail() for shortage in shortages(cluster, slot, need_of(cluster, pod)))


def shortages(cluster: Cluster, slot: int, need: Need) -> list[Shortage]:
    """Return every amount of the pod that does not fit one node, with the numbers."""
    names = {column: name for name, column in cluster.columns.items()}
    found = [Shortage(FIT, f"Insufficient {name}", name, 0, amount, 0) for name, amount in need.unknown]
    for column, amount in need.columns:
        used, limit = int(cluster.requested[slot, column]), int(cluster.allocatable[slot, column])
        if used + amount > limit:
            reason = TOO_MANY_PODS if column == PODS else f"Insufficient {names[column]}"
            found.append(Shortage(FIT, reason, names[column], used, amount, limit))
    if need.budget and not any(shortage.resource == "memory" for shortage in found):
        used, limit = int(cluster.budgeted[slot]), int(cluster.ceiling[slot])
        if used + need.budget > limit:
            own = limit < int(cluster.allocatable[slot, MEMORY])
            name, reason = (LIMIT, OVER_LIMIT) if own else (FIT, "Insufficient memory")
            found.append(Shortage(name, reason, "memory", used, need.budget, limit))
    return found


FILTER = PodFilter(FIT, _refused, _reasons, _details)
