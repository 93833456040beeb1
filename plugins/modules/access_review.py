#!/usr/bin/python
# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Say what a user may not do on a cluster, before anything is done there.

Asks the API server itself (SelfSubjectAccessReview), which stores nothing. Without it a set-up by somebody with too few
rights would stop half-way, with some of our objects made and the first refusal as its only explanation.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: access_review
short_description: Check what a user may do on a cluster
version_added: 0.1.0
description:
  - Fails with the list of everything in O(needs) and O(grants) that the user of the context may not do.
options:
  needs:
    description:
      - What is to be done. Each is a mapping with C(group), C(resources) and C(verbs), and with C(namespace) where it
        is done in one only. A subresource is written as C(pods/log).
    type: list
    elements: dict
    default: []
  grants:
    description:
      - Rules of roles that are to be made, as in the roles, each with C(namespace) where it is a namespace's. Who makes
        a role must hold what it gives, or have the verb C(escalate) on such roles.
    type: list
    elements: dict
    default: []
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
- name: Check that a Deployment could be made
  turb.kub.access_review:
    kubeconfig: /home/me/kubeconfig
    context: demo
    needs:
      - group: apps
        resources: [deployments]
        verbs: [get, create, patch]
        namespace: kube-system
"""

RETURN = r"""
denied:
  description: What the user may not do, one line for each kind and place.
  type: list
  elements: str
  returned: always
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

try:
    from ansible_collections.turb.kub.plugins.module_utils import kube_objects
except ImportError:  # in a checkout, where the role brings it
    from ansible.module_utils import kube_objects

#: May this be done? The attributes are those of a SelfSubjectAccessReview.
Asks = t.Callable[[dict[str, str]], bool]


def attributes(group: str, resource: str, verb: str, namespace: str = "", name: str = "") -> dict[str, str]:
    """Return a question as a SelfSubjectAccessReview puts it."""
    resource, _, subresource = resource.partition("/")
    asked = {"group": group, "resource": resource, "verb": verb, "subresource": subresource}
    return {key: value for key, value in (asked | {"namespace": namespace, "name": name}).items() if value}


def describe(group: str, resource: str, verbs: list[str], namespace: str = "") -> str:
    """Return what may not be done, as kubectl names it."""
    kind = f"{resource}.{group}" if group else resource
    return f"{', '.join(verbs)} {kind}{' in ' + namespace if namespace else ''}"


def denied_needs(needs: list[dict[str, t.Any]], asks: Asks) -> list[str]:
    """Return what of the needs is denied."""
    denied = []
    for need in needs:
        group, namespace = need.get("group", ""), need.get("namespace", "")
        for resource in need["resources"]:
            refused = [verb for verb in need["verbs"] if not asks(attributes(group, resource, verb, namespace))]
            if refused:
                denied.append(describe(group, resource, refused, namespace))
    return denied


def denied_grants(rules: list[dict[str, t.Any]], asks: Asks) -> list[str]:
    """Return what a role would give that the user may not give away."""
    denied = []
    for rule in rules:
        namespace = rule.get("namespace", "")
        roles = "roles" if namespace else "clusterroles"
        if asks(attributes("rbac.authorization.k8s.io", roles, "escalate", namespace)):
            continue
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                names = rule.get("resourceNames") or [""]
                refused = [
                    verb
                    for verb in rule["verbs"]
                    if not all(asks(attributes(group, resource, verb, namespace, name)) for name in names)
                ]
                if refused:
                    denied.append(f"give away: {describe(group, resource, refused, namespace)}")
    return denied


def main() -> None:
    """Read the arguments, ask, answer."""
    module = AnsibleModule(
        argument_spec={
            "needs": {"type": "list", "elements": "dict", "default": []},
            "grants": {"type": "list", "elements": "dict", "default": []},
            **kube_objects.ARGUMENTS,
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        objects = kube_objects.Objects(params["kubeconfig"], params["context"])

        def asks(question: dict[str, str]) -> bool:
            body = {"spec": {"resourceAttributes": question}}
            answer = objects.create("authorization.k8s.io/v1", "SelfSubjectAccessReview", body)
            return bool(answer["status"].get("allowed"))

        denied = denied_needs(params["needs"], asks) + denied_grants(params["grants"], asks)
    except kube_objects.KubeError as error:
        module.fail_json(msg=str(error))
    if denied:
        module.fail_json(
            msg=f"The user of context {params['context']} lacks rights that this needs: {'; '.join(denied)}. Nothing"
            " was changed on the cluster: ask for these rights, or name a context that has them.",
            denied=denied,
        )
    module.exit_json(changed=False, denied=[])


if __name__ == "__main__":
    main()
