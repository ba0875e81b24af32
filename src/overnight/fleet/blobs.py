"""A folder of blobs that all servers of a database share.

Windows are at `sha256[:2]/sha256`; an upload grows in `partial/HOST_ID/` until it is complete. Rollup files are in
`rollups/v1/HOST/`. A marker file has a random id that the database knows: a server that was started with another
folder, or with the mount point of one that is not mounted, stops at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterator

from overnight import errors
from overnight.model import files
from overnight.model.control_plane import OffsetError
from overnight.store import host_names

MARKER = ".overnight-blobs"
PARTIAL, ROLLUPS = "partial", "rollups/v1"


class Blobs:
    """Files are named by their content, so that writing one twice changes nothing."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def mark(self) -> str:
        """Return the id of the folder; '' if it has none."""
        try:
            return (self.folder / MARKER).read_text().strip()
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise errors.unreadable(self.folder / MARKER, error, "check the blob folder") from error

    def create_mark(self) -> str:
        """Give the folder an id; of two servers that do so at once, both return the same."""
        try:
            files.make_folder(self.folder)
            fresh = self.folder / f"{MARKER}.{secrets.token_hex(8)}"
            files.write(fresh, secrets.token_hex(16) + "\n")
            files.sync(fresh)
            with contextlib.suppress(FileExistsError):
                os.link(fresh, self.folder / MARKER)
            fresh.unlink()
            files.sync(self.folder)
        except OSError as error:
            todo = "choose a folder that this user may write: --blobs DIR"
            raise errors.unwritable(self.folder, error, todo) from error
        return self.mark()

    def path(self, sha256: str) -> pathlib.Path:
        return self.folder / sha256[:2] / sha256

    def partial(self, host_id: str, sha256: str) -> pathlib.Path:
        return self.folder / PARTIAL / host_id / sha256

    def partial_bytes(self, host_id: str) -> int:
        """Return the size of all unfinished uploads of a host."""
        with contextlib.suppress(FileNotFoundError):
            return sum(path.stat().st_size for path in (self.folder / PARTIAL / host_id).iterdir())
        return 0

    def is_complete(self, host_id: str, sha256: str, size: int) -> bool:
        """Return whether an upload has all of its bytes."""
        with contextlib.suppress(FileNotFoundError):
            return self.partial(host_id, sha256).stat().st_size == size
        return False

    def append(self, host_id: str, sha256: str, offset: int, data: bytes) -> int:
        """Append a piece to an upload and return its size; raise OffsetError where it does not fit."""
        path = self.partial(host_id, sha256)
        files.make_folder(path.parent, durable=False)
        with os.fdopen(files.open_private(path, os.O_RDWR | os.O_CREAT), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = file.seek(0, os.SEEK_END)
            if not os.fstat(file.fileno()).st_nlink:  # refused meanwhile
                size = 0
            if size != offset:
                raise OffsetError(sha256, size)
            try:
                file.write(data)
                file.flush()
            except OSError:
                os.ftruncate(file.fileno(), size)
                raise
            return size + len(data)

    def publish(
        self, host_id: str, sha256: str, size: int, check: Callable[[pathlib.Path], None]
    ) -> None:
        """Check a complete upload and make it a blob; raise OffsetError where another request did so.

        The upload is locked meanwhile. Without the lock, another request could publish it after the check and a
        third begin a new one in its place, whose first piece would become the blob.
        """
        path = self.partial(host_id, sha256)
        files.make_folder(self.path(sha256).parent)
        with path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            found = path.stat()
            if not os.path.samestat(found, os.fstat(file.fileno())) or found.st_size != size:
                raise OffsetError(sha256, found.st_size)
            check(path)
            files.publish(path, self.path(sha256))

    def discard(self, host_id: str, sha256: str) -> None:
        self.partial(host_id, sha256).unlink(missing_ok=True)

    def remove(self, hashes: Collection[str]) -> None:
        for sha256 in hashes:
            self.path(sha256).unlink(missing_ok=True)

    def rollup_path(self, host: str, day: int, version: str) -> pathlib.Path:
        """Return the path of a new file; `day` counts from 1970."""
        name = f"{time.strftime('%Y%m%d', time.gmtime(day * 86_400))}-{version}.parquet"
        return self.folder / ROLLUPS / host_names.folder_name(host) / name

    def relative(self, path: pathlib.Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def forget(self, host_id: str) -> None:
        shutil.rmtree(self.folder / PARTIAL / host_id, ignore_errors=True)

    def sweep(self, kept: Collection[str], before: float) -> int:
        """Remove unfinished uploads, and files that the database does not know; return how many.

        Only those older than `before` (seconds since 1970): a file is published before its row is written.
        """
        removed = 0
        for path in self._files():
            name = self.relative(path)
            is_known = name in kept or (path.name in kept and not name.startswith(PARTIAL))
            with contextlib.suppress(FileNotFoundError):
                if not is_known and path.stat().st_mtime < before:
                    path.unlink()
                    removed += 1
        return removed

    def _files(self) -> Iterator[pathlib.Path]:
        for pattern in (f"{PARTIAL}/*/*", f"{ROLLUPS}/*/*", "[0-9a-f][0-9a-f]/*"):
            yield from self.folder.glob(pattern)
