#!/usr/bin/python
# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Make a base image from Debian's packages, for machines that reach a Debian mirror but no registry.

A module and not a list of commands, because what is half done (a root file system of root's, with mounts in it) has to
go whatever happens, and because the result is an archive that any Docker, and Minikube without one, loads as it is. It
writes the archive and, while it works, a folder beside it. It asks the mirrors that this machine's apt asks, and leaves
nothing of this machine in the image.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: debian_base
short_description: Make a base image from Debian's packages
version_added: 0.1.0
description:
  - Installs a minimal Debian with C(debootstrap), with the newest updates of the suite, and packs it as an archive that
    C(docker load) understands. Nothing is done where the archive is there already.
  - Needs root, as debootstrap does.
options:
  dest:
    description: The archive. Its folder is made; only the archive stays in it.
    type: path
    required: true
  reference:
    description: Name and tag that the image has once it is loaded.
    type: str
    required: true
  suite:
    description: Debian's name of the release.
    type: str
    required: true
  packages:
    description: Packages to install besides the minimal ones.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: Only says whether the archive would be made.
author:
  - turb-kub contributors
"""

EXAMPLES = r"""
- name: Make a base with Python
  turb.kub.debian_base:
    dest: /home/me/.cache/turb-kub/image/bookworm.tar
    reference: localhost/base:bookworm
    suite: bookworm
    packages: [python3]
"""

RETURN = r"""
size:
  description: Size of the archive in bytes.
  type: int
  returned: when it is there
"""

import fcntl
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

#: Where everybody finds Debian; what the image's own apt asks.
PUBLIC = {"": "http://deb.debian.org/debian", "-updates": "http://deb.debian.org/debian"} | {
    "-security": "http://deb.debian.org/debian-security"
}
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

#: What is of no use in an image, what came from this machine, and what only tells when the image was made. Globs.
UNWANTED = [
    *("usr/share/man/*", "usr/share/info/*", "usr/share/locale/*", "usr/share/lintian/*"),
    *("var/lib/apt/lists/*", "var/cache/apt/*", "var/cache/debconf/*-old", "var/cache/ldconfig/*"),
    *(
        "var/lib/dpkg/*-old",
        "var/log/*",
        "tmp/*",
        "run/*",
        "root/.*",
        "etc/hostname",
        "etc/resolv.conf",
        "etc/machine-id",
        "etc/*-",
    ),
    *("etc/.pwd.lock", "etc/apt/sources.list", "etc/apt/sources.list.d/*", "etc/apt/apt.conf.d/99turb-kub"),
]


class Failure(Exception):
    """Why there is no image; the text is a sentence for the user."""


def run(command: list[str], what: str) -> str:
    """Run a program; return what it printed, or raise Failure with its last lines."""
    process = subprocess.run(
        command,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PATH": SEARCHED, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "TMPDIR": "/tmp"},
        check=False,
    )
    text = process.stdout.decode(errors="replace")
    if process.returncode != 0:
        tail = "\n".join(text.strip().splitlines()[-12:])
        raise Failure(f"{what} failed. The last lines of {Path(command[0]).name}:\n{tail}")
    return text


def mirrors_of_apt(suite: str, listing: str) -> dict[str, str]:
    """The URL for each part of the suite, by the ending of its name, as this machine's apt has them.

    The listing is the output of ``apt-get indextargets``: a line with URL, release and component for each index.
    """
    found = dict(PUBLIC)
    for line in listing.splitlines():
        url, release, component = (*line.split(), "", "", "")[:3]
        part = release.removeprefix(suite)
        if component == "main" and release.startswith(suite) and part in found:
            found[part] = url
    return found


def host_mirrors(suite: str) -> dict[str, str]:
    """`mirrors_of_apt`, or Debian's public ones where there is no apt."""
    try:
        listing = run(["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)"], "Asking apt")
    except (Failure, OSError):
        listing = ""
    return mirrors_of_apt(suite, listing)


def sources(suite: str, mirrors: dict[str, str]) -> str:
    """Those mirrors in the format of a sources.list."""
    lines = [f"deb [signed-by={KEYRING}] {url} {suite}{part} main" for part, url in mirrors.items()]
    return "\n".join(lines) + "\n"


def network_settings() -> str:
    """How this machine's apt reaches its mirrors (proxies, time-outs, dates), in the format of an apt.conf."""
    try:
        lines = run(["apt-config", "dump", "Acquire"], "Asking apt").splitlines()
    except (Failure, OSError):
        return ""
    return "\n".join(line for line in lines if not line.startswith("Acquire::IndexTargets")) + "\n"


def install(root: Path, suite: str, packages: list[str]) -> None:
    """Make a root file system with the newest packages of the suite."""
    mirrors = host_mirrors(suite)
    include = [f"--include={','.join(packages)}"] if packages else []
    command = ["debootstrap", "--variant=minbase", *include, suite, str(root), mirrors[""]]
    run(command, f"Installing Debian {suite} from {mirrors['']}")
    (root / "etc/apt/sources.list").write_text(sources(suite, mirrors))
    (root / "etc/apt/apt.conf.d/99turb-kub").write_text(network_settings())
    certificates = Path("/") / CERTIFICATES
    lent = certificates.is_file() and not (root / CERTIFICATES).exists()
    if lent:  # for mirrors that are asked by HTTPS
        (root / CERTIFICATES).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(certificates, root / CERTIFICATES)
    for arguments in (["update"], ["--yes", "dist-upgrade"], ["clean"]):
        run(["chroot", str(root), "apt-get", "-q", *arguments], f"Updating Debian {suite}")
    if lent:
        (root / CERTIFICATES).unlink()


def tidy(root: Path, suite: str) -> None:
    """Remove what is unwanted, and let the image's apt ask Debian's public mirrors."""
    for pattern in UNWANTED:
        for path in root.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    # The texts of the licenses stay: they belong to what is passed on.
    for path in (root / "usr/share/doc").glob("*/*"):
        if path.name != "copyright":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (root / "etc/apt/sources.list").write_text(sources(suite, PUBLIC))


def pack(root: Path, layer: Path) -> str:
    """Write the root file system as a layer; return its SHA-256 sum."""
    with tarfile.open(layer, "w", format=tarfile.GNU_FORMAT) as archive:

        def add(path: Path) -> None:
            entry = archive.gettarinfo(path, path.relative_to(root).as_posix())
            if entry is None:  # a socket
                return
            entry.uname = entry.gname = ""
            if entry.isreg():
                with path.open("rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)

        for folder, folders, files in os.walk(root):
            folders.sort()
            where = Path(folder)
            # The engine mounts its own over these.
            inside = [] if where in (root / "dev", root / "proc", root / "sys") else sorted(files + folders)
            if not inside:
                folders.clear()
            for name in inside:
                add(where / name)
    with layer.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_archive(layer: Path, digest: str, reference: str, archive: Path, suite: str) -> None:
    """Write an archive of an image with one layer, in the format of ``docker save``."""
    config = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "config": {"Cmd": ["/bin/sh"], "Env": [f"PATH={SEARCHED}"]},
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "history": [{"created_by": f"debootstrap {suite}"}],
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    content = json.dumps(config).encode()
    name = f"{hashlib.sha256(content).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [reference], "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        for path, data in ((name, content), ("manifest.json", json.dumps(manifest).encode())):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
        entry = tarfile.TarInfo(f"{digest}/layer.tar")
        entry.size, entry.mode = layer.stat().st_size, 0o644
        with layer.open("rb") as file:
            tar.addfile(entry, file)


def mounts_below(folder: Path, table: str) -> list[str]:
    """Mount points below the folder, innermost first, from the text of /proc/self/mountinfo."""
    fields = [line.split() for line in table.splitlines()]
    points = [re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), line[4]) for line in fields if len(line) > 4]
    return sorted((point for point in points if point.startswith(f"{folder}/")), reverse=True)


def remove(folder: Path) -> None:
    """Remove the working folder, after unmounting what a debootstrap that was killed left mounted in it."""
    for point in mounts_below(folder, Path("/proc/self/mountinfo").read_text()):
        run(["umount", point], f"Unmounting {point}")
    if folder.exists():
        shutil.rmtree(folder)


def make(params: dict[str, t.Any], dest: Path) -> bool:
    """Make the archive unless it is there; return whether it was made."""
    dest.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(dest.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another play may be making it
        if dest.exists():
            return False
        if os.geteuid() != 0:
            raise Failure("debootstrap needs root: run the play as root, or set image_base to an image to pull.")
        if shutil.which("debootstrap", path=SEARCHED) is None:
            raise Failure("There is no debootstrap: install that package, or set image_base to an image to pull.")
        work = dest.with_name(f"{dest.name}.work")
        os.umask(0o022)  # what is made here is the image's
        remove(work)  # of a run that was killed
        work.mkdir()
        try:
            install(work / "root", params["suite"], params["packages"])
            tidy(work / "root", params["suite"])
            digest = pack(work / "root", work / "layer.tar")
            write_archive(work / "layer.tar", digest, params["reference"], work / "image.tar", params["suite"])
            (work / "image.tar").replace(dest)
        finally:
            remove(work)
        return True
    finally:
        os.close(lock)


def main() -> None:
    """Read the arguments, do it, answer."""
    module = AnsibleModule(
        argument_spec={
            "dest": {"type": "path", "required": True},
            "reference": {"type": "str", "required": True},
            "suite": {"type": "str", "required": True},
            "packages": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    dest = Path(module.params["dest"])
    try:
        changed = not dest.exists() if module.check_mode else make(module.params, dest)
    except Failure as failure:
        module.fail_json(msg=str(failure))
    except OSError as error:
        module.fail_json(msg=f"The base image can't be made: {error}.")
    module.exit_json(changed=changed, size=dest.stat().st_size if dest.exists() else 0)


if __name__ == "__main__":
    main()
