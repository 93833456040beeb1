#!/usr/bin/python
# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Check where pods were placed, from objects that were read before.

It shares no code with the scheduler, on purpose: what it checks is the scheduler's own arithmetic. It reads nothing and
writes nothing; all it knows are its arguments.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: pod_placement
short_description: Check that pods were placed as they should be
version_added: 0.1.0
description:
  - Adds up the memory requests of all pods on each node, those of all namespaces and of all schedulers, and fails when
    a node holds more than its ceiling.
  - Fails when one of O(wanted) is not placed, was placed by another scheduler, or is not on the node that O(expected)
    says, and when they all are on one node although there are more.
options:
  nodes:
    description: The nodes, as read from the API server.
    type: list
    elements: dict
    required: true
  pods:
    description: The pods of all namespaces, as read from the API server.
    type: list
    elements: dict
    required: true
  events:
    description: Events of type C(events.k8s.io/v1) with reason C(Scheduled), as read from the API server.
    type: list
    elements: dict
    default: []
  limit_mib:
    description:
      - Ceiling of each node in MiB, unless the node's annotation C(turb-kub.io/node-mem-limit-mb) states another. A
        node whose allocatable memory is less has that as its ceiling.
    type: int
    required: true
  wanted:
    description: Names of the pods to check, as C(namespace/name). Without any only the nodes are checked.
    type: list
    elements: str
    default: []
  scheduler_name:
    description: The scheduler that must have placed them.
    type: str
    default: turb-kub
  expected:
    description: Name of the node for each of O(wanted), where that is known.
    type: dict
    default: {}
attributes:
  check_mode:
    support: full
    description: The module changes nothing.
author:
  - turb-kub contributors
"""

EXAMPLES = r"""
- name: Check the placement of two pods
  turb.kub.pod_placement:
    nodes: "{{ nodes.resources }}"
    pods: "{{ pods.resources }}"
    events: "{{ events.resources }}"
    limit_mib: 2048
    wanted: [default/pod1, default/pod2]
    expected:
      default/pod1: node-1
"""

RETURN = r"""
nodes:
  description: For each node its C(name), C(requested_mib) and C(ceiling_mib), and the names of its C(pods).
  type: list
  elements: dict
  returned: always
placed:
  description: For each of O(wanted) its C(name), C(node) and C(request_mib), and C(evidence) of who placed it.
  type: list
  elements: dict
  returned: always
asking:
  description: Names of all pods that ask for memory, placed or not.
  type: list
  elements: str
  returned: always
problems:
  description: One sentence for each thing that is not as it should be.
  type: list
  elements: str
  returned: always
"""

import typing as t
from decimal import Decimal, InvalidOperation

from ansible.module_utils.basic import AnsibleModule

MIB = 2**20
#: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
SUFFIXES = {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "Ei": 2**60,
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
}
#: Overrides the limit on one node.
LIMIT_ANNOTATION = "turb-kub.io/node-mem-limit-mb"
TERMINAL = ("Succeeded", "Failed")


def quantity(text: t.Any) -> Decimal:
    """Return a Kubernetes quantity as a number. Raises ValueError for what is none."""
    text = str(text)
    try:
        for suffix, factor in SUFFIXES.items():
            # A plain number may end in an exponent, "1E3" or "12e6", which is no suffix.
            if text.endswith(suffix) and text != suffix:
                return Decimal(text.removesuffix(suffix)) * factor
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is no quantity") from None


def own_memory(holder: dict[str, t.Any]) -> Decimal:
    """Return the memory request that a container, or a pod as a whole, states; in bytes."""
    requests = (holder.get("resources") or {}).get("requests") or {}
    return quantity(requests.get("memory", 0))


def memory_request(pod: dict[str, t.Any]) -> Decimal:
    """Return what a pod takes of its node's memory, in bytes.

    The larger of what its containers need at the same time and what initialising them needs at the most; a sidecar, an
    init container with restartPolicy Always, counts from its start on. A request stated for the pod as a whole replaces
    that sum. https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    spec = pod["spec"]
    overhead = quantity((spec.get("overhead") or {}).get("memory", 0))
    if (spec.get("resources") or {}).get("requests", {}).get("memory") is not None:
        return own_memory(spec) + overhead
    sidecars = peak = Decimal(0)
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            sidecars += own_memory(container)
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + own_memory(container))
    running = sum((own_memory(container) for container in spec.get("containers") or []), sidecars)
    return max(running, peak) + overhead


def mib(amount: Decimal) -> float:
    """Return bytes as MiB, whole where it is whole."""
    value = round(float(amount / MIB), 1)
    return int(value) if value == int(value) else value


def full_name(pod: dict[str, t.Any]) -> str:
    """Return ``namespace/name``."""
    return f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"


def short(name: str) -> str:
    """Return the name as people say it: without the namespace default."""
    return name.removeprefix("default/")


def why_pending(pod: dict[str, t.Any]) -> str:
    """Return what the scheduler says about a pod that is not placed."""
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason"))
    return "no scheduler has said anything about it; is the scheduler running?"


class Survey:
    """What the objects say."""

    def __init__(self, params: dict[str, t.Any]) -> None:
        self.params = params
        self.limit = Decimal(params["limit_mib"]) * MIB
        self.nodes = {node["metadata"]["name"]: node for node in params["nodes"]}
        self.pods = {full_name(pod): pod for pod in params["pods"]}
        self.bound_by = {
            event["regarding"].get("uid"): event.get("reportingController", "")
            for event in params["events"]
            if event.get("reason") == "Scheduled" and event.get("regarding")
        }

    def asking(self) -> list[str]:
        """Return the pods that ask for memory, wherever they are."""
        alive = (name for name, pod in self.pods.items() if (pod.get("status") or {}).get("phase") not in TERMINAL)
        return sorted(name for name in alive if memory_request(self.pods[name]))

    def on(self, node: str) -> dict[str, Decimal]:
        """Return the pods that take memory of a node, with what they take."""
        return {
            name: memory_request(pod)
            for name, pod in self.pods.items()
            if pod["spec"].get("nodeName") == node and (pod.get("status") or {}).get("phase") not in TERMINAL
        }

    def ceiling(self, node: str) -> Decimal:
        """Return the ceiling of a node: its own limit or that of all, or its allocatable memory where that is less."""
        own = str((self.nodes[node]["metadata"].get("annotations") or {}).get(LIMIT_ANNOTATION, ""))
        limit = Decimal(own) * MIB if own.isdecimal() else self.limit
        allocatable = ((self.nodes[node].get("status") or {}).get("allocatable") or {}).get("memory")
        return limit if allocatable is None else min(limit, quantity(allocatable))

    def describe_nodes(self) -> list[dict[str, t.Any]]:
        """Return the sums of each node."""
        return [
            {
                "name": node,
                "requested_mib": mib(sum(self.on(node).values(), Decimal(0))),
                "ceiling_mib": mib(self.ceiling(node)),
                "pods": sorted(short(name) for name in self.on(node)),
            }
            for node in sorted(self.nodes)
        ]

    def describe_placed(self) -> list[dict[str, t.Any]]:
        """Return where each wanted pod is."""
        placed = []
        for name in self.params["wanted"]:
            pod = self.pods.get(name)
            if pod and pod["spec"].get("nodeName"):
                by = self.bound_by.get(pod["metadata"].get("uid"))
                placed.append(
                    {
                        "name": short(name),
                        "node": pod["spec"]["nodeName"],
                        "request_mib": mib(memory_request(pod)),
                        "evidence": f"event of {by}" if by else "spec.schedulerName; the event has expired",
                    }
                )
        return placed

    def sums(self) -> str:
        """Return the sums of all nodes in one line."""
        return ", ".join(
            f"{node['name']} {node['requested_mib']} of {node['ceiling_mib']} MiB" for node in self.describe_nodes()
        )

    def pod_problem(self, name: str) -> str:
        """Return what is wrong with one wanted pod; empty when nothing is."""
        pod = self.pods.get(name)
        if pod is None:
            return f"{short(name)} is not there"
        spec, request = pod["spec"], mib(memory_request(pod))
        wanted = self.params["scheduler_name"]
        if spec.get("schedulerName") != wanted:
            return f"{short(name)} is for the scheduler {spec.get('schedulerName')}, not for {wanted}"
        node = spec.get("nodeName")
        if not node:
            return f"{short(name)} ({request} MiB) is on no node ({self.sums()}): {why_pending(pod)}"
        by = self.bound_by.get(pod["metadata"].get("uid"))
        if by not in (None, wanted):
            return f"{short(name)} ({request} MiB) was placed on {node} by {by}, not by {wanted}"
        expected = self.params["expected"].get(name)
        if expected not in (None, node):
            return f"{short(name)} ({request} MiB) is on {node}, expected on {expected} ({self.sums()})"
        return ""

    def node_problem(self, node: str) -> str:
        """Return what is wrong with one node; empty when nothing is."""
        pods = self.on(node)
        total, ceiling = sum(pods.values(), Decimal(0)), self.ceiling(node)
        if total <= ceiling:
            return ""
        parts = ", ".join(f"{short(name)} {mib(request)}" for name, request in sorted(pods.items()) if request)
        return f"{node} holds {mib(total)} MiB of memory requests, over its ceiling of {mib(ceiling)} MiB: {parts}"

    def problems(self) -> list[str]:
        """Return one sentence for each thing that is wrong."""
        wanted = self.params["wanted"]
        found = [self.pod_problem(name) for name in wanted]
        found += [self.node_problem(node) for node in sorted(self.nodes)]
        placed = self.describe_placed()
        used = {pod["node"] for pod in placed}
        if len(placed) == len(wanted) > 1 and len(used) == 1 and len(self.nodes) > 1:
            found.append(f"all of {', '.join(map(short, wanted))} are on {used.pop()} ({self.sums()})")
        return [problem for problem in found if problem]


def main() -> None:
    """Read the arguments, judge, answer."""
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "list", "elements": "dict", "required": True},
            "pods": {"type": "list", "elements": "dict", "required": True},
            "events": {"type": "list", "elements": "dict", "default": []},
            "limit_mib": {"type": "int", "required": True},
            "wanted": {"type": "list", "elements": "str", "default": []},
            "scheduler_name": {"type": "str", "default": "turb-kub"},
            "expected": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    survey = Survey(module.params)
    problems = survey.problems()
    result = {
        "changed": False,
        "nodes": survey.describe_nodes(),
        "placed": survey.describe_placed(),
        "asking": survey.asking(),
        "problems": problems,
    }
    if problems:
        module.fail_json(msg="The placement is not as it should be: " + "; ".join(problems).rstrip(".") + ".", **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
