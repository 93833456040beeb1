"""Keeps pods off a node whose kubelet does not report Ready, before and beside the taints that say so.

The node controller writes those taints some time after the condition; in between only the condition tells. A pod that
tolerates the taint may go there as it may with the taint (kubernetes.io, "Node Status" and "Taints and Tolerations").
A node that nobody has reported on yet (no Ready condition) counts as unknown.
"""

from turb_kub.decision.filters.base import NodeFilter
from turb_kub.objects.constraints import NodeConstraints
from turb_kub.objects.node import Node
from turb_kub.objects.wire import Taint

_NOT_READY = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
_UNREACHABLE = Taint(key="node.kubernetes.io/unreachable", effect="NoSchedule")


def _refuses(node: Node, constraints: NodeConstraints) -> bool:
    if node.ready == "True":
        return False
    return not constraints.tolerates(_NOT_READY if node.ready == "False" else _UNREACHABLE)


def _detail(node: Node, constraints: NodeConstraints) -> str:
    return f"the node's Ready condition is {node.ready or 'missing'}"


FILTER = NodeFilter("NodeReady", "node(s) were not ready", _refuses, _detail)
