"""How the tests of the plays run them: as from the checkout, with its inventory."""

import socket
import subprocess
from typing import Any

from tests.ansible.conftest import CACHE, ROOT, Played, Workshop

#: Compiled Python is kept, for speed; a play without it takes twice as long.
QUICK = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(CACHE / "pycache")}


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def play(workshop: Workshop, playbook: str, *arguments: str, env: dict[str, str] | None = None, **more: Any) -> Played:
    """Run a playbook: of the checkout by its path, with the inventory, or of an installed collection by its name."""
    command = workshop.command(str(ROOT / playbook), *arguments, **more)
    if playbook.endswith(".yml"):
        command.append(f"--inventory={ROOT / 'inventory/hosts.yml'}")
    else:
        command[1] = playbook
    process = subprocess.run(
        command,
        cwd=workshop.folder,
        env=workshop.environment(**QUICK) | (env or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    return Played(process)
