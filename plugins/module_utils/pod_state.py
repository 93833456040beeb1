# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Say whether a pod runs, and why it does not, from what the API server says of it.

Pure functions; the modules deployment_rollout and pods_running wait by them.
"""

from __future__ import annotations

import typing as t

Pod = dict[str, t.Any]

#: Reasons of a waiting container that time alone does not mend: the image is not there, the container ends again and
#: again, or what it is made from is missing. Others, such as a single failed pull, get the time that they are given.
HOPELESS = (
    "ErrImageNeverPull",
    "InvalidImageName",
    "ImagePullBackOff",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
)


def full_name(pod: Pod) -> str:
    """Return ``namespace/name``."""
    return f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"


def condition(pod: Pod, kind: str) -> dict[str, t.Any]:
    """Return one of the pod's conditions, empty where it has none of that type."""
    for each in (pod.get("status") or {}).get("conditions") or []:
        if each.get("type") == kind:
            found: dict[str, t.Any] = each
            return found
    return {}


def is_ready(pod: Pod) -> bool:
    """Whether all its containers are ready, or it has done its work."""
    return condition(pod, "Ready").get("status") == "True" or (pod.get("status") or {}).get("phase") == "Succeeded"


def is_unscheduled(pod: Pod) -> bool:
    """Whether a scheduler found no node for it."""
    return not pod["spec"].get("nodeName") and condition(pod, "PodScheduled").get("status") == "False"


def containers(pod: Pod) -> list[dict[str, t.Any]]:
    """Return the states of its containers, those that prepare it first."""
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _ended(container: dict[str, t.Any]) -> str:
    """Return how the container's run before this one ended, in brackets; empty where there was none."""
    last = (container.get("lastState") or {}).get("terminated") or {}
    if "exitCode" not in last:
        return ""
    reason = last.get("reason", "")
    return f" (exit code {last['exitCode']}{', ' + reason if reason not in ('', 'Error') else ''})"


def _waits(container: dict[str, t.Any]) -> str:
    """Return what a waiting container waits for; empty for one that does not wait."""
    waiting = (container.get("state") or {}).get("waiting")
    if not waiting:
        return ""
    reason = waiting.get("reason", "waiting") + _ended(container)
    return f"container {container['name']}: {_said(reason, waiting.get('message', ''))}"


def _said(reason: str, message: str) -> str:
    return f"{reason}: {message}".rstrip(".") if message and message != reason else reason


def hopeless(pod: Pod) -> str:
    """Return why waiting for this pod is of no use; empty where it may still come to run."""
    status = pod.get("status") or {}
    if status.get("phase") == "Failed":
        return _said(str(status.get("reason") or "it has failed"), str(status.get("message") or ""))
    for container in containers(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in HOPELESS:
            return _waits(container)
    return ""


def why_not_ready(pod: Pod) -> str:
    """Return what keeps the pod from being ready, as far as it is known."""
    if reason := hopeless(pod):
        return reason
    if not pod["spec"].get("nodeName"):
        return str(condition(pod, "PodScheduled").get("message") or "no scheduler has placed it").rstrip(".")
    for container in containers(pod):
        state = container.get("state") or {}
        if waits := _waits(container):
            return waits
        terminated = state.get("terminated")
        if terminated and terminated.get("exitCode"):
            return f"container {container['name']} ended with exit code {terminated['exitCode']}"
        if not container.get("ready") and "running" in state:
            return f"container {container['name']} runs but is not ready{_ended(container)}"
    return f"node {pod['spec']['nodeName']} has not said that it runs"


def culprit(pod: Pod) -> tuple[str, bool] | None:
    """Return the container whose log may say why the pod is not ready, and whether to read that of its previous run."""
    for container in containers(pod):
        if not container.get("ready"):
            again = bool((container.get("lastState") or {}).get("terminated"))
            return container["name"], again and "running" not in (container.get("state") or {})
    return None
