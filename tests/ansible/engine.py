"""The Docker engine for tests of real containers: theirs if it answers, else a reason to skip.

Continuous integration says REQUIRE_DOCKER=1: there an engine that does not answer is a failure and no reason to skip.
"""

import os
import subprocess

import pytest

from scripts.run_tests import engine_answers


def docker(*arguments: str) -> str:
    """What docker says; fails the test where docker fails."""
    process = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


def require_docker() -> None:
    """Skip the test without an engine, or fail it where one was promised."""
    if not engine_answers():
        reason = "no Docker engine answers"
        if os.environ.get("REQUIRE_DOCKER"):
            pytest.fail(reason)
        pytest.skip(reason)
