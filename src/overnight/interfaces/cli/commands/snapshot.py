from __future__ import annotations

import pathlib

from overnight.interfaces.cli import session, terminal
from overnight.model.text import plural

ORDER = 16


def snapshot(
    current: session.Session,
    file: pathlib.Path | None = session.option(
        None, "File to write. Default: in the data home.", "FILE", "-o", "--file"
    ),
    root: pathlib.Path = session.option(pathlib.Path("/"), "Root of an unpacked image.", "DIR"),
    diff: tuple[pathlib.Path, pathlib.Path] | None = session.option(
        None, "Two snapshots to compare.", "A B"
    ),
) -> None:
    """Save what this host has and runs, or compare two.

    A snapshot has units and whether they run, results of the boot, packages, modules, settings and versions;
    never secrets, environments or command lines of processes.
    """
    from overnight.app import snapshot as snapshots

    if diff is not None:
        _diff(current, *diff)
        return
    taken = snapshots.take(root)
    place = file or snapshots.default_file(current.home, taken)
    snapshots.save(taken, place, parents=file is None)
    terminal.echo(f"wrote {place} ({place.stat().st_size / 1e3:.0f} kB)", err=True)
    if current.printed_json(taken):
        return
    terminal.echo(f"{taken.header['host']} at {taken.header['taken_at']}")
    for name, part in taken.parts.items():
        terminal.echo(f"  {name:10} {len(part):6}")
    for gap in taken.gaps[:20]:
        what = "" if gap.what == gap.part else f" {gap.what}:"
        terminal.echo(f"not read: {gap.part}:{what} {gap.why}")
    if len(taken.gaps) > 20:
        terminal.echo(f"not read: {len(taken.gaps) - 20} more, in the file")


def _diff(current: session.Session, before: pathlib.Path, after: pathlib.Path) -> None:
    from overnight.app import snapshot as snapshots
    from overnight.model.snapshot import compare

    difference = compare(snapshots.load(before), snapshots.load(after))
    if current.printed_json(difference):
        return
    for change in difference.changes:
        name = f"{change.part}: {change.key} {change.property}".rstrip()
        sides = ("-" if side is None else side for side in (change.before, change.after))
        terminal.echo(f"{name}: {' -> '.join(sides)}")
    for part in difference.unknown:
        terminal.echo(f"{part}: not recorded, or incomplete, in one of the two snapshots")
    terminal.echo(
        plural(len(difference.changes), "difference") if difference.changes else "no differences"
    )


register = session.command(snapshot, "Before the night", "snapshot --diff healthy.json sick.json")
