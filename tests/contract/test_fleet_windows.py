"""Windows: uploaded in pieces, checked, kept for a while."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import pathlib
import secrets
import time
from typing import BinaryIO

import pytest
from fleetworld import DAY, START, S, World, bundle, event, offer, report
from killer import KilledError, Killer

from overnight import errors
from overnight.fleet import blobs, context, control, windows
from overnight.model import uplink
from overnight.model.control_plane import AgentIdentity, BlobOffset, OffsetError
from overnight.store.bundle import archive

PIECE = 300


def upload(plane: control.ControlPlane, who: AgentIdentity, data: bytes, piece: int = PIECE) -> None:  # fmt: skip
    """Send a window as an agent does: from where the server is."""
    sha256, at = offer(data).sha256, 0
    while True:
        try:
            answer = plane.put_blob(who, sha256, at, len(data), data[at : at + piece])
        except OffsetError as error:
            at = error.offset
            continue
        if answer.complete:
            return
        at = answer.offset


def offered(fleet: World, who: AgentIdentity, *windows: bytes) -> tuple[str, ...]:
    offers = tuple(offer(data) for data in windows)
    return fleet.plane.report(who, report(1, windows=offers)).want


def test_an_offered_window_is_uploaded_in_pieces_and_found(fleet: World) -> None:
    who, data = fleet.enrol(), bundle()
    sha256 = offer(data).sha256
    assert offered(fleet, who, data) == (sha256,)
    assert fleet.plane.put_blob(who, sha256, 0, len(data), data[:9]) == BlobOffset(9, complete=False)  # fmt: skip
    [row] = fleet.plane.windows("db-7", event="e-1")
    assert not row.is_held
    with pytest.raises(OffsetError) as refused:
        fleet.another().put_blob(who, sha256, 20, len(data), data[20:30])
    assert refused.value.offset == 9
    upload(fleet.another(), who, data)
    assert fleet.plane.open_window(sha256).read_bytes() == data
    [row] = fleet.plane.windows("db-7", event="e-1")
    assert row.is_held
    assert fleet.plane.windows("db-7", begin_us=START + S, end_us=START + 2 * S) == [row]
    assert fleet.plane.windows("db-7", begin_us=START + 60 * S, end_us=START + 61 * S) == []
    assert offered(fleet, who, data) == ()
    again = fleet.plane.put_blob(who, sha256, 0, len(data), data[:9])
    assert again == BlobOffset(len(data), complete=True)


@pytest.mark.parametrize("change", ["other size", "not offered", "of another host", "too long", "negative"])  # fmt: skip
def test_what_was_not_offered_is_refused(fleet: World, change: str) -> None:
    who, other, data = fleet.enrol(), fleet.enrol("db-8"), bundle()
    offered(fleet, who, data)
    sha256, size, offset, piece = offer(data).sha256, len(data), 0, data[:5]
    if change == "other size":
        size += 1
    elif change == "not offered":
        sha256 = "0" * 64
    elif change == "of another host":
        who = other
    elif change == "too long":
        piece = data + b"x"
    else:
        offset = -1
    with pytest.raises((errors.NotAllowedError, errors.UsageError)):
        fleet.plane.put_blob(who, sha256, offset, size, piece)


def test_a_bundle_of_another_host_is_refused(fleet: World) -> None:
    who, data = fleet.enrol("evil"), bundle("db-7")
    offered(fleet, who, data)
    with pytest.raises(errors.NotAllowedError, match="refused"):
        upload(fleet.plane, who, data)
    with pytest.raises(errors.NotFoundError):
        fleet.plane.open_window(offer(data).sha256)
    assert not any(fleet.folder.glob("[0-9a-f][0-9a-f]/*"))


@pytest.mark.parametrize("hidden", ["spans", "hosts", "event"])
def test_a_bundle_that_names_its_host_and_hides_another_is_refused(
    fleet: World, hidden: str
) -> None:
    who, data = fleet.enrol("evil"), bundle("evil", **{hidden: "db-7"})
    offered(fleet, who, data)
    with pytest.raises(errors.NotAllowedError, match="refused"):
        upload(fleet.plane, who, data)
    with pytest.raises(errors.NotFoundError):
        fleet.plane.open_window(offer(data).sha256)


def test_nobody_gets_the_window_of_another_by_its_digest(
    fleet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, hostile, data = fleet.enrol("db-7"), fleet.enrol("evil"), bundle("db-7")
    offered(fleet, victim, data)
    upload(fleet.plane, victim, data)
    offered(fleet, hostile, data)
    # Nor does the server read the whole file, as often as somebody asks.
    monkeypatch.setattr(archive, "members", None)
    monkeypatch.setattr(hashlib, "file_digest", None)
    with pytest.raises(errors.NotAllowedError):
        fleet.plane.put_blob(hostile, offer(data).sha256, 0, len(data), b"x")
    assert fleet.plane.open_window(offer(data).sha256).read_bytes() == data
    assert not any(row.is_held for row in fleet.plane.windows("evil", event="e-1"))


@pytest.mark.parametrize("spoil", [lambda d: d[:-1] + b"!", lambda d: b"!" + d[1:]])
def test_other_bytes_than_offered_are_refused_and_can_be_sent_again(fleet: World, spoil) -> None:  # type: ignore[no-untyped-def]
    who, data = fleet.enrol(), bundle()
    offered(fleet, who, data)
    sha256 = offer(data).sha256
    with pytest.raises(errors.CannotError, match="refused"):
        fleet.plane.put_blob(who, sha256, 0, len(data), spoil(data))
    upload(fleet.plane, who, data)
    assert fleet.plane.open_window(sha256).read_bytes() == data


def test_a_file_that_is_no_bundle_is_refused(fleet: World) -> None:
    who, data = fleet.enrol(), b"not a bundle" * 100
    offered(fleet, who, data)
    with pytest.raises(errors.CannotError, match="refused"):
        upload(fleet.plane, who, data)


def test_a_server_killed_at_any_step_of_an_upload_can_be_sent_the_rest(fleet: World) -> None:
    for at in range(30):
        host = f"db-{at}"
        who, data, killer = fleet.enrol(host), bundle(host), Killer(at)
        offered(fleet, who, data)
        try:
            upload(fleet.another(killer), who, data)
            break
        except KilledError:
            upload(fleet.plane, who, data)
        assert fleet.plane.open_window(offer(data).sha256).read_bytes() == data
        [row] = fleet.plane.windows(host, event="e-1")
        assert row.is_held
    assert "window: published" in killer.passed


@pytest.mark.parametrize("at", [0, 5, None])
def test_a_complete_upload_that_was_not_published_is_published_by_the_next_piece(
    fleet: World, at: int | None
) -> None:
    """Whatever the piece: an agent that was killed, too, begins at 0, and another goes on at the end."""
    who, data = fleet.enrol(), bundle()
    offered(fleet, who, data)
    sha256, size = offer(data).sha256, len(data)
    with pytest.raises(KilledError, match="appended"):
        fleet.another(Killer(0)).put_blob(who, sha256, 0, size, data)
    with pytest.raises(errors.NotFoundError):
        fleet.plane.open_window(sha256)
    at = size if at is None else at
    answer = fleet.plane.put_blob(who, sha256, at, size, data[at : at + 7])
    assert answer == BlobOffset(size, complete=True)
    assert fleet.plane.open_window(sha256).read_bytes() == data
    [row] = fleet.plane.windows("db-7", event="e-1")
    assert row.is_held


def test_two_servers_that_get_the_same_pieces_store_one_window(fleet: World) -> None:
    who, data = fleet.enrol(), bundle()
    offered(fleet, who, data)
    planes = [fleet.plane, fleet.another()]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: upload(planes[n % 2], who, data, 50 + n), range(4)))
    assert fleet.plane.open_window(offer(data).sha256).read_bytes() == data


def test_an_upload_that_begins_while_another_is_checked_is_not_published(
    fleet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one request checks an upload, a second publishes it, and a third begins a new one in its place."""
    who, data = fleet.enrol(), bundle()
    offered(fleet, who, data)
    sha256 = offer(data).sha256
    second, third = fleet.another(), fleet.another()
    append, members = blobs.Blobs.append, archive.members
    first_piece = (who, sha256, 0, len(data), data[:50])

    def append_late(store: blobs.Blobs, *piece: object) -> int:
        if store is third.context.blobs:  # it has seen that the window is not published
            upload(second, who, data)
        return append(store, *piece)  # type: ignore[arg-type]

    def check_slowly(file: BinaryIO) -> object:
        monkeypatch.setattr(archive, "members", members)
        others.append(threads.submit(third.put_blob, *first_piece))
        concurrent.futures.wait(others, timeout=1)
        return members(file)

    others: list[concurrent.futures.Future[BlobOffset]] = []
    monkeypatch.setattr(blobs.Blobs, "append", append_late)
    monkeypatch.setattr(archive, "members", check_slowly)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        upload(fleet.plane, who, data)
    assert fleet.plane.open_window(sha256).read_bytes() == data


def test_the_oldest_windows_of_a_host_make_room(url: str, tmp_path: pathlib.Path) -> None:
    data = [bundle(content=str(n)) for n in range(3)]
    limits = context.Limits(host_bytes=2 * len(data[0]) + 100)
    fleet = World(url, tmp_path / "blobs", limits=limits)
    who, other = fleet.enrol(), fleet.enrol("db-8")
    theirs = bundle("db-8")
    offered(fleet, other, theirs)
    upload(fleet.plane, other, theirs)
    for one in data:
        fleet.clock.forward(1)
        offered(fleet, who, one)
        upload(fleet.plane, who, one)
    held = [row.sha256 for row in fleet.plane.windows("db-7", event="e-1") if row.is_held]
    assert held == [offer(one).sha256 for one in data[1:]]
    with pytest.raises(errors.NotFoundError):
        fleet.plane.open_window(offer(data[0]).sha256)
    assert not (fleet.folder / offer(data[0]).sha256[:2] / offer(data[0]).sha256).exists()
    assert offered(fleet, who, data[0]) == ()  # not again and again
    with pytest.raises(errors.NotAllowedError, match="is not wanted"):
        fleet.plane.put_blob(who, offer(data[0]).sha256, 0, len(data[0]), data[0])
    assert fleet.plane.open_window(offer(theirs).sha256).exists()
    fleet.close()


def test_windows_of_exactly_the_limit_are_kept_and_a_larger_one_is_not_wanted(
    url: str, tmp_path: pathlib.Path
) -> None:
    data = [bundle(content=str(n)) for n in range(2)]
    fleet = World(url, tmp_path / "blobs", limits=context.Limits(host_bytes=sum(map(len, data))))
    who, large = fleet.enrol(), bundle(content=secrets.token_hex(3_000))
    assert len(large) > sum(map(len, data))
    assert {*offered(fleet, who, large, *data)} == {offer(one).sha256 for one in data}
    for one in data:
        upload(fleet.plane, who, one)
    assert sum(row.is_held for row in fleet.plane.windows("db-7", event="e-1")) == 2
    fleet.close()


def test_a_file_that_is_not_a_bundle_frees_its_quota(url: str, tmp_path: pathlib.Path) -> None:
    good, bad = bundle(), b"not a bundle" * 20
    assert len(bad) < len(good)
    fleet = World(url, tmp_path / "blobs", limits=context.Limits(host_bytes=len(good)))
    who = fleet.enrol()
    offered(fleet, who, bad, good)
    with pytest.raises(errors.CannotError, match="refused"):
        upload(fleet.plane, who, bad)
    upload(fleet.plane, who, good)
    assert fleet.plane.open_window(offer(good).sha256).read_bytes() == good
    fleet.close()


def test_neither_a_dropped_window_nor_one_of_a_revoked_agent_is_taken(fleet: World) -> None:
    who, old, new = fleet.enrol(), bundle(content="old"), bundle(content="new")
    offered(fleet, who, old, new)
    upload(fleet.plane, who, old)
    fleet.clock.forward(91 * 86_400)
    fleet.plane._windows.trim()
    offered(fleet, who, new)
    with pytest.raises(errors.NotAllowedError, match="is not wanted"):
        fleet.plane.put_blob(who, offer(old).sha256, 0, len(old), old)
    fleet.plane.agents.revoke("db-7")
    with pytest.raises(errors.UnauthenticatedError):
        fleet.plane.put_blob(who, offer(new).sha256, 0, len(new), new)


def test_an_upload_that_is_repeated_keeps_its_time(fleet: World) -> None:
    """By that time the oldest windows make room."""
    who, data = fleet.enrol(), bundle()
    offered(fleet, who, data)

    def late(step: str) -> None:
        if step == "window: published":
            fleet.clock.forward(60)
            upload(fleet.plane, who, data)
            received.append(fleet.plane.windows("db-7", event="e-1")[0].received_us)
            fleet.clock.forward(60)

    received: list[int | None] = []
    upload(fleet.another(late), who, data)
    assert received == [START + 60 * S] == [fleet.plane.windows("db-7", event="e-1")[0].received_us]


def test_unfinished_uploads_are_limited(url: str, tmp_path: pathlib.Path) -> None:
    data = [bundle(content=str(n) * 200) for n in range(2)]
    fleet = World(url, tmp_path / "blobs", limits=context.Limits(host_bytes=len(data[0]) + 10))
    who = fleet.enrol()
    offered(fleet, who, *data)
    fleet.plane.put_blob(who, offer(data[0]).sha256, 0, len(data[0]), data[0][:-1])
    with pytest.raises(errors.QuotaError):
        fleet.plane.put_blob(who, offer(data[1]).sha256, 0, len(data[1]), data[1][:-1])
    fleet.close()


@pytest.mark.parametrize("wrong", ["digest", "host"])
def test_a_refused_window_frees_its_quota(url: str, tmp_path: pathlib.Path, wrong: str) -> None:
    """Nor is it read again with the next request, however small that is."""
    bad, good = bundle("db-8" if wrong == "host" else "db-7", content="x"), bundle(content="y")
    fleet = World(url, tmp_path / "blobs", limits=context.Limits(host_bytes=len(good) + 10))
    who = fleet.enrol()
    offered(fleet, who, bad, good)
    sent = bad[:-1] + b"?" if wrong == "digest" else bad
    with pytest.raises(errors.CannotError, match="is refused"):
        fleet.plane.put_blob(who, offer(bad).sha256, 0, len(bad), sent)
    assert fleet.plane.context.blobs.partial_bytes(who.host_id) == 0
    with pytest.raises(OffsetError):
        fleet.plane.put_blob(who, offer(bad).sha256, len(bad) - 1, len(bad), b"x")
    upload(fleet.plane, who, good)
    assert fleet.plane.open_window(offer(good).sha256).read_bytes() == good
    fleet.close()


def test_old_windows_are_removed(fleet: World) -> None:
    who = fleet.enrol()
    old, new = bundle(content="old"), bundle(content="new")
    offered(fleet, who, old)
    upload(fleet.plane, who, old)
    fleet.clock.forward(91 * 86_400)
    offered(fleet, who, new)
    upload(fleet.plane, who, new)
    fleet.plane.maintain()
    with pytest.raises(errors.NotFoundError):
        fleet.plane.open_window(offer(old).sha256)
    assert fleet.plane.open_window(offer(new).sha256).read_bytes() == new


def test_a_forgotten_host_leaves_no_windows(fleet: World) -> None:
    who, data = fleet.enrol(), bundle()
    offered(fleet, who, data)
    upload(fleet.plane, who, data)
    fleet.plane.forget("db-7")
    assert [p for p in fleet.folder.rglob("*") if p.is_file()] == [fleet.folder / blobs.MARKER]


def test_an_unfinished_upload_of_a_stored_window_is_swept(
    fleet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    who, data = fleet.enrol(), bundle()
    offered(fleet, who, data)
    upload(fleet.plane, who, data)
    left = fleet.plane.context.blobs.partial(who.host_id, offer(data).sha256)
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(data[:9])
    later = time.time() + 8 * 86_400
    monkeypatch.setattr(time, "time", lambda: later)
    assert fleet.plane.sweep() == 1
    assert fleet.plane.open_window(offer(data).sha256).exists()


def test_files_of_crashes_are_swept(fleet: World, monkeypatch: pytest.MonkeyPatch) -> None:
    who, held, cut = fleet.enrol(), bundle(content="held"), bundle(content="cut")
    offered(fleet, who, held, cut)
    upload(fleet.plane, who, held)
    fleet.plane.put_blob(who, offer(cut).sha256, 0, len(cut), cut[:9])
    orphan = fleet.folder / "ab" / ("ab" * 32)
    orphan.parent.mkdir(exist_ok=True)
    orphan.touch()
    assert fleet.plane.sweep() == 0
    later = time.time() + 8 * 86_400
    monkeypatch.setattr(time, "time", lambda: later)
    assert fleet.plane.sweep() == 2
    assert fleet.plane.open_window(offer(held).sha256).exists()


@pytest.mark.parametrize("text", ["", "x", "../../etc/passwd", "\0", "A" * 64])
def test_other_texts_open_nothing(fleet: World, text: str) -> None:
    with pytest.raises(errors.NotFoundError):
        fleet.plane.open_window(text)
    who = fleet.enrol()
    with pytest.raises(errors.NotAllowedError):
        fleet.plane.put_blob(who, text, 0, 5, b"")


def test_another_blob_folder_is_refused(fleet: World, tmp_path: pathlib.Path) -> None:
    where = fleet.plane.context.database
    with pytest.raises(errors.CannotError, match="not the blob folder"):
        control.ControlPlane(where, blobs.Blobs(tmp_path / "other"))
    assert not (tmp_path / "other").exists()  # as an empty mount point stays
    (tmp_path / "third").mkdir()
    blobs.Blobs(tmp_path / "third").create_mark()
    with pytest.raises(errors.CannotError, match="not the blob folder"):
        control.ControlPlane(where, blobs.Blobs(tmp_path / "third"))
    fleet.another()


def test_servers_that_start_at_once_agree_on_the_folder(url: str, tmp_path: pathlib.Path) -> None:
    import pooldatabases

    pooldatabases.prepare(url)
    databases = [pooldatabases.opened(url) for _ in range(4)]
    store = blobs.Blobs(tmp_path / "blobs")
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda db: control.ControlPlane(db, store), databases))
    assert [p.name for p in (tmp_path / "blobs").iterdir()] == [blobs.MARKER]
    for db in databases:
        db.close()


def test_a_server_killed_while_it_marks_the_folder_can_be_started_again(
    url: str, tmp_path: pathlib.Path
) -> None:
    import pooldatabases

    pooldatabases.prepare(url)
    for at in range(5):
        folder = blobs.Blobs(tmp_path / "blobs")
        db = pooldatabases.opened(url, steps=Killer(at))
        try:
            control.ControlPlane(db, folder)
        except KilledError:
            continue
        finally:
            db.close()
        break
    assert at > 0


def test_a_window_is_one_of_its_event_alone(fleet: World) -> None:
    who = fleet.enrol()
    first, second = bundle(), bundle(content="x")
    offers = (offer(first), dataclasses.replace(offer(second), event=event(2).id))
    fleet.plane.report(who, report(1, windows=offers))
    [row] = fleet.plane.windows("db-7", event=event(2).id)
    assert row.sha256 == offer(second).sha256
    assert DAY == 86_400 * S


def test_a_piece_has_a_limited_size(fleet: World) -> None:
    who, sha256, size = fleet.enrol(), "ab" * 32, 3 * windows.MAX_PIECE
    fleet.plane.report(who, report(1, windows=(uplink.Offer("x-1", sha256, size, 1, 2),)))
    with pytest.raises(errors.UsageError, match="does not fit") as raised:
        fleet.plane.put_blob(who, sha256, 0, size, bytes(windows.MAX_PIECE + 1))
    assert "at most 1 MB" in raised.value.why
    answer = fleet.plane.put_blob(who, sha256, 0, size, bytes(windows.MAX_PIECE))
    assert answer == BlobOffset(windows.MAX_PIECE, complete=False)


def test_the_oldest_windows_of_all_hosts_make_room(url: str, tmp_path: pathlib.Path) -> None:
    data = {host: bundle(host) for host in ("db-1", "db-2", "db-3")}
    total = len(data["db-2"]) + len(data["db-3"])
    fleet = World(url, tmp_path / "blobs", limits=context.Limits(total_bytes=total))
    for host, one in data.items():
        fleet.clock.forward(1)
        who = fleet.enrol(host)
        offered(fleet, who, one)
        upload(fleet.plane, who, one)
    fleet.plane._windows.trim()
    held = [host for host in data if fleet.plane.windows(host, event="e-1")[0].is_held]
    assert held == ["db-2", "db-3"]
    fleet.close()


def test_old_offers_are_forgotten_and_a_window_that_came_late_is_kept(fleet: World) -> None:
    who, late, never = fleet.enrol(), bundle(content="late"), bundle(content="never")
    offered(fleet, who, late, never)
    fleet.clock.forward(80 * 86_400)
    upload(fleet.plane, who, late)
    for days, left in ((10, {late, never}), (1, {late})):
        fleet.clock.forward(days * 86_400)
        fleet.plane._windows.trim()
        known = {row.sha256 for row in fleet.plane.windows("db-7", event="e-1")}
        assert known == {offer(data).sha256 for data in left}
    assert fleet.plane.open_window(offer(late).sha256).read_bytes() == late


def test_a_window_touches_a_time_that_it_has_a_part_of(fleet: World) -> None:
    who, data = fleet.enrol(), bundle()
    offered(fleet, who, data)  # the first minute
    for begin, end, count in ((-9, 0, 0), (-9, 1, 1), (59, 99, 1), (60, 99, 0)):
        span = {"begin_us": START + begin * S, "end_us": START + end * S}
        assert len(fleet.plane.windows("db-7", **span)) == count
