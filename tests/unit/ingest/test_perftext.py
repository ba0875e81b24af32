from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.ingest import perftext


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("name = cycles, , id = { 1 }, { sample_period, sample_freq } = 97, x, freq = 1, y", 97),
        ("name = cycles, , id = { 1 }, { sample_period, sample_freq } = 97, x, freq = 1", 97),
        ("name = cycles, , id = { 1 }, { sample_period, sample_freq } = 4000000, x", None),
        ("name = cycles, , { sample_period, sample_freq } = 4000000, x, freq = 12", None),
        ("name = cpu-clock, , { sample_period, sample_freq } = 10000000, x", 100),
        ("name = cycles, , { sample_period, sample_freq } = 0, freq = 1", None),
    ],
)
def test_a_period_is_not_taken_for_a_frequency(event: str, expected: int | None) -> None:
    header = perftext.parse_header([f"# event : {event}"])
    assert next(iter(header.frequencies.values()), None) == expected


@pytest.mark.parametrize(
    ("command", "cores"),
    [
        ("/usr/bin/perf record -a", (0, 1, 2, 3)),
        ("/usr/bin/perf record -C 2 -g", (2,)),
        ("/usr/bin/perf record --cpu=0,2-3 -g", (0, 2, 3)),
        ("/usr/bin/perf record --cpu 1", (1,)),
        ("/usr/bin/perf record -a -- make -C 2", (0, 1, 2, 3)),
        ("/usr/bin/perf record -C 3-1", ()),
    ],
)
def test_cores_are_read_from_the_options(command: str, cores: tuple[int, ...]) -> None:
    lines = ["# nrcpus online : 4", f"# cmdline : {command} "]
    assert perftext.parse_header(lines).cores == cores


def test_an_empty_header_has_no_values() -> None:
    assert perftext.parse_header([]) == perftext.Header()


@given(
    st.lists(
        st.builds(
            "# {}: {}".format,
            st.sampled_from(
                ["captured on", "nrcpus online ", "cmdline", "event", "reference time"]
            ),
            st.text(max_size=40)
            | st.sampled_from(
                [
                    "Sun Nov 15 06:26:59 9999",
                    "99999",
                    "-C 0-99999999999999999999 ",
                    "= 9999999999.000000 (TOD) = 999999999.999999999 (x)",
                ]
            ),
        )
    )
)
def test_any_header_is_read(lines: list[str]) -> None:
    header = perftext.parse_header(lines)
    assert len(header.cores) <= 100_000
    assert header.shift is None or abs(header.shift) < 1 << 62


@given(st.text(max_size=80))
def test_any_frame_has_a_name_or_none(line: str) -> None:
    name, module, kind = perftext.parse_frame(line)
    assert kind in {0, 1}
    assert len(name) + len(module) <= len(line) + len("[kernel]")
