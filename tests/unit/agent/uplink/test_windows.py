from __future__ import annotations

import hashlib
import itertools
import json
import os
import pathlib
import types
from collections.abc import Iterator

import pytest
import uplink_server

from overnight import http_client
from overnight.agent.uplink import windows

NOW_US = 1_794_969_000_000_000


def event(name: str = "test.event-1", **more: object) -> dict[str, object]:
    return {"id": name, "time_us": NOW_US, "severity": "warning", **more}


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_every_warning_is_asked_for_once_and_in_time(tmp_path: pathlib.Path) -> None:
    own = windows.Windows(tmp_path, 1e6)
    for each in (
        event(),
        event(),
        event("test.event-2", severity="critical", until_us=NOW_US + 30_000_000),
        event("test.event-3", severity="info"),
        event("test.event-4", time_us=NOW_US - 7 * 3_600_000_000),
        event("../../etc/passwd"),
    ):
        own.request(each, NOW_US)
    due = {name: json.loads((tmp_path / name).read_text()) for name in names(tmp_path)}
    assert {name: (each["event"], each["due_us"] - NOW_US) for name, each in due.items()} == {
        "test.event-1.request": ("test.event-1", 120_000_000),
        "test.event-1.first.request": ("test.event-1", 0),
        "test.event-2.request": ("test.event-2", 150_000_000),
        "test.event-2.first.request": ("test.event-2", 0),
    }


@pytest.mark.parametrize(
    ("severity", "after_s", "age_s", "is_asked_for"),
    [
        ("critical", 14.9, 1, False),
        ("critical", 15.0, 1, True),
        ("warning", 59.9, 1, False),
        ("warning", 60.0, 1, True),
        ("critical", 15.0, 59.9, True),
        ("critical", 15.0, 60.0, False),  # seen late: the whole one is soon there
    ],
)
def test_first_bundles_are_few_and_of_new_events(
    tmp_path: pathlib.Path, severity: str, after_s: float, age_s: float, *, is_asked_for: bool
) -> None:
    own = windows.Windows(tmp_path, 1e6)
    own.request(event("a", severity=severity), NOW_US)
    own.request(event("a", severity=severity, until_us=NOW_US + 60_000_000), NOW_US + 40_000_000)
    now_us = NOW_US + round(after_s * 1e6)
    own.request(event("b", severity=severity, time_us=now_us - round(age_s * 1e6)), now_us)
    assert (tmp_path / "a.first.request").exists()
    assert (tmp_path / "b.request").exists()
    assert (tmp_path / "b.first.request").exists() == is_asked_for
    (tmp_path / "a.first.request").rename(tmp_path / "a.first.done")
    windows.Windows(tmp_path, 1e6).request(event("a", severity=severity), NOW_US + 1)
    assert not (tmp_path / "a.first.request").exists()


def test_an_event_that_goes_on_is_put_off_but_not_for_ever(tmp_path: pathlib.Path) -> None:
    own = windows.Windows(tmp_path, 1e6)
    dues = []
    for seconds in range(0, 1800, 5):
        own.request(event(until_us=NOW_US + seconds * 1_000_000), NOW_US)
        document = json.loads((tmp_path / "test.event-1.request").read_text())
        dues.append((document["due_us"] - NOW_US) // 1_000_000)
    assert 600 < max(dues) <= 720
    assert len(set(dues)) <= 11


def test_an_event_that_goes_on_is_not_asked_for_again_once_it_is_bundled(
    tmp_path: pathlib.Path,
) -> None:
    own = windows.Windows(tmp_path, 1e6)
    own.request(event(), NOW_US)
    for path in tmp_path.iterdir():
        path.unlink()
    (tmp_path / "test.event-1.done").touch()  # another process made the bundle, and it was uploaded
    own.request(event(until_us=NOW_US + 400_000_000), NOW_US + 400_000_000)
    assert names(tmp_path) == ["test.event-1.done"]


def test_a_clock_that_was_set_back_does_not_put_off_first_bundles(tmp_path: pathlib.Path) -> None:
    own = windows.Windows(tmp_path, 1e6)
    own.request(event("a"), NOW_US)
    back_us = NOW_US - 3_600_000_000
    own.request(event("b", time_us=back_us), back_us)
    assert (tmp_path / "b.first.request").exists()


def test_a_report_names_a_limited_number_of_bundles(tmp_path: pathlib.Path) -> None:
    for n in range(windows.MAX_OFFERS + 1):
        bundle(tmp_path, 10, f"e-{n}")
    own = windows.Windows(tmp_path, 1e6)
    own.refresh()
    first = own.choose_offers(0.0)
    own.note_offered(first, 0.0)
    assert (len(first), len(own.choose_offers(1.0))) == (windows.MAX_OFFERS, 1)


def test_a_digest_that_is_not_offered_is_not_uploaded(
    tmp_path: pathlib.Path, server: uplink_server.UplinkServer
) -> None:
    """The server may ask for a bundle that is gone: others follow, and the uplink goes on."""
    digest = bundle(tmp_path, 100)
    own = windows.Windows(tmp_path, 1e6)
    own.refresh()
    own.wanted = {"0" * 64, digest}
    own.refresh()
    upload(own, server, 1)
    assert server.stored.complete == {digest}


def test_a_bundled_event_is_not_asked_for_again(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test.event-1.done").touch()
    own = windows.Windows(tmp_path, 1e6)
    own.request(event(), NOW_US)
    assert names(tmp_path) == ["test.event-1.done"]


def bundle(folder: pathlib.Path, size: int, name: str = "test.event-1") -> str:
    data = os.urandom(size)
    digest = hashlib.sha256(data).hexdigest()
    (folder / f"{name}.overnight").write_bytes(data)
    offer = {"event": name, "sha256": digest, "bytes": size, "begin_us": 1, "end_us": 2}
    (folder / f"{name}.json").write_text(json.dumps(offer))
    return digest


@pytest.fixture
def server() -> Iterator[uplink_server.UplinkServer]:
    with uplink_server.running() as running:
        running.stored.credentials = {"c" * 43}
        yield running


def upload(own: windows.Windows, server: uplink_server.UplinkServer, pieces: int) -> None:
    with http_client.Client(server.url, bearer="c" * 43) as client:
        for _ in range(pieces):
            own.upload_piece(client, own.next)


def test_a_bundle_is_uploaded_in_pieces_and_resumed_by_another_process(
    tmp_path: pathlib.Path, server: uplink_server.UplinkServer
) -> None:
    digest = bundle(tmp_path, 3_000_000)
    own = windows.Windows(tmp_path, 1e9)
    own.refresh()
    assert windows.read_digest(tmp_path, "test.event-1") == digest
    assert [offer["sha256"] for offer in own.choose_offers(100.0)] == [digest]
    own.note_offered(own.choose_offers(100.0), 100.0)
    assert own.choose_offers(100.0 + 3599) == []
    assert own.choose_offers(100.0 + 3601) != []
    own.wanted = {digest}
    upload(own, server, 2)
    sent = len(server.stored.blobs[digest])
    assert 0 < sent < 3_000_000
    again = windows.Windows(tmp_path, 1e9)
    again.refresh()
    again.wanted = {digest}
    upload(again, server, 60)
    assert server.stored.complete == {digest}
    assert not again.holds(digest)
    assert names(tmp_path) == ["test.event-1.done"]
    assert windows.read_digest(tmp_path, "test.event-1") == digest


def test_pieces_grow_on_a_quick_line_only(
    tmp_path: pathlib.Path,
    server: uplink_server.UplinkServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digest = bundle(tmp_path, 3_000_000)
    own = windows.Windows(tmp_path, 1e9)
    own.refresh()
    sizes = []
    upload(own, server, 9)  # nothing is wanted: nothing is learnt about the line
    own.wanted = {digest}
    for seconds in (0.1, 0.1, 0.1, 2.0, 0.7, 0.1, 9.0, 0.1):
        now = itertools.count(0.0, seconds)
        monkeypatch.setattr(windows, "time", types.SimpleNamespace(monotonic=lambda: next(now)))  # noqa: B023
        before = len(server.stored.blobs.get(digest, b""))
        upload(own, server, 1)
        sizes.append((len(server.stored.blobs[digest]) - before) // windows.LEAST_PIECE)
    assert sizes == [1, 2, 4, 4, 2, 2, 4, 1]


def test_a_lost_answer_to_the_last_piece_is_not_a_problem(
    tmp_path: pathlib.Path, server: uplink_server.UplinkServer
) -> None:
    digest = bundle(tmp_path, 10_000)
    own = windows.Windows(tmp_path, 1e6)
    own.refresh()
    own.wanted = {digest}
    faults = [uplink_server.LOST]
    server.fault = lambda _: faults.pop() if faults else ""
    with pytest.raises(http_client.ServerAwayError):
        upload(own, server, 1)
    upload(own, server, 1)
    assert server.stored.complete == {digest}
    assert names(tmp_path) == ["test.event-1.done"]


def test_an_upload_is_complete_only_if_the_server_says_so(
    tmp_path: pathlib.Path, server: uplink_server.UplinkServer
) -> None:
    """A server that was killed before it published a window has all of its bytes, and names that offset."""
    digest = bundle(tmp_path, 10_000)
    server.stored.blobs[digest] = bytearray((tmp_path / "test.event-1.overnight").read_bytes())
    own = windows.Windows(tmp_path, 1e6)
    own.refresh()
    own.wanted = {digest}
    upload(own, server, 1)
    assert names(tmp_path) == ["test.event-1.json", "test.event-1.overnight"]
    assert own.next == windows.OFFSET_SECONDS  # not asked in a loop
    upload(own, server, 1)
    assert server.stored.complete == {digest}
    assert names(tmp_path) == ["test.event-1.done"]


def test_the_rate_is_limited(tmp_path: pathlib.Path, server: uplink_server.UplinkServer) -> None:
    digest = bundle(tmp_path, 500_000)
    own = windows.Windows(tmp_path, 100_000)
    own.refresh()
    own.wanted = {digest}
    with http_client.Client(server.url, bearer="c" * 43) as client:
        for now in (0.0, 0.1, 0.2):
            own.upload_piece(client, now)
        first = len(server.stored.blobs[digest])
        assert first == own.next * 100_000
        own.upload_piece(client, own.next)
    assert first < len(server.stored.blobs[digest]) == pytest.approx(own.next * 100_000)


@pytest.mark.parametrize("status", [400, 403, 404, 413, 422])
def test_a_bundle_that_the_server_never_takes_is_given_up(
    tmp_path: pathlib.Path, server: uplink_server.UplinkServer, status: int
) -> None:
    digest = bundle(tmp_path, 10_000)
    own = windows.Windows(tmp_path, 1e6)
    own.refresh()
    own.wanted = {digest}
    server.fault = lambda _: status
    with pytest.raises(http_client.RefusedError):
        upload(own, server, 1)
    assert names(tmp_path) == ["test.event-1.done"]
    assert windows.read_digest(tmp_path, "test.event-1") == ""


def test_what_is_done_is_forgotten_at_last(
    tmp_path: pathlib.Path, server: uplink_server.UplinkServer
) -> None:
    for n in range(windows.MAX_DONE + 50):
        (tmp_path / f"old-{n}.done").touch()
    digest = bundle(tmp_path, 100)
    own = windows.Windows(tmp_path, 1e6)
    own.refresh()
    own.wanted = {digest, "f" * 64}
    own.refresh()
    upload(own, server, 1)
    assert len(names(tmp_path)) <= windows.MAX_DONE + 50
    assert "test.event-1.done" in names(tmp_path)


@pytest.mark.parametrize("status", [401, 409, 429, 500, 503, 507])
def test_a_bundle_that_the_server_may_take_later_is_kept(
    tmp_path: pathlib.Path, server: uplink_server.UplinkServer, status: int
) -> None:
    """A 409 without an offset, too, is a failure: the next piece waits as after each of them."""
    digest = bundle(tmp_path, 10_000)
    own = windows.Windows(tmp_path, 1e6)
    own.refresh()
    own.wanted = {digest}
    server.fault = lambda _: status
    with pytest.raises(http_client.RefusedError):
        upload(own, server, 1)
    server.fault = lambda _: ""
    upload(own, server, 1)
    assert server.stored.complete == {digest}


@pytest.mark.parametrize(("offset", "sent_next"), [(-5, 0), (1 << 60, 100), (40, 40)])
def test_an_impossible_offset_does_not_end_an_upload(
    tmp_path: pathlib.Path, offset: int, sent_next: int
) -> None:
    digest = bundle(tmp_path, 100)
    own = windows.Windows(tmp_path, 1e6)
    own.refresh()
    own.wanted = {digest}
    paths: list[str] = []

    class Client:
        def request(self, _method: str, path: str, *_: object) -> object:
            paths.append(path)
            return types.SimpleNamespace(document=lambda: {"offset": offset})

    for _ in range(2):
        own.upload_piece(Client(), own.next)  # type: ignore[arg-type]
    assert paths[1].endswith(f"?offset={sent_next}&size=100")
    assert own.holds(digest)


def test_a_bundle_whose_file_is_gone_is_given_up(tmp_path: pathlib.Path) -> None:
    digest = bundle(tmp_path, 100)
    own = windows.Windows(tmp_path, 1e6)
    own.refresh()
    own.wanted = {digest}
    (tmp_path / "test.event-1.overnight").unlink()
    own.upload_piece(http_client.Client("http://127.0.0.1:1"), 0.0)
    assert not own.holds(digest)
    assert not own.wanted


@pytest.mark.parametrize(
    ("until_s", "end_s"), [(0, 120), (-5, 120), (30, 150), (600, 720), (601, 720), (9000, 720)]
)
def test_a_whole_window_ends_two_minutes_after_its_event_or_its_first_ten_minutes(
    until_s: int, end_s: int
) -> None:
    until_us = NOW_US + until_s * 1_000_000 if until_s else 0
    assert windows.find_whole_end(NOW_US, until_us) - NOW_US == end_s * 1_000_000
