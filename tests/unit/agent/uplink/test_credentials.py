from __future__ import annotations

import contextlib
import json
import pathlib
import time
from collections.abc import Callable, Iterator

import pytest
import uplink_server

from overnight import errors, http_client
from overnight.agent.uplink import credentials


def read(folder: pathlib.Path) -> dict[str, object]:
    return json.loads((folder / "credential").read_text())


Make = Callable[[uplink_server.UplinkServer], credentials.Credentials]


@pytest.fixture
def make(tmp_path: pathlib.Path) -> Iterator[Make]:
    """Return the credentials of a new process."""
    with contextlib.ExitStack() as stack:
        yield lambda server: credentials.Credentials(
            tmp_path, stack.enter_context(http_client.Client(server.url))
        )


def test_the_credential_is_on_disk_before_the_server_learns_it(
    tmp_path: pathlib.Path, make: Make
) -> None:
    with uplink_server.running() as server:
        seen: list[object] = []
        server.fault = lambda _: seen.append(read(tmp_path)["candidate"]) or ""  # type: ignore[func-returns-value]
        own = make(server)
        own.enrol(uplink_server.TOKEN, "db-7")
        assert server.stored.credentials == set(seen)
        assert own.enrolled
    assert (tmp_path / "credential").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("fault", [uplink_server.LOST, uplink_server.CUT, 503])
def test_after_a_lost_answer_the_same_credential_is_sent(
    tmp_path: pathlib.Path, make: Make, fault: str | int
) -> None:
    with uplink_server.running() as server:
        faults = [fault]
        server.fault = lambda _: faults.pop() if faults else ""
        with pytest.raises(errors.CannotError):
            make(server).enrol(uplink_server.TOKEN, "db-7")
        before = read(tmp_path)["candidate"]
        own = make(server)  # another process
        assert not own.enrolled
        own.enrol(uplink_server.TOKEN, "db-7")
        assert server.stored.credentials == {before}


def test_it_is_replaced_after_a_week(tmp_path: pathlib.Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    with uplink_server.running() as server:
        own = make(server)
        own.enrol(uplink_server.TOKEN, "db-7")
        first = read(tmp_path)["credential"]
        assert not own.is_due()
        now = time.time_ns()
        for days in (6, 8):
            monkeypatch.setattr(time, "time_ns", lambda: now + days * 86400 * 10**9)  # noqa: B023
            assert own.is_due() == (days > 7)
        own.rotate()
        assert not own.is_due()
        fresh = read(tmp_path)["credential"]
        assert fresh != first
        assert server.stored.pending == {fresh}


@pytest.mark.parametrize("fault", [uplink_server.LOST, uplink_server.CUT])
def test_a_rotation_that_was_cut_off_is_finished(
    tmp_path: pathlib.Path, make: Make, fault: str
) -> None:
    with uplink_server.running() as server:
        own = make(server)
        own.enrol(uplink_server.TOKEN, "db-7")
        faults = [fault, fault]  # the second: a kept connection is tried twice
        server.fault = lambda _: faults.pop() if faults else ""
        with pytest.raises(errors.CannotError):
            own.rotate()
        fresh = read(tmp_path)["next"]
        own = make(server)
        assert own.is_due()
        own.rotate()
        assert read(tmp_path)["credential"] == fresh
        assert server.stored.pending == {fresh}


def test_a_server_that_knows_only_the_next_one_gets_it(tmp_path: pathlib.Path) -> None:
    stored = {"credential": "a" * 43, "next": "b" * 43, "made_us": 1}
    (tmp_path / "credential").write_text(json.dumps(stored))
    client = http_client.Client("http://127.0.0.1:1")
    own = credentials.Credentials(tmp_path, client)
    assert client.bearer == "a" * 43
    assert own.use_next()
    assert client.bearer == "b" * 43
    assert not own.use_next()  # neither is known
    assert client.bearer == "a" * 43
    own.confirm()
    assert read(tmp_path) == stored
    assert own.use_next()
    own.confirm()
    assert read(tmp_path)["credential"] == "b" * 43
    assert not own.use_next()
    assert client.bearer == "b" * 43


def test_a_token_that_is_refused_leaves_the_credential(tmp_path: pathlib.Path, make: Make) -> None:
    with uplink_server.running() as server:
        own = make(server)
        own.enrol(uplink_server.TOKEN, "db-7")
        first = read(tmp_path)["credential"]
        with pytest.raises(http_client.RefusedError):
            own.enrol(uplink_server.TOKEN, "db-7")  # it was used
        assert (
            first not in server.stored.headers[-1]
        )  # a token alone: the credential may be refused
        again = make(server)
        assert again.enrolled
        assert read(tmp_path)["credential"] == first
        own.rotate()  # with the credential that the server knows


def test_a_damaged_file_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "credential").write_text("{")
    with pytest.raises(errors.CannotError, match="credential cannot be read"):
        credentials.Credentials(tmp_path, http_client.Client("http://127.0.0.1:1"))


def test_a_file_of_another_form_is_no_credential(tmp_path: pathlib.Path) -> None:
    (tmp_path / "credential").write_text("[]")
    client = http_client.Client("http://127.0.0.1:1")
    own = credentials.Credentials(tmp_path, client)
    assert not own.enrolled
    assert not own.use_next()  # there is none
    assert client.bearer == ""
