"""Root file systems of `nspawn` machines: a shared base tree, and templates on top."""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import re
import shutil

from overnight import pools
from overnight.machines import container
from overnight.model.pool import Reason
from overnight.pools.providers import _folder_lock

PLAIN = "plain"  # the template that adds nothing
AGENT = pathlib.Path(__file__).with_name("_member_agent.py")
UNIT_NAME = "overnight-member.service"
AGENT_INSIDE = "/opt/overnight/member.py"
COPIED = ("/etc/hosts", "/etc/nsswitch.conf")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# After multi-user.target: a member is ready when everything that its template starts is ready.
UNIT = """\
[Unit]
Description=overnight agent of a warm pool member
After=multi-user.target
[Service]
ExecStart={program} -I -S {agent} /var/lib/overnight /
Restart=on-abnormal
StandardOutput=journal+console
StandardError=inherit
[Install]
WantedBy=multi-user.target
"""


class Images:
    """The trees of one provider; unused ones are deleted."""

    def __init__(self, folder: pathlib.Path, templates: pathlib.Path) -> None:
        self._folder = folder
        self._templates = templates

    def template(self, name: str) -> list[pathlib.Path]:
        """Return the layers of a template over the base: its folder, or none for `plain`."""
        if name == PLAIN:
            return []
        path = self._templates / name
        if not NAME.fullmatch(name) or not path.is_dir():
            raise pools.ProviderError(
                Reason.TEMPLATE_NOT_FOUND,
                f"template {name!r} not found",
                todo=f"put its files into {self._templates}/NAME, or use --template {PLAIN}",
                nothing_made=True,
            )
        return [path]

    def base(self) -> pathlib.Path:
        """Return the base tree, created if missing; there is one for each version of its sources."""
        unit = UNIT.format(program=container.interpreter()[0], agent=AGENT_INSIDE)
        copied = {path: pathlib.Path(path) for path in COPIED if pathlib.Path(path).is_file()}
        files = {AGENT_INSIDE: AGENT, **copied}
        sources = [pathlib.Path("/etc/passwd"), pathlib.Path("/etc/group"), *files.values()]
        seen = hashlib.sha256(f"{unit}{container.FOLDERS}{container.MASKED}".encode())
        for source in sources:
            seen.update(source.read_bytes())
        with _folder_lock.locked(self._folder):
            tree = self._folder / seen.hexdigest()[:16]
            if not tree.is_dir():
                partial = self._folder / "new"
                shutil.rmtree(partial, ignore_errors=True)
                container.plant(partial, {UNIT_NAME: unit})
                for inside, source in files.items():
                    shutil.copy(source, container.place(partial, inside))
                partial.rename(tree)
        return tree

    def drop_unless(self, members: pathlib.Path) -> None:
        """Delete all trees unless there are members: a launch creates the member's folder first."""
        with _folder_lock.locked(self._folder, make=False) as there:
            if there and not any(members.glob("*/*")):
                shutil.rmtree(self._folder)
        for empty in (members, self._folder.parent):
            with contextlib.suppress(OSError):
                empty.rmdir()
