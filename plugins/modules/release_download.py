#!/usr/bin/python
# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Download one program of an official release, or say why it can't be had.

A module and not ``get_url``, because the three ways in which this goes wrong need three answers: a server that can't
be reached is to be found out quickly and not asked again, a file that is not there is no error, and a file that is not
what its publisher says must never be used. It writes the one file that it is asked for.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_download
short_description: Download a program of a release if its publisher's checksum can be had
version_added: 0.1.0
description:
  - Asks for the checksum first, with a short time-out over all, name resolution included.
  - Fails only if the file is not what the checksum says. Otherwise RV(downloaded) and RV(reason) say how it went.
  - In check mode only asks, and RV(downloaded) says whether it would be.
options:
  url:
    description: The file.
    type: str
    required: true
  checksum_url:
    description: Text with its SHA-256 sum, either alone or in a line with the file's name.
    type: str
  checksum:
    description: The sum itself, in place of O(checksum_url).
    type: str
  member:
    description: If the file is a tar archive, the path in it of the program.
    type: str
  dest:
    description: Where to put the program.
    type: path
    required: true
  timeout:
    description: Seconds for the server to give the checksum, or to begin with the file.
    type: int
    default: 5
attributes:
  check_mode:
    support: full
    description: Asks for the checksum and writes nothing.
author:
  - turb-kub contributors
"""

EXAMPLES = r"""
- name: Download kubectl
  turb.kub.release_download:
    url: https://dl.k8s.io/release/v1.36.3/bin/linux/amd64/kubectl
    checksum_url: https://dl.k8s.io/release/v1.36.3/bin/linux/amd64/kubectl.sha256
    dest: /tmp/kubectl
"""

RETURN = r"""
downloaded:
  description: Whether the program is there now.
  type: bool
  returned: always
reason:
  description: Why it is not.
  type: str
  returned: always
unreachable_host:
  description: The server's name and port, if it did not answer.
  type: str
  returned: always
"""

import hashlib
import http.client
import os
import re
import tarfile
import threading
import typing as t
import urllib.error
import urllib.parse
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

#: Seconds without a byte after which a download that has begun is given up.
STALLED = 60
#: No file of checksums is longer; the answer may be anything.
CHECKSUMS_SIZE = 1 << 20


class Unavailable(Exception):
    """The server does not have it."""


class Unreachable(Unavailable):
    """The server does not answer."""


class Mismatch(Exception):
    """The file is not what its publisher says."""


Result = t.TypeVar("Result")


def within(seconds: float, call: t.Callable[[], Result]) -> Result:
    """Return what the call returns, or raise Unreachable when it takes longer.

    A time-out of sockets alone is one for each address of a name, and there is none for finding the addresses.
    """
    results: list[Result] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            results.append(call())
        except Exception as error:  # raised again below, in the thread that asked
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise Unreachable(f"no answer within {seconds:.0f} s")
    return results[0]


def opened(url: str, timeout: float) -> t.Any:
    """Open a URL for reading."""
    try:
        return open_url(url, timeout=timeout, http_agent="turb-kub")
    except urllib.error.HTTPError as error:
        raise Unavailable(f"HTTP {error.code}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise Unreachable(str(getattr(reason, "strerror", None) or reason)) from error


def find_checksum(text: str, name: str) -> str:
    """Return the SHA-256 sum of a file from a text of checksums; empty if there is none."""
    for line in text.splitlines():
        match = re.fullmatch(r"([0-9a-f]{64})(?:\s+\*?(\S+))?\s*", line)
        if match and match.group(2) in (None, name):
            return match.group(1)
    return ""


def published_checksum(url: str, name: str, timeout: float) -> str:
    """Return the checksum that the publisher gives for a file."""

    def fetch() -> bytes:
        with opened(url, timeout) as answer:
            data: bytes = answer.read(CHECKSUMS_SIZE)
            return data

    try:
        text = within(timeout, fetch).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(str(error)) from error
    checksum = find_checksum(text, name)
    if not checksum:
        raise Unavailable("no checksum for it is published")
    return checksum


def fetch(url: str, path: Path, timeout: float) -> str:
    """Write what is at the URL to the path. Return its SHA-256 sum."""
    digest = hashlib.sha256()
    answer = within(timeout, lambda: opened(url, STALLED))
    try:
        with answer, path.open("wb") as file:
            while block := answer.read(1 << 18):
                digest.update(block)
                file.write(block)
    except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
        raise Unavailable(f"the download broke off ({error})") from error
    return digest.hexdigest()


def download(params: dict[str, t.Any]) -> None:
    """Download the program, or raise why not."""
    name = os.path.basename(urllib.parse.urlsplit(params["url"]).path)
    expected = params["checksum"] or published_checksum(params["checksum_url"], name, params["timeout"])
    dest = Path(params["dest"])
    file = dest.with_name(f"{dest.name}.download")
    try:
        found = fetch(params["url"], file, params["timeout"])
        if found != expected:
            raise Mismatch(
                f"What {params['url']} gives us has the SHA-256 sum {found}, but it should be {expected}: it was not"
                " used. Try again; if that does not help, set cluster_download to false to build from source."
            )
        if not params["member"]:
            file.replace(dest)
            return
        with tarfile.open(file) as archive:
            member = archive.extractfile(params["member"])
            if member is None:
                raise Unavailable(f"{params['member']} is not a file")
            dest.write_bytes(member.read())
    except (KeyError, tarfile.TarError) as error:
        raise Unavailable(f"its archive does not have it ({error})") from error
    finally:
        file.unlink(missing_ok=True)


def ask(params: dict[str, t.Any]) -> None:
    """Ask whether the program could be downloaded, or raise why not; nothing is written."""
    if params["checksum"]:
        within(params["timeout"], lambda: opened(params["url"], params["timeout"])).close()
    else:
        name = os.path.basename(urllib.parse.urlsplit(params["url"]).path)
        published_checksum(params["checksum_url"], name, params["timeout"])


def main() -> None:
    """Read the arguments, do it, answer."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "checksum_url": {"type": "str"},
            "checksum": {"type": "str"},
            "member": {"type": "str"},
            "dest": {"type": "path", "required": True},
            "timeout": {"type": "int", "default": 5},
        },
        required_one_of=[("checksum", "checksum_url")],
        supports_check_mode=True,
    )
    reason = host = ""
    try:
        ask(module.params) if module.check_mode else download(module.params)
    except Unreachable as error:
        reason, host = str(error), urllib.parse.urlsplit(module.params["url"]).netloc
    except Unavailable as error:
        reason = str(error)
    except Mismatch as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=not reason, downloaded=not reason, reason=reason, unreachable_host=host)


if __name__ == "__main__":
    main()
