"""Syncing beside the loop: on a disk that is slow, looks go on."""

from __future__ import annotations

import os
import pathlib
import threading

__all__ = ["Sync"]


class Sync:
    """Syncs a file and its folder in a thread of its own, and closes the file."""

    def __init__(self, descriptor: int, folder: pathlib.Path) -> None:
        self.failed = False
        self._descriptor = descriptor
        self._folder = folder
        # A daemon: a disk that never answers must not keep the agent from ending.
        self._thread = threading.Thread(target=self._run, name="ring-sync", daemon=True)
        self._started = True
        try:
            self._thread.start()
        except RuntimeError:  # no more threads on this host: then it waits
            self._started = False
            self._run()

    def _run(self) -> None:
        try:
            os.fsync(self._descriptor)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError:
            self.failed = True
        finally:
            os.close(self._descriptor)

    def is_done(self, wait_seconds: float = 0) -> bool:
        """Whether it is on disk, or failed; waits for it that long."""
        if self._started:
            self._thread.join(wait_seconds)
        return not self._thread.is_alive()
