#!/usr/bin/python
# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Keep a ServiceAccount's token in a file, and renew it when less than half of its life is left.

A module, so that the token never passes through Ansible: kubectl hands it over here and it is written to a file of mode
0600; no output, diff or log contains it. Whoever uses the file reads it again, so a renewal restarts nothing.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_account_token
short_description: Keep the token of a ServiceAccount in a file
version_added: 0.1.0
description:
  - Asks the API server for a token by the TokenRequest API when the file has none that will do, and leaves it alone
    otherwise.
  - A token will do while at least half of its life is left and it belongs to the ServiceAccount that exists now.
options:
  path:
    description: The file; it gets mode 0600.
    type: path
    required: true
  name:
    description: Name of the ServiceAccount.
    type: str
    required: true
  namespace:
    description: Its namespace.
    type: str
    required: true
  uid:
    description:
      - Its uid. A cluster that was made anew has accounts of the same names; their uids tell them apart, and an old
        token is refused there.
    type: str
    required: true
  duration:
    description: Life to ask for, as C(kubectl create token --duration) takes it.
    type: str
    default: 24h
  kubectl:
    description: Path of kubectl.
    type: path
    required: true
  kubeconfig:
    description: Kubeconfig of one who may ask for the token.
    type: path
    required: true
  context:
    description: Context in that kubeconfig.
    type: str
    required: true
attributes:
  check_mode:
    support: full
    description: Says whether the token would be renewed.
author:
  - turb-kub contributors
"""

EXAMPLES = r"""
- name: Have a token of the scheduler's own account
  turb.kub.service_account_token:
    path: /home/me/scheduler/token
    name: turb-kub
    namespace: kube-system
    uid: 7a5cbbf0-6d6b-4a3b-8f7f-2c9d4f0a1b2c
    kubectl: /usr/local/bin/kubectl
    kubeconfig: /home/me/kubeconfig
    context: demo
"""

RETURN = r"""
reason:
  description: Why the token was renewed, or would be in check mode; empty if it was not.
  type: str
  returned: success
  sample: half of its life is over
"""

import base64
import json
import os
import subprocess
import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

KUBECTL_TIMEOUT = 60


class TokenError(Exception):
    """Something that the user has to know."""


def claims(token: str) -> dict[str, t.Any]:
    """Return the claims of a JSON Web Token, unverified: we ask how old it is, not whether it is genuine.

    Raises ValueError for anything that is no such token.
    """
    parts = token.strip().split(".")
    if len(parts) != 3:
        raise ValueError("a JSON Web Token has three parts")
    payload = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    if not isinstance(payload, dict):
        raise ValueError("the claims of a JSON Web Token are an object")
    return payload


def why_renew(token: str, uid: str, now: float) -> str:
    """Return why this token won't do, empty when it will; ``now`` in seconds since 1970."""
    try:
        payload = claims(token)
        issued, expires = float(payload["iat"]), float(payload["exp"])
        owner = payload["kubernetes.io"]["serviceaccount"]["uid"]
    except (ValueError, KeyError, TypeError):
        return "what is there is no ServiceAccount's token"
    if owner != uid:
        return "it belongs to a ServiceAccount that is gone"
    if now - issued >= (expires - issued) / 2:
        return "half of its life is over"
    return ""


def request(params: dict[str, t.Any]) -> str:
    """Ask the API server for a token."""
    command = [
        params["kubectl"],
        "create",
        "token",
        params["name"],
        f"--namespace={params['namespace']}",
        f"--duration={params['duration']}",
        f"--kubeconfig={params['kubeconfig']}",
        f"--context={params['context']}",
    ]
    account = f"{params['namespace']}/{params['name']}"
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=KUBECTL_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise TokenError(f"No token for ServiceAccount {account}: no answer within {KUBECTL_TIMEOUT} s.") from None
    except OSError as error:
        raise TokenError(f"{params['kubectl']} can't be run: {error.strerror}.") from error
    if answer.returncode != 0:
        raise TokenError(
            f"No token for ServiceAccount {account} with a life of {params['duration']}: {answer.stderr.strip()}"
        )
    return answer.stdout.strip()


def write(path: Path, token: str) -> None:
    """Replace the file at once: a reader sees the old token or the new one, and nobody but the user either."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        # Without an end of line, as the kubelet writes it: not every client takes one off.
        file.write(token)
    new.replace(path)


def ensure(params: dict[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Have a token in the file that will do."""
    path = Path(params["path"])
    try:
        reason = why_renew(path.read_text(), params["uid"], time.time())
        if not reason and path.stat().st_mode & 0o077:
            reason = "others could read it"
    except FileNotFoundError:
        reason = "there was none"
    except UnicodeDecodeError:
        reason = "it was no token"
    if reason and not check_mode:
        write(path, request(params))
    return {"changed": bool(reason), "reason": reason}


def main() -> None:
    """Read the arguments, do it, answer."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "namespace": {"type": "str", "required": True},
            "uid": {"type": "str", "required": True},
            "duration": {"type": "str", "default": "24h"},
            "kubectl": {"type": "path", "required": True},
            "kubeconfig": {"type": "path", "required": True},
            "context": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    try:
        result = ensure(module.params, module.check_mode)
    except TokenError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
