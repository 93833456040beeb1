"""What a filter is."""

from collections.abc import Callable

import msgspec

from turb_kub.objects.constraints import NodeConstraints
from turb_kub.objects.node import Node


class NodeFilter(msgspec.Struct, frozen=True):
    """A filter on the node's own properties.

    Attributes:
        name: for metrics, wake-ups and the decision's JSON.
        reason: the text that events and conditions carry.
        refuses: whether a node is refused to a pod of these constraints.
        detail: what exactly refused it, with the values, for an explanation.
    """

    name: str
    reason: str
    refuses: Callable[[Node, NodeConstraints], bool]
    detail: Callable[[Node, NodeConstraints], str]
