"""What is told once and what is held back, on a clock of the test's own."""

import logging

import pytest
from turb_kub.api.log_limit import AGAIN_AFTER, LONGEST, LogLimit

log = logging.getLogger("turb_kub.test")


class Told:
    """A limit, its clock, and what it has logged as warnings."""

    def __init__(self, caplog, most=5):
        self.now = 0.0
        self.limit = LogLimit(log, most=most, clock=lambda: self.now)
        self._caplog = caplog
        caplog.set_level(logging.DEBUG, log.name)

    @property
    def texts(self):
        return [one.getMessage() for one in self._caplog.records if one.levelno == logging.WARNING]

    @property
    def held_back(self):
        return [one.getMessage() for one in self._caplog.records if one.levelno == logging.DEBUG]


@pytest.fixture
def told(caplog):
    return Told(caplog)


def test_a_text_is_told_once_whatever_its_numbers_are_and_the_rest_at_level_debug(told):
    assert told.limit.warning("port 1 refuses")
    assert not told.limit.warning("port 23 refuses")
    assert told.limit.warning("port x refuses")
    assert told.texts == ["port 1 refuses", "port x refuses"]
    assert told.held_back == ["port 23 refuses"]


def test_what_it_is_about_tells_texts_apart_where_that_is_given(told):
    assert told.limit.warning("node-1 is odd", about="node-1")
    assert told.limit.warning("node-2 is odd", about="node-2")
    assert not told.limit.warning("node-1 is odd in another way", about="node-1")


def test_a_text_is_told_again_after_a_time_and_not_a_moment_sooner(told):
    assert told.limit.warning("odd")
    told.now = AGAIN_AFTER - 1
    assert not told.limit.warning("odd")
    told.now = AGAIN_AFTER
    assert told.limit.warning("odd")
    told.now = 2 * AGAIN_AFTER - 1
    assert not told.limit.warning("odd")


def test_beyond_the_most_texts_one_line_says_that_there_are_more(caplog):
    told = Told(caplog, most=2)
    assert [told.limit.warning(text) for text in ("a", "b", "c", "d", "a")] == [True, True, False, False, False]
    assert told.texts == ["a", "b", "c (more like this is logged at level debug only)"]
    assert told.held_back == ["c", "d", "a"]


def test_room_for_new_texts_comes_back_with_time_and_so_does_the_hint(caplog):
    told = Told(caplog, most=1)
    told.limit.warning("a")
    told.limit.warning("b")
    told.now = AGAIN_AFTER
    assert told.limit.warning("c")
    told.limit.warning("d")
    assert told.texts[2:] == ["c", "d (more like this is logged at level debug only)"]


def test_a_text_without_end_is_cut(told):
    told.limit.warning("x" * LONGEST)
    told.limit.warning("y" * 10 * LONGEST)
    assert told.texts == ["x" * LONGEST, "y" * LONGEST + " ..."]
    assert not told.limit.warning("y" * 20 * LONGEST)
