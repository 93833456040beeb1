"""The slots whose node matches a node selector, kept until a node changes.

For volumes: thousands of local ones, each for one node, must not cost a look at every node each.

A memo, not state: dropping it changes no answer.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from weakref import WeakKeyDictionary

import numpy as np

from turb_kub.cluster.cluster import Cluster, Slots
from turb_kub.objects.constraints import Term
from turb_kub.objects.node import Node

_KEPT = 16384


class _Memo:
    def __init__(self) -> None:
        self.position = -1
        self.slots: OrderedDict[Hashable, Slots] = OrderedDict()
        #: Slots by value of a label, by label; of those labels only that were asked for.
        self.by_label: dict[str, dict[str, list[int]]] = {}


_memos: "WeakKeyDictionary[Cluster, _Memo]" = WeakKeyDictionary()


def slots_matching(cluster: Cluster, terms: tuple[Term, ...] | None) -> Slots:
    """Return the slots of nodes whose labels match any of the terms; of all nodes where there are no terms (None).

    Terms match labels only, the name of a node is not looked at (component-helpers `CheckNodeAffinity`). Read only.
    """
    return slot_lookup(cluster)(terms)


def slot_lookup(cluster: Cluster) -> Callable[[tuple[Term, ...] | None], Slots]:
    """Return `slots_matching` for many selectors; good until the cluster changes."""
    memo = _memo(cluster)

    def look(terms: tuple[Term, ...] | None) -> Slots:
        if terms is None:
            return np.flatnonzero(cluster.present[: cluster.size])
        return memo.slots[terms] if terms in memo.slots else _kept(memo, terms, lambda: _slots_of(cluster, memo, terms))

    return look


def slots_where(cluster: Cluster, key: Hashable, holds: Callable[[Node], bool]) -> Slots:
    """Return the slots of nodes of which a condition holds that `key` stands for. Read only."""
    memo = _memo(cluster)
    return _kept(memo, key, lambda: [slot for slot, node in enumerate(cluster.nodes) if node and holds(node)])


def matches(node: Node, terms: tuple[Term, ...] | None) -> bool:
    """Tell whether one node's labels match any of the terms, as `slots_matching` does for all."""
    return terms is None or any(term.matches("", node.labels) for term in terms)


def _memo(cluster: Cluster) -> _Memo:
    memo = _memos.get(cluster)
    if memo is None:
        memo = _memos[cluster] = _Memo()
    changed, memo.position = cluster.changes_since(memo.position)
    if changed is None or changed:
        memo.slots.clear()
        memo.by_label.clear()
    return memo


def _kept(memo: _Memo, key: Hashable, find: Callable[[], list[int]]) -> Slots:
    slots = memo.slots.get(key)
    if slots is None:
        slots = memo.slots[key] = np.array(find(), dtype=np.intp)
        if len(memo.slots) > _KEPT:
            memo.slots.popitem(last=False)
    return slots


def _slots_of(cluster: Cluster, memo: _Memo, terms: tuple[Term, ...]) -> list[int]:
    return sorted({slot for term in terms for slot in _slots_of_term(cluster, memo, term)})


def _slots_of_term(cluster: Cluster, memo: _Memo, term: Term) -> list[int]:
    """Look only at the nodes that have one of the values which the term's first `In` names, where it has one."""
    narrow = next((one for one in term.expressions if one.operator == "In"), None)
    if narrow is None:
        return [slot for slot, node in enumerate(cluster.nodes) if node and term.matches("", node.labels)]
    by_value = memo.by_label.get(narrow.key)
    if by_value is None:
        by_value = memo.by_label[narrow.key] = {}
        for slot, node in enumerate(cluster.nodes):
            if node and (value := node.labels.get(narrow.key)) is not None:
                by_value.setdefault(value, []).append(slot)
    candidates = [slot for value in narrow.values for slot in by_value.get(value, ())]
    return [slot for slot in candidates if term.matches("", cluster.node_at(slot).labels)]
