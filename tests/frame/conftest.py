"""A checkout to try the frame in: its scripts and Makefile, without the environment and without the rest."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the frame in a folder with a space in its name."""
    copy = tmp_path / "a checkout"
    shutil.copytree(ROOT / "scripts", copy / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Makefile", copy)
    return copy


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def run(tmp_path: Path, checkout: Path, home: Path) -> Run:
    """Runs a command in the checkout, with nothing in the environment but what the test gives."""

    def run(*command: str | Path, path: str = os.defpath, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in command],
            cwd=checkout,
            env={"PATH": path, "HOME": str(home), "TMPDIR": str(tmp_path), **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def write_program(path: Path, text: str) -> Path:
    """A shell script that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def stand_in_environment(checkout: Path) -> None:
    """A .venv of the checkout that is up to date without having been made."""
    write_program(checkout / "scripts/bootstrap.sh", 'echo "bootstrap $*" >&2\n')
    write_program(checkout / ".venv/bin/python", f'exec "{sys.executable}" "$@"\n')
