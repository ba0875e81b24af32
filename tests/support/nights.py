"""A small recording for tests of bundles: all kinds of data, two hosts, two boots, a reset at the end."""

from __future__ import annotations

import dataclasses
import datetime
import pathlib

import captures
import numpy as np

from overnight.app import snapshot as snapshots
from overnight.model import clock
from overnight.model.event import Event
from overnight.model.pins import Pin
from overnight.model.snapshot import Part, Snapshot
from overnight.store.ring import layout, reader, writer

BEGIN_US = captures.NIGHT // 1000
SECOND_US = 1_000_000
HOST, OTHER = "db-7", "db-8"
BOOTS = ("1a2b3c4d-0000-4000-8000-000000000000", "5e6f7a8b-0000-4000-8000-000000000000")
CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
REBOOT_S, END_S, RESET_S, EARLIER_S = 1200, 7200, 7000, 3000
EVER = 1 << 62


@dataclasses.dataclass(frozen=True)
class Secrets:
    """Secrets to plant; the defaults are harmless words."""

    process: str = "kubelet"
    thread: str = "worker 1"
    unit: str = "ecs.service"
    cgroup: str = "/system.slice/ecs.service"
    text: str = "TX q 5 is paused for too long"
    field: str = "2.11.0g"
    fact: str = "ami-0a1b2c3d4e5f67890"
    gap: str = "the disk was full"
    pin: str = "a reset"
    note: str = "perf 6.1"
    function: str = "mem_cgroup_iter"
    snapshot: str = "quiet"


def at(second: float) -> clock.Clock:
    """Return both clocks; the monotonic clock starts again with the second boot."""
    booted = REBOOT_S if second >= REBOOT_S else 0
    return clock.Clock(BEGIN_US * 1000 + round(second * 1e9), round((50 + second - booted) * 1e9))


def us(second: float) -> int:
    return BEGIN_US + round(second * 1e6)


def reset(second: float, host: str = HOST, planted: Secrets | None = None) -> Event:
    secrets = planted or Secrets()
    return Event(
        us(second), "net.driver_reset", secrets.text, host, 1, "critical",
        id=f"net.driver_reset-{round(second):08x}", boot=BOOTS[1], unit=secrets.unit,
        process=secrets.process, source="ena-tx-paused", fields={"driver": secrets.field, "queue": 5},
    )  # fmt: skip


def build(home: pathlib.Path, planted: Secrets | None = None, *, cpu_from: int = 4500) -> Event:
    """Write the home and return the event at its end. `cpu` is polled each second from `cpu_from` on."""
    secrets = planted or Secrets()
    _record(home, HOST, secrets, cpu_from)
    _record(home, OTHER, secrets, END_S)
    ring = writer.Writer(home, HOST, BOOTS[1], budget_bytes=1 << 30, age_seconds=30 * 86400)
    for second in (EARLIER_S, RESET_S):
        ring.event(reset(second, planted=secrets))
    ring.note_gap(us(100), us(160), secrets.gap)
    ring.close()
    window = us(RESET_S - 60) * 1000, us(RESET_S + 30) * 1000
    layout.ring_pins(home, HOST).pin(Pin("reset", *window, secrets.pin))
    _profile(home, secrets)
    for name, second in (("old", 10), ("before", 4000), ("after", 7100), ("late", 7190)):
        _snapshot(home, name, second, secrets)
    return reset(RESET_S, planted=secrets)


def _record(home: pathlib.Path, host: str, secrets: Secrets, cpu_from: int) -> None:
    for boot, begin, end in ((BOOTS[0], 0, REBOOT_S), (BOOTS[1], REBOOT_S, END_S)):
        ring = writer.Writer(home, host, boot, budget_bytes=1 << 30, age_seconds=30 * 86400)
        labels = {"": {"zone": "us-east-1a", "image": secrets.fact, "boot": boot}}
        ring.facts("host", at(begin), labels)
        for second in range(begin, end):
            now = at(second)
            if second >= cpu_from:
                system_ticks = 100 if RESET_S - 6 <= second < RESET_S else 3
                rows = {
                    str(core): (
                        7 * second,
                        0,
                        second * (system_ticks if core else 2),
                        90 * second,
                        1,
                        2,
                        3,
                        0,
                    )
                    for core in range(2)
                }
                ring.numbers("cpu", CPU, now, rows)
                ring.numbers(
                    "processes", ("utime", "stime"), now, {f"100 {secrets.process}": (second, 2)}
                )
            if second % 60 == 7:
                ring.numbers(
                    "memory-cgroups", ("tracked", "dying"), now, {"": (240 + second, second)}
                )
            if second % 20 == 0:
                births = {} if second % 400 == 0 else {secrets.cgroup: (second // 20, second // 21)}
                ring.numbers("cgroup-births", ("born", "died"), now, births)
            if second % 500 == 0:
                core = 1 + second // 500 % 2
                ring.facts("nic-queues", now, {"eth0 q5": {"core": core, "name": secrets.unit}})
            ring.tick(now)
        ring.close()


def _profile(home: pathlib.Path, secrets: Secrets) -> None:
    rows = []
    for n in range(3000):
        second = 5400 + n * 0.6
        in_incident = RESET_S - 6 <= second < RESET_S or n % 9 == 0
        rows.append(
            captures.Sample(
                captures.NIGHT + round(second * 1e9),
                (captures.user("main"), captures.kernel(secrets.function))
                if in_incident
                else captures.IDLE,
                n % 2,
                secrets.process if in_incident else "swapper",
                secrets.thread if in_incident else "swapper",
                100 if in_incident else 0,
                101 if in_incident else 0,
                secrets.unit if in_incident else "",
            )
        )
    profile = captures.build(rows, host=HOST, notes=(secrets.note,))
    captures.store(home, profile)


def _snapshot(home: pathlib.Path, name: str, second: float, secrets: Secrets) -> None:
    moment = datetime.datetime.fromtimestamp(us(second) / 1e6, datetime.UTC)
    header = {"host": HOST, "taken_at": moment.isoformat(timespec="seconds"), "name": name}
    parts: dict[str, Part] = {"cmdline": {"quiet": secrets.snapshot, "ro": ""}}
    file = home / "snapshots" / HOST / f"{us(second)}.json"
    snapshots.save(Snapshot(header, parts, ()), file, parents=True)


def plain(value: object) -> object:
    """Convert any answer to lists and strings that can be compared; NaN equals NaN."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return "nan" if value != value else value  # only NaN differs from itself


def read_texts(home: pathlib.Path) -> str:
    """Return all readable text of a home: of all rings, tables and other files."""
    import json

    from overnight.store import parquet, segments

    values: list[object] = []
    source = reader.Reader(home)
    for host in source.hosts():
        for name in source.signals(host, -EVER, EVER):
            for frame in source.numbers(host, name, -EVER, EVER):
                values += [frame.signal, *frame.columns, *frame.keys]
        values += source.recorded_facts(host, -EVER, EVER)
    catalogue = segments.Catalogue(home)
    for host in catalogue.hosts():
        for segment in catalogue.segments(host):
            for table in segment.path.glob("*.parquet"):
                columns = parquet.query(f"SELECT * FROM {parquet.table(table)}")
                values += [c.tolist() for c in columns.values() if c.dtype == object]
    for path in home.rglob("*"):
        if path.is_file():
            values.append(path.read_bytes().decode("latin-1"))
    return json.dumps(values, default=str)
