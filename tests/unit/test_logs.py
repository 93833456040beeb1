"""What the event loop has to say by itself, in the log."""

import asyncio
import logging

import pytest
from turb_kub.api.log_limit import LogLimit
from turb_kub.cli import logs


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_an_error_that_only_the_event_loop_sees_is_one_line_without_a_stack_trace_however_often_it_comes(
    level, caplog, monkeypatch
):
    monkeypatch.setattr(logs, "_troubles", LogLimit(logs.log))
    caplog.set_level(level, logs.log.name)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(logs.note_loop_error)
    try:
        for number in range(3):
            error = RuntimeError(f"the handler {number:#x} is closed")
            loop.call_exception_handler({"message": "Fatal error on SSL protocol", "exception": error})
        loop.call_exception_handler({"message": "something without an exception"})
    finally:
        loop.close()
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.getMessage() for record in told] == [
        "event loop: Fatal error on SSL protocol: RuntimeError: the handler 0x0 is closed",
        "event loop: something without an exception",
    ]
    assert not any(record.exc_info for record in told)
    traces = [record for record in caplog.records if record.exc_info]
    assert len(traces) == (3 if level == logging.DEBUG else 0)
