"""Sync in a thread, so that a slow disk does not stop the recorder's loop."""

from __future__ import annotations

import os
import pathlib
import threading

from overnight.model import files


class Sync:
    """Sync a file and its folder in a thread, then close the file."""

    def __init__(self, descriptor: int, folder: pathlib.Path) -> None:
        self.failed = False
        self._descriptor = descriptor
        self._folder = folder
        # A daemon thread: a disk that never answers must not keep the agent from ending.
        self._thread = threading.Thread(target=self._run, name="ring-sync", daemon=True)
        self._started = True
        try:
            self._thread.start()
        except RuntimeError:  # no more threads on this host: sync here
            self._started = False
            self._run()

    def _run(self) -> None:
        try:
            os.fsync(self._descriptor)
            files.sync_folder(self._folder)
        except OSError:
            self.failed = True
        finally:
            os.close(self._descriptor)

    def is_done(self, wait_seconds: float = 0) -> bool:
        """Return whether the sync has ended, also by failing; wait for it at most `wait_seconds`."""
        if self._started:
            self._thread.join(wait_seconds)
        return not self._thread.is_alive()
