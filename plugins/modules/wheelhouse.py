#!/usr/bin/python
# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Keep a folder with the wheels that locked requirements mean for another Python than this one.

A module and not ``pip download`` alone, because pip reads conditions such as ``python_full_version < '3.12'`` for the
Python that it runs on itself, and because a folder that was cut short or changed must never be built from. It writes
folders below the one given and nothing else.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: wheelhouse
short_description: Download the wheels of locked requirements for a given Python
version_added: 0.1.0
description:
  - Makes a folder with exactly the wheels that the requirements mean for one Python on Linux, each with one of the
    hashes given there, and a file C(SHA256SUMS) that names them.
  - A folder that is whole is used again without asking the network.
options:
  path:
    description: Folder of all wheelhouses. Each has a folder of its own, named after what it holds.
    type: path
    required: true
  requirements:
    description: Requirements files, with hashes, as C(uv export) writes them.
    type: list
    elements: path
    required: true
  python_version:
    description: Version of the Python that is to install them, such as C(3.13) or C(3.11.2).
    type: str
    required: true
  machine:
    description: The processor in the kernel's words, such as C(x86_64).
    type: str
    required: true
attributes:
  check_mode:
    support: full
    description: Downloads nothing, and says that it would where the folder is not whole.
author:
  - turb-kub contributors
"""

EXAMPLES = r"""
- name: Get the wheels for the image
  turb.kub.wheelhouse:
    path: /home/me/.cache/turb-kub/wheelhouse
    requirements: [requirements.txt]
    python_version: "3.13"
    machine: x86_64
"""

RETURN = r"""
folder:
  description: The folder with the wheels.
  type: str
  returned: always
wheels:
  description: The names of the wheels.
  type: list
  elements: str
  returned: always
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
import typing as t
from dataclasses import dataclass
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    from packaging.markers import Marker, default_environment
except ImportError:
    PACKAGING_ERROR = traceback.format_exc()
else:
    PACKAGING_ERROR = ""

#: glibc of the oldest base that is meant to work, Debian 12: 2.36. Wheels for older ones run there too.
GLIBC = range(36, 4, -1)
OLD_GLIBC = ("manylinux2014", "manylinux2010", "manylinux1")
#: The user's settings of pip hold (an index of their own, a proxy), but not those that change what a download is.
DROPPED = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_PYTHON", "PIP_CONSTRAINT", "PIP_NO_BINARY")
DROPPED += ("PIP_REQUIRE_VIRTUALENV", "PIP_REQUIREMENT", "PIP_DRY_RUN", "PIP_PLATFORM", "PIP_ABI", "PYTHONPATH")

NAMED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)\s*(?:;(?P<marker>[^#]*?))?(?=\s--hash|$)")
HASHED = re.compile(r"--hash=sha256:([0-9a-f]{64})\b")


class Failure(Exception):
    """Why there is no wheelhouse; the text is a sentence for the user."""


@dataclass(frozen=True)
class Requirement:
    """One package of a requirements file, with the hashes of all its files."""

    name: str
    version: str
    marker: str
    hashes: frozenset[str]

    def line(self) -> str:
        """The requirement for pip, without its condition."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{each}" for each in sorted(self.hashes))])


def parse(text: str, source: str) -> list[Requirement]:
    """Read a requirements file as ``uv export`` writes it: only exact versions with SHA-256 sums are one."""
    found = []
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        named = NAMED.match(line.strip())
        hashes = frozenset(HASHED.findall(line))
        if named is None or not hashes:
            raise Failure(f"{source} has a line that names no exact version with hashes: {line.strip()[:80]!r}.")
        found.append(Requirement(named["name"], named["version"], (named["marker"] or "").strip(), hashes))
    return found


def target_environment(python_version: str, machine: str) -> dict[str, str]:
    """What conditions are evaluated with: CPython of that version on Linux."""
    parts = python_version.split(".")
    return t.cast("dict[str, str]", default_environment()) | {
        "implementation_name": "cpython",
        "implementation_version": python_version,
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": python_version if len(parts) > 2 else f"{python_version}.0",
        "python_version": ".".join(parts[:2]),
        "sys_platform": "linux",
    }


def meant(requirements: list[Requirement], python_version: str, machine: str) -> list[Requirement]:
    """The requirements whose conditions hold there, each once."""
    environment = target_environment(python_version, machine)
    holding = [each for each in requirements if not each.marker or Marker(each.marker).evaluate(environment)]
    return sorted(set(holding), key=lambda each: each.line())


def folder_name(requirements: list[Requirement], python_version: str, machine: str) -> str:
    """A name that differs where the content does."""
    minor = ".".join(python_version.split(".")[:2])
    content = "\n".join([minor, machine, *(each.line() for each in requirements)])
    return f"{hashlib.sha256(content.encode()).hexdigest()[:16]}-cp{minor}-{machine}"


def sums(folder: Path) -> dict[str, str]:
    """The SHA-256 sum of each wheel in the folder, by its name."""
    found = {}
    for path in sorted(folder.glob("*.whl")):
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def listing(found: dict[str, str]) -> str:
    """What SHA256SUMS says of these wheels."""
    return "".join(f"{digest}  {name}\n" for name, digest in found.items())


def is_whole(folder: Path, requirements: list[Requirement]) -> bool:
    """Whether the folder has one good wheel for each requirement, and nothing else."""
    try:
        found = sums(folder)
        said = (folder / "SHA256SUMS").read_text()
    except OSError:
        return False
    known = [sum(digest in each.hashes for digest in found.values()) for each in requirements]
    others = {path.name for path in folder.iterdir()} - set(found) - {"SHA256SUMS"}
    return known == [1] * len(requirements) == [1] * len(found) and said == listing(found) and not others


def download(folder: Path, requirements: list[Requirement], python_version: str, machine: str) -> None:
    """Have pip put the wheels into the folder."""
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC] + [f"{old}_{machine}" for old in OLD_GLIBC]
    file = folder.with_name(f"{folder.name}.txt")
    file.write_text("\n".join(each.line() for each in requirements) + "\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-cache-dir"]  # the folder is a cache
    command += ["--require-hashes", "--only-binary=:all:", "--implementation=cp", f"--python-version={python_version}"]
    command += [f"--platform={platform}" for platform in (*platforms, f"linux_{machine}")]
    command += [f"--dest={folder}", f"--requirement={file}"]
    environment = {name: value for name, value in os.environ.items() if name not in DROPPED}
    try:
        process = subprocess.run(
            command,
            env=environment | {"PIP_NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    finally:
        file.unlink()
    if process.returncode == 0:
        return
    lines = [line.strip() for line in process.stdout.decode(errors="replace").splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        raise Failure(f"{sys.executable} has no pip to download wheels with: run `{sys.executable} -m ensurepip`.")
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-3:]
    raise Failure(
        f"The wheels for Python {python_version} on {machine} can't be downloaded: the network is not there, or"
        " image_base has a Python that the locked packages have no wheels for. What pip says:\n" + "\n".join(errors[:6])
    )


def fill(folder: Path, requirements: list[Requirement], python_version: str, machine: str) -> bool:
    """Make the folder whole; return whether it had to be."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another play may be filling it
        if is_whole(folder, requirements):
            return False
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="new-") as temporary:
            new = Path(temporary) / "wheels"
            new.mkdir(mode=0o755)
            download(new, requirements, python_version, machine)
            (new / "SHA256SUMS").write_text(listing(sums(new)))
            if not is_whole(new, requirements):
                raise Failure("What pip downloaded is not one wheel for each requirement. Try again.")
            if folder.exists():
                shutil.rmtree(folder)
            new.rename(folder)
        return True
    finally:
        os.close(lock)


def main() -> None:
    """Read the arguments, do it, answer."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "requirements": {"type": "list", "elements": "path", "required": True},
            "python_version": {"type": "str", "required": True},
            "machine": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    if PACKAGING_ERROR:
        module.fail_json(msg=missing_required_lib("packaging"), exception=PACKAGING_ERROR)
    python_version, machine = module.params["python_version"], module.params["machine"]
    try:
        locked = [each for file in module.params["requirements"] for each in parse(Path(file).read_text(), file)]
        requirements = meant(locked, python_version, machine)
        folder = Path(module.params["path"]) / folder_name(requirements, python_version, machine)
        if module.check_mode:
            changed = not is_whole(folder, requirements)
        else:
            changed = fill(folder, requirements, python_version, machine)
    except Failure as failure:
        module.fail_json(msg=str(failure))
    except OSError as error:
        module.fail_json(msg=f"The wheelhouse can't be made: {error}.")
    module.exit_json(changed=changed, folder=str(folder), wheels=sorted(path.name for path in folder.glob("*.whl")))


if __name__ == "__main__":
    main()
