"""A decision as JSON, with the numbers that the message leaves out: the annotation of its event.

One shape for both outcomes, read by `turb-kub status`:

    {"policy": "...", "node": "node-1" or null, "asked": "768Mi", "feasible": 2, "evaluated": 2,
     "tie": "" or "name" or "preference", "message": "...",
     "nodes": [{"name": "node-1", "rank": 0, "requested": "0Mi", "ceiling": "2048Mi", "refusals": ["..."]}, ...]}
"""

import msgspec

from turb_kub.decision.decide import Decision
from turb_kub.objects.quantity import format_mebibytes


class ReportedNode(msgspec.Struct, omit_defaults=True):
    """Amounts as quantities. `requested` is what counted under the ceiling before this pod.

    `rank` is the policy's number for the node, the lower the better: of least-requested-memory the load in bytes.
    """

    name: str
    rank: float
    requested: str
    ceiling: str
    refusals: tuple[str, ...] = ()


class Report(msgspec.Struct):
    policy: str
    node: str | None
    asked: str
    feasible: int
    evaluated: int
    nodes: tuple[ReportedNode, ...]
    #: kube-scheduler's text, of a failed decision.
    message: str = ""
    #: What decided among tied nodes.
    tie: str = ""


def report_of(decision: Decision) -> Report:
    """Return a decision as people read it."""
    return Report(
        policy=decision.policy,
        node=decision.node,
        asked=format_mebibytes(decision.asked),
        feasible=decision.feasible,
        evaluated=decision.evaluated,
        nodes=tuple(
            ReportedNode(
                node.name, node.rank, format_mebibytes(node.requested), format_mebibytes(node.ceiling), node.refusals
            )
            for node in decision.nodes
        ),
        message=decision.message,
        tie=decision.tie,
    )


def encode_report(decision: Decision) -> str:
    """Return the annotation's text."""
    return msgspec.json.encode(report_of(decision)).decode()


def decode_report(text: str) -> Report | None:
    """Return the report in an annotation; None where it is none (another version's, or nobody's)."""
    try:
        return msgspec.json.decode(text, type=Report)
    except msgspec.MsgspecError:
        return None
