"""Packs a data home as a bundle: the same home always gives the same bytes."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Iterator

from overnight import errors
from overnight.model import files
from overnight.store.bundle import archive, header, unpacker

# Compressed already: deflating costs time and saves nothing.
PACKED = frozenset((".ring", ".parquet"))
PIECE = 1 << 18


def pack(
    home: pathlib.Path,
    file: pathlib.Path,
    description: header.Header,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> header.Header:
    """Write a data home as the bundle `file`, which appears when complete; return its header, as written."""
    done = total = 0

    def read_pieces(path: pathlib.Path) -> Iterator[bytes]:
        nonlocal done
        with path.open("rb") as source:
            while piece := source.read(PIECE):
                done += len(piece)
                progress(done, total)
                yield piece

    fresh = file.with_name(f".{file.name}.new")
    try:
        paths = _files(home)
        measured = {name: _measured(path) for name, path in paths.items()}
        total = sum(size for size, _ in measured.values())
        manifest, checksum = header.encode_manifest(measured)
        whole = dataclasses.replace(description, members=len(paths), manifest_sha256=checksum)
        with fresh.open("wb") as out:
            fresh.chmod(0o600)
            packer = archive.Packer(out)
            packer.add(header.HEADER, iter([whole.encode()]), deflate=False)
            packer.add(header.MANIFEST, iter([manifest]), deflate=True)
            for name, path in paths.items():
                packer.add(name, read_pieces(path), deflate=path.suffix not in PACKED)
            packer.finish()
        files.publish(fresh, file.absolute())
    except archive.BadArchiveError as error:
        raise errors.CannotError(
            f"the evidence does not fit into a bundle: {error}",
            why="a bundle holds at most 4 GiB and 50,000 files with portable names",
            todo="choose a shorter --before, or omit --all-recurrences",
        ) from error
    except OSError as error:
        todo = "free disk space, or choose another file with -o FILE"
        raise errors.unwritable(file, error, todo) from error
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()
    return whole


def _files(home: pathlib.Path) -> dict[str, pathlib.Path]:
    return dict(
        sorted(
            (header.HOME + path.relative_to(home).as_posix(), path)
            for part in unpacker.PARTS
            for path in (home / part).rglob("*")
            if path.is_file() and path.name != "lock"  # belongs to the ring's writer
        )
    )


def _measured(path: pathlib.Path) -> tuple[int, str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return path.stat().st_size, digest.hexdigest()
