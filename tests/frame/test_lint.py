"""scripts/lint.sh runs every check, and fails when one does."""

from pathlib import Path

import pytest

from tests.frame.conftest import Run, write_program

TOOLS = ("uv", "ruff", "mypy", "lint-imports", "shellcheck", "yamllint", "ansible-lint", "antsibull-changelog", "go")


@pytest.fixture
def lint(checkout: Path, run: Run):
    for tool in TOOLS:
        write_program(checkout / ".venv/bin" / tool, "exit 0\n")
    (checkout / ".ci").mkdir()
    (checkout / "changelogs").mkdir()
    (checkout / "tools/actionlint").mkdir(parents=True)
    (checkout / "roles").mkdir()
    return lambda: run("scripts/lint.sh")


def test_all_pass_with_one_line_each(lint):
    done = lint()
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == len(TOOLS) + 1  # ruff checks and looks at the format
    assert all(line.startswith("ok ") for line in lines)


@pytest.mark.parametrize("tool", TOOLS)
def test_one_that_fails_is_shown_and_the_rest_is_run(lint, checkout, tool):
    write_program(checkout / ".venv/bin" / tool, "echo 'line 7: wrong'; exit 1\n")
    done = lint()
    assert done.returncode == 1
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert len(failed) == (2 if tool == "ruff" else 1)
    assert done.stdout.count("    line 7: wrong\n") == len(failed)
    assert done.stdout.count("ok ") == len(TOOLS) + 1 - len(failed)
