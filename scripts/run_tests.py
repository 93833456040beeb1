"""Runs parts of the test suite one after another and says at the end how each went.

    run_tests.py PART... [-- arguments for pytest or molecule]

The tests must not meet the user's cluster: they bring names, ports and folders of their own, and this program hides
from them what leads to the user's. What it adds to running pytest by hand: a part that fails does not keep the next
from running, a part that hangs is ended, a process that a part leaves behind fails it, and temporary files go.
"""

import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv/bin"

#: The closing lines of the last run, for .ci/run.
REPORT = ROOT / ".cache/test-report.txt"

PYTEST = [str(BIN / "python"), "-m", "pytest"]
MOLECULE = [str(BIN / "molecule")]
#: Two workers: fewer than most machines have cores, and as many as small ones do.
WORKERS = "--numprocesses=2"
PARTS = {
    "unit": [*PYTEST, "tests/frame", "tests/unit", "tests/simulation", WORKERS, "--dist=worksteal"],
    "api": [*PYTEST, "tests/api", WORKERS, "--dist=loadfile"],
    "cluster": [*PYTEST, "tests/cluster"],
    # They wait for Ansible most of the time. A file's clusters are its own, so whole files go to the workers,
    # the longest first, as tests/ansible/conftest.py has them.
    "ansible": [*PYTEST, "tests/ansible", WORKERS, "--dist=loadfile", "--no-loadscope-reorder", "--durations=10"],
    "molecule": [*MOLECULE, "test", "--report"],
    "molecule-kind": [*MOLECULE, "test", "--report"],
    "soak": [*PYTEST, "tests", "--soak", "-m", "soak"],
}

#: The scenarios by provider. Simulated nodes have neither image nor rollout. They share a cluster, for time: `default`,
#: which wants a new one, is the first, and `teardown`, which leaves none, the last.
SCENARIOS = {
    "kwok": ["default", "capacity", "failover", "teardown"],
    "kind": ["default", "capacity", "redeploy", "failover", "teardown"],
    "minikube": ["default", "capacity", "redeploy", "failover", "teardown"],
}
#: Those on simulated nodes that say more where all of them are played on kind in the same run: there the scheduler is a
#: process, which is killed and removed. tests/ansible plays the whole set-up on simulated nodes too.
BESIDE_KIND = ["failover", "teardown"]

#: Seconds after which a part is ended. From empty caches the first part that needs a cluster builds its programs, which
#: takes some ten minutes on two cores.
LIMIT = 40 * 60
#: The same for a part that is long on purpose.
LIMITS = {"soak": 3 * 60 * 60}
#: Seconds for a part to clean up after it was told to end.
GRACE = 60

#: Names the run in the environment of all that it starts, so that what is left behind can be told from the user's.
MARK = "TESTS_OF_TURB_KUB"

#: Beginnings of the environment variables that tests must not see: they lead to the user's cluster or change output.
HIDDEN = (
    *("TURB_KUB_", "NODE_MEM_LIMIT_MB", "CLUSTER_NAME", "KUBE", "K8S_AUTH_"),
    *("MOLECULE_", "PYTEST_", "MAKE", "MFLAGS", "FORCE_COLOR", "NO_COLOR", "CLICOLOR", "COLUMNS"),
)

#: pytest's exit code when it found nothing to run; a failure, and molecule has no such code.
NO_TESTS = 5

SUMMARY = re.compile(r"=+ (?P<counts>.*\b(?:passed|failed|errors?|skipped|no tests ran)\b.*) in [0-9.]+s.*=+")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Result:
    """How one part went."""

    part: str
    outcome: str  # "passed", or in a few words why not
    seconds: float
    summary: str = ""  # pytest's own last line


def environment(environ: Mapping[str, str], temporary: Path) -> dict[str, str]:
    """The environment variables of the tests: without what belongs to the user's cluster or another project."""
    kept = {name: value for name, value in environ.items() if not name.startswith(HIDDEN)}
    # Molecule and the tests write their own; the repository's file is found from the working folder.
    kept.pop("ANSIBLE_CONFIG", None)
    if cache := environ.get("TURB_KUB_CACHE_DIR"):
        kept["TURB_KUB_CACHE_DIR"] = cache
    return kept | {
        MARK: secrets.token_hex(8),
        "KUBECONFIG": os.devnull,  # a test that forgets to name its cluster finds none
        "TMPDIR": str(temporary),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".cache/hypothesis"),
        # Molecule and ansible-lint find ansible-playbook on PATH, and keep their own files in this environment.
        "PATH": f"{BIN}{os.pathsep}{environ.get('PATH', os.defpath)}",
        "VIRTUAL_ENV": str(ROOT / ".venv"),
    }


def left_behind(mark: str) -> dict[int, str]:
    """Processes that carry the mark, with their command lines; none where there is no /proc to look in."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                found[int(process.name)] = command
        except OSError:
            continue  # it has ended, or is another user's
    return {pid: command for pid, command in found.items() if command}  # a zombie has no command line


def end(processes: dict[int, str], mark: str) -> None:
    """End what was left behind, at last by force."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in processes:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + 5
        while (processes := left_behind(mark)) and time.monotonic() < deadline:
            time.sleep(0.1)
        if not processes:
            return


def colours(part: str) -> dict[str, str]:
    """What tells a part whether to colour its output, which goes into a pipe: it can't see what is behind ours.

    pytest gets a variable that nothing else knows, since what the tests start must not come out coloured.
    """
    terminal = sys.stdout.isatty()
    if part.startswith("molecule"):
        return {"FORCE_COLOR" if terminal else "NO_COLOR": "1"}
    return {"PY_COLORS": str(int(terminal))}


def pass_on(pipe: IO[bytes], summaries: list[str]) -> None:
    """Write to our output what comes through the pipe, and keep pytest's summaries."""
    line = b""
    while chunk := os.read(pipe.fileno(), 65536):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        *lines, line = (line + chunk).split(b"\n")
        texts = [COLOUR.sub("", each.decode(errors="replace")).strip() for each in lines]
        summaries.extend(text for text in texts if SUMMARY.fullmatch(text))
    pipe.close()


def provider_of(part: str, environ: Mapping[str, str]) -> str:
    """What cluster a part of molecule's is for; empty for the other parts."""
    if not part.startswith("molecule"):
        return ""
    return "kind" if part == "molecule-kind" else environ.get("PROVIDER") or "kwok"


def engine_answers() -> bool:
    """Whether there is a Docker engine."""
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def command_of(part: str, more: list[str], env: Mapping[str, str], beside_kind: bool = False) -> list[str]:
    """The command line of a part; `beside_kind` where the scenarios are played on kind in the same run.

    The folder for pytest's temporary files is shorter than its own choice: sockets are made there, whose paths may have
    no more than 107 characters.
    """
    command = PARTS[part]
    if command[:1] == MOLECULE and not {"-s", "--scenario-name", "--all"} & set(more):
        provider = provider_of(part, env)
        scenarios = BESIDE_KIND if provider == "kwok" and beside_kind else SCENARIOS[provider]
        return [*command, *(word for name in scenarios for word in ("-s", name)), "--destroy=never", *more]
    own = [f"--basetemp={env['TMPDIR']}/{part}"] if command[: len(PYTEST)] == PYTEST else []
    return [*command, *own, *more]


def run_part(part: str, more: list[str], env: Mapping[str, str], beside_kind: bool) -> Result:
    """Run one part, and end what it leaves behind."""
    command = command_of(part, more, env, beside_kind)
    print(f"--- {part}: {shlex.join([Path(command[0]).name, *command[1:]])}", flush=True)
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**env, **colours(part), **({"PROVIDER": provider} if (provider := provider_of(part, env)) else {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    summaries: list[str] = []
    # A thread, since a process left behind can hold the pipe open after the part itself has ended.
    copier = threading.Thread(target=pass_on, args=(process.stdout, summaries), daemon=True)
    copier.start()
    limit = LIMITS.get(part, LIMIT)
    try:
        code = process.wait(timeout=limit)
        outcome = {0: "passed", NO_TESTS: "no tests"}.get(code, f"failed ({code})")
    except subprocess.TimeoutExpired:
        outcome = f"ended after {limit // 60} minutes"
        stop(process)
    except KeyboardInterrupt:
        stop(process)
        copier.join(timeout=5)
        raise
    strays = left_behind(env[MARK])
    end(strays, env[MARK])
    copier.join(timeout=5)
    if strays:
        lines = [f"  {pid} {command_line}" for pid, command_line in strays.items()]
        print(f"{part} left processes running:", *lines, sep="\n", flush=True)
        outcome = "left processes" if outcome == "passed" else f"{outcome}, left processes"
    return Result(part, outcome, time.monotonic() - started, summaries[-1] if summaries else "")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a part as a terminal would, once, and see that it ends.

    It has a session of its own so that the terminal does not do it as well: a second interrupt would break off its
    cleaning up.
    """
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(timeout=GRACE)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def report(results: list[Result]) -> str:
    """The closing lines: a table of the parts, then pytest's own summaries and their sum for whoever counts tests."""
    lines = ["", f"{'part':<10} {'time':>8}  result"]
    lines += [f"{each.part:<10} {each.seconds:>6.0f} s  {each.outcome}" for each in results]
    lines += ["", *(each.summary for each in results if each.summary)]
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    for each in results:
        for number, word in re.findall(r"(\d+) (passed|failed|error|skipped|xfailed)", each.summary):
            counts[{"error": "failed", "xfailed": "skipped"}.get(word, word)] += int(number)
    lines.append(f"tests: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Run the command line; the result is the exit code."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parts, more = arguments[:split], arguments[split + 1 :]
    if (provider := os.environ.get("PROVIDER")) and provider not in SCENARIOS:
        print(f"turb-kub: PROVIDER is {provider}, but has to be one of {', '.join(SCENARIOS)}", file=sys.stderr)
        return 2
    if not parts or not set(parts) <= PARTS.keys():
        print(f"usage: run_tests.py {'|'.join(PARTS)}... [-- arguments]", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell starts what runs in the background with this one ignored, and what ignores it here does so in every part.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    temporary = Path(tempfile.mkdtemp(prefix="turb-kub-"))
    env = environment(os.environ, temporary)
    on_kind = "molecule-kind" in parts and engine_answers()
    results = []
    interrupted = False
    try:
        for part in parts:
            if part == "molecule-kind" and not on_kind:
                outcome = "no Docker engine" if env.get("REQUIRE_DOCKER") else "skipped: no Docker engine"
                results.append(Result(part, outcome, 0))
                continue
            results.append(run_part(part, more, env, on_kind))
    except KeyboardInterrupt:
        interrupted = True
        end(left_behind(env[MARK]), env[MARK])
    if results:
        text = report(results)
        print(text, flush=True)
        REPORT.parent.mkdir(exist_ok=True)
        REPORT.write_text(text + "\n")
    if interrupted:
        shutil.rmtree(temporary, ignore_errors=True)
        print("turb-kub: interrupted", file=sys.stderr)
        return 130
    if all(each.outcome == "passed" or each.outcome.startswith("skipped") for each in results):
        shutil.rmtree(temporary, ignore_errors=True)
        return 0
    if any(temporary.iterdir()):
        print(f"The failed tests' files are in {temporary}")
    else:
        temporary.rmdir()
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
