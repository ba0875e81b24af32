"""A process that has few file descriptors left."""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def leave_descriptors(count: int) -> Iterator[None]:
    """Leave this process exactly `count` free descriptors during the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in pathlib.Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + count + 1, hard))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(count):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
