"""`turb-kub status`: nodes with requested memory against the ceiling, pods with their node and the reason."""

import argparse
import asyncio

import msgspec
from rich.markup import escape

from turb_kub.cli.connect import policy_of, read_cluster, settings_of
from turb_kub.cli.snapshot import Snapshot
from turb_kub.cli.tables import NO_LIMIT, console, show, table
from turb_kub.cluster.cluster import MEMORY
from turb_kub.decision.decide import BY_NAME, decide
from turb_kub.decision.policy import LeastRequestedMemory, Policy
from turb_kub.decision.report import Report, ReportedNode, report_of
from turb_kub.loop.scheduler import accounting_of
from turb_kub.objects.pod import Pod
from turb_kub.objects.quantity import format_mebibytes
from turb_kub.settings import Settings

BAR = 24


class NodeStatus(msgspec.Struct):
    """Memory in bytes. `requested` is what counts under the ceiling; `limited`: a limit set it."""

    name: str
    state: str
    requested: int
    ceiling: int
    allocatable: int
    limited: bool
    pods: int


class PodStatus(msgspec.Struct):
    namespace: str
    name: str
    phase: str
    node: str | None
    why: str
    #: Whether `why` was worked out now, because the record of the decision is gone.
    as_of_now: bool
    decision: Report | None


class ClusterStatus(msgspec.Struct):
    nodes: list[NodeStatus]
    pods: list[PodStatus]
    set_aside: list[str]


def status(options: argparse.Namespace) -> int:
    """Print the state of the cluster."""
    settings = settings_of(options)
    policy = policy_of(settings)
    current = _state(asyncio.run(read_cluster(options, accounting_of(settings))), policy)
    if options.output == "json":
        print(msgspec.json.format(msgspec.json.encode(current)).decode())
    else:
        _print(current, settings)
    return 0


def _state(snapshot: Snapshot, policy: Policy) -> ClusterStatus:
    ours = [pod for pod in snapshot.pods if pod.scheduler_name == snapshot.cluster.accounting.scheduler_name]
    return ClusterStatus(
        nodes=_nodes(snapshot),
        pods=[_pod(snapshot, pod, policy) for pod in sorted(ours, key=lambda pod: pod.key)],
        set_aside=snapshot.set_aside,
    )


def _nodes(snapshot: Snapshot) -> list[NodeStatus]:
    cluster = snapshot.cluster
    result = []
    for slot, node in cluster.each_node():
        allocatable = int(cluster.allocatable[slot, MEMORY])
        state = "Ready" if node.ready == "True" else "NotReady"
        result.append(
            NodeStatus(
                name=node.name,
                state=f"{state},cordoned" if node.unschedulable else state,
                requested=int(cluster.budgeted[slot]),
                ceiling=int(cluster.ceiling[slot]),
                allocatable=allocatable,
                limited=int(cluster.ceiling[slot]) < allocatable,
                pods=len(cluster.pods_on(node.name)),
            )
        )
    return result


def _pod(snapshot: Snapshot, pod: Pod, policy: Policy) -> PodStatus:
    report = snapshot.decisions.get(pod.uid)
    fresh = report is None or (report.node is None) != (not pod.node_name)
    if fresh:
        report = _decide_afresh(snapshot, pod, policy)
    return PodStatus(
        namespace=pod.namespace,
        name=pod.name,
        phase=pod.phase or "Unknown",
        node=pod.node_name or None,
        why=_why(pod, report),
        as_of_now=fresh,
        decision=report,
    )


def _decide_afresh(snapshot: Snapshot, pod: Pod, policy: Policy) -> Report | None:
    """Decide about a pod as if it were not placed yet, and leave the cluster as it was."""
    if pod.terminal or pod.gates:
        return None
    cluster = snapshot.cluster
    placed = cluster.placed(pod.uid)
    cluster.remove_pod(pod.uid)
    report = report_of(decide(cluster, pod, policy))
    if placed is not None:
        cluster.set_pod(placed)
    return report


def _why(pod: Pod, report: Report | None) -> str:
    if pod.gates:
        return f"waits for its scheduling gates: {', '.join(pod.gates)}"
    if report is None:
        return "finished; no longer counted"
    if not pod.node_name:
        if report.node is not None:
            return f"about to go to {report.node}"
        refused = [f"{node.name}: {'; '.join(node.refusals)}" for node in report.nodes if node.refusals]
        return "\n".join([report.message, *refused])
    if report.node != pod.node_name:
        return f"bound to {pod.node_name}; {report.node or 'no node'} would be chosen"
    return _why_there(report)


def _why_there(report: Report) -> str:
    """Say why a node was chosen, from the report of the decision: its first node is the chosen one."""
    chosen, *others = report.nodes
    share = "" if report.feasible == report.evaluated else f" ({report.feasible} of {report.evaluated} nodes feasible)"
    if not others:
        return f"the only feasible node of {report.evaluated}: {_ranked(report, chosen)}"
    among = ", ".join(_ranked(report, node) for node in others)
    if report.feasible > len(report.nodes):
        among += f" and {report.feasible - len(report.nodes)} more"
    if not report.tie:
        return f"{_measure(report)}: {_ranked(report, chosen)} before {among}{share}"
    decided = "first by name" if report.tie == BY_NAME else "preferred by the pod"
    return f"tied on {_measure(report)}, {decided}: {_ranked(report, chosen)}, {among}{share}"


def _measure(report: Report) -> str:
    return "least requested memory" if report.policy == LeastRequestedMemory.name else f"policy {report.policy}"


def _ranked(report: Report, node: ReportedNode) -> str:
    if report.policy == LeastRequestedMemory.name:
        return f"{node.name} {format_mebibytes(int(node.rank))}"
    return f"{node.name} {node.rank:g}"


def _print(current: ClusterStatus, settings: Settings) -> None:
    where = console()
    nodes = table("NODE", "STATE", "MEMORY", "REQUESTED", "CEILING", "ALLOCATABLE", "PODS", folding="")
    for node in current.nodes:
        share = node.requested / node.ceiling if node.ceiling else 1.0
        nodes.add_row(
            escape(node.name),
            node.state,
            f"{_bar(share)} {share:4.0%}",
            format_mebibytes(node.requested),
            format_mebibytes(node.ceiling),
            format_mebibytes(node.allocatable),
            str(node.pods),
        )
    show(where, nodes)
    if settings.node_mem_limit_mb is None:
        where.print(NO_LIMIT)
    if current.pods:
        pods = table("POD", "PHASE", "NODE", "WHY", folding="WHY")
        for pod in current.pods:
            why = pod.why + (" (as of now)" if pod.as_of_now and pod.decision else "")
            pods.add_row(escape(f"{pod.namespace}/{pod.name}"), pod.phase, escape(pod.node or "-"), escape(why))
        where.print()
        show(where, pods)
    else:
        where.print(f"\nNo pod has schedulerName {settings.scheduler_name}.")
    for name in current.set_aside:
        where.print(escape(f"Set aside, not understood: {name}"))


def _bar(share: float) -> str:
    filled = min(BAR, round(share * BAR))
    colour = "red" if share > 1 else "yellow" if share > 0.85 else "green"
    return f"[{colour}]{'█' * filled}[/]{'░' * (BAR - filled)}"
