"""The arms of a host: appended, read back whatever was cut off, found by boot and instant."""

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


def test_they_are_appended_and_read_back(tmp_path: pathlib.Path) -> None:
    noted = [arm(1), arm(2, "purged", note="a\nb"), arm(3, None)]
    for one in noted:
        arms.append(tmp_path / "home", one)
    assert arms.read(tmp_path / "home") == tuple(noted)
    lines = arms.path_of(tmp_path / "home").read_text().splitlines()
    assert len(lines) == 3
    for line in lines:
        jsonschema.validate(json.loads(line), SCHEMA)


@given(cut=st.integers(0, 400), junk=st.sampled_from(["", "{}\n", "[]\n", '{"schema": 1}\n', "x\n"]))  # fmt: skip
def test_what_was_cut_off_costs_one_line_at_most(tmp_path_factory, cut: int, junk: str) -> None:
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


def test_the_last_of_a_boot_at_an_instant() -> None:
    noted = (arm(10), arm(20, "purged"), arm(30, "cold", boot="b2"))
    assert arms.last_of(noted, "b1") == noted[1]
    assert arms.last_of(noted, "b1", at_us=15) == noted[0]
    assert arms.last_of(noted, "b1", at_us=5) is None
    assert arms.last_of(noted, "b3") is None


def test_a_home_without_any(tmp_path: pathlib.Path) -> None:
    assert arms.read(tmp_path) == ()
