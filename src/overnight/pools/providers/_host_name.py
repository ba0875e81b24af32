"""The name of this host, for members that no other host can list or terminate."""

from __future__ import annotations

import hashlib
import pathlib
import platform
import secrets

from overnight import pools
from overnight.model import files
from overnight.model.pool import Reason
from overnight.pools.providers import _folder_lock

MACHINE_ID = pathlib.Path("/etc/machine-id")


def read(folder: pathlib.Path, *, create: bool) -> str | None:
    """Return the name stored in `folder`; None if there is none and `create` is not set.

    It is stored in the data home because containers may share a machine id, and for each machine id because
    hosts may share a data home or be copies of each other. It outlives a change of the host name.
    """
    machine_id = MACHINE_ID.read_bytes() if MACHINE_ID.exists() else b""
    # Hashed: the id is confidential, machine-id(5).
    path = folder / f"host-{hashlib.sha256(machine_id).hexdigest()[:12]}"
    try:
        if create and not path.exists():
            with _folder_lock.locked(folder):
                if not path.exists():  # another process was not first
                    name = f"{platform.node() or 'host'}-{secrets.token_hex(3)}"
                    files.write_atomically(path, name)
        return path.read_text() if path.exists() else None
    except OSError as error:
        raise pools.ProviderError(Reason.ERROR, f"this host has no name: {error}") from error
