"""`turb-kub explain NAMESPACE/POD`: every node's numbers for one pod, from a cluster or from a file."""

import argparse
import asyncio

import msgspec
from rich.markup import escape

from turb_kub.cli.connect import BAD_INPUT, policy_of, read_cluster, settings_of
from turb_kub.cli.errors import CommandError
from turb_kub.cli.kubectl import COMMAND
from turb_kub.cli.snapshot import Snapshot, read_snapshot
from turb_kub.cli.tables import NO_LIMIT, console, show, table
from turb_kub.decision.decide import NodeReport
from turb_kub.decision.explain import Explanation, explain
from turb_kub.decision.policy import LeastRequestedMemory
from turb_kub.decision.report import Report, report_of
from turb_kub.loop.scheduler import accounting_of
from turb_kub.objects.pod import Pod
from turb_kub.objects.quantity import format_mebibytes
from turb_kub.settings import Settings


class Explained(msgspec.Struct):
    """What `-o json` prints. Memory in bytes."""

    pod: str
    phase: str
    node: str | None
    message: str
    #: The decision as it would be now; of a placed pod, if it were not placed yet.
    decision: Report
    #: The decision as it was recorded, where its event is still there.
    recorded: Report | None
    nodes: tuple[NodeReport, ...]
    fixes: tuple[str, ...]
    #: Objects that could not be understood, each with why.
    set_aside: list[str]
    #: What must be known to read the rest rightly.
    notes: list[str]


def explain_pod(options: argparse.Namespace) -> int:
    """Print the explanation of one pod."""
    settings = settings_of(options)
    namespace, _, name = options.pod.rpartition("/")
    key = f"{namespace or 'default'}/{name}"
    if options.file:
        snapshot = read_snapshot(options.file, accounting_of(settings))
    else:
        snapshot = asyncio.run(read_cluster(options, accounting_of(settings)))
    pod = _find(snapshot, key)
    explanation = _explain(snapshot, pod, settings)
    found = Explained(
        pod=key,
        phase=pod.phase,
        node=pod.node_name or None,
        message=_message(pod, explanation),
        decision=report_of(explanation.decision),
        recorded=snapshot.decisions.get(pod.uid),
        nodes=explanation.nodes,
        fixes=explanation.fixes,
        set_aside=snapshot.set_aside,
        notes=_notes(snapshot, pod, settings),
    )
    if options.output == "json":
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        _print(found, explanation, limited=settings.node_mem_limit_mb is not None)
    return 0


def _find(snapshot: Snapshot, key: str) -> Pod:
    pod = next((pod for pod in snapshot.pods if pod.key == key), None)
    if pod is not None:
        return pod
    aside = next((why for why in snapshot.set_aside if why.startswith(f"pod {key}: ")), None)
    if aside is not None:
        raise CommandError(f"{aside}; it is set aside until it is mended")
    raise CommandError(f"there is no pod {key}; name it as NAMESPACE/POD", BAD_INPUT)


def _explain(snapshot: Snapshot, pod: Pod, settings: Settings) -> Explanation:
    """Explain a pod as if it were not placed yet."""
    policy = policy_of(settings)
    snapshot.cluster.remove_pod(pod.uid)
    return explain(snapshot.cluster, pod, policy, unknown_fields_fail=settings.unknown_fields == "fail")


def _notes(snapshot: Snapshot, pod: Pod, settings: Settings) -> list[str]:
    """What must be known to read the rest rightly."""
    notes = []
    if pod.scheduler_name != settings.scheduler_name:
        notes.append(
            f"it is for scheduler {pod.scheduler_name}; this is what {settings.scheduler_name} would do with it"
        )
    if "namespaces" in snapshot.left_out and _looks_at_namespaces(snapshot, pod):
        notes.append(f"namespaces are not in the file, so namespace selectors choose none: write it with {COMMAND}")
    if "csinodes" in snapshot.left_out and pod.claims:
        notes.append(f"csinodes are not in the file, so no limit of attached volumes is seen: write it with {COMMAND}")
    return notes


def _looks_at_namespaces(snapshot: Snapshot, pod: Pod) -> bool:
    everyone = [pod, *snapshot.pods]
    terms = [term for one in everyone for term in (*one.affinity.required, *one.affinity.required_anti)]
    return any(term.namespace_selector is not None and term.namespace_selector.expressions for term in terms)


def _message(pod: Pod, explanation: Explanation) -> str:
    decision = explanation.decision
    if pod.terminal:
        return f"{pod.key} has finished ({pod.phase}) and holds nothing any more"
    if pod.gates:
        return f"{pod.key} waits for its scheduling gates: {', '.join(pod.gates)}"
    if not pod.node_name:
        return f"{pod.key} {'would go to ' + decision.node if decision.node else 'waits'}"
    if decision.node == pod.node_name:
        return f"{pod.key} is on {pod.node_name}, and would be placed there again"
    return f"{pod.key} is on {pod.node_name}; as of now {decision.node or 'no node'} would be chosen"


def _print(found: Explained, explanation: Explanation, *, limited: bool) -> None:
    where = console()
    where.print(escape(found.message))
    if explanation.decision.message:
        where.print(escape(explanation.decision.message))
    for note in found.notes:
        where.print(escape(f"Note: {note}"))
    if not limited:
        where.print(NO_LIMIT)
    # Where the pod itself is refused nothing is wrong with the nodes.
    free = "fits" if explanation.decision.pod_refusal is None else "the node itself fits"
    built_in = found.decision.policy == LeastRequestedMemory.name
    nodes = table("NODE", "LOAD" if built_in else "RANK", "REQUESTED", "ASKED", "CEILING", "VERDICT", folding="VERDICT")
    for node in found.nodes:
        nodes.add_row(
            escape(node.name),
            format_mebibytes(int(node.rank)) if built_in else f"{node.rank:g}",
            format_mebibytes(node.requested),
            found.decision.asked,
            format_mebibytes(node.ceiling),
            escape("; ".join(node.refusals)) or ("chosen" if node.name == found.decision.node else free),
        )
    show(where, nodes)
    for fix in found.fixes:
        where.print(escape(f"Fix: {fix}"))
    for name in found.set_aside:
        where.print(escape(f"Set aside, not understood: {name}"))
