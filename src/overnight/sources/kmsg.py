"""The kernel log, /dev/kmsg: one record a read, from the oldest kept to the newest."""

from __future__ import annotations

import os
import pathlib

from overnight import sources

__all__ = ["try_kmsg"]


def try_kmsg(root: pathlib.Path = sources.ROOT) -> OSError | None:
    """Really read one record; the error says why it cannot be done, None that it can."""
    try:
        descriptor = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return error
    try:
        os.read(descriptor, 8192)
    except BlockingIOError:
        return None  # an empty log is readable
    except BrokenPipeError:
        return None  # the record was overwritten while we read: the log is readable and busy
    except OSError as error:
        return error
    finally:
        os.close(descriptor)
    return None
