"""Every table has headings."""

from __future__ import annotations

import pathlib
import threading

import captures
import pytest

from overnight.interfaces import cli
from overnight.interfaces.cli import pool_view, session, terminal
from overnight.model.pool import Claim, PoolDetails


def run(home: pathlib.Path, *words: str) -> int:
    return cli.main([*words, "--home", str(home)])


def test_pools_are_listed_below_headings(tmp_path, capsys) -> None:
    assert run(tmp_path, "pool", "create", "ci", "--template", "plain", "--target", "3") == 0
    capsys.readouterr()
    assert run(tmp_path, "pool", "list") == 0
    headings, row = capsys.readouterr().out.splitlines()
    assert headings.split() == ["pool", "status", "ready", "warming", "claimed", "target", "min", "max", "notes"]  # fmt: skip
    assert row.split() == ["ci", "active", "0", "0", "0", "3", "0", "13"]
    assert [headings.index(word) for word in ("status", "target")] == [row.index("active"), row.index("3")]  # fmt: skip


@pytest.mark.parametrize("output", session.Output)
def test_pools_are_watched_until_the_stop(tmp_path, capsys, output) -> None:
    left, stop = [(), ()], threading.Event()

    def read() -> tuple[PoolDetails, ...]:
        listed = left.pop()
        if not left:
            stop.set()
        return listed

    pool_view.pools(session.Session(output=output), read, stop, every_s=0.0)
    assert (left, stop.is_set()) == ([], True)
    assert capsys.readouterr().out.count("no pools" if output == "text" else "pools/1") == 2


def test_events_and_claims_of_a_pool_have_headings(tmp_path, capsys) -> None:
    assert run(tmp_path, "pool", "create", "ci", "--template", "plain", "--target", "3") == 0
    assert run(tmp_path, "pool", "show", "ci") == 1
    claim = Claim(id="c-1", pool_id="p-1", member_id="m-1", acquired_by="job-7")
    pool_view._print_claims("Claims", [claim], 9_000_000)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[lines.index(["Events,", "newest", "first"]) + 1] == ["time", "(UTC)", "event", "about"]  # fmt: skip
    assert lines[-2:] == [["claim", "member", "by", "purpose", "held"], ["c-1", "m-1", "job-7", "-", "for", "9", "s"]]  # fmt: skip


def test_pins_are_listed_below_headings(tmp_path, capsys) -> None:
    begin = captures.NIGHT
    samples = captures.random_samples(5, 99, begin=begin, end=begin + 9 * captures.SECOND)
    captures.store(tmp_path, captures.build(samples))
    assert (
        run(tmp_path, "store", "pin", "night", "-b", "1s", "-e", "+2s", "--why", "a \x1b[31m") == 0
    )
    headings, row = capsys.readouterr().out.splitlines()
    assert headings.split() == ["pin", "begin", "end", "why"]
    assert row.startswith("night  2026-")
    assert "\x1b" not in row


def test_columns_without_rows_are_empty() -> None:
    assert terminal.columns(("a", "b"), []) == ""
