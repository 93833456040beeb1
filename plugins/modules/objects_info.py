#!/usr/bin/python
# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Read objects of several kinds at once.

Each task starts a Python that loads the Kubernetes client, which takes a second: what belongs together is read by one.
Writes nothing to the cluster.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: objects_info
short_description: Read objects of several kinds at once
version_added: 0.1.0
description:
  - Reads objects of any kinds that the API server has, those of this collection's roles among them, with one start of
    Python and one connection.
  - A kind that the server does not have is no failure; it is named in RV(unknown).
options:
  reads:
    description:
      - What to read, by a name of your own under which it is returned. Each is a mapping with C(api_version) and
        C(kind), and with C(name), C(namespace), C(labels) and C(fields) as far as they are to narrow it down.
      - Without C(namespace) the objects of all namespaces are read. C(labels) and C(fields) are selectors as kubectl
        takes them.
    type: dict
    required: true
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
- name: Read the nodes and the pods of one namespace
  turb.kub.objects_info:
    kubeconfig: /home/me/kubeconfig
    context: demo
    reads:
      nodes:
        api_version: v1
        kind: Node
      pods:
        api_version: v1
        kind: Pod
        namespace: default
  register: read

- name: Show how many there are
  ansible.builtin.debug:
    msg: "{{ read.found.nodes | length }} nodes, {{ read.found.pods | length }} pods"
"""

RETURN = r"""
found:
  description: For each name in O(reads) the list of objects; empty for a kind that the server does not have.
  type: dict
  returned: success
unknown:
  description: The names in O(reads) whose kind the server does not have.
  type: list
  elements: str
  returned: success
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

try:
    from ansible_collections.turb.kub.plugins.module_utils import kube_objects
except ImportError:  # in a checkout, where the role brings it
    from ansible.module_utils import kube_objects

#: What one read may say, and must.
KEYS = {"api_version", "kind", "name", "namespace", "labels", "fields"}
NEEDED = {"api_version", "kind"}


def wrong_reads(reads: dict[str, t.Any]) -> str:
    """Return what is wrong with the module's argument, empty when nothing is."""
    for name, read in reads.items():
        if not isinstance(read, dict) or not NEEDED <= set(read) <= KEYS:
            more = ", ".join(sorted(KEYS - NEEDED))
            return f"reads.{name} has to be a mapping with api_version and kind, and at most {more} besides."
    return ""


def read_all(objects: kube_objects.Objects, reads: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return what the module answers."""
    found: dict[str, list[dict[str, t.Any]]] = {}
    unknown = []
    for name, read in reads.items():
        items = objects.read(**read)
        if items is None:
            unknown.append(name)
        found[name] = items or []
        for item in found[name]:
            # Nobody here asks who set which field, and it is half of the object.
            item["metadata"].pop("managedFields", None)
    return {"changed": False, "found": found, "unknown": unknown}


def main() -> None:
    """Read the arguments, read the objects, answer."""
    module = AnsibleModule(
        argument_spec={
            "reads": {"type": "dict", "required": True},
            **kube_objects.ARGUMENTS,
        },
        supports_check_mode=True,
    )
    if wrong := wrong_reads(module.params["reads"]):
        module.fail_json(msg=wrong)
    try:
        objects = kube_objects.Objects(module.params["kubeconfig"], module.params["context"])
        result = read_all(objects, module.params["reads"])
    except kube_objects.KubeError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
