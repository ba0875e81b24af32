"""Opens a bundle: everything is compared with what was written before a data home appears."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from typing import BinaryIO

from overnight import errors
from overnight.store.bundle import archive, header

__all__ = ["open_into", "opened", "read_header"]

# The parts of a data home that a bundle may hold: what steers overnight (rules) is none of them.
PARTS = ("signals", "profiles", "snapshots", "loads")
MOST_UNPACKED = 16 << 30
# Stored members are packed by themselves, so a whole bundle unpacks to about its own size (measured: 1.2).
MOST_RATIO = 100
SLACK = 64 << 20  # a small bundle may hold much of nothing
MOST_MANIFEST = 32 << 20  # 50,000 members need 12

FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Progress = Callable[[int, int], None]


def read_header(path: pathlib.Path) -> header.Header:
    """What a bundle says of itself; raises CannotError. Costs the same however large it is."""
    with _told(path), _open(path) as file:
        return _header(file)


def open_into(
    path: pathlib.Path, target: pathlib.Path, progress: Progress = lambda _done, _all: None
) -> header.Header:
    """Make a data home at `target`, which is not there yet, or empty.

    It appears by one rename when all of it was compared; else nothing is left behind. Raises
    CannotError for what is no bundle, a damaged or a hostile one.
    """
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise errors.CannotError(
            f"{target} is there already",
            why="a bundle becomes a data home of its own",
            todo="name a folder that is not there yet: --into DIR",
        )
    with _told(path), _open(path) as file:
        said = _header(file)
        found = archive.members(file)
        listed = _compared(file, found, said)
        _check_room(target, sum(member.size for member in found))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = pathlib.Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
        except OSError as error:
            raise _unwritable(target, error) from error
        try:
            _unpack(file, found, listed, fresh, progress)
            try:
                (fresh / header.HEADER).write_bytes(said.encode())
                # Not synced: the bundle is still there, and can be opened again after a power cut.
                fresh.rename(target)
            except OSError as error:
                raise _unwritable(target, error) from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return said


@contextlib.contextmanager
def opened(
    path: pathlib.Path, progress: Progress = lambda _done, _all: None
) -> Iterator[tuple[pathlib.Path, header.Header]]:
    """A bundle as a data home for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="overnight-bundle-", ignore_cleanup_errors=True) as top:
        home = pathlib.Path(top) / "home"
        yield home, open_into(path, home, progress)


@contextlib.contextmanager
def _told(path: pathlib.Path) -> Iterator[None]:
    """Whatever is wrong with a bundle becomes an error that says so."""
    try:
        yield
    except (archive.BadArchiveError, header.NoBundleError) as error:
        raise errors.CannotError(
            f"{path} is refused: {error}",
            why="it is damaged, cut short, or was not written by overnight bundle create; "
            "nothing was unpacked",
            todo="have it sent once more, and compare its checksum with the sender's",
        ) from error
    except header.FutureError as error:
        raise errors.CannotError(
            f"{path} is a bundle of version {error.version}",
            why=f"this overnight reads bundles up to version {header.VERSION}",
            todo=f"update to overnight {error.needs or 'of the one who sent it'}, or a later one",
        ) from error
    except OSError as error:
        raise errors.CannotError(
            f"{path} cannot be read",
            why=error.strerror or str(error),
            todo="check the path and its permissions",
        ) from error


def _open(path: pathlib.Path) -> BinaryIO:
    """A regular file: a pipe would keep us waiting, and cannot be looked into before it is read."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise header.NoBundleError("it is no file")
    return path.open("rb")


def _header(file: BinaryIO) -> header.Header:
    data = archive.first_member(file, header.HEADER, header.MOST_HEADER)
    if data is None:
        raise header.NoBundleError(f"it is no bundle: it does not begin with a {header.HEADER}")
    return header.parse_header(data)


def _compared(
    file: BinaryIO, found: list[archive.Member], said: header.Header
) -> dict[str, tuple[int, str]]:
    """The manifest, once it is sure that it tells of these members, and that they are not too large."""
    packed = sum(member.packed_bytes for member in found)
    size = sum(member.size for member in found)
    if size > MOST_UNPACKED or size > MOST_RATIO * packed + SLACK:
        raise archive.BadArchiveError(
            f"it would unpack to {size / 1e6:.0f} MB from {packed / 1e6:.1f} MB"
        )
    names = [member.name for member in found]
    if names[:2] != [header.HEADER, header.MANIFEST]:
        raise header.NoBundleError(f"its {header.MANIFEST} is not its second member")
    if found[1].size > MOST_MANIFEST:
        raise header.NoBundleError(f"its {header.MANIFEST} is too large")
    listed = header.parse_manifest(b"".join(archive.read(file, found[1])), said)
    if set(names[2:]) != listed.keys():
        raise header.NoBundleError("it holds other members than its manifest lists")
    for member in found[2:]:
        inner = member.name.removeprefix(header.HOME)
        if inner == member.name or inner.partition("/")[0] not in PARTS or "/" not in inner:
            raise header.NoBundleError(f"{member.name!r} is no part of a bundle")
        if listed[member.name][0] != member.size:
            raise header.NoBundleError(f"{member.name!r} is not as large as the manifest says")
    return listed


def _unpack(
    file: BinaryIO,
    found: list[archive.Member],
    listed: dict[str, tuple[int, str]],
    fresh: pathlib.Path,
    progress: Progress,
) -> None:
    everything = sum(member.size for member in found)
    done = 0
    for member in found[2:]:
        target = fresh / member.name.removeprefix(header.HOME)
        digest = hashlib.sha256()
        try:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # New files alone: there are no links in a folder that nobody else may enter.
            with os.fdopen(os.open(target, FRESH, 0o600), "wb") as out:
                for piece in archive.read(file, member):
                    digest.update(piece)
                    out.write(piece)
                    done += len(piece)
                    progress(done, everything)
        except OSError as error:
            raise _unwritable(target, error) from error
        if digest.hexdigest() != listed[member.name][1]:
            raise header.NoBundleError(
                f"{member.name!r} has another checksum than the manifest says"
            )


def _check_room(target: pathlib.Path, size: int) -> None:
    place = target.absolute().parent
    while not place.is_dir():
        place = place.parent
    free = shutil.disk_usage(place).free
    if size > free:
        raise errors.CannotError(
            f"the bundle does not fit below {place}",
            why=f"it unpacks to {size / 1e6:.0f} MB, and {free / 1e6:.0f} MB are free",
            todo="make room, or open it elsewhere: --into DIR (diagnose: TMPDIR)",
        )


def _unwritable(target: pathlib.Path, error: OSError) -> errors.CannotError:
    return errors.CannotError(
        f"{target} cannot be written",
        why=error.strerror or str(error),
        todo="make room, or choose another folder: --into DIR",
    )
