#!/usr/bin/python
# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Wait until pods run, and say why they can't.

A scheduler's work ends with the node's name. This is for what comes after it, on nodes that are real: a pod whose image
is not to be had is named with the kubelet's reason instead of looking placed and well. Writes nothing.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: pods_running
short_description: Wait until pods run
version_added: 0.1.0
description:
  - Waits until each of O(pods) is ready, or has ended well, and fails with the reason of each that is not.
  - Does not wait for what time can't mend, such as an image that is not there.
options:
  pods:
    description: The pods, as C(namespace/name).
    type: list
    elements: str
    required: true
  timeout:
    description: Seconds that all of them together may take.
    type: int
    default: 60
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
- name: Wait until two pods run
  turb.kub.pods_running:
    kubeconfig: /home/me/kubeconfig
    context: demo
    pods: [default/pod1, default/pod2]
"""

RETURN = r"""
waiting:
  description: For each pod that does not run, why.
  type: dict
  returned: always
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

try:
    from ansible_collections.turb.kub.plugins.module_utils import kube_objects, pod_state
except ImportError:  # in a checkout, where the role brings them
    from ansible.module_utils import kube_objects, pod_state

PAUSE = 1.0


def waiting_for(wanted: list[str], pods: list[dict[str, t.Any]]) -> dict[str, str]:
    """Return why each wanted pod does not run; without those that do."""
    there = {pod_state.full_name(pod): pod for pod in pods}
    return {
        name: pod_state.why_not_ready(there[name]) if name in there else "it is not there"
        for name in wanted
        if name not in there or not pod_state.is_ready(there[name])
    }


def is_vain(wanted: list[str], pods: list[dict[str, t.Any]]) -> bool:
    """Whether one of the wanted pods will not run however long we wait."""
    return any(pod_state.hopeless(pod) for pod in pods if pod_state.full_name(pod) in wanted)


def wait(objects: kube_objects.Objects, wanted: list[str], timeout: float) -> dict[str, str]:
    """Wait as long as there is hope and time; return why each pod that is left does not run."""
    namespaces = sorted({name.split("/")[0] for name in wanted})
    deadline = time.monotonic() + timeout
    while True:
        pods = [pod for namespace in namespaces for pod in objects.read("v1", "Pod", namespace=namespace) or []]
        waiting = waiting_for(wanted, pods)
        if not waiting or is_vain(wanted, pods) or time.monotonic() >= deadline:
            return waiting
        time.sleep(PAUSE)


def main() -> None:
    """Read the arguments, wait, answer."""
    module = AnsibleModule(
        argument_spec={
            "pods": {"type": "list", "elements": "str", "required": True},
            "timeout": {"type": "int", "default": 60},
            **kube_objects.ARGUMENTS,
        },
        supports_check_mode=True,
    )
    try:
        objects = kube_objects.Objects(module.params["kubeconfig"], module.params["context"])
        waiting = wait(objects, module.params["pods"], module.params["timeout"])
    except kube_objects.KubeError as error:
        module.fail_json(msg=str(error))
    if waiting:
        pods = "; ".join(f"{name.removeprefix('default/')} ({why})" for name, why in waiting.items())
        module.fail_json(msg=f"Placed, but not running on their nodes: {pods}.", changed=False, waiting=waiting)
    module.exit_json(changed=False, waiting={})


if __name__ == "__main__":
    main()
