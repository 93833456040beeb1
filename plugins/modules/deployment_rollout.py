#!/usr/bin/python
# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Wait for the rollout of a Deployment, and say early and in full why it fails.

Judging and waiting only: what is to be done about a failure is the role's to do, which gets the template of the version
that runs to go back to. Writes nothing to the cluster.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: deployment_rollout
short_description: Wait for the rollout of a Deployment
version_added: 0.1.0
description:
  - Waits until all replicas of the Deployment are of its current template and available.
  - While a node is down, one available replica is enough if only those are missing that are on the node that is down,
    or for which there is no room without it; RV(note) says so.
  - A rollout that fails is no failure of the module; RV(problem) says what is wrong. What time can't mend, such as an
    image that is not there, is not waited for.
options:
  name:
    description: Name of the Deployment.
    type: str
    required: true
  namespace:
    description: Its namespace.
    type: str
    required: true
  timeout:
    description: Seconds that the rollout may stand still; each replica that becomes available starts them anew.
    type: int
    default: 60
  log_lines:
    description: How many of the last lines of the log to read from a container that keeps the rollout from going on.
    type: int
    default: 20
  config_label:
    description:
      - Selector of the ConfigMaps that the Deployment's versions have used. Those that neither the current version nor
        the one before it uses are returned as RV(stale_config_maps).
    type: str
  kubeconfig:
    description: The kubeconfig.
    type: path
    required: true
  context:
    description: Context in that kubeconfig.
    type: str
    required: true
attributes:
  check_mode:
    support: full
    description: The module changes nothing.
author:
  - turb-kub contributors
"""

EXAMPLES = r"""
- name: Wait for the rollout
  turb.kub.deployment_rollout:
    name: turb-kub
    namespace: kube-system
    kubeconfig: /home/me/kubeconfig
    context: demo
  register: rollout

- name: Show what went wrong
  ansible.builtin.debug:
    msg: "{{ rollout.problem }}"
  when: not rollout.complete
"""

RETURN = r"""
complete:
  description: Whether the current version runs.
  type: bool
  returned: success
note:
  description: One sentence about replicas that are missing although the rollout is complete; empty when none is.
  type: str
  returned: success
problem:
  description: One sentence about why the rollout failed; empty when it did not.
  type: str
  returned: success
log:
  description: The last lines of the log of the container that keeps it from going on; empty where there is none.
  type: list
  elements: str
  returned: success
previous:
  description: The pod template of the newest other version that has an available replica; empty when there is none.
  type: dict
  returned: success
image:
  description: The image of the current version.
  type: str
  returned: success
stale_config_maps:
  description: Names of the ConfigMaps that no version needs any more.
  type: list
  elements: str
  returned: success
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

try:
    from ansible_collections.turb.kub.plugins.module_utils import kube_objects, pod_state
except ImportError:  # in a checkout, where the role brings them
    from ansible.module_utils import kube_objects, pod_state

Object = dict[str, t.Any]

PAUSE = 1.0
#: The Deployment controller counts versions here, on the Deployment and on each version's ReplicaSet.
REVISION = "deployment.kubernetes.io/revision"
#: The Deployment controller adds it to tell the versions' pods apart; a template with it would be another one.
HASH_LABEL = "pod-template-hash"


def revision(thing: Object) -> int:
    """Return the number of the version, 0 where the controller has not given one yet."""
    text = (thing["metadata"].get("annotations") or {}).get(REVISION, "0")
    return int(text) if str(text).isdecimal() else 0


def owned(things: list[Object], owner: Object) -> list[Object]:
    """Return those that belong to the owner."""
    uid = owner["metadata"]["uid"]
    return [
        each for each in things if any(ref.get("uid") == uid for ref in each["metadata"].get("ownerReferences") or [])
    ]


def is_down(node: Object) -> bool:
    """Whether nothing that runs on the node can be relied on."""
    return pod_state.condition(node, "Ready").get("status") != "True"


def config_maps_of(template: Object) -> set[str]:
    """Return the names of the ConfigMaps that pods of the template mount."""
    volumes = template["spec"].get("volumes") or []
    return {volume["configMap"]["name"] for volume in volumes if volume.get("configMap")}


class Rollout:
    """What the objects say of a Deployment's rollout, as of one moment; other Deployments' among them do no harm."""

    def __init__(self, deployment: Object, replica_sets: list[Object], pods: list[Object], nodes: list[Object]) -> None:
        self.deployment = deployment
        self.replica_sets = sorted(owned(replica_sets, deployment), key=revision, reverse=True)
        self.down = {node["metadata"]["name"] for node in nodes if is_down(node)}
        status = deployment.get("status") or {}
        #: Until then all that the status says is of the version before.
        self.observed = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
        self.wanted = int(deployment["spec"].get("replicas", 1))
        self.updated = int(status.get("updatedReplicas") or 0)
        self.replicas = int(status.get("replicas") or 0)
        self.available = int(status.get("availableReplicas") or 0)
        current = (
            [each for each in self.replica_sets if revision(each) == revision(deployment)] if self.observed else []
        )
        self.pods = [
            pod
            for replica_set in current
            for pod in owned(pods, replica_set)
            if not pod["metadata"].get("deletionTimestamp")
        ]
        self.idle = [pod for pod in self.pods if not pod_state.is_ready(pod)]
        #: Replicas of the current version that are available.
        self.progress = len(self.pods) - len(self.idle)

    @property
    def image(self) -> str:
        """The image of the current version."""
        return str(self.deployment["spec"]["template"]["spec"]["containers"][0]["image"])

    def complete(self) -> bool:
        """Whether all replicas are of the current version and available."""
        return self.observed and self.wanted == self.updated == self.replicas == self.available

    def note(self) -> str:
        """Return what is missing where the rollout is as complete as it can be while a node is down; else nothing."""
        if not (self.observed and self.wanted == self.updated == self.replicas and self.available and self.down):
            return ""
        unavoidable = [
            pod for pod in self.idle if pod["spec"].get("nodeName") in self.down or pod_state.is_unscheduled(pod)
        ]
        if not self.idle or len(unavoidable) < len(self.idle):
            return ""
        nodes = " and ".join(sorted(self.down))
        return (
            f"{self.available} of {self.wanted} replicas available while {nodes} is not ready: it runs without a spare"
        )

    def culprit(self) -> Object | None:
        """Return the pod that keeps the rollout from going on, the hopeless first."""
        suspects = sorted(self.idle, key=lambda pod: (not pod_state.hopeless(pod), pod["metadata"]["name"]))
        return suspects[0] if suspects else None

    def failure(self) -> str:
        """Return why waiting is of no use; empty where the rollout may still succeed."""
        if not self.observed:
            return ""
        refused = pod_state.condition(self.deployment, "ReplicaFailure")
        if refused.get("status") == "True" and not self.pods:
            return f"no pod can be made: {str(refused.get('message', '')).rstrip('.')}"
        # A pod that the node has turned away is replaced by its ReplicaSet; that gets the time that there is.
        for pod in self.idle:
            if pod["status"].get("phase") != "Failed" and (reason := pod_state.hopeless(pod)):
                return f"pod {pod['metadata']['name']}: {reason}"
        return ""

    def standstill(self) -> str:
        """Return what the rollout waits for."""
        if not self.observed:
            return "the Deployment controller has not looked at it"
        if pod := self.culprit():
            return f"pod {pod['metadata']['name']}: {pod_state.why_not_ready(pod)}"
        return f"{self.updated} of {self.wanted} replicas are of this version, {self.available} are available"

    def previous(self) -> Object:
        """Return the template of the newest other version that has an available replica; empty when there is none."""
        for replica_set in self.replica_sets:
            if revision(replica_set) != revision(self.deployment) and (replica_set.get("status") or {}).get(
                "availableReplicas"
            ):
                template: Object = replica_set["spec"]["template"]
                metadata = dict(template.get("metadata") or {})
                metadata["labels"] = {
                    key: value for key, value in (metadata.get("labels") or {}).items() if key != HASH_LABEL
                }
                return {"metadata": {key: value for key, value in metadata.items() if value}, "spec": template["spec"]}
        return {}

    def stale(self, config_maps: list[Object]) -> list[str]:
        """Return the ConfigMaps that neither the current version nor the one before it uses."""
        templates = [self.deployment["spec"]["template"], *(each["spec"]["template"] for each in self.replica_sets[:2])]
        used = set().union(*(config_maps_of(template) for template in templates))
        return sorted({each["metadata"]["name"] for each in config_maps} - used)


def look(objects: kube_objects.Objects, namespace: str, name: str) -> Rollout:
    """Read the Deployment and what belongs to it.

    Raises:
        KubeError: there is none, or it can't be read.
    """
    found = objects.read("apps/v1", "Deployment", namespace=namespace, name=name)
    if not found:
        raise kube_objects.KubeError(f"There is no Deployment {namespace}/{name}.")
    selector = ",".join(f"{key}={value}" for key, value in found[0]["spec"]["selector"]["matchLabels"].items())
    return Rollout(
        found[0],
        objects.read("apps/v1", "ReplicaSet", namespace=namespace, labels=selector) or [],
        objects.read("v1", "Pod", namespace=namespace, labels=selector) or [],
        objects.read("v1", "Node") or [],
    )


def wait(objects: kube_objects.Objects, namespace: str, name: str, timeout: float) -> tuple[Rollout, str]:
    """Wait until the rollout is complete, fails or stands still; return it and what is wrong with it."""
    progress, deadline = -1, time.monotonic() + timeout
    while True:
        try:
            rollout = look(objects, namespace, name)
        except kube_objects.KubeError:
            # An API server of one node may be away for a moment; a lasting failure is as good as any other one.
            if time.monotonic() >= deadline:
                raise
            time.sleep(PAUSE)
            continue
        if rollout.complete() or rollout.note():
            return rollout, ""
        if reason := rollout.failure():
            return rollout, reason
        if rollout.progress > progress:
            progress, deadline = rollout.progress, time.monotonic() + timeout
        if time.monotonic() >= deadline:
            return rollout, f"nothing new within {timeout:.0f} s; {rollout.standstill()}"
        time.sleep(PAUSE)


def log_of(objects: kube_objects.Objects, pod: Object | None, lines: int) -> list[str]:
    """Return the end of the log that may say why the pod is not ready."""
    if pod is None or (culprit := pod_state.culprit(pod)) is None:
        return []
    container, previous = culprit
    metadata = pod["metadata"]
    return objects.log(metadata["namespace"], metadata["name"], container, lines, previous)


def main() -> None:
    """Read the arguments, wait, answer."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "namespace": {"type": "str", "required": True},
            "timeout": {"type": "int", "default": 60},
            "log_lines": {"type": "int", "default": 20},
            "config_label": {"type": "str"},
            **kube_objects.ARGUMENTS,
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        objects = kube_objects.Objects(params["kubeconfig"], params["context"])
        rollout, problem = wait(objects, params["namespace"], params["name"], params["timeout"])
        log = log_of(objects, rollout.culprit(), params["log_lines"]) if problem else []
        config_maps: list[Object] = []
        if params["config_label"]:
            config_maps = (
                objects.read("v1", "ConfigMap", namespace=params["namespace"], labels=params["config_label"]) or []
            )
    except kube_objects.KubeError as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=False,
        complete=not problem,
        note="" if problem else rollout.note(),
        problem=problem,
        log=log,
        previous=rollout.previous(),
        image=rollout.image,
        stale_config_maps=rollout.stale(config_maps),
    )


if __name__ == "__main__":
    main()
