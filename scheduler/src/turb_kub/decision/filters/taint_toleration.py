"""Keeps pods off nodes whose NoSchedule and NoExecute taints they do not tolerate.

Source: kubernetes.io, "Taints and Tolerations".
"""

from turb_kub.decision.filters.base import NodeFilter
from turb_kub.objects.constraints import NodeConstraints
from turb_kub.objects.node import Node
from turb_kub.objects.wire import Taint


def _untolerated(node: Node, constraints: NodeConstraints) -> Taint | None:
    return next((taint for taint in node.taints if not constraints.tolerates(taint)), None)


def _refuses(node: Node, constraints: NodeConstraints) -> bool:
    return _untolerated(node, constraints) is not None


def _detail(node: Node, constraints: NodeConstraints) -> str:
    taint = _untolerated(node, constraints)
    return "" if taint is None else f"untolerated taint {taint.key}={taint.value}:{taint.effect}"


FILTER = NodeFilter("TaintToleration", "node(s) had untolerated taint(s)", _refuses, _detail)
