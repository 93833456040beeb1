#!/usr/bin/python
# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Put together the folder that an image is built from.

A module and not ``copy``, because the folder must hold exactly the files that the image's tag is the hash of, with the
same modes and times wherever they came from, and because wheels are better linked than copied. It writes the folder
and, while it works, one of the same name ending in ``.new``.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: image_context
short_description: Put together the folder that an image is built from
version_added: 0.1.0
description:
  - Makes a folder with the named files of a source folder and with wheels, and with values in the place of the defaults
    of the Dockerfile's build arguments, so that it can be built without any.
  - Whatever else was in the folder is removed.
options:
  path:
    description: The folder to make.
    type: path
    required: true
  source:
    description: The folder with the files, one of them C(Dockerfile).
    type: path
    required: true
  files:
    description: Which of them, relative to O(source).
    type: list
    elements: str
    required: true
  wheels:
    description: Folder whose files go into C(wheels).
    type: path
    required: true
  build_arguments:
    description: Values to write into lines such as C(ARG BASE=...) of the Dockerfile. Others are passed over.
    type: dict
    default: {}
attributes:
  check_mode:
    support: none
author:
  - turb-kub contributors
"""

EXAMPLES = r"""
- name: Make the folder
  turb.kub.image_context:
    path: /home/me/.local/state/turb-kub/turb-kub/image/context
    source: scheduler
    files: [Dockerfile, pyproject.toml]
    wheels: /home/me/.cache/turb-kub/wheelhouse/0123
    build_arguments:
      BASE: python:3.13-slim
"""

RETURN = r"""
files:
  description: All files in the folder, relative to it.
  type: list
  elements: str
  returned: always
"""

import filecmp
import os
import re
import shutil
from pathlib import Path, PurePosixPath

from ansible.module_utils.basic import AnsibleModule


class Failure(Exception):
    """Why there is no folder; the text is a sentence for the user."""


def with_arguments(dockerfile: str, arguments: dict[str, str]) -> str:
    """The Dockerfile with other defaults for its build arguments."""
    for name, value in arguments.items():
        if re.search(r"[\s\"'$\\]", value):
            raise Failure(f"{value!r} can't be the value of {name}: a Dockerfile would read it otherwise.")
        dockerfile = re.sub(rf"^ARG {re.escape(name)}=.*$", f"ARG {name}={value}", dockerfile, flags=re.MULTILINE)
    return dockerfile


def place(source: Path, target: Path) -> None:
    """Copy a file with the mode and time that every copy has."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)
    os.utime(target, (0, 0))


def link(source: Path, target: Path) -> None:
    """Place a file without copying it where that can be done."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:  # another file system
        place(source, target)


def names(folder: Path) -> list[str]:
    """The files below a folder, relative to it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def same(one: Path, other: Path) -> bool:
    """Whether two folders have the same files."""
    found = names(one)
    return found == names(other) and all(filecmp.cmp(one / name, other / name, shallow=False) for name in found)


def make(path: Path, source: Path, files: list[str], wheels: Path, arguments: dict[str, str]) -> bool:
    """Make the folder; return whether it was another one before."""
    new = path.with_name(f"{path.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True, mode=0o755)
    for name in files:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise Failure(f"{name} is not below {source}.")
        place(source / name, new / name)
    for wheel in sorted(wheels.iterdir()):
        link(wheel, new / "wheels" / wheel.name)
    dockerfile = new / "Dockerfile"
    if not dockerfile.is_file():
        raise Failure(f"There is no Dockerfile in {source}: set image_context_dir to a folder with one.")
    dockerfile.write_text(with_arguments(dockerfile.read_text(), arguments))
    os.utime(dockerfile, (0, 0))
    if path.is_dir() and same(new, path):
        shutil.rmtree(new)
        return False
    if path.exists():
        shutil.rmtree(path)
    new.rename(path)
    return True


def main() -> None:
    """Read the arguments, do it, answer."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "source": {"type": "path", "required": True},
            "files": {"type": "list", "elements": "str", "required": True},
            "wheels": {"type": "path", "required": True},
            "build_arguments": {"type": "dict", "default": {}},
        },
    )
    params = module.params
    path, source = Path(params["path"]), Path(params["source"])
    arguments = {name: str(value) for name, value in params["build_arguments"].items()}
    try:
        changed = make(path, source, params["files"], Path(params["wheels"]), arguments)
    except Failure as failure:
        module.fail_json(msg=str(failure))
    except OSError as error:
        module.fail_json(msg=f"The folder {path} can't be made: {error}.")
    module.exit_json(changed=changed, files=names(path))


if __name__ == "__main__":
    main()
