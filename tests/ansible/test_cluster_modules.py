"""The functions of the modules kwok_cluster and program_cache, and the latter on real files."""

import hashlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ansible.conftest import load_module, run_module

kwok = load_module("kwok_cluster")
cache = load_module("program_cache")

COMPLETE = """
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokctlConfiguration
components:
- name: etcd
  args: [--name=node0]
  ports: [{name: peer-http, port: 1}, {name: http, port: 2}]
  version: 3.6.16
- name: kube-apiserver
  ports: [{name: https, port: 3}]
---
kind: Stage
"""


def cluster_with(folder: Path, config: str) -> Any:
    """A cluster of which kwokctl wrote this."""
    at = folder / "clusters/a"
    (at / "pki").mkdir(parents=True)
    (at / "kwok.yaml").write_text(config)
    for file in ("ca.crt", "admin.crt", "admin.key"):
        (at / "pki" / file).write_text(file)
    return kwok.Cluster("a", folder, {})


def write_program(path: Path, text: str = "echo program version v1.2.3") -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# -- kwok_cluster ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", ["", "kind: [", "- 1", "kind: KwokctlConfiguration", "kind: Stage", "a: b: c"])
def test_a_record_that_was_not_finished_has_no_components(tmp_path: Path, config: str) -> None:
    (tmp_path / "kwok.yaml").write_text(config)
    assert kwok.read_components(tmp_path / "kwok.yaml") == []


def test_components_are_read_from_kwokctl(tmp_path: Path) -> None:
    etcd, api = cluster_with(tmp_path, COMPLETE).components
    assert etcd == kwok.Component("etcd", ("--name=node0",), (1, 2), "3.6.16")
    assert api.ports == (3,)


def test_found_absent_incomplete_and_stopped(tmp_path: Path) -> None:
    assert kwok.Cluster("a", tmp_path, {}).found() == "absent"
    (tmp_path / "clusters/a").mkdir(parents=True)
    assert kwok.Cluster("a", tmp_path, {}).found() == "incomplete"
    (tmp_path / "clusters/a").rmdir()
    assert cluster_with(tmp_path, COMPLETE).found() == "stopped"
    (tmp_path / "clusters/a/pki/admin.key").unlink()
    assert kwok.Cluster("a", tmp_path, {}).found() == "incomplete"


def test_processes_are_ours_by_the_path_of_their_program(tmp_path: Path) -> None:
    """Neither a program that only names our folder is one of ours, nor one of a cluster whose name begins the same."""
    commands = {
        "etcd": [str(tmp_path / "clusters/a/bin/etcd"), "60"],
        "kwokctl": ["kwokctl-of-a-test", f"--config={tmp_path}/options.yaml"],
        "another cluster": [str(tmp_path / "clusters/ab/bin/etcd"), "60"],
        "a reader": ["cat", "-", str(tmp_path / "clusters/a/bin/etcd")],
    }
    code = "import signal; signal.pause()"
    started = {
        name: subprocess.Popen([argv[0], "-c", code, *argv[1:]], executable=sys.executable)
        for name, argv in commands.items()
    }
    cluster = kwok.Cluster("a", tmp_path, {})
    try:
        # A process has its command line from the moment that Popen returns.
        found = kwok.processes(cluster.folder, cluster.options)
        assert found == {started["etcd"].pid: "etcd", started["kwokctl"].pid: "kwokctl"}

        kwok.end_processes(cluster.folder, cluster.options, only="kwokctl")
        assert kwok.processes(cluster.folder, cluster.options) == {started["etcd"].pid: "etcd"}
        # Nobody has collected them: a zombie does not count as running.
        kwok.end_processes(cluster.folder, cluster.options)
        assert kwok.processes(cluster.folder, cluster.options) == {}
        assert started["another cluster"].poll() is None
        assert started["a reader"].poll() is None
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def test_ports_that_are_in_use_are_seen() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(1)
        assert kwok.port_error(sock.getsockname()[1]) != 0
    with socket.socket() as sock:
        sock.bind(("0.0.0.0", 0))
        sock.listen(1)
        assert kwok.port_error(sock.getsockname()[1]) != 0


def test_ports_are_drawn_apart_and_below_those_of_outgoing_connections() -> None:
    draws = [tuple(kwok.draw_ports(4, {kwok.PORTS.start})) for _ in range(20)]
    assert all(len(set(ports)) == 4 and kwok.PORTS.start not in ports for ports in draws)
    # That two of twenty are the same by chance is as likely as one in 10^14.
    assert len(set(draws)) == 20
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert lowest < 32768 or kwok.PORTS.stop <= lowest


def test_kwokctl_is_told_loopback_tls_and_authorization() -> None:
    programs = {name: f"/p/{name}" for name in kwok.PROGRAMS}
    document = kwok.options_document(programs, [1, 2, 3, 4, 5], Path("/c"))
    options = document["options"]
    assert options["bindAddress"] == "127.0.0.1"
    assert options["securePort"] is options["kubeAuthorization"] is options["kubeAdmission"] is True
    assert options["disable"] == ["kube-scheduler"]
    assert options["kubeApiserverPort"] == 1
    # Or there is no cluster on a machine without a default route.
    (patch,) = document["componentsPatches"]
    assert patch == {"name": "kube-apiserver", "extraArgs": [{"key": "advertise-address", "value": "192.0.2.1"}]}


def test_the_kubeconfig_has_one_context_named_like_the_cluster() -> None:
    config = yaml.safe_load(kwok.kubeconfig_text("demo", 7, b"ca", b"cert", b"key"))
    assert [context["name"] for context in config["contexts"]] == ["demo"] == [config["current-context"]]
    assert config["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:7",
        "certificate-authority-data": "Y2E=",
    }


def test_the_kubeconfig_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "new/kubeconfig"
    kwok.write_private(file, "text")
    assert file.stat().st_mode & 0o777 == 0o600
    assert kwok.is_current(file, "text")
    assert not kwok.is_current(file, "other")
    file.chmod(0o644)
    assert not kwok.is_current(file, "text")


def test_a_second_run_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    with kwok.locked(tmp_path, 0), pytest.raises(kwok.ClusterError, match="Another run"), kwok.locked(tmp_path, 0):
        pass
    with kwok.locked(tmp_path, 0):
        pass


# -- program_cache -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("etcd Version: 3.6.16\nGit SHA: Not provided\nGo Version: go1.26.8", "3.6.16"),
        ("Kubernetes v1.36.3", "1.36.3"),
        ("Client Version: v1.36.3\nKustomize Version: v5.8.1", "1.36.3"),
        ("kwok version v0.7.0 go1.26.8 (linux/amd64)", "0.7.0"),
    ],
)
def test_versions_as_the_programs_print_them(text: str, version: str, tmp_path: Path) -> None:
    program = write_program(tmp_path / "p", f"cat <<'END'\n{text}\nEND")
    assert cache.reported_version(program, []) == version


def test_a_program_is_installed_whole_and_then_known(tmp_path: Path) -> None:
    candidate = write_program(tmp_path / "new")
    candidate.chmod(0o600)
    path = tmp_path / "bin/p"
    assert cache.install(candidate, path, "v1.2.3", []) == "1.2.3"
    assert not candidate.exists()
    assert os.access(path, os.X_OK)
    assert (tmp_path / "bin/p.sha256").read_text().strip() == hashlib.sha256(path.read_bytes()).hexdigest()
    assert cache.check(path, "1.2.3", [], sealed=True) == "1.2.3"


def test_a_candidate_that_is_not_good_leaves_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "p"
    cache.install(write_program(tmp_path / "new"), path, "1.2.3", [])
    for text in ("echo v9.9.9", "exit 1", "echo nothing"):
        with pytest.raises(cache.Unusable):
            cache.install(write_program(tmp_path / "new", text), path, "1.2.3", [])
    assert cache.check(path, "1.2.3", [], sealed=True)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.unlink(), "there is no such file"),
        (lambda path: path.chmod(0o644), "not executable"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "checksum differs"),
        (lambda path: path.with_name("p.sha256").unlink(), "checksum file is missing"),
        (lambda path: path.with_name("p.sha256").write_text(""), "checksum differs"),
        (lambda path: (path.unlink(), path.mkdir()), "not a file"),
    ],
)
def test_a_damaged_program_is_noticed(damage, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "p"
    cache.install(write_program(tmp_path / "new"), path, "1.2.3", [])
    damage(path)
    with pytest.raises(cache.Unusable, match=reason):
        cache.check(path, "1.2.3", [], sealed=True)


def test_what_the_module_answers(tmp_path: Path) -> None:
    good = write_program(tmp_path / "good")
    bad = write_program(tmp_path / "bad", "echo broken; exit 3")
    asked = [
        {"name": "good", "path": str(good), "sealed": False},
        {"name": "bad", "path": str(bad), "sealed": False},
        {"name": "wrong", "path": str(good), "sealed": False, "version": "v2.0.0"},
        {"name": "sealed", "path": str(good)},
    ]
    answer = run_module("program_cache", {"programs": asked}, tmp_path)
    assert not answer["changed"]
    assert answer["unusable"] == ["bad", "wrong", "sealed"]
    assert answer["programs"]["good"]["version"] == "1.2.3"
    assert answer["programs"]["bad"]["reason"] == "it does not run (exit code 3: broken)"
    assert answer["programs"]["wrong"]["reason"] == "it is version 1.2.3, not 2.0.0"


def test_what_killed_runs_left_is_removed(tmp_path: Path) -> None:
    old, fresh, other = (write_program(tmp_path / name) for name in ("p.1", "p.2", "another.1"))
    for path in (old, other):
        os.utime(path, (0, 0))
    cache.install(write_program(tmp_path / "p.3"), tmp_path / "bin/p", "", [])
    assert not old.exists()
    assert fresh.exists()
    assert other.exists()


def test_a_dry_run_installs_nothing(tmp_path: Path) -> None:
    candidate = write_program(tmp_path / "new")
    asked = [{"name": "p", "path": str(tmp_path / "p"), "candidate": str(candidate)}]
    run_module("program_cache", {"programs": asked, "_ansible_check_mode": True}, tmp_path)
    assert candidate.exists()
    assert not (tmp_path / "p").exists()
