"""`overnight snapshot`: what a host has and runs, without secrets, to find drift later. No numpy."""

from __future__ import annotations

import datetime
import functools
import json
import os
import pathlib
import platform
import re
from collections.abc import Callable

import overnight
from overnight import errors, sources
from overnight.app import home as homes
from overnight.model import files, secrets
from overnight.model.snapshot import Gap, Part, Snapshot
from overnight.model.text import printable
from overnight.sources import ethtool, systemd
from overnight.sources.image import (
    devices,
    inventory,
    kernel,
    presets,
    runtime,
    unit_states,
    units,
)
from overnight.sources.image import tree as trees

VALUE = 4096  # characters of one value; a longer one is cut, and says so
CUT = re.compile(r"… \(cut: \d+ characters\)\Z")
GAPS = 500
LIVE = "needs a running kernel, and this is an image"
# Values that look random and are not secret.
PLAIN = frozenset({"srcversion", "flags", "Features", "version"})
NAMED = frozenset(
    {"packages", "units", "modules", "sysctl", "cpu", "memory", "bootstrap", "running", "loaded"}
)

Reader = Callable[[trees.Tree, inventory.Gaps], inventory.Part]


def take(root: pathlib.Path = sources.ROOT, *, now: datetime.datetime | None = None) -> Snapshot:
    """Read everything once; what cannot be read becomes a gap, whatever the host holds."""
    tree = trees.open_tree(root)
    live = root.resolve() == sources.ROOT
    has_kernel = live or tree.exists("/proc/sys/kernel/osrelease")
    gaps: list[Gap] = []
    parts: dict[str, Part] = {}
    for name, (reader, needs_kernel) in _readers(tree, live).items():
        if needs_kernel and not has_kernel:
            gaps.append(Gap(name, name, LIVE))
            continue
        try:
            parts[name] = _clean(name, reader(tree, _collector(name, gaps)))
        except sources.NoDataError as error:
            gaps.append(Gap(name, name, _text(str(error))))
    if len(gaps) > GAPS:
        left = len(gaps) - GAPS
        gaps = [*gaps[:GAPS], Gap("snapshot", "gaps", f"{left} more are omitted")]
    moment = now or datetime.datetime.now(datetime.UTC)
    header: dict[str, object] = {
        "host": _text(platform.node() if live else root.resolve().name),
        "taken_at": moment.isoformat(timespec="seconds"),
        "overnight": overnight.__version__,
        "root": str(root),
        "live": live,
        "as_root": os.geteuid() == 0,
    }
    return Snapshot(header, parts, tuple(gaps))


def _readers(tree: trees.Tree, live: bool) -> dict[str, tuple[Reader, bool]]:
    """Return the reader of each part, and whether it needs a running kernel."""
    query = ethtool.read_driver if live else None
    loaded = functools.cache(lambda: units.Units(tree))
    states = functools.cache(lambda: _read_states(loaded(), live))
    return {
        "bootstrap": (lambda tree, gaps: _read_bootstrap(tree, gaps, states), False),
        "running": (lambda *_: states()[0], False),
        "listening": (runtime.read_listening, True),
        "loaded": (runtime.read_loaded, True),
        "taint": (runtime.read_taint, True),
        "os": (inventory.read_os, False),
        "kernel": (kernel.read_kernel, True),
        "cmdline": (_read_cmdline, True),
        "cpu": (kernel.read_cpu, True),
        "memory": (kernel.read_memory, True),
        "clock": (kernel.read_clock, True),
        "versions": (lambda tree, gaps: devices.read_versions(tree, gaps, live=live), False),
        "packages": (lambda tree, gaps: inventory.read_packages(tree, gaps, live=live), False),
        "units": (lambda tree, gaps: _read_units(tree, loaded(), gaps), False),
        "presets": (_read_presets, False),
        "modules": (kernel.read_modules, True),
        "sysctl": (kernel.read_sysctl, True),
        "mounts": (inventory.read_mounts, True),
        "cgroups": (inventory.read_cgroups, True),
        "nics": (lambda tree, gaps: devices.read_nics(tree, gaps, query), True),
    }


def _collector(part: str, gaps: list[Gap]) -> inventory.Gaps:
    def note(what: str, why: str) -> None:
        name = _safe_name(_text(what), plain=part in NAMED)
        gaps.append(Gap(part, name, _text(why)))

    return note


def _read_cmdline(tree: trees.Tree, gaps: inventory.Gaps) -> inventory.Part:
    text = ""
    with inventory.report_errors(gaps, "/proc/cmdline"):
        text = tree.text("/proc/cmdline", 1 << 16)
    found: inventory.Part = {}
    # Quotes keep blanks inside a value; a name may occur more than once.
    for word in re.findall(r'(?:[^\s"]|"[^"]*"?)+', text):
        name, _, value = word.partition("=")
        before = found.get(name)
        found[name] = f"{before} {value}" if isinstance(before, str) else value
    return found


def _read_states(loaded: units.Units, live: bool) -> tuple[inventory.Part, inventory.Part]:
    """Return the state of each unit and the result of each boot step; NoDataError without a manager."""
    if not live:
        raise sources.NoDataError(LIVE)
    if not systemd.booted():
        raise sources.NoDataError("systemd does not run this host")
    lasting = {unit.name for unit in loaded.all() if not unit.path.startswith("/run/")}
    return runtime.parse_units(unit_states.read_show(unit_states.LOADED), lasting)


def _read_bootstrap(
    tree: trees.Tree,
    gaps: inventory.Gaps,
    states: Callable[[], tuple[inventory.Part, inventory.Part]],
) -> inventory.Part:
    steps = runtime.read_cloud_init(tree, gaps)
    try:
        return steps | states()[1]
    except sources.NoDataError as error:
        gaps("bootstrap", str(error))
        return steps


def _read_units(tree: trees.Tree, loaded: units.Units, gaps: inventory.Gaps) -> inventory.Part:
    rules = presets.read_presets(tree, lambda *_: None)  # `presets` reports the gaps
    found: inventory.Part = {}
    for unit in loaded.all():
        if unit.path.startswith("/run/") or unit.kind == "scope":
            continue  # created at run time: differs at every boot
        facts = {"state": unit.state, "preset": presets.decide(rules, unit.name)[0]}
        if pulled := sorted({link.by for link in unit.links if not link.path.startswith("/run/")}):
            facts["pulled in by"] = " ".join(pulled)
        if drop_ins := [path for path in unit.files[1:] if not path.startswith("/run/")]:
            facts["drop-ins"] = " ".join(drop_ins)
        for key in ("Restart", "RestartSec", "Type"):
            if value := unit.settings.value("Service", key):
                facts[key] = value
        found[unit.name] = facts
    for path, why in loaded.gaps.items():
        gaps(path, why)
    return found


def _read_presets(tree: trees.Tree, gaps: inventory.Gaps) -> inventory.Part:
    return {
        f"{rule.path}:{rule.line}": " ".join((rule.action, rule.pattern, *rule.instances))
        for rule in presets.read_presets(tree, gaps)
    }


# --- masking


def _clean(part: str, read: inventory.Part) -> Part:
    """Return a part with all texts printable, bounded and without secrets."""
    found: Part = {}
    for key, value in read.items():
        # Names given by the kernel or a distribution are not secret, however random they look.
        name = _safe_name(_text(key), plain=part in NAMED)
        if isinstance(value, str):
            found[name] = _safe(part, name, name, value)
        else:
            found[name] = {
                _safe_name(_text(inner), plain=part in NAMED): _safe(part, name, inner, text)
                for inner, text in value.items()
            }
    return found


def cleaned(taken: Snapshot) -> Snapshot:
    """Return the snapshot without secrets, whatever wrote it."""
    gaps = tuple(
        Gap(gap.part, _safe_name(_text(gap.what), plain=gap.part in NAMED), _text(gap.why))
        for gap in taken.gaps
    )
    parts = {name: _clean(name, dict(part)) for name, part in taken.parts.items()}
    return Snapshot(taken.header, parts, gaps)


def _safe(part: str, key: str, name: str, value: str) -> str:
    if (cut := CUT.search(value)) and cut.start() <= VALUE:  # cut when it was taken
        return _safe(part, key, name, value[: cut.start()]) + cut[0]
    text = _text(value[: 2 * VALUE])
    if len(value) > 2 * VALUE:
        text = text.rpartition(" ")[0]  # half a secret may not look like one
    if part in ("packages", "modules", "cpu", "versions") and name in PLAIN:
        shown = secrets.MASK if secrets.SHAPES.search(text) else text
    elif secrets.named_secret(key) and part in ("cmdline", "sysctl", "modules", "os", "mounts"):
        shown = secrets.MASK if len(text) > 1 else text
    else:
        shown = secrets.scrub(name, text)
    return shown if len(value) <= VALUE else f"{shown[:VALUE]}… (cut: {len(value)} characters)"


def _safe_name(name: str, *, plain: bool = False) -> str:
    shown = secrets.MASK if secrets.SHAPES.search(name) else name
    if not plain:
        shown = secrets.mask_random(secrets.USER_INFO.sub(rf"\1{secrets.MASK}@", shown))
    return shown if len(shown) <= 512 else shown[:512] + "…"


def _text(value: str) -> str:
    """Return valid, printable text: names from the kernel may be neither."""
    clean = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return printable(clean.replace("\n", " ").replace("\t", " "))


# --- files


def default_file(home: pathlib.Path, taken: Snapshot) -> pathlib.Path:
    """Return HOME/snapshots/HOST/TIME.json, of a data home that only its owner can write."""
    homes.need_writable(home)
    host = re.sub(r"[^A-Za-z0-9._-]", "_", str(taken.header["host"])).lstrip(".") or "host"
    moment = datetime.datetime.fromisoformat(str(taken.header["taken_at"]))
    name = moment.astimezone(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    return home / "snapshots" / host[:128] / f"{name}.json"


def save(taken: Snapshot, file: pathlib.Path, *, parents: bool = False) -> None:
    """Write a snapshot atomically, readable by its owner only; `parents` creates missing folders."""
    try:
        if parents:
            files.make_folder(file.parent)
        text = json.dumps(taken.as_json(), indent=1) + "\n"
        files.write_atomically(file, text, mode=None if parents else 0o600)
    except OSError as error:
        todo = "choose another file with -o FILE, or another --home"
        raise errors.unwritable(file, error, todo) from error


def load(file: pathlib.Path) -> Snapshot:
    try:
        document = json.loads(file.read_text("utf-8"))
        if not isinstance(document, dict):
            raise ValueError("not a JSON object")
        return Snapshot.from_json(document)
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise errors.CannotError(
            f"{file} cannot be read as a snapshot",
            why=why or str(error),
            todo="name two files written by `overnight snapshot`",
        ) from error
