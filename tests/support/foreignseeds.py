"""Valid files for the readers of `foreignreaders`, small enough to be changed often."""

from __future__ import annotations

import json
import pathlib

import captures
import foreignreaders
import rings

from overnight.diagnosis import knowledge
from overnight.model.event import Event
from overnight.model.pins import Pin
from overnight.model.snapshot import Gap, Snapshot
from overnight.sources.kernelrules import rulefiles
from overnight.store import loads
from overnight.store.bundle import header, packer
from overnight.store.ring import block_encoder, layout, open_block

NPD = {
    "plugin": "kmsg",
    "rules": [
        {"type": "temporary", "reason": "OOMKilling", "pattern": r"Killed process \d+ (.+) total-vm.*"},
        {"type": "permanent", "condition": "ReadonlyFilesystem", "reason": "FilesystemIsReadOnly",
         "pattern": r"Remounting [[:alpha:]]+ (?:read-only)\x{41}\Q.\E{1,9}"},
    ],
}  # fmt: skip
UNIT = r"""[Unit]
Description="a b" \x41\
  c
[Service]
Restart=on-failure
RestartSec=1min 10s
ExecStart=-/usr/bin/server --name "x\040y" ; /bin/true
"""
LOG = rb"""4,12,345,-;ena 0000:00:05.0 eth0: TX q 5 is paused for too long
 SUBSYSTEM=pci
[   12.345678] BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:99]
Nov 15 03:14:07 db-7 kernel: Out of memory: Killed process 7 (a) total-vm:1kB
"""
STALL = b"watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [worker:77]\n"
MPSTAT = b"""Linux 6.1 (db-7) \t11/12/26 \t_x86_64_\t(2 CPU)

11:59:58 PM CPU %usr %nice %sys %iowait %irq %soft %steal %guest %gnice %idle
11:59:59 PM all 5.00 0.00 9.00 0.00 0.00 0.00 0.00 0.00 0.00 86.00
11:59:59 PM 0 10.00 0.00 9.00 1.00 0.00 0.00 0.00 5.00 0.00 75.00
12:00:00 AM 0 10.00 0.00 9.00 1.00 0.00 0.00 0.00 5.00 0.00 75.00
"""
SADF = {
    "sysstat": {"hosts": [{"nodename": "db-7", "date": "11/12/26", "timezone": "UTC", "statistics": [
        {"timestamp": {"date": "2026-11-16", "time": "18:52:34", "utc": 0, "interval": 60},
         "cpu-load": [{"cpu": "3", "user": 1.5, "system": 8, "idle": 90.5}]},
        {"timestamp": "18:53:34", "cpu-load": [{"cpu": "3", "usr": 10, "guest": 5, "idle": 85}]},
    ]}]}
}  # fmt: skip
JOURNAL = {"__REALTIME_TIMESTAMP": "1794851554000007", "__MONOTONIC_TIMESTAMP": "2000005",
           "_SOURCE_MONOTONIC_TIMESTAMP": "2000000", "_HOSTNAME": "db-7", "_TRANSPORT": "kernel",
           "MESSAGE": STALL.decode()}  # fmt: skip


def _record(home: pathlib.Path) -> None:
    """Record two blocks, one of them with keys that come and go, an open one, events, gaps and a pin."""
    ring = rings.open_writer(home, block_seconds=20)
    ring.facts("nic-queues", rings.at(0), {"eth0 q5": {"core": 1, "name": "x"}})
    rings.record(ring, range(30))
    for second in range(30, 50):
        ring.numbers("births", ("born",), rings.at(second), {"a": (second,)} if second % 3 else {})
        ring.facts("nic-queues", rings.at(second), {"eth0 q5": {"core": second % 2}})
        ring.tick(rings.at(second))
    ring.event(
        Event(rings.us(3), "net.driver_reset", "TX q 5", rings.HOST, 1, "critical", id="net-1",
              until_us=rings.us(9), fields={"queue": 5, "share": 0.5, "device": "eth0"})
    )  # fmt: skip
    ring.note_gap(rings.us(4), rings.us(5), "the disk was full")
    layout.ring_pins(home, rings.HOST).pin(Pin("reset", 1, 2, "a reset"))


def _bundle(folder: pathlib.Path, home: pathlib.Path) -> bytes:
    stage = folder / "stage"
    for path in (home / "signals").rglob("*"):
        if path.is_file():
            target = stage / path.relative_to(home)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes()[:400])
    of = header.Header(
        "0.1", 1, "net-1", "net.driver_reset", rings.HOST, rings.us(3), (rings.HOST,),
        (header.Span(rings.HOST, 1, 2),), 0, 0, {"notes": 1}, ("no snapshot",),
    )  # fmt: skip
    packer.pack(stage, folder / "bundle", of, lambda _done, _all: None)
    return (folder / "bundle").read_bytes()


def _profiles(folder: pathlib.Path) -> bytes:
    """Return an hour file."""
    night = captures.NIGHT
    for begin in (night, night + 3600 * captures.SECOND):
        samples = captures.random_samples(1, 20, begin=begin, end=begin + 2 * captures.SECOND)
        captures.store(folder, captures.build(samples))
    return next((folder / "profiles").rglob("*.hour")).read_bytes()


def _load(home: pathlib.Path) -> bytes:
    writer = loads.LoadWriter(home, rings.HOST, "cpu", (0, 1), rings.BEGIN_US, {"for": "1m"})
    writer.second({"us": rings.us(1), "share": 0.5})
    writer.verdict(rings.us(2), {"status": "constant", "says": "ok", "crossed": ["a"]}, ended=True)
    writer.close()
    return writer.path.read_bytes()


def seeds(folder: pathlib.Path) -> dict[str, list[bytes]]:
    """Return valid content for each reader; those of captures are recorded by tests/fuzz/make_corpus.py."""
    with foreignreaders.ignoring_checksums():
        _record(folder / "home")
        bundle = _bundle(folder, folder / "home")
        host = layout.host_folder(folder / "home", rings.HOST)
        still_open = [path.read_bytes() for path in sorted(host.glob("*.open"))]
        sealed = [block_encoder.pack_at_once(open_block.parse(d), packed=False) for d in still_open]
    taken = Snapshot(
        {"host": rings.HOST, "taken_at": "2026-11-15T03:14:07+00:00"},
        {"cmdline": {"quiet": ""}, "packages": {"bash": {"version": "5"}}},
        (Gap("nics", "eth0", "denied"),),
    )
    tables = foreignreaders.encode_tables(folder, foreignreaders.VALID)
    rules = (rulefiles.HERE / "storage.toml").read_bytes().split(b"[[rule]]")
    causes = pathlib.Path(knowledge.__file__).with_name("knowledge.toml").read_bytes()
    return {
        "perfmap": [b"7f3a2c001000 1c0 LazyCompile:*main /srv/app.js:12\n0x7f3a2c002000 0x10 a\n"],
        "kallsyms": [
            b"ffffffff81000000 T _text\nffffffff81000040 t one\nffffffffc0000000 t two\t[nf]\n"
        ],
        "symbol": [
            b"_RNvMs_C3fooINtNtB4_3bar3BazlNtB2_4RExE3runpKj1_B2_u8gdel_5qa",
            b"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
            b"camlStdlib__List__map_1$2aa",
            b"_ZN3fooIiE3barEv.cold@plt",
        ],
        "ring": [*sealed, b"".join(path.read_bytes() for path in host.glob("*.ring"))],
        "open-block": still_open,
        "events": [next(host.glob("events-*.jsonl")).read_bytes()],
        "gaps": [(host / "gaps.jsonl").read_bytes()],
        "pin": [next(host.glob("pins/*.json")).read_bytes()],
        "load": [_load(folder / "loads")],
        "snapshot": [json.dumps(taken.as_json()).encode()],
        "bundle": [bundle],
        "hour": [_profiles(folder / "profiles")],
        "segment": [json.dumps(foreignreaders.VALID).encode()],
        "parquet": [
            bytes([n]) + tables[f"{name}.parquet"] for n, name in enumerate(foreignreaders.TABLES)
        ],
        "rules": [b"[[rule]]".join(rules[:3])],
        "npd": [json.dumps(NPD).encode()],
        "kernel-log": [LOG],
        "dmesg": [
            b"kern  :warn  : [   12.345678] " + STALL + b"<4>[   13.345678] " + STALL,
            b"[Mon Nov 16 17:52:34 2026] " + STALL,
            b"2026-11-16T17:52:34,882605+00:00 " + STALL,
        ],
        "journal": [
            b"Nov 16 17:52:34.000001 db-7 kernel: [    1.000002] " + STALL,
            b"2026-11-16T17:52:34+0000 db-7 kernel: " + STALL,
            b"1794851554.000004 db-7 kernel: " + STALL,
            json.dumps(JOURNAL).encode(),
        ],
        "sysstat": [MPSTAT],
        "sadf": [json.dumps(SADF).encode()],
        "knowledge": [b"".join(b"\n[[" + part for part in causes.split(b"\n[[")[1::9])],
        "unit": [UNIT.encode(), b"Package: bash\nStatus: install ok installed\nVersion: 5\n\n"],
    }  # fmt: skip
