"""scripts/run_tests.py: parts fail, hang and leave processes, and the report says so."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts import run_tests
from tests.frame.conftest import ROOT


@pytest.fixture
def parts(monkeypatch, tmp_path, capfd):
    """Replaces the parts by Python code; returns exit code and output of a run of them all."""
    monkeypatch.setattr(run_tests, "REPORT", tmp_path / "cache/report.txt")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def run(**code: str) -> tuple[int, str]:
        monkeypatch.setattr(run_tests, "PARTS", {part: [sys.executable, "-c", text] for part, text in code.items()})
        result = run_tests.main(list(code))
        return result, capfd.readouterr().out

    return run


def result_of(output: str, part: str) -> str:
    """The words at the part's line of the table."""
    table = output[output.rindex("part ") :].splitlines()
    return next(line.split(" s  ", 1)[1] for line in table if line.startswith(f"{part} "))


def summary(text: str) -> str:
    return f"print('\\x1b[32m======== {text} in 1.25s ========\\x1b[0m')"


def test_all_pass(parts, tmp_path):
    code, output = parts(unit=summary("12 passed"), molecule="print('fine')")
    assert code == 0
    assert (result_of(output, "unit"), result_of(output, "molecule")) == ("passed", "passed")
    assert output.endswith("\n======== 12 passed in 1.25s ========\ntests: 12 passed, 0 failed, 0 skipped\n")
    assert (tmp_path / "cache/report.txt").read_text() in output
    assert not list(tmp_path.glob("turb-kub-*"))


def test_a_failing_part_does_not_keep_the_next_from_running(parts):
    code, output = parts(
        unit=summary("3 failed, 1 passed, 2 errors, 4 xfailed") + "; exit(1)", api=summary("5 passed, 1 skipped")
    )
    assert code == 1
    assert (result_of(output, "unit"), result_of(output, "api")) == ("failed (1)", "passed")
    assert output.endswith("\ntests: 6 passed, 5 failed, 5 skipped\n")


def test_no_tests_is_a_failure(parts):
    code, output = parts(unit=summary("no tests ran") + "; exit(5)")
    assert code == 1
    assert result_of(output, "unit") == "no tests"


def test_a_part_that_hangs_is_told_to_end(parts, monkeypatch):
    monkeypatch.setattr(run_tests, "LIMIT", 1)
    started = time.monotonic()
    code, output = parts(api="import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: print('cleaned up')")
    assert time.monotonic() - started < 6
    assert code == 1
    assert "cleaned up" in output
    assert result_of(output, "api").startswith("ended after")


def test_a_process_left_behind_fails_the_part_and_is_ended(parts, tmp_path):
    leave = "import subprocess; print('pid', subprocess.Popen(['sleep', '61'], start_new_session=True).pid)"
    code, output = parts(ansible=leave)
    assert code == 1
    assert result_of(output, "ansible") == "left processes"
    assert "sleep 61" in output
    pid = int(output.split("pid ")[1].split()[0])
    command_line = Path(f"/proc/{pid}/cmdline")
    assert not command_line.exists() or not command_line.read_bytes()  # the latter until its parent has noticed


SLOW_TO_CLEAN_UP = """
import time
try:
    print("started", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.5)
    print("cleaned up")
"""

ONE_PART = f"""
import sys
from scripts import run_tests
run_tests.PARTS = {{"api": [sys.executable, "-c", {SLOW_TO_CLEAN_UP!r}]}}
sys.exit(run_tests.main(["api"]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("to_all", [True, False], ids=["by the terminal", "alone"])
def test_an_interrupt_lets_the_part_clean_up(tmp_path, number, to_all):
    with subprocess.Popen(
        [sys.executable, "-c", ONE_PART],
        cwd=ROOT,
        env={"PATH": os.defpath, "TMPDIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        assert run.stdout
        while run.stdout.readline() != "started\n":
            pass
        (os.killpg if to_all else os.kill)(run.pid, number)
        output, error = run.communicate(timeout=30)
    assert run.returncode == 130
    assert "cleaned up" in output
    assert error == "turb-kub: interrupted\n"
    assert not list(tmp_path.iterdir())


def test_files_of_a_failed_run_are_kept_and_named(parts):
    code, output = parts(unit="import os; open(os.environ['TMPDIR'] + '/trace', 'w'); exit(1)")
    assert code == 1
    assert Path(output.split("files are in ")[1].split("\n")[0], "trace").exists()


def test_pytests_own_folders_have_short_paths():
    of_pytest = {part for part, command in run_tests.PARTS.items() if "pytest" in command}
    assert of_pytest == run_tests.PARTS.keys() - {"molecule", "molecule-kind"}
    for part in of_pytest:
        command = run_tests.command_of(part, ["-x"], {"TMPDIR": "/tmp/t"})
        assert command[-2:] == [f"--basetemp=/tmp/t/{part}", "-x"]


def scenarios_of(command):
    return [command[place + 1] for place, word in enumerate(command) if word == "-s"]


@pytest.mark.parametrize(
    ("part", "provider", "with_rollout"),
    [
        ("molecule", "", False),
        ("molecule", "kwok", False),
        ("molecule", "minikube", True),
        ("molecule-kind", "kwok", True),
    ],
)
def test_scenarios_share_a_cluster_that_the_last_one_removes(part, provider, with_rollout):
    command = run_tests.command_of(part, [], {"TMPDIR": "/tmp/t", "PROVIDER": provider})
    scenarios = scenarios_of(command)
    assert "--destroy=never" in command
    assert scenarios[-1] == "teardown"
    assert ("redeploy" in scenarios) is with_rollout
    there = {file.parent.name for file in run_tests.ROOT.glob("molecule/*/molecule.yml")}
    assert set(scenarios) == there - (set() if with_rollout else {"redeploy"})


def test_beside_kind_the_simulated_nodes_get_what_only_they_can_show():
    env = {"TMPDIR": "/tmp/t"}
    assert scenarios_of(run_tests.command_of("molecule", [], env, True)) == ["failover", "teardown"]
    assert len(scenarios_of(run_tests.command_of("molecule-kind", [], env, True))) == 5
    assert len(scenarios_of(run_tests.command_of("molecule", [], env | {"PROVIDER": "minikube"}, True))) == 5


def test_scenario_that_is_named_runs_by_itself():
    command = run_tests.command_of("molecule", ["-s", "capacity"], {"TMPDIR": "/tmp/t"})
    assert scenarios_of(command) == ["capacity"]
    assert "--destroy=never" not in command


def test_without_an_engine_the_part_on_kind_is_skipped_or_fails_as_asked(parts, monkeypatch):
    monkeypatch.setattr(run_tests, "engine_answers", lambda: False)
    monkeypatch.delenv("REQUIRE_DOCKER", raising=False)
    code, output = parts(**{"molecule-kind": "print('ran')"})
    assert code == 0
    assert result_of(output, "molecule-kind") == "skipped: no Docker engine"
    monkeypatch.setenv("REQUIRE_DOCKER", "1")
    code, output = parts(**{"molecule-kind": "print('ran')"})
    assert code == 1
    assert "ran" not in output.splitlines()


def test_unknown_provider_is_refused(monkeypatch, capsys):
    monkeypatch.setenv("PROVIDER", "docker")
    assert run_tests.main(["molecule"]) == 2
    assert "PROVIDER is docker, but has to be one of kwok, kind, minikube" in capsys.readouterr().err


def test_the_users_cluster_is_out_of_sight(tmp_path):
    names = "KUBECONFIG K8S_AUTH_CONTEXT TURB_KUB_WORK_DIR NODE_MEM_LIMIT_MB CLUSTER_NAME ANSIBLE_CONFIG MAKEFLAGS"
    users = dict.fromkeys([*names.split(), "PYTEST_ADDOPTS", "MOLECULE_GLOB", "FORCE_COLOR"], "the user's")
    env = run_tests.environment({**users, "TURB_KUB_CACHE_DIR": "/cache", "HOME": "/home/me", "PATH": "/bin"}, tmp_path)
    assert "the user's" not in env.values()
    assert env["KUBECONFIG"] == os.devnull
    assert env["TURB_KUB_CACHE_DIR"] == "/cache"
    assert env["PATH"] == f"{run_tests.BIN}:/bin"
    assert env["TMPDIR"] == str(tmp_path)


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["--", "-k", "x"]])
def test_a_wrong_call_is_refused(arguments, capsys):
    assert run_tests.main(arguments) == 2
    assert capsys.readouterr().err.startswith("usage: ")
