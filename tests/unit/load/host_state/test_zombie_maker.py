"""The maker stops for memory, on request and at the end, and gives the reason."""

from __future__ import annotations

import json
import os
import pathlib
import signal

import pytest

from overnight.load.host_state import _zombie_maker


@pytest.fixture
def plan(tmp_path: pathlib.Path) -> dict[str, object]:
    (tmp_path / "leave").touch()
    (tmp_path / "usage").write_text("0")
    return {
        "child": str(tmp_path / "z"), "leave": str(tmp_path / "leave"), "count": 1000, "rate": 0,
        "pages": str(tmp_path / "pages"), "usage": str(tmp_path / "usage"), "floor": 0, "most": 1 << 40,
    }  # fmt: skip


def run(plan: dict[str, object], capfd: pytest.CaptureFixture[str]) -> dict[str, object]:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        assert _zombie_maker.main(json.dumps(plan)) == 0
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)
    return json.loads(capfd.readouterr().out.splitlines()[-1])


def test_each_cgroup_holds_a_page(
    plan: dict[str, object], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    seen = []
    opened = os.open

    def enter(path: str, flags: int, *rest: int, **more: int) -> int:
        if str(path).endswith("/cgroup.procs"):
            seen.append(pathlib.Path(path).parent.is_dir())
            return opened(os.devnull, os.O_WRONLY)
        return opened(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", enter)
    assert run(plan, capfd)["made"] == 1000
    assert seen == [True] * 1000
    assert (tmp_path / "pages").stat().st_size == 999 * _zombie_maker.PAGE + 1
    assert not (tmp_path / "z").exists()


def test_it_stops_before_memory_is_short(
    plan: dict[str, object], monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    left = iter(range(100, 0, -1))
    monkeypatch.setattr(_zombie_maker, "available", lambda: next(left))
    monkeypatch.setattr(_zombie_maker, "make_one", lambda *_: None)
    last = run({**plan, "floor": 95}, capfd)
    assert last["why"] == "floor"
    assert 0 < int(str(last["made"])) < 1000


def test_it_stops_when_cgroups_cost_more_than_expected(
    plan: dict[str, object], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    def make_costly(*_: object) -> None:
        usage = tmp_path / "usage"
        usage.write_text(str(int(usage.read_text()) + (1 << 20)))

    monkeypatch.setattr(_zombie_maker, "make_one", make_costly)
    last = run({**plan, "most": 500 << 20}, capfd)
    assert (last["why"], last["made"]) == ("cost", _zombie_maker.SURE)
    assert last["charged"] == _zombie_maker.SURE << 20


def test_a_stop_request_returns_the_number_made(
    plan: dict[str, object], monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    def stop_at_ten(*arguments: int) -> None:
        if arguments[-1] == 9:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(_zombie_maker, "make_one", stop_at_ten)
    last = run(plan, capfd)
    assert (last["why"], last["made"]) == ("", 10)


def test_a_broken_pipe_leaves_nothing_half_made(
    plan: dict[str, object], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(_zombie_maker, "make_one", lambda *_: (tmp_path / "z").mkdir(exist_ok=True))
    monkeypatch.setattr(_zombie_maker, "REPORT_S", 0.0)
    monkeypatch.setattr(os, "write", fail)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    assert _zombie_maker.main(json.dumps(plan)) == 1
    for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
        signal.signal(number, handler)
    assert not (tmp_path / "z").exists()


def test_a_missing_number_is_zero(tmp_path: pathlib.Path) -> None:
    assert _zombie_maker.available() > 0
    assert _zombie_maker.number(str(tmp_path / "none")) == 0
