"""Keeps pods to the nodes that their nodeSelector and required node affinity name.

Source: kubernetes.io, "Assigning Pods to Nodes".
"""

from turb_kub.decision.filters.base import NodeFilter
from turb_kub.objects.constraints import NodeConstraints
from turb_kub.objects.node import Node


def _refuses(node: Node, constraints: NodeConstraints) -> bool:
    return not constraints.matches_affinity(node.name, node.labels)


def _detail(node: Node, constraints: NodeConstraints) -> str:
    missing = [
        f"{key}={value} (has {node.labels.get(key, 'none')})"
        for key, value in constraints.node_selector
        if node.labels.get(key) != value
    ]
    return f"nodeSelector asks {', '.join(missing)}" if missing else "no term of required node affinity matches"


FILTER = NodeFilter("NodeAffinity", "node(s) didn't match Pod's node affinity/selector", _refuses, _detail)
