"""The module host_process, against a small server in place of the scheduler."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.conftest import load_module, processes_of, run_module
from tests.ansible.playing import free_port

SERVER = textwrap.dedent("""
    import http.server, os, signal, sys

    if sys.argv[1:] == ["version"]:
        print("stand-in 1.0")
        sys.exit()
    options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    print("the settings seen:", sorted(name for name in os.environ if name.startswith(("TURB_KUB_", "NODE_MEM_"))))
    print("temporary files in", os.environ.get("TMPDIR"), flush=True)
    if "--fail" in options:
        sys.exit(options["--fail"])
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "--stubborn" in options else lambda *_: sys.exit(0))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(503 if "--unready" in options else 200)
            self.end_headers()

        def log_message(self, *_):
            pass

    open(options["--pid-file"], "w").write(str(os.getpid()))
    http.server.HTTPServer(("127.0.0.1", int(options["--port"])), Handler).serve_forever()
""")

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def run(tmp_path: Path, port: int) -> Iterator[Run]:
    """Run the module for the server in the test's folder; what it started is gone after the test."""
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    folder = tmp_path / "work"
    folder.mkdir()

    def run(*options: str, **more: Any) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "command": [sys.executable, str(server), "--port", str(port), *options],
            "version_command": [sys.executable, str(server), "version"],
            "command_knob": "scheduler_command",
            "pid_file": str(folder / "pid"),
            "record_file": str(folder / "record.json"),
            "log_file": str(folder / "log"),
            "directory": str(folder),
            "port": port,
            "port_knob": "scheduler_http_port",
            "ready_timeout": 20,
            "stop_timeout": 20,
            "identity": {"source": "a", "settings": "b"},
        }
        return run_module("host_process", arguments | more, tmp_path)

    yield run
    for pid in processes_of(folder):
        os.kill(pid, signal.SIGKILL)


def test_it_starts_and_is_left_alone(run: Run, tmp_path: Path) -> None:
    first = run()
    assert (first["changed"], first["action"], first["reason"]) == (True, "started", "it was not running")
    assert first["version"] == "stand-in 1.0"
    assert list(processes_of(tmp_path / "work")) == [first["pid"]]

    second = run()
    assert (second["changed"], second["action"], second["pid"]) == (False, "none", first["pid"])


def test_it_outlives_who_started_it_in_a_session_of_its_own(run: Run) -> None:
    pid = run()["pid"]
    assert os.getsid(pid) == pid


def test_it_is_restarted_when_what_it_depends_on_changed(run: Run, tmp_path: Path) -> None:
    first = run()
    second = run(identity={"source": "a", "settings": "other"})
    assert (second["action"], second["reason"]) == ("restarted", "settings changed")
    assert list(processes_of(tmp_path / "work")) == [second["pid"]] != [first["pid"]]


def test_it_is_started_again_when_it_died(run: Run) -> None:
    pid = run()["pid"]
    os.kill(pid, signal.SIGKILL)
    again = run()
    assert (again["action"], again["reason"]) == ("started", "it was not running")
    assert again["pid"] != pid


def test_it_is_restarted_when_its_record_is_lost(run: Run, tmp_path: Path) -> None:
    run()
    (tmp_path / "work/record.json").write_text("{")
    assert run()["reason"] == "no record of what runs"


def test_check_mode_tells_and_does_nothing(run: Run, tmp_path: Path) -> None:
    told = run(_ansible_check_mode=True)
    assert (told["changed"], told["action"]) == (True, "started")
    assert not processes_of(tmp_path / "work")

    pid = run()["pid"]
    assert not run(_ansible_check_mode=True)["changed"]
    told = run(_ansible_check_mode=True, identity={})
    assert (told["changed"], told["action"]) == (True, "restarted")
    assert run(_ansible_check_mode=True, state="absent")["changed"]
    assert list(processes_of(tmp_path / "work")) == [pid]


def test_settings_in_the_users_environment_do_not_reach_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_MEM_LIMIT_MB", "1")
    monkeypatch.setenv("TURB_KUB_HTTP_PORT", "1")
    run(environment={"TMPDIR": "/of/the/work/folder"})
    log = (tmp_path / "work/log").read_text()
    assert "the settings seen: []" in log
    assert "temporary files in /of/the/work/folder" in log


def test_one_that_ends_before_it_is_ready_shows_its_last_words(run: Run, tmp_path: Path) -> None:
    (tmp_path / "work/log").write_text("of an earlier run\n")
    failed = run("--fail", "turb-kub: no such setting")
    assert failed["failed"]
    assert "ended before it was ready, with exit code 1" in failed["msg"]
    assert "turb-kub: no such setting" in failed["msg"]
    assert "earlier run" not in failed["msg"]


def test_one_that_is_not_ready_in_time_is_reported_and_restarted_next_time(run: Run) -> None:
    failed = run("--unready", "1", ready_timeout=1)
    assert "did not answer 200 within 1 s" in failed["msg"]
    assert run(ready_timeout=1)["reason"] == "it was not ready within 1 s"


def test_a_port_in_use_is_named_with_its_knob(run: Run, port: int, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", port)):
        for state in ("startable", "present"):
            failed = run(state=state)
            assert failed["msg"] == (
                f"Port {port} on 127.0.0.1 is in use: end the program that listens there, or set scheduler_http_port to"
                " a free port."
            )
    assert not processes_of(tmp_path / "work")
    # Our own process is no hindrance.
    run()
    assert not run(state="startable").get("failed")


def test_a_program_that_is_not_there_is_named_with_its_knob(run: Run) -> None:
    for state in ("startable", "present"):
        failed = run(state=state, version_command=[sys.executable, "-m", "no_such_package", "version"])
        assert "No module named no_such_package" in failed["msg"]
        assert "install the scheduler where Ansible runs" in failed["msg"]
        assert "check scheduler_command" in failed["msg"]
        failed = run(state=state, version_command=["/no/such/program"])
        assert failed["msg"] == "`/no/such/program` can't be run (No such file or directory): check scheduler_command."


def test_it_is_ended_and_that_twice_is_fine(run: Run, tmp_path: Path) -> None:
    run()
    ended = run(state="absent")
    assert (ended["changed"], ended["action"]) == (True, "ended")
    assert not processes_of(tmp_path / "work")
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["log"]
    assert not run(state="absent")["changed"]


def test_a_stubborn_one_is_killed_in_the_end(run: Run, tmp_path: Path) -> None:
    run("--stubborn", "1")
    assert run(state="absent", stop_timeout=1)["changed"]
    assert not processes_of(tmp_path / "work")


@pytest.mark.parametrize("finder", ["find_in_proc", "find_by_ps"])
def test_no_foreign_process_is_taken_for_ours(finder: str, tmp_path: Path) -> None:
    module = load_module("host_process")
    wanted = str(tmp_path / "pid")
    # None of them was started with our pid file, although each one's command line mentions it.
    foreign = [["--pid-file", f"{wanted}.other"], [wanted], [f"--pid-file={wanted}"]]
    ours = ["--pid-file", wanted]
    processes = [
        subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(600)", *arguments],
                         stdout=subprocess.PIPE)
        for arguments in [ours, *foreign]
    ]  # fmt: skip
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()  # its command line is its own from now on
        assert getattr(module, finder)(wanted) == [processes[0].pid]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_pid_in_the_file_is_never_signalled(run: Run, tmp_path: Path) -> None:
    # After a reboot the number may be anybody's.
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as foreign:
        (tmp_path / "work/pid").write_text(str(foreign.pid))
        (tmp_path / "work/record.json").write_text(json.dumps({"identity": {}}))
        assert not run(state="absent")["changed"]
        assert run()["action"] == "started"
        assert foreign.poll() is None
        foreign.kill()


def test_waiting_ends_as_soon_as_the_condition_holds() -> None:
    module = load_module("host_process")
    started = time.monotonic()
    assert module.wait_until(lambda: True, 60)
    assert not module.wait_until(lambda: False, 0.1)
    assert time.monotonic() - started < 5
