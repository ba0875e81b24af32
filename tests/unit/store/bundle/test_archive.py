"""The strict zip: we and other tools read what it writes; any other form is refused."""

from __future__ import annotations

import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.store.bundle import archive

WORDS = st.from_regex(r"[a-z0-9_][a-z0-9_.%~-]{0,12}", fullmatch=True)
NAMES = st.lists(WORDS, min_size=2, max_size=4).map("/".join)


def packed(*members: tuple[str, bytes], deflate: bool = True) -> bytes:
    out = io.BytesIO()
    packer = archive.Packer(out)
    for name, data in members:
        packer.add(name, iter([data]), deflate=deflate)
    packer.finish()
    return out.getvalue()


def unpacked(data: bytes) -> dict[str, bytes]:
    file = io.BytesIO(data)
    return {member.name: b"".join(archive.read(file, member)) for member in archive.members(file)}


@given(st.lists(st.tuples(st.binary(max_size=400), st.booleans()), max_size=5))
def test_an_archive_is_read_by_us_and_by_other_tools(bodies: list[tuple[bytes, bool]]) -> None:
    out = io.BytesIO()
    packer = archive.Packer(out)
    for n, (body, deflate) in enumerate(bodies):
        packer.add(f"home/{n}", iter([body[:100], body[100:]]), deflate=deflate)
    packer.finish()
    wanted = {f"home/{n}": body for n, (body, _) in enumerate(bodies)}
    assert unpacked(out.getvalue()) == wanted
    with zipfile.ZipFile(out) as other:
        assert other.testzip() is None
        assert {name: other.read(name) for name in other.namelist()} == wanted


def test_a_long_repetition_comes_back_whole() -> None:
    """The decompressor holds back output beyond a piece, even after it has read all input."""
    body = b"\0" * (3 * archive.PIECE + 17)
    assert unpacked(packed(("a/b", body))) == {"a/b": body}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../x", "leads out"),
        ("home/../../x", "leads out"),
        ("/etc/passwd", "leads out"),
        ("home/./x", "leads out"),
        ("home//x", "has characters"),
        ("home/x\0y", "has characters"),
        ("home/a b", "has characters"),
        ("home\\x", "has characters"),
        ("C:x", "has characters"),
        ("home/.hidden", "has characters"),
        ("home/\u00e9", "has characters"),
        ("home/x\n", "has characters"),
        ("home/", "has characters"),
        ("", "has characters"),
        ("a/" * 8 + "a", "too long or too deep"),
        ("home/" + "a" * 256, "has characters"),
        ("a" * 2000, "too long or too deep"),
    ],
)
def test_unsafe_names_are_refused(name: str, words: str) -> None:
    with pytest.raises(archive.BadArchiveError, match=words):
        archive.check_names([name])


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["home/a", "home/a"], "twice"),
        (["home/a", "HOME/A"], "only in case"),
        (["home/a", "home/a/b"], "a file and a folder"),
        (["home/A/b", "home/a"], "a file and a folder"),
    ],
)
def test_names_that_collide_are_refused(names: list[str], words: str) -> None:
    with pytest.raises(archive.BadArchiveError, match=words):
        archive.check_names(names)


@given(NAMES)
def test_ordinary_names_pass(name: str) -> None:
    archive.check_names([name])


def foreign(
    name: str, data: bytes = b"x", *, all_comment: bytes = b"", **properties: object
) -> bytes:
    """A zip as other tools write it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        info.external_attr = 0o100600 << 16
        for key, value in properties.items():
            setattr(info, key, value)
        file.writestr(info, data)
        file.comment = all_comment
    return out.getvalue()


def test_a_zip_of_another_tool_in_the_same_form_is_read() -> None:
    assert unpacked(foreign("home/x")) == {"home/x": b"x"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (foreign("home/x", external_attr=0o120777 << 16), "is a link"),
        (foreign("home/x", external_attr=0o060600 << 16), "not a regular file"),
        (foreign("home/x", external_attr=0o010600 << 16), "not a regular file"),
        (foreign("home/x", external_attr=0o104755 << 16), "does not write"),
        (foreign("home/x", extra=b"\x01\x00\x00\x00"), "does not write"),
        (foreign("home/x", comment=b"c"), "does not write"),
        (foreign("home/x", create_system=0), "does not write"),
        (foreign("home/x", date_time=(2026, 1, 1, 0, 0, 0)), "does not write"),
        (foreign("home/x", compress_type=zipfile.ZIP_BZIP2), "method 12"),
        (foreign("../x"), "leads out"),
        (foreign("home/\u00e9"), "has characters"),
        (foreign("home/x") + b"tail", "after its end"),
        (b"#!/bin/sh\n" + foreign("home/x"), "not at the stated place"),
        (foreign("home/x", all_comment=b"hello"), "after its end"),
        (b"", "cut short"),
        (b"PK\5\6", "cut short"),
    ],
)
def test_zips_in_another_form_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(archive.BadArchiveError, match=words):
        unpacked(data)


def forged(members: list[archive.Member], bodies: bytes) -> bytes:
    """An archive with this directory, even if it does not fit the bodies."""
    directory = b"".join(member.central() for member in members)
    end = archive.END.pack(
        archive.END_MAGIC, 0, 0, len(members), len(members), len(directory), len(bodies), 0
    )
    return bodies + directory + end


def test_members_that_share_their_bytes_are_refused() -> None:
    whole = packed(("home/a", b"\0" * 100_000))
    (member,) = archive.members(io.BytesIO(whole))
    body = whole[: member.end]
    twin = member._replace(name="home/b")
    with pytest.raises(archive.BadArchiveError, match="overlaps"):
        archive.members(io.BytesIO(forged([member, twin], body)))
    with pytest.raises(archive.BadArchiveError, match="two different heads"):
        archive.members(io.BytesIO(forged([twin], body)))
    with pytest.raises(archive.BadArchiveError, match="unused bytes"):
        archive.members(io.BytesIO(forged([member], body + b"more")))


@pytest.mark.parametrize("claimed", [10, 99_999, 100_001])
def test_a_member_that_states_a_wrong_size_is_refused(claimed: int) -> None:
    whole = packed(("home/a", b"\0" * 100_000))
    (member,) = archive.members(io.BytesIO(whole))
    liar = member._replace(size=claimed)
    body = liar.local() + whole[len(liar.local()) : member.end]
    file = io.BytesIO(forged([liar], body))
    seen: list[bytes] = []
    with pytest.raises(archive.BadArchiveError, match="than its stated size"):
        seen.extend(archive.read(file, archive.members(file)[0]))
    assert sum(map(len, seen)) <= claimed


@given(st.binary(max_size=300))
def test_any_bytes_are_an_archive_or_refused(data: bytes) -> None:
    for hostile in (data, packed(("home/a", b"x")) + data, packed(("home/a", data))[: len(data)]):
        try:
            unpacked(hostile)
        except archive.BadArchiveError:
            continue


@pytest.mark.parametrize("deflate", [False, True])
def test_each_flipped_bit_is_detected(deflate: bool) -> None:
    """Except for the few that pad the last byte of deflated data."""
    members = (("bundle.json", b"{}"), ("home/a", b"some words " * 9))
    whole = packed(*members, deflate=deflate)
    unseen = 0
    for at in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << at % 8
        try:
            assert unpacked(bytes(damaged)) == dict(members)
            unseen += 1
        except archive.BadArchiveError:
            continue
    assert unseen <= (14 if deflate else 0)


def test_an_archive_too_large_for_a_zip_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(archive, "MAX_BYTES", 1000)
    with pytest.raises(archive.BadArchiveError, match="4 GiB"):
        packed(("home/a", bytes(range(256)) * 8), deflate=False)
