"""Opens a bundle: everything is verified before the data home appears."""

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
from overnight.model import files, stop_signals
from overnight.store import parquet
from overnight.store.bundle import archive, header

# The parts of a data home that a bundle may hold; configuration (rules) is not one of them.
PARTS = ("signals", "profiles", "snapshots", "loads", "instruments")
MAX_UNPACKED = 16 << 30
# Members are compressed already, so a bundle unpacks to about its own size (measured: 1.2 times).
MAX_RATIO = 100
SLACK = 64 << 20  # a small bundle may hold long runs of zeros
MAX_MANIFEST = 32 << 20  # 50,000 members need 12

FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Progress = Callable[[int, int], None]


def open_into(
    path: pathlib.Path, target: pathlib.Path, progress: Progress = lambda _done, _all: None
) -> header.Header:
    """Verify a bundle and unpack it as the new data home `target`; a CannotError leaves nothing behind."""
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise errors.CannotError(
            f"{target} already exists",
            why="a bundle is unpacked into a new data home",
            todo="choose a folder that does not exist yet: --into DIR",
        )
    with _explain_errors(path), _open(path) as file, stop_signals.interrupt_on_signals():
        data = archive.first_member(file, header.HEADER, header.MAX_HEADER)
        if data is None:
            raise header.NoBundleError(f"it does not begin with {header.HEADER}")
        head = header.parse_header(data)
        members = archive.members(file)
        manifest = _check_manifest(file, members, head)
        _check_room(target, sum(member.size for member in members))
        with _writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = pathlib.Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
        try:
            _unpack(file, members, manifest, fresh, progress)
            _check_tables(fresh)
            with _writing(target):
                files.write(fresh / header.HEADER, head.encode())
                # Not synced: the bundle is still there, and can be opened again after a power cut.
                fresh.rename(target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return head


@contextlib.contextmanager
def opened(path: pathlib.Path) -> Iterator[tuple[pathlib.Path, header.Header]]:
    """Unpack a bundle into a temporary data home, removed at the end of the block."""
    with (
        stop_signals.interrupt_on_signals(),
        tempfile.TemporaryDirectory(prefix="overnight-bundle-", ignore_cleanup_errors=True) as top,
    ):
        home = pathlib.Path(top) / "home"
        yield home, open_into(path, home)


@contextlib.contextmanager
def _explain_errors(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except (archive.BadArchiveError, header.NoBundleError) as error:
        raise errors.CannotError(
            f"{path} is not a valid bundle: {error}",
            why="it is damaged, cut short, or is not a bundle; nothing was unpacked",
            todo="ask for it again, and compare its checksum with the sender's",
        ) from error
    except header.FutureError as error:
        raise errors.CannotError(
            f"{path} has bundle version {error.version}",
            why=f"this overnight reads bundles up to version {header.VERSION}",
            todo=f"update overnight: version {error.needs or 'of the sender'} or later",
        ) from error
    except OSError as error:
        raise errors.unreadable(path, error, "check the path and its permissions") from error


def _open(path: pathlib.Path) -> BinaryIO:
    """Open a regular file: a pipe could block, and is not seekable."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise header.NoBundleError("it is not a file")
    return path.open("rb")


def _check_manifest(
    file: BinaryIO, members: list[archive.Member], head: header.Header
) -> dict[str, tuple[int, str]]:
    """Return the manifest, after checking it against the members and their sizes."""
    packed = sum(member.packed_bytes for member in members)
    size = sum(member.size for member in members)
    if size > MAX_UNPACKED or size > MAX_RATIO * packed + SLACK:
        raise archive.BadArchiveError(
            f"it would unpack to {size / 1e6:.0f} MB from {packed / 1e6:.1f} MB"
        )
    names = [member.name for member in members]
    if names[:2] != [header.HEADER, header.MANIFEST]:
        raise header.NoBundleError(f"its {header.MANIFEST} is not its second member")
    if members[1].size > MAX_MANIFEST:
        raise header.NoBundleError(f"its {header.MANIFEST} is too large")
    manifest = header.parse_manifest(b"".join(archive.read(file, members[1])), head)
    if set(names[2:]) != manifest.keys():
        raise header.NoBundleError("its members differ from its manifest")
    for member in members[2:]:
        inner = member.name.removeprefix(header.HOME)
        if inner == member.name or inner.partition("/")[0] not in PARTS or "/" not in inner:
            raise header.NoBundleError(f"{member.name!r} is not part of a bundle")
        if manifest[member.name][0] != member.size:
            raise header.NoBundleError(f"{member.name!r} has another size than its manifest says")
    return manifest


def _unpack(
    file: BinaryIO,
    members: list[archive.Member],
    manifest: dict[str, tuple[int, str]],
    fresh: pathlib.Path,
    progress: Progress,
) -> None:
    total = sum(member.size for member in members)
    done = 0
    for member in members[2:]:
        target = fresh / member.name.removeprefix(header.HOME)
        digest = hashlib.sha256()
        with _writing(target):
            files.make_folder(target.parent, durable=False)
            # Only new files: there are no links in a folder that nobody else can enter.
            with os.fdopen(os.open(target, FRESH, 0o600), "wb") as out:
                for piece in archive.read(file, member):
                    digest.update(piece)
                    out.write(piece)
                    done += len(piece)
                    progress(done, total)
        if digest.hexdigest() != manifest[member.name][1]:
            raise header.NoBundleError(
                f"{member.name!r} has another checksum than its manifest says"
            )


def _check_tables(home: pathlib.Path) -> None:
    """Refuse tables that would take much more memory to read than they take in the bundle."""
    for path in sorted(home.rglob("*.parquet")):
        stored = sum(table.stat().st_size for table in path.parent.glob("*.parquet"))
        if excess := parquet.find_excess(path, stored):
            where = path.relative_to(home)
            raise archive.BadArchiveError(f"{str(where)!r} has {excess} in {stored} bytes")


def _check_room(target: pathlib.Path, size: int) -> None:
    place = target.absolute().parent
    while not place.is_dir():
        place = place.parent
    free = shutil.disk_usage(place).free
    if size > free:
        raise errors.CannotError(
            f"not enough disk space in {place}",
            why=f"the bundle unpacks to {size / 1e6:.1f} MB, and {free / 1e6:.1f} MB are free",
            todo="free disk space, or choose another folder: --into DIR (diagnose: TMPDIR)",
        )


@contextlib.contextmanager
def _writing(target: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        todo = "free disk space, or choose another folder: --into DIR"
        raise errors.unwritable(target, error, todo) from error
