"""Opening a bundle gives a complete data home or nothing."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pathlib
import random
from collections.abc import Callable

import duckdb
import pytest

from overnight import errors
from overnight.store.bundle import archive, header, unpacker


def parts_of(bundle: pathlib.Path) -> dict[str, bytes]:
    with bundle.open("rb") as file:
        return {
            member.name: b"".join(archive.read(file, member)) for member in archive.members(file)
        }


def write(path: pathlib.Path, parts: dict[str, bytes], *, deflate: bool = False) -> pathlib.Path:
    out = io.BytesIO()
    packer = archive.Packer(out)
    for name, data in parts.items():
        packer.add(name, iter([data]), deflate=deflate and name != header.HEADER)
    packer.finish()
    path.write_bytes(out.getvalue())
    return path


def contents(home: pathlib.Path) -> dict[str, bytes]:
    return {str(p.relative_to(home)): p.read_bytes() for p in home.rglob("*") if p.is_file()}


def forge(parts: dict[str, bytes], **fields: object) -> dict[str, bytes]:
    """The same members with a manifest and a header that match them."""
    inside = {k: v for k, v in parts.items() if k not in (header.HEADER, header.MANIFEST)}
    manifest, checksum = header.encode_manifest(
        {name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in inside.items()}
    )
    head = json.loads(parts[header.HEADER])
    head |= {"members": len(inside), "manifest_sha256": checksum} | fields
    return {header.HEADER: json.dumps(head).encode(), header.MANIFEST: manifest, **inside}


def refuse(path: pathlib.Path, place: pathlib.Path) -> errors.CannotError:
    """Check that the file is refused and leaves nothing behind; return the error."""
    before = sorted(place.rglob("*"))
    with pytest.raises(errors.CannotError) as caught:
        unpacker.open_into(path, place / "into")
    assert sorted(place.rglob("*")) == before
    assert caught.value.why
    assert caught.value.todo
    return caught.value


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


def test_a_bundle_becomes_a_data_home(bundle: pathlib.Path, place: pathlib.Path) -> None:
    bundle_header = unpacker.open_into(bundle, place / "deep" / "into")
    home = place / "deep" / "into"
    assert header.parse_header(parts_of(bundle)["bundle.json"]) == bundle_header
    assert header.parse_header((home / "bundle.json").read_bytes()) == bundle_header
    wanted = {
        name.removeprefix("home/"): data
        for name, data in parts_of(bundle).items()
        if name.startswith("home/")
    }
    files = contents(home)
    del files["bundle.json"]
    assert files == wanted
    assert home.stat().st_mode & 0o777 == 0o700
    assert all(p.stat().st_mode & 0o777 == 0o600 for p in home.rglob("*.ring"))
    assert [p.name for p in (place / "deep").iterdir()] == ["into"]


def test_a_consistent_rewritten_bundle_is_accepted(bundle, tmp_path, place) -> None:
    """The cases below are refused for their content, not for how they were built."""
    unpacker.open_into(write(tmp_path / "x", forge(parts_of(bundle))), place / "into")


FORGED: dict[str, tuple[Callable[[dict[str, bytes]], dict[str, bytes]], str]] = {
    "rules that steer the recorder": (
        lambda parts: forge({**parts, "home/rules/x.toml": b""}), "not part of a bundle",
    ),
    "a file beside the home": (lambda parts: forge({**parts, "x/y": b""}), "not part of a bundle"),
    "a file instead of a part": (
        lambda parts: forge({**parts, "home/spool": b""}), "not part of a bundle",
    ),
    "one more than the manifest lists": (
        lambda parts: {**parts, "home/signals/x/host": b"x"}, "members differ",
    ),
    "one fewer": (
        lambda parts: {k: v for k, v in parts.items() if not k.endswith("host")}, "members differ",
    ),
    "another checksum": (
        lambda parts: {**parts, "home/signals/db-7/host": b"DB-7"}, "another checksum",
    ),
    "another size": (
        lambda parts: {**parts, "home/signals/db-7/host": b"db-77"}, "another size",
    ),
    "another manifest": (
        lambda parts: {**parts, header.MANIFEST: b"{}"}, "manifest.json has changed",
    ),
    "no manifest": (
        lambda parts: {k: v for k, v in parts.items() if k != header.MANIFEST}, "second member",
    ),
    "a manifest of nonsense": (
        lambda parts: _with_manifest(parts, b"[1, 2"), "is invalid",
    ),
    "a manifest as deep as a well": (
        lambda parts: _with_manifest(parts, b"[" * 100_000), "is invalid",
    ),
    "a header without windows": (
        lambda parts: forge(parts, windows=[{}]), "incomplete",
    ),
    "a header with a list for a host": (lambda parts: forge(parts, host=[]), "incomplete"),
    "another format": (lambda parts: forge(parts, format="other"), "another format"),
    "version none": (lambda parts: forge(parts, version=None), "another format"),
}  # fmt: skip


def _with_manifest(parts: dict[str, bytes], text: bytes) -> dict[str, bytes]:
    head = json.loads(parts[header.HEADER])
    head["manifest_sha256"] = hashlib.sha256(text).hexdigest()
    return {**parts, header.HEADER: json.dumps(head).encode(), header.MANIFEST: text}


@pytest.mark.parametrize("name", FORGED)
def test_modified_bundles_are_refused(bundle, tmp_path, place, name: str) -> None:
    change, words = FORGED[name]
    error = refuse(write(tmp_path / "x", change(parts_of(bundle))), place)
    assert words in error.what


def test_the_error_for_a_later_version_names_the_overnight_to_install(
    bundle, tmp_path, place
) -> None:
    parts = forge(parts_of(bundle), version=2, needs="9.4.1", windows="of another shape")
    whole = write(tmp_path / "x", parts).read_bytes()
    # Only the first member of a later version is known; the file may not be a complete zip.
    (tmp_path / "x").write_bytes(whole[: len(whole) // 2])
    error = refuse(tmp_path / "x", place)
    assert "9.4.1" in error.todo
    assert "version 2" in error.what


def test_a_bomb_is_refused_before_it_is_unpacked(bundle, tmp_path, place) -> None:
    parts = {**parts_of(bundle), "home/signals/db-7/x": b"\0" * (80 << 20)}
    path = write(tmp_path / "x", forge(parts), deflate=True)
    assert path.stat().st_size < 4 << 20
    assert "would unpack to" in refuse(path, place).what


def test_a_bomb_that_lies_about_its_size_is_cut_off(bundle, tmp_path, place) -> None:
    """The member states a small size; directory and manifest match it."""
    honest = write(
        tmp_path / "x", {**parts_of(bundle), "home/signals/db-7/x": b"\0" * 9_000_000}, deflate=True
    )
    with honest.open("rb") as file:
        members = archive.members(file)
    lie = b"small"
    parts = forge({**parts_of(bundle), "home/signals/db-7/x": lie})
    out = io.BytesIO()
    packer = archive.Packer(out)
    for name, data in parts.items():
        if name != "home/signals/db-7/x":
            packer.add(name, iter([data]), deflate=False)
    begin = packer._at
    body = honest.read_bytes()[members[-1].offset + len(members[-1].local()) : members[-1].end]
    liar = members[-1]._replace(size=len(lie), offset=begin)
    packer._write(liar.local() + body)
    packer._members.append(liar)
    packer.finish()
    honest.write_bytes(out.getvalue())
    assert "more than its stated size" in refuse(honest, place).what


@pytest.mark.parametrize("left", [0, 3, 29, 40, 500, 5000, -1, -22, -23, -400])
def test_a_file_that_is_cut_short_is_refused(bundle, tmp_path, place, left: int) -> None:
    whole = bundle.read_bytes()
    (tmp_path / "x").write_bytes(whole[:left])
    refuse(tmp_path / "x", place)


def test_other_files_are_not_bundles(bundle, tmp_path, place) -> None:
    for data in (b"", b"hello", b"\x1f\x8b" + b"\0" * 99, b"PK\3\4" + b"\0" * 99):
        (tmp_path / "x").write_bytes(data)
        assert "not a valid bundle" in refuse(tmp_path / "x", place).what
    os.mkfifo(tmp_path / "pipe")
    assert "not a file" in refuse(tmp_path / "pipe", place).what
    assert "not a file" in refuse(tmp_path, place).what
    assert "cannot be read" in refuse(tmp_path / "absent", place).what


@pytest.mark.parametrize("seed", range(8))
def test_flipped_bits_give_the_same_home_or_none(bundle, tmp_path, place, seed: int) -> None:
    chance = random.Random(seed)
    whole = bundle.read_bytes()
    path = tmp_path / "x"
    unpacker.open_into(bundle, tmp_path / "good")
    good = contents(tmp_path / "good")
    for number in range(8):
        damaged = bytearray(whole)
        # The beginning and the end, which hold the structure, as often as the whole file.
        at = chance.choice((chance.randrange(4000), -1 - chance.randrange(9000), chance.randrange(len(whole))))  # fmt: skip
        damaged[at] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        before = sorted(place.iterdir())
        try:
            unpacker.open_into(path, place / str(number))
        except errors.CannotError:
            assert sorted(place.iterdir()) == before
        else:  # a bit that pads the last byte of a deflated member
            assert contents(place / str(number)) == good


def test_a_folder_that_is_in_use_is_left_alone(bundle, place) -> None:
    (place / "into").mkdir()
    unpacker.open_into(bundle, place / "into")  # an empty folder is used
    before = sorted(place.rglob("*"))
    with pytest.raises(errors.CannotError, match="already exists"):
        unpacker.open_into(bundle, place / "into")
    (place / "link").symlink_to(place / "nowhere")
    with pytest.raises(errors.CannotError, match="already exists"):
        unpacker.open_into(bundle, place / "link")
    (place / "link").unlink()
    assert sorted(place.rglob("*")) == before


def test_a_full_disk_is_reported_before_anything_is_written(bundle, place, monkeypatch) -> None:
    monkeypatch.setattr(unpacker.shutil, "disk_usage", lambda _: _Full)
    assert "not enough disk space" in refuse(bundle, place).what


class _Full:
    free = 1000


def test_an_opened_bundle_is_removed_after_use(bundle: pathlib.Path) -> None:
    with unpacker.opened(bundle) as (home, bundle_header):
        assert (home / "signals" / "db-7" / "host").read_text() == bundle_header.host
    assert not home.parent.exists()


def test_an_opened_bundle_is_removed_when_the_reader_fails(bundle: pathlib.Path) -> None:
    seen: list[pathlib.Path] = []

    def fail() -> None:
        with unpacker.opened(bundle) as (home, _):
            seen.append(home)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not seen[0].parent.exists()


FRAMES = "0::UTINYINT AS kind, 0::UBIGINT AS own, 0::UBIGINT AS whole"


@pytest.mark.parametrize(
    ("name", "columns", "rows"),
    [
        ("frames.parquet", f"repeat('a', 65536) AS name, '' AS module, {FRAMES}", 20_000),
        ("frames.parquet", f"['a'] AS name, '' AS module, {FRAMES}", 1),
        ("nodes.parquet", "'a' AS frame, 0::UINTEGER AS up, 1::UINTEGER AS size", 1),
        (
            "nodes.parquet",
            "0::UINTEGER AS frame, 0::UINTEGER AS up, 1::UINTEGER AS size",
            5_000_000,
        ),
    ],
    ids=["text", "list", "type", "rows"],
)
def test_a_table_that_expands_is_refused(bundle, tmp_path, name, columns, rows) -> None:
    bomb = tmp_path / "bomb.parquet"
    with duckdb.connect(":memory:") as connection:
        connection.execute(
            f"COPY (SELECT {columns} FROM range({rows})) TO '{bomb}' "
            "(FORMAT parquet, CODEC zstd, ROW_GROUP_SIZE 2048)"
        )
    parts = parts_of(bundle)
    member = next(part for part in parts if part.endswith(name))
    path = write(tmp_path / "bad", forge({**parts, member: bomb.read_bytes()}))
    assert path.stat().st_size < 2 << 20
    assert name in refuse(path, tmp_path).what
