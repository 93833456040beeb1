"""An environment like the image's: compiled, and with only what `scheduler/requirements.txt` locks beside turb-kub.

The image's Python is built with the compiler's profile-guided optimisation. One that was compiled on the machine by a
version manager seldom is, and needs half as long again for the same work; so of all that the machine has the fastest
is taken, which a short loop shows.
"""

import json
import subprocess
import sys
from pathlib import Path

from bench.contenders import CHECKOUT
from scripts.environment import cache_folder, clean_environment

SCHEDULER = CHECKOUT / "scheduler"
UV = Path(sys.prefix) / "bin/uv"
#: The oldest that turb-kub runs on.
OLDEST = (3, 11)
#: Prints how long calls, objects and dictionaries take, in seconds: the best of a few tries.
_LOOP = """
import time
class Item:
    __slots__ = ("number",)
    def __init__(self, number):
        self.number = number
    def more(self):
        return self.number + 1
def work():
    begin = time.perf_counter()
    total = 0
    for number in range(100_000):
        found = {"number": Item(number).more(), "list": [number]}
        total += found["number"]
    return time.perf_counter() - begin
print(min(work() for _ in range(5)))
"""


class NotInstalled(Exception):
    """The environment could not be made; the message says why."""


def install(folder: Path, python: str | None = None) -> str:
    """Make the environment in a folder. Returns the path of its Python.

    Args:
        python: whose environment it is; by default the fastest that the machine has.

    Raises:
        NotInstalled: there is no such Python, or a package can't be had.
    """
    chosen = python or fastest(_found())
    _uv("venv", "--python", chosen, str(folder))
    # Copied as into an image's layer: of files that are links into uv's cache Linux keeps larger pieces in memory.
    inside = ("--compile-bytecode", "--link-mode", "copy", "--python", str(folder / "bin/python"))
    _uv("pip", "install", *inside, "--require-hashes", "--requirement", str(SCHEDULER / "requirements.txt"))
    _uv("pip", "install", *inside, "--no-deps", str(SCHEDULER))
    return str(folder / "bin/python")


def version(python: str) -> str:
    """Return a Python's version."""
    asked = [python, "-I", "-c", "import platform; print(platform.python_version())"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def fastest(pythons: list[str]) -> str:
    """Return the one in which a loop takes the least time. Raises `NotInstalled` where none runs it."""
    times = {each: took for each in pythons if (took := _time(each)) is not None}
    if not times:
        raise NotInstalled("there is no Python that runs: name one with --python")
    return min(times, key=lambda each: times[each])


def _time(python: str) -> float | None:
    try:
        done = subprocess.run([python, "-I", "-c", _LOOP], capture_output=True, text=True, timeout=60, check=True)
        return float(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _found() -> list[str]:
    """Paths of the Pythons of this machine on which turb-kub runs, this one among them."""
    pythons = {str(Path(sys.executable).resolve())}
    for each in json.loads(_uv("python", "list", "--only-installed", "--output-format", "json")):
        version = each["version_parts"]
        if each["implementation"] == "cpython" and (version["major"], version["minor"]) >= OLDEST and each["path"]:
            pythons.add(str(Path(each["path"]).resolve()))
    return sorted(pythons)


def _uv(*arguments: str) -> str:
    env = clean_environment(CHECKOUT, cache_folder())
    Path(env["TMPDIR"]).mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run([str(UV), *arguments], env=env, capture_output=True, text=True)
    except OSError as error:
        raise NotInstalled(f"{UV.name} can't be run ({error.strerror}): run make venv-dev") from None
    if done.returncode:
        raise NotInstalled(f"uv {arguments[0]} failed: {' '.join(done.stderr.split())}")
    return done.stdout
