"""The command line: which command, with what; and the promise that no stack trace reaches a user.

Exit codes: 0 done; 1 it did not work out; 2 bad input. The last two come with one line on standard error.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from turb_kub import __version__
from turb_kub.cli.errors import CommandError
from turb_kub.cli.kubectl import COMMAND


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        code = int(options.command(options))
        sys.stdout.flush()
        return code
    except CommandError as error:
        print(f"turb-kub: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output (`head`, a pager) has gone, which is its right. What is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # a bug: the trace is for its report, not for the terminal
        logging.getLogger(__name__).debug("unexpected", exc_info=True)
        print(
            f"turb-kub: unexpected {type(error).__name__}: {error}; this is a bug, "
            "please report it with the trace that --log-level debug shows",
            file=sys.stderr,
        )
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="turb-kub", description="A Kubernetes scheduler that gives each node an honest memory budget."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    # Each command is imported only when it is the one asked for: `turb-kub version` need not load the API client.
    def run(options: argparse.Namespace) -> int:
        from turb_kub.cli.run import run as command

        return command(options)

    def status(options: argparse.Namespace) -> int:
        from turb_kub.cli.status import status as command

        return command(options)

    def explain(options: argparse.Namespace) -> int:
        from turb_kub.cli.explain import explain_pod as command

        return command(options)

    def version(options: argparse.Namespace) -> int:
        print(f"turb-kub {__version__}")
        return 0

    from turb_kub.settings import add_flags

    one = commands.add_parser("run", help="schedule pods until stopped", description="Schedule pods until stopped.")
    _add_cluster_flags(one)
    one.add_argument("--pid-file", metavar="FILE", help="write the process id there; removed at the end")
    add_flags(one)
    one.set_defaults(command=run)

    one = commands.add_parser(
        "status",
        help="show nodes, their load and ceiling, and where pods went and why",
        description="Show nodes, their load and ceiling, and where the pods of this scheduler went and why.",
    )
    _add_cluster_flags(one)
    one.add_argument("-o", "--output", choices=("table", "json"), default="table", help="form (default: table)")
    add_flags(one)
    one.set_defaults(command=status)

    one = commands.add_parser(
        "explain",
        help="show every node's numbers for one pod: why there, or why nowhere",
        description="Show every node's numbers for one pod: why there, or why nowhere and what would help.",
    )
    one.add_argument("pod", metavar="NAMESPACE/POD", help="the pod; without a namespace one of default")
    _add_cluster_flags(one)
    one.add_argument(
        "-f",
        "--file",
        metavar="FILE",
        help=f"a file in the place of a cluster: {COMMAND}, or an export of kwokctl",
    )
    one.add_argument("-o", "--output", choices=("table", "json"), default="table", help="form (default: table)")
    add_flags(one)
    one.set_defaults(command=explain)

    one = commands.add_parser("version", help="print the version", description="Print the version.")
    one.set_defaults(command=version)
    return parser


def _add_cluster_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig file (default: KUBECONFIG, else the in-cluster identity)"
    )
    parser.add_argument("--context", metavar="NAME", help="context of that file (default: its current one)")
