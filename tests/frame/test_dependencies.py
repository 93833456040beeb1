"""docs/dependencies.md has a line for each direct dependency and for nothing else."""

import re
import tomllib

from tests.frame.conftest import ROOT


def direct_dependencies() -> set[str]:
    environment = tomllib.loads((ROOT / "pyproject.toml").read_text())
    scheduler = tomllib.loads((ROOT / "scheduler/pyproject.toml").read_text())
    groups = environment["dependency-groups"].values()
    requirements = [
        *environment["project"]["dependencies"],
        *scheduler["project"]["dependencies"],
        *(line for group in groups for line in group if isinstance(line, str)),
    ]
    python = {re.split(r"[^A-Za-z0-9._-]", line)[0].lower() for line in requirements}
    return python | set().union(*(modules_of(file.read_text()) for file in ROOT.glob("tools/*/go.mod")))


def modules_of(go_mod: str) -> set[str]:
    """The modules that a go.mod asks for: those of its tools, or those it requires where it names no tools."""
    required = set(re.findall(r"^(?:require )?\s*(\S+\.\S+/\S+) v\S+$", go_mod, re.MULTILINE))
    everything = set(re.findall(r"^(?:require )?\s*(\S+\.\S+/\S+) v\S+(?: // indirect)?$", go_mod, re.MULTILINE))
    tools = re.findall(r"^(?:tool )?\s*(\S+\.\S+/\S+)$", go_mod, re.MULTILINE)
    return required | {max((m for m in everything if tool.startswith(m)), key=len) for tool in tools}


def test_each_has_a_line():
    page = (ROOT / "docs/dependencies.md").read_text()
    named = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert sorted(named) == sorted(direct_dependencies())


def test_what_ci_installs_is_named():
    page = (ROOT / "docs/dependencies.md").read_text().split("`.ci/run` installs")[1]
    script = (ROOT / ".ci/run").read_text()
    added = re.findall(r"missing\+=\(([a-z0-9 -]+)\)", script)
    pairs = re.search(r"for pair in (.+); do", script)
    assert pairs
    packages = {package for group in added for package in group.split()} | {
        pair.split(":")[1] for pair in pairs[1].split()
    }
    assert set(re.findall(r"`([a-z0-9-]+)`", page)) == packages
