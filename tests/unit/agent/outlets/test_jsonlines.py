"""One line per event, and a reader that goes away."""

from __future__ import annotations

import io
import json
import os

import hoststatus
import pytest

from overnight.agent.outlets import jsonlines


def test_each_event_is_one_line_with_any_text():
    stream = io.StringIO()
    outlet = jsonlines.JsonLines(stream)
    outlet.event(hoststatus.make_event(text="a\nb\x1b[31m"))
    outlet.event(hoststatus.make_event())
    outlet.tick(hoststatus.make_status())
    outlet.close()
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["text"] == "a\nb\x1b[31m"
    assert second["core"] == 39
    assert "\x1b" not in stream.getvalue()


def test_a_reader_that_went_away_does_not_end_the_agent():
    read_end, write_end = os.pipe()
    os.close(read_end)
    stream = os.fdopen(write_end, "w")
    outlet = jsonlines.JsonLines(stream)
    outlet.event(hoststatus.make_event())
    outlet.event(hoststatus.make_event())
    outlet.close()
    with pytest.raises(BrokenPipeError):
        stream.close()
