"""Whether the scheduler knows what the server knows."""

import json
from typing import Any

from turb_kub.decision.decide import decide
from turb_kub.decision.policy import LeastRequestedMemory
from turb_kub.loop.scheduler import Scheduler
from turb_kub.objects.malformed import MALFORMED
from turb_kub.objects.node import decode_node
from turb_kub.objects.pod import Pod, decode_pod

from tests.api.double import ApiDouble


def differences(scheduler: Scheduler, double: ApiDouble) -> list[str]:
    """Say how the scheduler's cluster and queue differ from the server's truth; nothing once it has caught up.

    The truth is decoded afresh. A malformed object must be out of play, and a pod may wait only where no node takes it.
    """
    return _of_nodes(scheduler, double) + _of_pods(scheduler, double) + scheduler.cluster.check()


def agrees(scheduler: Scheduler, double: ApiDouble) -> bool:
    """Whether the cache holds exactly the bound pods that the server has, and its sums are those of its pods."""
    truth = {
        pod["metadata"]["uid"]: pod["spec"]["nodeName"]
        for pod in double.objects["pods"].values()
        if pod["spec"].get("nodeName")
    }
    cluster = scheduler.cluster
    held = {uid: pod.node_name for uid in cluster.placed_uids() if (pod := cluster.placed(uid)) is not None}
    return held == truth and not cluster.check() and not cluster.assumed_count


def reasons(double: ApiDouble) -> list[str]:
    """The reasons of all events, in order."""
    return [event["reason"] for event in double.events]


def _of_nodes(scheduler: Scheduler, double: ApiDouble) -> list[str]:
    found = []
    for (_, name), wire in double.objects["nodes"].items():
        known, true = scheduler.cluster.node(name), _decoded(decode_node, wire)
        if true is None and known is not None and not scheduler.cluster.why_closed(name):
            found.append(f"node {name} is malformed and open")
        elif true is not None and (known != true or name in scheduler.cluster.why_closed(name)):
            found.append(f"node {name} is {known}")
    there = {name for _, name in double.objects["nodes"]}
    return found + [f"node {one.name} is gone" for _, one in scheduler.cluster.each_node() if one.name not in there]


def _of_pods(scheduler: Scheduler, double: ApiDouble) -> list[str]:
    found = []
    held, waiting = scheduler.cluster.placed_uids(), {pod.uid for pod in scheduler.queue.pods()}
    for wire in double.objects["pods"].values():
        pod: Pod | None = _decoded(decode_pod, wire)
        if pod is None:
            if wire["spec"].get("nodeName") and not scheduler.cluster.why_closed(wire["spec"]["nodeName"]):
                found.append(f"a node with a malformed pod is open: {wire['metadata']}")
        elif pod.node_name and not pod.terminal:
            counted = scheduler.cluster.placed(pod.uid)
            if counted is None or (counted.node_name, counted.requests) != (pod.node_name, pod.requests):
                found.append(f"pod {pod.key} is counted as {counted}")
            held.discard(pod.uid)
        elif not pod.node_name and pod.scheduler_name == "turb-kub" and not pod.terminal and not pod.deleting:
            if pod.uid not in waiting:
                found.append(f"pod {pod.key} is not in the queue")
            elif not pod.gates and decide(scheduler.cluster, pod, LeastRequestedMemory()).node is not None:
                found.append(f"pod {pod.key} waits although a node takes it")
            waiting.discard(pod.uid)
    found += [f"pod {uid} is still counted" for uid in held] + [f"pod {uid} still waits" for uid in waiting]
    found += [f"{scheduler.cluster.assumed_count} pods are assumed"] if scheduler.cluster.assumed_count else []
    parts = scheduler.queue.counts()
    return found + [f"{parts[part]} pods are {part}" for part in ("active", "backoff") if parts[part]]


def _decoded(decode: Any, wire: Any) -> Any:
    try:
        return decode(json.dumps(wire))
    except MALFORMED:
        return None
