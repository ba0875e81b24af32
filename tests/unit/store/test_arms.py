"""The arms of a host: appended, read back even if cut off, found by boot and time."""

from __future__ import annotations

import json
import pathlib

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from overnight.store import arms

SCHEMA = json.loads((pathlib.Path(__file__).parents[3] / "docs/schemas/arm-1.json").read_text())


def arm(time_us: int, which: str | None = "hot", boot: str = "b1", note: str = "") -> arms.Arm:
    return arms.Arm(time_us, "db-7", boot, "6.18", 9.5, which, "uptime", "", note, {"dying": 3})


def test_arms_are_appended_and_read_back(tmp_path: pathlib.Path) -> None:
    entries = [arm(1), arm(2, "purged", note="a\nb"), arm(3, None)]
    for entry in entries:
        arms.append(tmp_path / "home", entry)
    assert arms.read(tmp_path / "home") == tuple(entries)
    lines = arms.path_of(tmp_path / "home").read_text().splitlines()
    assert len(lines) == 3
    for line in lines:
        jsonschema.validate(json.loads(line), SCHEMA)


@given(cut=st.integers(0, 400), junk=st.sampled_from(["", "{}\n", "[]\n", '{"schema": 1}\n', "x\n"]))  # fmt: skip
def test_a_cut_costs_at_most_one_line(tmp_path_factory, cut: int, junk: str) -> None:
    home = tmp_path_factory.mktemp("home")
    arms.append(home, arm(1))
    arms.append(home, arm(2))
    text = arms.path_of(home).read_text()
    whole = text[: len(text) - min(cut, len(text) // 2 - 1)]
    arms.path_of(home).write_text(junk + whole)
    arms.append(home, arm(3))
    read = arms.read(home)
    assert (read[0], read[-1]) == (arm(1), arm(3))
    assert len(read) >= 2


def test_the_last_arm_of_a_boot_at_a_time() -> None:
    entries = (arm(10), arm(20, "purged"), arm(30, "cold", boot="b2"))
    assert arms.last_of(entries, "b1") == entries[1]
    assert arms.last_of(entries, "b1", at_us=15) == entries[0]
    assert arms.last_of(entries, "b1", at_us=5) is None
    assert arms.last_of(entries, "b3") is None


def test_a_home_without_arms(tmp_path: pathlib.Path) -> None:
    assert arms.read(tmp_path) == ()
