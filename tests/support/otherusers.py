"""Commands as another user of this host, by number: no user is created."""

from __future__ import annotations

import os
import pathlib
import struct
import sys
from collections.abc import Sequence

import overnight

NOBODY = 65534
STRANGER = (
    61234  # belongs to no distribution's users: those begin at 1000, systemd's at 60001 and 61184
)


def command(
    folder: pathlib.Path,
    *arguments: str,
    uid: int = NOBODY,
    group: int = 0,
    capabilities: Sequence[str] = (),
    before: str = "",
) -> list[str]:
    """Return the command that runs overnight as that user, in a mount namespace of its own.

    Bind mounts below `folder` make this checkout and its Python reachable, also below a folder of root. `group`
    is the only supplementary group; `capabilities` are ambient; `before` are shell lines that root runs in the namespace.
    """
    binds = {
        "source": pathlib.Path(overnight.__file__).parents[1],
        "prefix": pathlib.Path(sys.prefix),
        "base": pathlib.Path(sys.base_prefix),
    }
    lines = ["set -e"]
    for name, path in binds.items():
        (folder / name).mkdir(exist_ok=True)
        lines.append(f"mount --bind '{path}' '{folder / name}'")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    path = f"{folder}/source:{folder}/prefix/lib/{version}/site-packages"
    groups = f"--groups={group}" if group else "--clear-groups"
    names = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in capabilities)
    granted = f"--inh-caps={names} --ambient-caps={names}" if names else ""
    lines.append(before)
    lines.append(
        f"exec setpriv --reuid={uid} --regid={uid} {groups} {granted} env PYTHONPATH='{path}' "
        f"HOME=/nonexistent '{folder}/base/bin/{version}' -m overnight {' '.join(arguments)}"
    )
    return ["unshare", "--mount", "sh", "-c", "\n".join(lines)]


def allow(folder: pathlib.Path, uid: int = STRANGER, rights: int = 7) -> None:
    """Give a user rights to a folder by its POSIX access control list; owner, group and others keep what they may."""
    mode = folder.stat().st_mode
    # Tag, rights and id of the owner, the user, the group, the mask and others.
    entries = (
        (1, mode >> 6 & 7, -1),
        (2, rights, uid),
        (4, mode >> 3 & 7, -1),
        (16, rights | mode >> 3 & 7, -1),
        (32, mode & 7, -1),
    )
    packed = b"".join(struct.pack("<HHi", *entry) for entry in entries)
    os.setxattr(folder, "system.posix_acl_access", struct.pack("<I", 2) + packed)
