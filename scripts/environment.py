"""Makes .venv what uv.lock says, or finds that it is already.

    environment.py check GROUP    exit 0 where .venv serves GROUP as it is, 1 where not; prints nothing
    environment.py make GROUP     makes it so

scripts/bootstrap.sh runs this with the Python that it found, before any package is there: standard library only. It
touches .venv and uv's cache, nothing else.

.venv/bootstrap.json is the stamp: what the environment was made from, written last. While the work is going on it says
"unfinished", so that the next run after an interruption knows that packages may be there by half.
"""

import sys

# bootstrap.sh asks the Python of whatever .venv it finds; one that is too old is no error, only a "no".
if sys.version_info < (3, 12):
    sys.exit(1)

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shlex
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GROUPS = ("ansible", "dev")  # each serves those before it
INPUTS = ("uv.lock", "pyproject.toml", "scheduler/pyproject.toml")

# Settings for the network are the user's to make; all others would be meant for another project.
KEPT_OF_UV = {"UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", "UV_CONCURRENT_DOWNLOADS", "UV_INSECURE_HOST"}
DROPPED_OF_PIP = {"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_PYTHON", "PIP_CONSTRAINT", "PIP_NO_BINARY"}


class BootstrapError(Exception):
    """The environment can't be made; the text is one sentence for the user."""


def inputs_hash(root: Path) -> str:
    """What decides the environment's content, as one hash."""
    whole = hashlib.sha256()
    for name in INPUTS:
        content = (root / name).read_bytes()
        whole.update(f"{name} {len(content)}\n".encode() + content)
    return whole.hexdigest()


def wanted_stamp(root: Path, group: str) -> dict[str, str]:
    """The stamp of a finished environment of `group`.

    The path of the checkout belongs to it because the programs in .venv/bin name their Python by its full path, and the
    version because site-packages does.
    """
    return {
        "state": "finished",
        "group": group,
        "inputs": inputs_hash(root),
        "checkout": str(root),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }


def read_stamp(venv: Path) -> dict[str, str]:
    """The stamp as it lies there; empty where there is none that can be read."""
    try:
        stamp = json.loads((venv / "bootstrap.json").read_text())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(venv: Path, stamp: dict[str, str]) -> None:
    """Write the stamp whole or not at all."""
    new = venv / "bootstrap.json.new"
    new.write_text(json.dumps(stamp, indent=2) + "\n")
    new.replace(venv / "bootstrap.json")


def group_to_make(venv: Path, asked: str) -> str:
    """`asked`, or the larger group that the environment was made for: it is never made smaller.

    An environment without a stamp was made by hand; pytest in it says that it is a developer's.
    """
    had = read_stamp(venv).get("group", "dev" if (venv / "bin/pytest").exists() else "ansible")
    return max(asked, had, key=GROUPS.index) if had in GROUPS else asked


def serves(root: Path, group: str) -> bool:
    """Whether .venv is there, finished and made from the files as they are now, for `group` or more.

    Meant to be asked by .venv's own Python: that it runs is part of the answer.
    """
    venv = root / ".venv"
    stamp = read_stamp(venv)
    return any(stamp == wanted_stamp(root, larger) for larger in GROUPS[GROUPS.index(group) :])


def clean_environment(root: Path, cache: Path) -> dict[str, str]:
    """The environment variables for pip and uv, without those of another Python, another uv project or conda."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "CONDA_", "VIRTUAL_ENV"))
        and (not name.startswith("UV_") or name in KEPT_OF_UV)
        and name not in DROPPED_OF_PIP
    }
    return kept | {
        "TMPDIR": str(cache / "tmp"),  # uv leaves lock files there
        "UV_CACHE_DIR": str(cache / "uv"),
        "UV_NO_CONFIG": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PROJECT_ENVIRONMENT": str(root / ".venv"),
        "UV_PYTHON": str(root / ".venv/bin/python"),
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_SYSTEM_CERTS": "1",  # a company's own certificate authority lies in the system's store
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "NO_COLOR": "1",
    }


def run(command: list[str], *, root: Path, env: dict[str, str], what: str) -> None:
    """Run one of the tools without showing its output; its last line is the reason where it fails."""
    done = subprocess.run(
        command,
        cwd=root,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode == 0:
        return
    lines = [line.strip() for line in done.stdout.splitlines()]
    lines = [line for line in lines if line and not line.startswith("hint:")]
    # pip's last line only says what it could not find, not that it could not ask.
    broken = re.search(r"after connection broken by '(.+)': /", done.stdout)
    reason = broken[1] if broken else [f"{shlex.join(command)} ended with exit code {done.returncode}", *lines][-1]
    if "uv lock" not in done.stdout:
        reason += "; run the same command again once the network, or its proxy, is reachable"
    raise BootstrapError(f"{what} failed: {reason}")


def locked_uv(root: Path) -> tuple[str, str]:
    """Version of uv in uv.lock, and the line of a requirements file that allows only the files locked there."""
    try:
        lock = tomllib.loads((root / "uv.lock").read_text())
        package = next(package for package in lock["package"] if package["name"] == "uv")
        hashes = [f"--hash={wheel['hash']}" for wheel in package["wheels"]]
    except (ValueError, LookupError, StopIteration) as error:
        raise BootstrapError(f"uv.lock can't be read ({error}): bring it back with git checkout uv.lock") from None
    return package["version"], " ".join([f"uv=={package['version']}", *hashes])


def install_uv(root: Path, env: dict[str, str]) -> None:
    """Put the locked uv into .venv by pip, which comes with Python itself."""
    venv = root / ".venv"
    python = str(venv / "bin/python")
    version, requirement = locked_uv(root)
    with contextlib.suppress(OSError):
        there = subprocess.run([venv / "bin/uv", "--version"], env=env, capture_output=True, text=True)
        if there.returncode == 0 and there.stdout.split()[1:2] == [version]:
            return
    if subprocess.run([python, "-I", "-m", "pip", "--version"], env=env, capture_output=True).returncode:
        run([python, "-I", "-m", "ensurepip", "--upgrade"], root=root, env=env, what="Installing pip into .venv")
    requirements = venv / "uv-requirement.txt"
    requirements.write_text(requirement + "\n")
    options = "--quiet --no-cache-dir --no-compile --no-deps --no-user --only-binary=:all: --retries=2"
    options += " --force-reinstall --require-hashes"
    command = [python, "-I", "-m", "pip", "install", *options.split(), f"--requirement={requirements}"]
    run(command, root=root, env=env, what=f"Downloading uv {version}")
    requirements.unlink()


def inside(root: Path) -> bool:
    """Whether this process runs on .venv's own Python."""
    return Path(sys.prefix) == root / ".venv"


def own_python_works(root: Path) -> bool:
    """Whether .venv has a Python that runs and is new enough."""
    code = "import sys; print(sys.prefix); sys.exit(sys.version_info < (3, 12))"
    try:
        done = subprocess.run([root / ".venv/bin/python", "-I", "-c", code], capture_output=True, text=True)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.rstrip("\n") == str(root / ".venv")


def make(root: Path, cache: Path, group: str) -> None:
    """Bring .venv to what uv.lock says for `group`, from whatever state it is in."""
    venv = root / ".venv"
    env = clean_environment(root, cache)
    Path(env["TMPDIR"]).mkdir(parents=True, exist_ok=True)
    stamp = read_stamp(venv)
    group = group_to_make(venv, group)
    finished = wanted_stamp(root, group)  # before the work: a lock that changes meanwhile is not what was installed
    started = time.monotonic()

    reason = ""
    if venv.exists() and not inside(root):
        reason = "its Python is gone or older than 3.12"
    elif stamp.get("checkout", str(root)) != str(root):
        reason = f"it was made in {stamp['checkout']}"
    elif stamp.get("python", finished["python"]) != finished["python"]:
        reason = f"its Python was {stamp['python']} and is {finished['python']} now"
    if reason:
        say(f"Making .venv anew: {reason}")
    version = ".".join(str(part) for part in sys.version_info[:3])
    say(f"Preparing .venv with Python {version}: about 20 s, and the time to download 150 MB where they are not cached")
    if reason or not inside(root):
        # The base interpreter, since .venv's own is about to be removed. pip comes later, when the stamp is there.
        base = getattr(sys, "_base_executable", sys.executable)
        run([base, "-I", "-m", "venv", "--without-pip", "--clear", str(venv)], root=root, env=env, what="Making .venv")
        stamp = {}

    write_stamp(venv, finished | {"state": "unfinished"})
    install_uv(root, env)
    # The option stands in pyproject.toml too, which UV_NO_CONFIG hides.
    command = [str(venv / "bin/uv"), "sync", "--locked", "--group", group, "--no-build-isolation-package", "turb-kub"]
    if stamp.get("state") == "unfinished":
        command.append("--reinstall")
    run(command, root=root, env=env, what="Installing the packages of uv.lock")
    write_stamp(venv, finished)
    say(f".venv is ready after {time.monotonic() - started:.0f} s")


@contextlib.contextmanager
def alone(root: Path) -> Iterator[None]:
    """Hold the checkout against a second bootstrap, such as that of `make test` beside `make up`."""
    folder = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Waiting for another make that prepares .venv")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def say(text: str) -> None:
    """One line of progress; never on standard output, which `eval "$(make env)"` reads."""
    print(text, file=sys.stderr, flush=True)


def cache_folder() -> Path:
    """The project's cache: TURB_KUB_CACHE_DIR, else turb-kub in the user's cache folder."""
    if own := os.environ.get("TURB_KUB_CACHE_DIR"):
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turb-kub"


def main(arguments: list[str]) -> int:
    """Run the command line; the result is the exit code."""
    if len(arguments) != 2 or arguments[0] not in ("check", "make") or arguments[1] not in GROUPS:
        say("usage: environment.py check|make ansible|dev")
        return 2
    command, group = arguments
    if command == "check":
        return 0 if serves(ROOT, group) else 1
    try:
        with alone(ROOT):
            # Asked again: the one we waited for may have done the work. Only .venv's own Python can tell.
            own = str(ROOT / ".venv/bin/python")
            if own_python_works(ROOT):
                check = [own, "-I", "-S", "-B", __file__, "check", group]
                if subprocess.run(check, capture_output=True).returncode == 0:
                    return 0
                if not inside(ROOT):
                    os.execv(own, [own, "-I", "-B", __file__, "make", group])
            make(ROOT, cache_folder(), group)
    except BootstrapError as error:
        say(f"turb-kub: {error}")
        return 1
    except OSError as error:
        say(f"turb-kub: .venv can't be made: {error}")
        return 1
    except KeyboardInterrupt:
        say("turb-kub: interrupted; the same command takes up the work again")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
