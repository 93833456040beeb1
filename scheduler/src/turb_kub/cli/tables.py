"""Tables on the terminal, and in logs where there is none."""

import sys

from rich.console import Console
from rich.table import Table

WIDTH_OF_A_LOG = 118
#: The running scheduler may well have a limit; this command knows only what it was told.
NO_LIMIT = "No NODE_MEM_LIMIT_MB was given here: ceilings are allocatable memory. --config takes the scheduler's file."


def console() -> Console:
    """Return where to print. Without a terminal (a pipe, Ansible) the width is one that reads well in a log."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_A_LOG)


def table(*headings: str, folding: str) -> Table:
    """Return an empty table; only the column of heading `folding` may break its text into several lines."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        made.add_column(heading, no_wrap=heading != folding, overflow="fold")
    return made


def show(where: Console, what: Table) -> None:
    """Print a table without the blanks that would fill each line up to its full width."""
    if where.is_terminal:
        where.print(what)
        return
    with where.capture() as captured:
        where.print(what)
    for line in captured.get().splitlines():
        print(line.rstrip())
