"""The agent keeps its credential, so that one that is started again is the same member."""

from __future__ import annotations

import pathlib

import pytest

from overnight.pools.providers import _member_agent


def order(folder: pathlib.Path, token: str) -> None:
    (folder / "order.json").write_text(f'{{"endpoint": "http://127.0.0.1:9", "token": "{token}"}}')


class Ended(Exception):  # noqa: N818  it is no error
    pass


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, str], str]]:
    """What it asked of the control plane, which did all of it and then told it to go."""
    said: list[tuple[str, dict[str, str], str]] = []

    def ask(
        endpoint: str, path: str, body: dict[str, str], credential: str = ""
    ) -> tuple[str, dict[str, object]]:
        said.append((path, body, credential))
        return _member_agent.DONE, {"gone": path == "/v1/beat"}

    monkeypatch.setattr(_member_agent, "ask", ask)
    monkeypatch.setattr(_member_agent, "BEAT_SECONDS", 0)
    monkeypatch.setattr(_member_agent.signal, "signal", lambda *_: None)
    return said


def test_it_enrols_is_ready_and_beats(
    tmp_path: pathlib.Path, asked: list[tuple[str, dict[str, str], str]]
) -> None:
    order(tmp_path, "5" * 64)
    _member_agent.main(tmp_path)
    assert [path for path, _, _ in asked] == ["/v1/enrol", "/v1/phase", "/v1/beat"]
    credential = asked[0][1]["credential"]
    assert asked[1:] == [
        ("/v1/phase", {"phase": "ready"}, credential),
        ("/v1/beat", {}, credential),
    ]
    assert '"token": ""' in (tmp_path / "order.json").read_text()


def test_started_again_it_is_the_same_member_and_uses_no_token(
    tmp_path: pathlib.Path, asked: list[tuple[str, dict[str, str], str]]
) -> None:
    order(tmp_path, "5" * 64)
    _member_agent.main(tmp_path)
    first = asked[0][1]["credential"]
    asked.clear()
    _member_agent.main(tmp_path)
    assert [(path, credential) for path, _, credential in asked] == [
        ("/v1/phase", first),
        ("/v1/beat", first),
    ]


def test_cut_off_while_it_enrols_it_asks_again_with_the_same_credential(
    tmp_path: pathlib.Path,
    asked: list[tuple[str, dict[str, str], str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order(tmp_path, "5" * 64)
    tries = []

    def cut_off(*words: object) -> tuple[str, dict[str, object]]:
        tries.append(words[2])
        raise Ended

    with monkeypatch.context() as broken:
        broken.setattr(_member_agent, "ask", cut_off)
        with pytest.raises(Ended):
            _member_agent.main(tmp_path)
    _member_agent.main(tmp_path)
    assert asked[0][1] == tries[0]


def test_the_credential_is_for_nobody_elses_eyes(tmp_path: pathlib.Path) -> None:
    kept = _member_agent.read_credential(tmp_path)
    assert len(kept) == 64
    assert (tmp_path / "credential").stat().st_mode & 0o077 == 0
    assert _member_agent.read_credential(tmp_path) == kept
