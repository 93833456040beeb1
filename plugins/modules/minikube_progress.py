#!/usr/bin/python
# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Wait for the next thing that a Minikube in the background says.

Ansible shows nothing of a task before the task is over, and a first start of Minikube takes minutes. In a loop over
this module each item is over when there is something new to show. It only reads, in the work folder of
minikube_cluster.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: minikube_progress
short_description: Wait for the next line of what Minikube does in the background
version_added: 0.1.0
description:
  - Returns one line of what M(turb.kub.minikube_cluster) does in the background, as soon as there is one, or that it is
    done.
options:
  work_dir:
    description: The folder that was given to M(turb.kub.minikube_cluster).
    type: path
    required: true
  line:
    description: Which line, from V(0).
    type: int
    required: true
attributes:
  check_mode:
    support: full
    description: It changes nothing.
author:
  - turb-kub contributors
"""

EXAMPLES = r"""
- name: Show what Minikube does
  turb.kub.minikube_progress:
    work_dir: /home/me/.local/state/turb-kub/demo/minikube
    line: "{{ number }}"
  register: shown
  loop: "{{ range(1000) | list }}"
  loop_control:
    loop_var: number
    label: "{{ shown.text }}"
    break_when: shown.finished
"""

RETURN = r"""
text:
  description: The line.
  type: str
  returned: success
  sample: "node 1 of 2, step 8 of 19: Creating docker container (CPUs=2, Memory=4096MB) ..."
finished:
  description: Whether this is all; then RV(text) only says that.
  type: bool
  returned: success
failure:
  description: Why it failed; empty if it did not, or goes on.
  type: str
  returned: success
"""

import json
import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

try:
    from ansible_collections.turb.kub.plugins.module_utils.cluster_lock import is_locked
except ImportError:  # in a checkout, where the role brings it
    from ansible.module_utils.cluster_lock import is_locked

POLL = 0.1


def lines(work_dir: Path) -> list[str]:
    """Return the lines so far; one that is still being written is none."""
    try:
        return (work_dir / "progress").read_text(errors="replace").split("\n")[:-1]
    except OSError:
        return []


def failure(work_dir: Path) -> str:
    """Return why it failed; empty if it did not."""
    try:
        return str(json.loads((work_dir / "outcome.json").read_text())["failure"])
    except (OSError, ValueError, KeyError):
        return "Minikube was ended before it was done: run this again."


def wait_for(work_dir: Path, line: int) -> dict[str, t.Any]:
    """Wait for the line, or for the end."""
    while True:
        # In this order: what is written before the lock is let go of is seen.
        goes_on = is_locked(work_dir)
        said = lines(work_dir)
        if len(said) > line:
            return {"text": said[line], "finished": False, "failure": ""}
        if not goes_on:
            why = failure(work_dir)
            return {"text": "failed" if why else "ready", "finished": True, "failure": why}
        time.sleep(POLL)


def main() -> None:
    """Read the arguments, wait, answer."""
    module = AnsibleModule(
        argument_spec={
            "work_dir": {"type": "path", "required": True},
            "line": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    result = wait_for(Path(module.params["work_dir"]), module.params["line"])
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
