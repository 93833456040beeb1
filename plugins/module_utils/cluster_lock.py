# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Let one run at a time work on a cluster.

What kwok_cluster and the modules for Minikube share. It writes the file `lock` in the folder that it is given.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
import typing as t

if t.TYPE_CHECKING:
    from pathlib import Path

#: Seconds between two tries.
POLL = 0.1


class ClusterError(Exception):
    """Something that the user has to know; the text says what to do."""


def is_locked(work_dir: Path) -> bool:
    """Return whether somebody works on the cluster; nobody does where there is no lock that could be looked at."""
    try:
        with (work_dir / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextlib.contextmanager
def locked(work_dir: Path, timeout: float) -> t.Iterator[None]:
    """Hold the cluster's lock, so that two runs do not work on it at the same time.

    The kernel lets go of it when the last process that has it ends: a holder that dies is in nobody's way, and one that
    was forked keeps it.

    Raises:
        ClusterError: another holds it for longer than `timeout` seconds.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout
    with (work_dir / "lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"Another run has been working on the cluster in {work_dir} for {timeout:.0f} s: wait for it,"
                        " or end it."
                    ) from None
                time.sleep(POLL)
        yield
