"""The Makefile's targets: each documented, folders and programs as promised, clear words where there is no cluster.

Runs in a copy of the frame whose .venv/bin holds stand-ins that say how they were called.
"""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.frame.conftest import ROOT, Run, stand_in_environment, write_program

TELLS = 'printf "%s " "${0##*/}" "$@"; echo; env\n'


@pytest.fixture
def make(checkout: Path, run: Run):
    stand_in_environment(checkout)
    for program in ("ansible-playbook", "turb-kub"):
        write_program(checkout / ".venv/bin" / program, TELLS)

    def make(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return run("make", *arguments, **env)

    return make


@pytest.fixture
def work(home: Path) -> Path:
    """The work folder of a cluster, with a kubectl in a folder whose name needs quoting."""
    folder = home / ".local/state/turb-kub/turb-kub"
    write_cluster(folder, home / "it's a $HOME/bin/kubectl")
    return folder


def write_cluster(folder: Path, kubectl: Path) -> None:
    folder.mkdir(parents=True)
    write_program(kubectl, 'echo "kubectl of $KUBECONFIG"\n')
    (folder / "kubeconfig").touch()
    (folder / "record.json").write_text(json.dumps({"provider": "kwok", "kubectl": str(kubectl)}))


def told(done: subprocess.CompletedProcess[str]) -> tuple[str, dict[str, str]]:
    """The command line and the environment of the program that a target ran."""
    assert done.returncode == 0, done.stderr
    command, *lines = done.stdout.splitlines()
    return command.strip(), dict(line.split("=", 1) for line in lines if "=" in line)


def test_help_is_the_default_and_lists_every_target(make):
    targets = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    public = {name for line in targets for name in line.split() if not name.startswith("venv-")}
    done = make()
    assert done.returncode == 0
    assert set(re.findall(r"^  make ([a-z-]+) +\S", done.stdout, re.MULTILINE)) == public
    assert {"up", "down", "redeploy", "status", "env", "test", "lint", "help"} <= public
    assert 'eval "$(make env)"' in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("target", "playbook"),
    [("up", "site.yml"), ("down", "playbooks/teardown.yml"), ("redeploy", "playbooks/redeploy.yml")],
)
def test_a_playbook_is_run_and_nothing_else_is_said(make, target, playbook):
    done = make(target)
    command, _ = told(done)
    assert command == f"ansible-playbook {playbook}"
    assert (ROOT / playbook).is_file()
    assert done.stderr == "bootstrap ansible\n"


def test_arguments_and_the_clusters_name_reach_the_playbook(make):
    command, _ = told(make("up", "CLUSTER_NAME=second", "ARGS=-e cluster_api_port=6443 --tags 'cluster,image'"))
    assert command == "ansible-playbook -e cluster_name=second site.yml -e cluster_api_port=6443 --tags cluster,image"


def test_what_tools_write_goes_into_the_cache(make, checkout, home):
    _, env = told(make("up"))
    assert env["ANSIBLE_CONFIG"] == str(checkout / "ansible.cfg")
    cache = home / ".cache/turb-kub"
    assert env["TURB_KUB_CACHE_DIR"] == str(cache)
    for name in (
        "ANSIBLE_HOME",
        "ANSIBLE_LOCAL_TEMP",
        "ANSIBLE_REMOTE_TEMP",
        "ANSIBLE_ASYNC_DIR",
        "PYTHONPYCACHEPREFIX",
    ):
        assert Path(env[name]).is_relative_to(cache), name


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "TURB_KUB_CACHE_DIR"])
def test_the_cache_can_be_elsewhere(make, home, variable):
    _, env = told(make("up", **{variable: str(home / "its cache")}))
    cache = home / "its cache" / ("turb-kub" if variable == "XDG_CACHE_HOME" else "")
    assert env["TURB_KUB_CACHE_DIR"] == str(cache)
    assert env["ANSIBLE_HOME"] == str(cache / "ansible")


def test_another_projects_settings_do_not_reach_ansible(make, checkout):
    foreign = ("ANSIBLE_CONFIG", "ANSIBLE_INVENTORY", "ANSIBLE_ROLES_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    _, env = told(make("up", **dict.fromkeys(foreign, "/elsewhere")))
    assert "/elsewhere" not in env.values()
    assert env["ANSIBLE_CONFIG"] == str(checkout / "ansible.cfg")


@pytest.mark.parametrize("locale", ["C", "POSIX", "xx_XX.UTF-8"])
def test_a_locale_that_ansible_refuses_is_replaced(make, locale):
    _, env = told(make("up", LC_ALL=locale))
    assert env["LC_ALL"] == "C.UTF-8"


def test_a_failing_playbook_fails_make(make, checkout):
    write_program(checkout / ".venv/bin/ansible-playbook", "exit 2\n")
    assert make("up").returncode != 0


def test_env_can_be_evaluated(make, checkout, work, home):
    done = make("env")
    assert done.returncode == 0, done.stderr
    shell = subprocess.run(
        ["/bin/sh", "-c", 'eval "$(make -s env)"; kubectl; echo "${PATH##*:}"'],
        cwd=checkout,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert shell.stdout == f"kubectl of {work}/kubeconfig\n/bin\n", shell.stderr
    # Also without -s, which is what the README says, each line is one export.
    assert [shlex.split(line)[0] for line in done.stdout.splitlines()] == ["export", "export", "export"]


def test_status_runs_turb_kub_on_this_cluster(make, work):
    command, _ = told(make("status", "ARGS=-o json"))
    assert command == f"turb-kub status --kubeconfig {work}/kubeconfig -o json"
    (work / "scheduler").mkdir()
    (work / "scheduler/config.yaml").touch()
    command, _ = told(make("status"))
    assert command == f"turb-kub status --kubeconfig {work}/kubeconfig --config {work}/scheduler/config.yaml"


def test_explain_knows_the_clusters_settings(make, work):
    (work / "scheduler").mkdir()
    (work / "scheduler/config.yaml").touch()
    command, _ = told(make("explain", "POD=default/p", "ARGS=-o json"))
    config = f"--config {work}/scheduler/config.yaml"
    assert command == f"turb-kub explain --kubeconfig {work}/kubeconfig {config} default/p -o json"
    unnamed = make("explain")
    assert unnamed.returncode != 0
    assert "turb-kub: name a pod: make explain POD=NAMESPACE/POD\n" in unnamed.stderr


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"CLUSTER_NAME": "second"}, ".local/state/turb-kub/second"),
        ({"XDG_STATE_HOME": "{home}/state"}, "state/turb-kub/turb-kub"),
        ({"TURB_KUB_WORK_DIR": "{home}/my work", "CLUSTER_NAME": "second"}, "my work"),
    ],
)
def test_the_work_folder_can_be_elsewhere(make, home, env, folder):
    write_cluster(home / folder, home / "bin/kubectl")
    done = make("env", **{name: value.format(home=home) for name, value in env.items()})
    assert f"KUBECONFIG={shlex.quote(str(home / folder / 'kubeconfig'))}\n" in done.stdout, done.stderr


@pytest.mark.parametrize("target", ["env", "status"])
def test_no_cluster_is_one_clear_sentence(make, home, target):
    done = make(target)
    assert done.returncode != 0
    assert done.stdout == ""
    said = [line for line in done.stderr.splitlines() if not line.startswith(("make", "bootstrap"))]
    assert said == [f"turb-kub: There is no cluster in {home}/.local/state/turb-kub/turb-kub: run make up"]


def test_no_cluster_of_a_name_says_how_to_make_it(make):
    assert "run make up CLUSTER_NAME=second\n" in make("env", "CLUSTER_NAME=second").stderr


@pytest.mark.parametrize(
    ("flaw", "said"),
    [
        (lambda work: (work / "kubeconfig").unlink(), "is not complete: run make up"),
        (lambda work: (work / "record.json").write_text('{"provider": "kwok"}'), "is not complete: run make up"),
        (lambda work: (work / "record.json").write_text("[]"), "is not complete: run make up"),
        (lambda work: (work / "record.json").write_text("{"), "delete it and run make up"),
    ],
)
def test_half_a_cluster_is_said_to_be_that(make, work, flaw, said):
    flaw(work)
    for target in ("env", "status"):
        done = make(target)
        assert done.returncode != 0
        assert done.stdout == ""
        assert said in done.stderr
