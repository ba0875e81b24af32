"""The agent keeps its credential, so that after a restart it is the same member."""

from __future__ import annotations

import pathlib

import pytest

from overnight.pools.providers import _member_agent


def order(folder: pathlib.Path, token: str) -> None:
    (folder / "order.json").write_text(f'{{"endpoint": "http://127.0.0.1:9", "token": "{token}"}}')


class Ended(Exception):  # noqa: N818  not an error
    pass


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, str], str]]:
    """Record the agent's requests to a control plane that accepts all and then ends it."""
    recorded: list[tuple[str, dict[str, str], str]] = []

    def ask(
        endpoint: str, path: str, body: dict[str, str], credential: str = ""
    ) -> tuple[str, dict[str, object]]:
        recorded.append((path, body, credential))
        return _member_agent.DONE, {"gone": path == "/v1/beat"}

    monkeypatch.setattr(_member_agent, "ask", ask)
    monkeypatch.setattr(_member_agent, "BEAT_SECONDS", 0)
    monkeypatch.setattr(_member_agent.signal, "signal", lambda *_: None)
    return recorded


def test_the_agent_enrols_reports_ready_and_beats(
    tmp_path: pathlib.Path, requests: list[tuple[str, dict[str, str], str]]
) -> None:
    order(tmp_path, "5" * 64)
    _member_agent.main(tmp_path)
    assert [path for path, _, _ in requests] == ["/v1/enrol", "/v1/phase", "/v1/beat"]
    credential = requests[0][1]["credential"]
    assert requests[1:] == [
        ("/v1/phase", {"phase": "ready"}, credential),
        ("/v1/beat", {}, credential),
    ]
    assert '"token": ""' in (tmp_path / "order.json").read_text()


def test_a_restarted_agent_is_the_same_member_and_uses_no_token(
    tmp_path: pathlib.Path, requests: list[tuple[str, dict[str, str], str]]
) -> None:
    order(tmp_path, "5" * 64)
    _member_agent.main(tmp_path)
    first = requests[0][1]["credential"]
    requests.clear()
    _member_agent.main(tmp_path)
    assert [(path, credential) for path, _, credential in requests] == [
        ("/v1/phase", first),
        ("/v1/beat", first),
    ]


def test_an_interrupted_enrolment_is_retried_with_the_same_credential(
    tmp_path: pathlib.Path,
    requests: list[tuple[str, dict[str, str], str]],
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
    assert requests[0][1] == tries[0]


def test_only_the_owner_can_read_the_credential(tmp_path: pathlib.Path) -> None:
    credential = _member_agent.read_credential(tmp_path)
    assert len(credential) == 64
    assert (tmp_path / "credential").stat().st_mode & 0o077 == 0
    assert _member_agent.read_credential(tmp_path) == credential
