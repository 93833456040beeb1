"""Leaves on each node the room that another scheduler is about to take.

That is as much as pods of other schedulers took of the node lately, and besides the node's share of those that a
scheduler at work has not tried yet, wherever one of them would fit (`cluster.foreign`). No fresh look at a node can do
this: a bind that comes in after the look and before ours takes effect is seen by nobody in time.

A pod that waits goes where its own node constraints and what is free let it go. So nodes that other schedulers can't
use (a taint, a label) keep all their room for ours.
"""

from collections.abc import Iterator

import msgspec
import numpy as np

from turb_kub.cluster.cluster import MEMORY, PODS, Bools, Cluster, Int64s
from turb_kub.decision.filters.base import PodFilter, one_reason
from turb_kub.decision.filters.node_resources import Need, need_of
from turb_kub.decision.node_verdicts import PASSES, node_verdicts
from turb_kub.objects.pod import Pod
from turb_kub.objects.quantity import format_amount

NAME = "SharedNodes"
REASON = "node(s) are being filled by another scheduler"


class _Next(msgspec.Struct):
    """What may come besides what came lately, as columns and amounts, and to which nodes."""

    amounts: dict[int, int]
    budget: int
    slots: Bools | None


def _refused(cluster: Cluster, pod: Pod) -> Bools | None:
    if not cluster.foreign.active:
        return None
    refused: Bools = np.zeros(cluster.size, dtype=np.bool_)
    need = need_of(cluster, pod)
    for following in _each_next(cluster):
        by_it: Bools = np.zeros(cluster.size, dtype=np.bool_)
        for _, asked, left, free in _compared(cluster, need, following):
            by_it |= free < asked + left
        refused |= by_it if following.slots is None else by_it & following.slots
    return refused


def _each_next(cluster: Cluster) -> Iterator[_Next]:
    yield _Next({}, 0, None)
    size = cluster.size
    for kind, count in cluster.foreign.next_kinds():
        asked = [(PODS, 1)]
        for name, amount in kind.requests:
            column = cluster.columns.get(name)
            if column is None:
                break  # no node has any of it, so it goes nowhere
            asked.append((column, amount))
        else:
            slots: Bools = node_verdicts(cluster, kind.constraints) == PASSES
            for column, amount in asked:
                slots = slots & (cluster.free[:size, column] >= amount)
            nodes = int(np.count_nonzero(slots))
            share = -(-count // max(1, nodes))
            yield _Next({column: share * amount for column, amount in asked}, share * kind.budget, slots)


def _compared(cluster: Cluster, need: Need, following: _Next) -> Iterator[tuple[str, int, Int64s, Int64s]]:
    """Name of each resource that the pod asks for, how much, what is left to others, and what is free."""
    size, foreign = cluster.size, cluster.foreign
    names = {column: name for name, column in cluster.columns.items()}
    for column, asked in need.columns:
        left = foreign.arrived(column, size) + following.amounts.get(column, 0)
        yield names[column], asked, left, cluster.free[:size, column]
    if need.budget:
        yield names[MEMORY], need.budget, foreign.arrived_budget(size) + following.budget, cluster.headroom[:size]


def _details(cluster: Cluster, pod: Pod, slot: int) -> tuple[str, ...]:
    need = need_of(cluster, pod)
    for following in _each_next(cluster):
        if following.slots is None or following.slots[slot]:
            found = {
                _detail(name, int(free[slot]), asked, int(left[slot])): None
                for name, asked, left, free in _compared(cluster, need, following)
                if free[slot] < asked + left[slot]
            }
            if found:
                return tuple(found)
    return ()


def _detail(name: str, free: int, asked: int, left: int) -> str:
    parts = [format_amount(name, amount) for amount in (free, asked, left)]
    what = "" if name == "memory" else f" {name}"
    return f"{parts[0]}{what} free < {parts[1]} asked + {parts[2]} left to another scheduler"


FILTER = PodFilter(NAME, _refused, one_reason(NAME, REASON), _details)
