"""Run benchmarks, print a table, write out/bench.json."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import json
import os
import pathlib
import pkgutil
import platform
import sys

import rich.console
import rich.table

import benchmarks
import overnight

OUTPUT = pathlib.Path(__file__).parents[1] / "out/bench.json"


def main(names: list[str]) -> None:
    console = rich.console.Console(width=None if sys.stdout.isatty() else 140)
    known = [
        m.name
        for m in pkgutil.iter_modules(benchmarks.__path__)
        if not m.ispkg and m.name != "__main__"
    ]
    unknown = set(names) - set(known)
    if unknown:
        sys.exit(f"no such benchmark: {', '.join(sorted(unknown))}; benchmarks: {', '.join(known)}")
    results: dict[str, list[benchmarks.Result]] = {}
    # Table and file after each one: all of them take the better part of an hour, and may be stopped.
    for name in names or known:
        console.print(f"measuring {name} …", style="dim")
        results[name] = importlib.import_module(f"benchmarks.{name}").measure()
        console.print(tabulate(results[name]))
        write(results)
    console.print(f"\nwritten to {OUTPUT.relative_to(pathlib.Path.cwd())}")


def tabulate(rows: list[benchmarks.Result]) -> rich.table.Table:
    table = rich.table.Table(
        "what", "overnight", "goal", "met", "peer", "peer's value", "ratio", box=None
    )
    for row in rows:
        table.add_row(
            row.what,
            f"{row.value:,.4g} {row.unit}",
            row.goal,
            {True: "[green]yes", False: "[red]no", None: ""}[row.met],
            row.peer,
            "" if row.peer_value is None else f"{row.peer_value:,.4g} {row.unit}",
            "" if row.ratio is None else f"{row.ratio:.1f} x",
        )
    return table


def write(results: dict[str, list[benchmarks.Result]]) -> None:
    document = {
        "schema": "overnight.bench/1",
        "version": overnight.__version__,
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {"cores": os.cpu_count(), "kernel": platform.release()},
        "results": {
            name: [{**dataclasses.asdict(row), "ratio": row.ratio} for row in rows]
            for name, rows in results.items()
        },
    }
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(document, indent=1))


main(sys.argv[1:])
