#!/usr/bin/python
# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tell which of a list of programs can be used, and put a new one in place.

A module and not ``stat`` and ``command`` in a loop, because it runs at every ``make up``: six programs are checked in
under a second. It writes nothing but the programs given as candidates and the checksum file beside each.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: program_cache
short_description: Check programs, and install new ones whole or not at all
version_added: 0.1.0
description:
  - Checks that each program is there, is what was put there, runs and reports the expected version.
  - With a candidate, checks that one first and then renames it to the program's path, with its SHA-256 sum beside it
    in a file of the same name with the ending C(.sha256). So a path never holds half a program, and one that was
    damaged later is noticed.
options:
  programs:
    description: The programs.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name to report it by.
        type: str
        required: true
      path:
        description: Where it is, or is to be.
        type: path
        required: true
      version:
        description: The version that it must report; a leading C(v) does not count. Any if empty.
        type: str
        default: ''
      version_args:
        description: Arguments that make it print its version.
        type: list
        elements: str
        default: [--version]
      sealed:
        description: Whether the checksum file must be there and must agree.
        type: bool
        default: true
      candidate:
        description:
          - File to install to O(programs[].path), on the same file system. It is moved, or removed if it is no good.
          - Its name has to end in a part of its own, as in C(etcd.1234). Files of the same name with another such part
            are removed when they are a minute old.
        type: path
attributes:
  check_mode:
    support: full
    description: Installs nothing.
author:
  - turb-kub contributors
"""

EXAMPLES = r"""
- name: Check a program in the cache
  turb.kub.program_cache:
    programs:
      - name: etcd
        path: /home/me/.cache/turb-kub/etcd
        version: v3.6.16

- name: Put a program there that was just built
  turb.kub.program_cache:
    programs:
      - name: etcd
        path: /home/me/.cache/turb-kub/etcd
        version: v3.6.16
        candidate: /home/me/.cache/turb-kub/tmp/etcd.1234
"""

RETURN = r"""
programs:
  description:
    - By name, C(path), C(usable), C(version) (what it reports) and C(reason) (why it can't be used).
  type: dict
  returned: always
unusable:
  description: Names of the programs that can't be used, in the order given.
  type: list
  elements: str
  returned: always
"""

import hashlib
import os
import re
import subprocess
import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

VERSION = re.compile(r"\bv?(\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?)")
TIMEOUT = 30
#: Seconds after which a candidate that nobody has installed is one of a run that was killed.
FORGOTTEN = 60


class Unusable(Exception):
    """Why a program can't be used."""


def sha256(path: Path) -> str:
    """Return the SHA-256 sum of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def seal(path: Path) -> Path:
    """Return the path of a program's checksum file."""
    return path.with_name(f"{path.name}.sha256")


def reported_version(path: Path, arguments: list[str]) -> str:
    """Run a program for its version."""
    try:
        process = subprocess.run(
            [str(path), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT,
            # Neither the user's kubeconfig nor ETCD_* or KWOK_* have a say here.
            env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"},
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Unusable(f"it does not run ({reason})") from error
    text = process.stdout.decode(errors="replace")
    if process.returncode != 0:
        first = (text.strip().splitlines() or ["no output"])[0]
        raise Unusable(f"it does not run (exit code {process.returncode}: {first})")
    match = VERSION.search(text)
    if not match:
        raise Unusable("it does not say its version")
    return match.group(1)


def check(path: Path, version: str, arguments: list[str], sealed: bool) -> str:
    """Return the version that a usable program reports, or raise Unusable."""
    if not path.is_file():
        raise Unusable("there is no such file" if not path.exists() else "it is not a file")
    if not os.access(path, os.X_OK):
        raise Unusable("it is not executable")
    if sealed:
        try:
            expected = seal(path).read_text().strip()
        except OSError as error:
            raise Unusable("its checksum file is missing") from error
        if sha256(path) != expected:
            raise Unusable("it is not what was put there (its checksum differs)")
    reported = reported_version(path, arguments)
    if version and reported != version.removeprefix("v"):
        raise Unusable(f"it is version {reported}, not {version.removeprefix('v')}")
    return reported


def install(candidate: Path, path: Path, version: str, arguments: list[str]) -> str:
    """Move a program to its place once it is known to be good. Return the version that it reports."""
    if not candidate.is_file():
        raise Unusable(f"{candidate} does not exist")
    candidate.chmod(0o755)
    try:
        reported = check(candidate, version, arguments, sealed=False)
    except Unusable:
        candidate.unlink()
        raise
    path.parent.mkdir(parents=True, exist_ok=True)
    with candidate.open("rb") as file:
        os.fsync(file.fileno())
    # The checksum first: if this is broken off in between, the old program no longer agrees and is replaced next time.
    temporary = candidate.with_name(f"{candidate.name}.sha256")
    temporary.write_text(f"{sha256(candidate)}\n")
    temporary.replace(seal(path))
    candidate.replace(path)
    remove_forgotten(candidate)
    return reported


def remove_forgotten(candidate: Path) -> None:
    """Remove what killed runs left of the same program: candidates whose name differs in the last part."""
    for other in candidate.parent.glob(f"{candidate.stem}.*"):
        if other.is_file() and time.time() - other.stat().st_mtime > FORGOTTEN:
            other.unlink(missing_ok=True)


def main() -> None:
    """Read the arguments, do it, answer."""
    module = AnsibleModule(
        argument_spec={
            "programs": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "path": {"type": "path", "required": True},
                    "version": {"type": "str", "default": ""},
                    "version_args": {"type": "list", "elements": "str", "default": ["--version"]},
                    "sealed": {"type": "bool", "default": True},
                    "candidate": {"type": "path"},
                },
            },
        },
        supports_check_mode=True,
    )
    changed = False
    results: dict[str, dict[str, t.Any]] = {}
    for program in module.params["programs"]:
        path = Path(program["path"])
        result = {"path": str(path), "usable": True, "version": "", "reason": ""}
        try:
            if program["candidate"] and not module.check_mode:
                candidate = Path(program["candidate"])
                result["version"] = install(candidate, path, program["version"], program["version_args"])
            else:
                result["version"] = check(path, program["version"], program["version_args"], program["sealed"])
            changed = changed or bool(program["candidate"])
        except Unusable as error:
            result.update(usable=False, reason=str(error))
        except OSError as error:
            module.fail_json(msg=f"{path}: {error.strerror}.")
        results[program["name"]] = result
    unusable = [name for name, result in results.items() if not result["usable"]]
    failed = {name: results[name]["reason"] for name in unusable}
    if any(program["candidate"] for program in module.params["programs"]) and failed:
        text = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        message = f"What was downloaded or built can't be used. {text}."
        module.fail_json(msg=message, programs=results, unusable=unusable)
    module.exit_json(changed=changed, programs=results, unusable=unusable)


if __name__ == "__main__":
    main()
