#!/usr/bin/python
# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tell whether this machine could run nodes of Minikube, and with which driver, without asking Minikube.

Whoever leaves the choice of the provider open gets Minikube only where it would work, and has to be told quickly: so a
container engine is asked once, with a time-out, and virtual machines are judged by what lies on the disk. It only
reads.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: minikube_driver
short_description: Find a driver with which Minikube could run several nodes
version_added: 0.1.0
description:
  - Looks for Docker, Podman, libvirt with KVM and VirtualBox, in this order. Of Docker and Podman the engine has to
    answer.
options:
  driver:
    description: Look for this driver only; one that is not known here is taken as it is.
    type: str
    default: ''
  force:
    description: Whether Minikube is run with C(--force), without which it refuses to run as root.
    type: bool
    default: false
  timeout:
    description: Seconds that a container engine may take to answer.
    type: int
    default: 5
attributes:
  check_mode:
    support: full
    description: It changes nothing.
author:
  - turb-kub contributors
"""

EXAMPLES = r"""
- name: Ask whether Minikube could run here
  turb.kub.minikube_driver:
  register: found
"""

RETURN = r"""
driver:
  description: The driver; empty if there is none.
  type: str
  returned: success
  sample: docker
reason:
  description: Why there is none; empty if there is one.
  type: str
  returned: success
"""

import os
import shutil
import subprocess

from ansible.module_utils.basic import AnsibleModule

ENGINES = ("docker", "podman")
#: The program that a driver of virtual machines needs.
MACHINES = {"kvm2": "virsh", "virtualbox": "VBoxManage"}


def problem(driver: str, timeout: float) -> str:
    """Return why a driver would not work; empty if it would, as far as can be seen."""
    if driver in ENGINES:
        return engine_problem(driver, timeout)
    program = MACHINES.get(driver)
    if program and not shutil.which(program):
        return f"there is no {program}"
    if driver == "kvm2" and not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "/dev/kvm can't be used"
    return ""


def engine_problem(engine: str, timeout: float) -> str:
    """Return why a container engine can't be used."""
    program = shutil.which(engine)
    if not program:
        return f"there is no {engine}"
    # Some clients exit with 0 though their engine does not answer, but then they know no version.
    form = "{{.ServerVersion}}" if engine == "docker" else "{{.Version.Version}}"
    try:
        process = subprocess.run(
            [program, "info", "--format", form],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{engine} does not answer within {timeout:.0f} s"
    except OSError as error:
        return f"{engine} does not run ({error.strerror})"
    if process.returncode != 0 or not process.stdout.strip():
        return f"{engine} does not answer"
    return ""


def find(driver: str, force: bool, timeout: float, root: bool) -> tuple[str, str]:
    """Return a driver that works, or an empty one and why there is none."""
    if root and not force and driver != "none":
        return "", "Minikube does not run as root unless cluster_minikube_force is set"
    problems = []
    for candidate in [driver] if driver else [*ENGINES, *MACHINES]:
        reason = problem(candidate, timeout)
        if not reason:
            return candidate, ""
        problems.append(reason)
    return "", ", ".join(problems)


def main() -> None:
    """Read the arguments, look, answer."""
    module = AnsibleModule(
        argument_spec={
            "driver": {"type": "str", "default": ""},
            "force": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 5},
        },
        supports_check_mode=True,
    )
    params = module.params
    driver, reason = find(params["driver"], params["force"], params["timeout"], os.geteuid() == 0)
    module.exit_json(changed=False, driver=driver, reason=reason)


if __name__ == "__main__":
    main()
