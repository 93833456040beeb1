"""Log lines on standard error, for people (text) or machines (one JSON object a line)."""

import json
import logging
import sys
import time


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
