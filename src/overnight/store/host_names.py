"""Host names as folder names: a hostile name cannot lead out of the store."""

from __future__ import annotations

import hashlib
import re

MAX_BYTES = 255  # of a file name, on every Linux file system


def folder_name(host: str) -> str:
    """Escape a host name; a name that is too long is cut and ends with its digest.

    >>> folder_name("db-7"), folder_name("../etc")
    ('db-7', '%2e.%2fetc')
    """
    raw = host.encode("utf-8", "surrogatepass")
    safe = re.sub(rb"^\.|[^A-Za-z0-9_.-]", lambda m: b"%%%02x" % ord(m[0]), raw).decode() or "%"
    if len(safe) <= MAX_BYTES:
        return safe
    digest = hashlib.blake2b(raw, digest_size=16).hexdigest()
    return f"{safe[: MAX_BYTES - len(digest) - 2]}%~{digest}"
