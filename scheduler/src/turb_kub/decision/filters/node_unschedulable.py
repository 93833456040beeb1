"""Keeps pods off a cordoned node, unless they tolerate the taint that stands for it.

Source: kubernetes.io, "Safely Drain a Node" and "Taints and Tolerations" (`node.kubernetes.io/unschedulable`).
"""

from turb_kub.decision.filters.base import NodeFilter
from turb_kub.objects.constraints import NodeConstraints
from turb_kub.objects.node import Node
from turb_kub.objects.wire import Taint

_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def _refuses(node: Node, constraints: NodeConstraints) -> bool:
    return node.unschedulable and not constraints.tolerates(_TAINT)


def _detail(node: Node, constraints: NodeConstraints) -> str:
    return "the node is cordoned"


FILTER = NodeFilter("NodeUnschedulable", "node(s) were unschedulable", _refuses, _detail)
