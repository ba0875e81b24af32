"""The units of a host or an image: where each is defined, its settings, whether it is enabled.

Folders are searched in systemd's order, drop-ins merged, aliases and templates followed. The states are
those of `systemctl list-unit-files` (install.c of systemd 252); tests compare the two.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import posixpath
from typing import Literal

from overnight.sources.image import inventory, unitfile, unitname
from overnight.sources.image import tree as trees

FOLDERS = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/run/systemd/generator.late",
)
LINK_KINDS = ("wants", "requires", "upholds")
CONFIG = "/etc/systemd/system"
NULL = "/dev/null"
MAX_BYTES = 64 << 20  # bytes of unit files in all; a full host has 1 MB
MAX_UNITS = 20_000
MAX_LINKS = 64  # UNIT_FILE_FOLLOW_SYMLINK_MAX


@dataclasses.dataclass(frozen=True)
class Link:
    """A link such as `multi-user.target.wants/name`, which enables a unit."""

    path: str
    target: str
    by: str  # the unit that pulls it in
    name: str
    requires: bool


@dataclasses.dataclass(frozen=True)
class Unit:
    """One unit as systemd would load it."""

    name: str
    state: str  # enabled, disabled, static, masked, alias, linked, indirect, bad, …
    path: str  # of its file; the template's for an instance; "" where there is none
    files: tuple[str, ...]  # the file and its drop-ins, in the order they apply
    settings: unitfile.Settings
    links: tuple[Link, ...]  # that pull it in

    @property
    def enabled(self) -> bool:
        return self.state in ("enabled", "enabled-runtime")

    @property
    def kind(self) -> str:
        return unitname.kind_of(self.name)


@dataclasses.dataclass(frozen=True)
class _Definition:
    name: str
    path: str
    type: Literal["regular", "linked", "masked"]


class Units:
    """Every unit below a root. `gaps` lists what cannot be read: path -> why."""

    def __init__(self, tree: trees.Tree) -> None:
        self.tree = tree
        self.gaps: dict[str, str] = {}
        self._report_errors = functools.partial(inventory.report_errors, self.gaps.__setitem__)
        # With a merged /usr one folder has two names: read it once.
        self.folders: dict[str, dict[str, trees.Entry]] = {}
        self._real: dict[str, str] = {}
        for folder in FOLDERS:
            real = tree.resolve(folder)
            if real is not None and real not in self._real:
                self._real[real] = folder
                self.folders[folder] = self._entries(folder)
        self.links = tuple(self._links())
        self._by_name: dict[str, list[Link]] = {}
        self._pulled: dict[tuple[str, str], list[Link]] = {}
        for link in self.links:
            self._by_name.setdefault(link.name, []).append(link)
            within = posixpath.dirname(posixpath.dirname(link.path))
            self._pulled.setdefault((within, link.name), []).append(link)
            if unitname.is_instance(link.name):
                template = unitname.template_of(link.name)
                self._pulled.setdefault((within, template), []).append(link)
        self._aliases: dict[tuple[str, str], list[str]] = {}
        for folder, entries in self.folders.items():
            for name, entry in entries.items():
                if entry.kind == "link":
                    target = posixpath.basename(entry.target)
                    self._aliases.setdefault((folder, target), []).append(name)
        self._left = MAX_BYTES
        self._parsed: dict[str, tuple[unitfile.Setting, ...] | None] = {}

    def names(self) -> tuple[str, ...]:
        """List the sorted names that have a file or a link of their own."""
        names = {
            name
            for entries in self.folders.values()
            for name, entry in entries.items()
            if entry.kind in ("file", "link") and unitname.is_valid(name)
        }
        if len(names) > MAX_UNITS:
            self.gaps["units"] = f"more than {MAX_UNITS}: the rest is left out"
        return tuple(sorted(names)[:MAX_UNITS])

    def all(self) -> tuple[Unit, ...]:
        """List all units, including instances and missing units that something pulls in."""
        wanted = {link.name for link in self.links if unitname.is_valid(link.name)}
        return tuple(self.unit(name) for name in sorted(wanted.union(self.names())))

    @functools.cache  # noqa: B019 - a Units lives for one audit
    def unit(self, name: str) -> Unit:
        """Load one unit; its state is `not-found` where it does not exist."""
        links = tuple(self._by_name.get(name, ()))
        try:
            definition = self._discover(name)
        except OSError:
            # A dangling link is bad; neither a file nor a link is not found.
            path = self._first(name)
            if not path:
                return Unit(name, "not-found", "", (), unitfile.Settings(), links)
            # A link to a file of its own name is bad for `systemctl`, but the unit still starts.
            files, settings = self._load(_Definition(name, path, "regular"))
            return Unit(name, "bad", path, files if path in files else (), settings, links)
        if definition.type == "masked":
            path = definition.path
            state = "masked-runtime" if path.startswith("/run/") else "masked"
            return Unit(name, state, path, (path,), unitfile.Settings(), links)
        files, settings = self._load(definition)
        return Unit(name, self._state(name, definition), definition.path, files, settings, links)

    # --- unit files

    def _discover(self, name: str) -> _Definition:
        """Follow aliases and links to the file that defines a unit."""
        path, entry = self._search(name)
        for _ in range(MAX_LINKS):
            if entry.kind == "file":
                return _Definition(name, path, "regular" if entry.size else "masked")
            target = self._target(path, entry.target)
            if target == NULL:
                return _Definition(name, path, "masked")
            folder, _, last = target.rpartition("/")
            if folder not in self._real:
                if self._is_empty(target):
                    return _Definition(name, path, "masked")
                # Linked from another folder: that file, under the name of the link.
                self.tree.read(target)
                return _Definition(name, target, "linked")
            _check_alias(posixpath.basename(path), last)
            instance = unitname.instance_of(name)
            filled = bool(instance) and unitname.is_template(last)
            if filled:
                last = unitname.template_of(last, instance or "")
            if filled and last == name:
                # `a@x.service -> a@.service`: the link itself names the template.
                path, entry = target, self._entry(target)
            else:
                name = last
                path, entry = self._search(name)
        raise OSError(40, "Too many levels of symbolic links")

    def _search(self, name: str) -> tuple[str, trees.Entry]:
        for candidate in _with_template(name):
            for folder, entries in self.folders.items():
                entry = entries.get(candidate)
                if entry is not None:
                    if entry.kind not in ("file", "link"):
                        raise trees.NotPlainError("it is not a plain file")
                    return f"{folder}/{candidate}", entry
        raise FileNotFoundError(2, "No such file or directory")

    def _entry(self, path: str) -> trees.Entry:
        folder, _, last = path.rpartition("/")
        entry = self.folders.get(self._real[folder], {}).get(last)
        if entry is None or entry.kind not in ("file", "link"):
            raise FileNotFoundError(2, "No such file or directory")
        return entry

    def _first(self, name: str) -> str:
        try:
            return self._search(name)[0]
        except OSError:
            return ""

    def _target(self, path: str, target: str) -> str:
        """Return a link's target as a path from the root; its folder is resolved, its last name not."""
        within = "" if target.startswith("/") else posixpath.dirname(path)
        folder = self.tree.resolve(f"{within}/{posixpath.dirname(target)}")
        if folder is None:
            raise FileNotFoundError(2, "No such file or directory")
        return f"{folder.rstrip('/')}/{posixpath.basename(target)}"

    def _is_empty(self, path: str) -> bool:
        status = self.tree.stat(path)
        return status is not None and not status.st_size and self.tree.resolve(path) != "/"

    # --- settings

    def _load(self, definition: _Definition) -> tuple[tuple[str, ...], unitfile.Settings]:
        paths = [definition.path, *self._drop_ins(definition.name)]
        kept = []
        assigned: list[unitfile.Setting] = []
        for path in paths:
            settings = self._parse(path)
            if settings is not None:
                kept.append(path)
                assigned += settings
        return tuple(kept), unitfile.Settings(assigned)

    def _parse(self, path: str) -> tuple[unitfile.Setting, ...] | None:
        if path not in self._parsed:
            self._parsed[path] = None
            with self._report_errors(path):
                if self._left <= 0:
                    raise trees.TooLargeError(f"more than {MAX_BYTES} bytes of units")
                text = self.tree.text(path)
                self._left -= len(text)
                self._parsed[path] = unitfile.parse_unit(text, path)
        return self._parsed[path]

    def _drop_ins(self, name: str) -> tuple[str, ...]:
        """List `NAME.d/*.conf`, also of shorter names and of the type; the closest of one file name wins."""
        names = _with_template(name)
        names += unitname.shorter(names[-1])
        kind = unitname.kind_of(name)
        places = [(folder, owner) for folder in self.folders for owner in names]
        return self._files_of([*places, *((folder, kind) for folder in self.folders)])

    def _install(self, definition: _Definition) -> unitfile.Settings:
        """Read [Install]: install.c uses fewer drop-ins, with those of the name first."""
        names = _with_template(definition.name)
        drop_ins = self._files_of([(folder, name) for name in names for folder in self.folders])
        # The file of a unit linked from another folder is read after them.
        path, linked = definition.path, definition.type == "linked"
        files = (*drop_ins, path) if linked else (path, *drop_ins)
        return unitfile.Settings(setting for path in files for setting in self._parse(path) or ())

    def _files_of(self, places: list[tuple[str, str]]) -> tuple[str, ...]:
        first: dict[str, str] = {}
        for folder, name in places:
            within = f"{name}.d"
            entry = self.folders[folder].get(within)
            if entry is not None and entry.kind in ("folder", "link"):
                for file in self._entries(f"{folder}/{within}"):
                    if file.endswith(".conf"):
                        first.setdefault(file, f"{folder}/{within}/{file}")
        return tuple(path for _, path in sorted(first.items()) if not self.tree.is_null(path))

    # --- states

    def _state(self, name: str, definition: _Definition) -> str:
        base = posixpath.basename(definition.path)
        if name != base and not unitname.is_instance(definition.name):
            return "alias"
        if definition.path.startswith("/run/systemd/generator"):
            return "generated"
        if definition.path.startswith(("/run/systemd/transient/", "/run/systemd/system.control/", "/etc/systemd/system.control/")):  # fmt: skip
            return "transient"
        settings = self._install(definition)
        known = self._known_names(definition.name, settings)
        if (state := self._linked(definition, known)) is not None:
            return state
        if self._linked(definition, None) is not None:
            return "indirect"
        if any(settings.words("Install", key) for key in ("WantedBy", "RequiredBy", "UpheldBy", "Alias")):  # fmt: skip
            return "disabled"
        return "indirect" if settings.words("Install", "Also") else "static"

    def _known_names(self, name: str, settings: unitfile.Settings) -> set[str]:
        """List the names for which `systemctl enable` would create links."""
        known = {name}
        default = settings.value("Install", "DefaultInstance")
        if unitname.is_template(name) and default:
            known.add(unitname.template_of(name, unitname.specify(default, name) or default))
        for alias in settings.words("Install", "Alias"):
            known.add(unitname.specify(alias, name) or alias)
        return known

    def _linked(self, definition: _Definition, known: set[str] | None) -> str | None:
        """Return the state that links give the unit; without `known` any name counts."""
        runtime = anywhere = same = same_runtime = below = False
        for folder in self.folders:
            hit, same_here = self._links_in(folder, definition, known, below)
            if hit:
                if folder == CONFIG:
                    return "enabled"
                if folder.startswith("/run/"):
                    runtime = True
                else:
                    anywhere = True
            elif same_here:
                same = same or folder == CONFIG
                same_runtime = same_runtime or folder.startswith("/run/")
            below = below or definition.path.startswith(folder + "/")
        if runtime:
            return "enabled-runtime"
        if anywhere and unitname.is_instance(definition.name):
            return "static"
        if same:
            return "linked"
        return "linked-runtime" if same_runtime else None

    def _links_in(
        self, folder: str, definition: _Definition, known: set[str] | None, below: bool
    ) -> tuple[bool, bool]:
        """Return whether links in a folder enable the unit, and whether one only has its own name."""
        entries = self.folders[folder]
        for link in self._pulled.get((folder, definition.name), ()):
            if known is None or link.name in known:
                return True, False
        same_name = False
        named = [definition.name] if definition.name in entries else []
        for name in (*named, *self._aliases.get((folder, definition.name), ())):
            if entries[name].kind != "link":
                continue
            same_path = name == definition.name and not below
            same_target = posixpath.basename(entries[name].target) == definition.name
            if same_path and same_target:
                same_name = True
            elif (same_path or same_target) and (known is None or name in known):
                return True, same_name
        return False, same_name

    # --- folders

    def _links(self) -> list[Link]:
        links = []
        for folder, entries in self.folders.items():
            for name, entry in entries.items():
                by, dot, kind = name.rpartition(".")
                if not dot or kind not in LINK_KINDS or entry.kind != "folder":
                    continue
                for linked, link in self._entries(f"{folder}/{name}").items():
                    if link.kind == "link":
                        path, requires = f"{folder}/{name}/{linked}", kind == "requires"
                        links.append(Link(path, link.target, by, linked, requires))
        return links

    def _entries(self, folder: str) -> dict[str, trees.Entry]:
        with self._report_errors(folder), contextlib.suppress(FileNotFoundError):
            return self.tree.entries(folder)
        return {}


def _with_template(name: str) -> list[str]:
    return [name, unitname.template_of(name)] if unitname.is_instance(name) else [name]


def _check_alias(link: str, target: str) -> None:
    """Refuse a link between names that cannot be aliases of each other, like systemd."""
    allowed = unitname.is_valid(link) and unitname.is_valid(target)
    allowed = allowed and unitname.kind_of(link) == unitname.kind_of(target)
    if allowed and unitname.instance_of(link) is not None:
        link_instance, target_instance = unitname.instance_of(link), unitname.instance_of(target)
        allowed = target_instance in (link_instance, "")
    elif allowed:
        allowed = unitname.instance_of(target) is None
    if not allowed:
        raise OSError(22, "this alias is not allowed")
