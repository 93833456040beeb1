"""What a filter is: of the pod alone, of the node's own properties, or of what the nodes hold."""

from collections.abc import Callable, Iterable

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
        name: for metrics, wake-ups and the decision's JSON.
        refused: for each slot whether its node is refused to the pod; None where the filter has nothing to say of it.
        reasons: why, of the nodes that this filter was the first to refuse.
        details: what exactly refuses the node in a slot, one text a reason.
    """

    name: str
    refused: Callable[[Cluster, Pod], Bools | None]
    reasons: Callable[[Cluster, Pod, Bools], Iterable["Refusal"]]
    details: Callable[[Cluster, Pod, int], tuple[str, ...]]


class Refusal(msgspec.Struct, frozen=True):
    """One reason, and for each slot whether it speaks against the node there.

    Attributes:
        filter: the filter's name.
        reason: the text that events and conditions carry.
    """

    filter: str
    reason: str
    slots: Bools


def one_reason(name: str, reason: str) -> Callable[[Cluster, Pod, Bools], Iterable[Refusal]]:
    """Return the `reasons` of a filter that knows one only."""
    return lambda cluster, pod, refused: [Refusal(name, reason, refused)]


class PreFilter(msgspec.Struct, frozen=True):
    """A refusal that concerns the pod rather than any node.

    Attributes:
        name: for metrics, wake-ups and the decision's JSON.
        refusal: the text that events and conditions carry, without a final stop; None where there is nothing to say.
    """

    name: str
    refusal: Callable[[Cluster, Pod], str | None]
