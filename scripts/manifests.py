"""What `make manifests` does: the scheduler's objects as plain YAML on standard output, with nothing else in it.

The play writes files and talks while it does so; here that goes to standard error, and only if it fails.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> int:
    """Run the play with these arguments; the result is the exit code."""
    with tempfile.TemporaryDirectory(prefix="turb-kub-manifests-") as folder:
        play = subprocess.run(
            [
                str(ROOT / ".venv/bin/ansible-playbook"),
                str(ROOT / "playbooks/manifests.yml"),
                *arguments,
                f"--extra-vars=scheduler_manifests_dir={folder}",
            ],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        files = sorted(Path(folder).glob("*.yaml"))
        if play.returncode != 0 or not files:
            sys.stderr.write(play.stdout)
            return play.returncode or 1
        sys.stdout.write("".join(file.read_text() for file in files))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
