"""What a filter is: one that looks at the node's own properties, or one that looks at what the nodes hold."""

from collections.abc import Callable

import msgspec

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.objects.constraints import NodeConstraints
from turb_kub.objects.node import Node
from turb_kub.objects.pod import Pod


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


class PodFilter(msgspec.Struct, frozen=True):
    """A filter on what the nodes hold; asked anew for every decision.

    Attributes:
        name, reason: as above.
        refused: for each slot whether its node is refused to the pod; None where the filter has nothing to say of it.
        detail: what exactly refused the node in a slot.
    """

    name: str
    reason: str
    refused: Callable[[Cluster, Pod], Bools | None]
    detail: Callable[[Cluster, int, Pod], str]
