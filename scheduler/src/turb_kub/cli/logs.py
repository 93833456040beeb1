"""Log lines on standard error, for people (text) or machines (one JSON object a line)."""

import asyncio
import json
import logging
import sys
import time
from typing import Any

from turb_kub.api.log_limit import LogLimit

log = logging.getLogger(__name__)
_troubles = LogLimit(log)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts (seconds since 1970), level, logger, msg, and error where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "ts": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def set_up_logs(level: str, form: str) -> None:
    """Send the logs of this process to standard error. `form` is text or json."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        formatter = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", datefmt="%Y-%m-%dT%H:%M:%SZ")
        formatter.converter = time.gmtime
        handler.setFormatter(formatter)
    # The client library narrates how it reads a kubeconfig, user names among it.
    logging.getLogger("kubernetes").setLevel(logging.WARNING)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def note_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log in one line what the event loop can tell nobody else, such as a given-up connection that fails.

    Set as the loop's exception handler: the loop's own prints a stack trace, each time. That is kept for level DEBUG.
    """
    message, error = str(context.get("message", "unknown")), context.get("exception")
    _troubles.warning(f"event loop: {message}" + (f": {type(error).__name__}: {error}" if error else ""), about=message)
    if error:
        log.debug("event loop: %s", message, exc_info=error)
