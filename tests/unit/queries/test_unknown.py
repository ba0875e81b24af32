"""Which share of the stacks has functions without a name, why, and what would name them."""

from __future__ import annotations

import dataclasses
import json

import captures

from overnight.model.selection import Selection, Window
from overnight.model.unknown import TEXTS, Why
from overnight.queries import flame, top

SECOND, NIGHT = captures.SECOND, captures.NIGHT
WINDOW = Window(NIGHT // 1000, NIGHT // 1000 + 10_000_000)
MAIN, READ = captures.user("main"), captures.kernel("read")
UNKNOWN = "[unknown]"


def unnamed(module: str) -> captures.Function:
    return captures.user(UNKNOWN, module)


STRIPPED, JIT, NOWHERE = unnamed("/bin/stripped"), unnamed("/tmp/perf-7.map"), unnamed("")
HIDDEN = captures.kernel(UNKNOWN)
# Path, samples.
STACKS = (
    ((MAIN, READ), 40),
    ((MAIN, STRIPPED, STRIPPED, MAIN), 20),  # a stack counts once
    ((MAIN, STRIPPED, JIT), 10),  # and for each of its reasons
    ((NOWHERE, MAIN), 15),
    ((MAIN, HIDDEN), 9),
    ((unnamed("/bin/gone"),), 3),
    ((unnamed("/bin/secret"),), 2),
    ((unnamed("/bin/foreign"),), 1),
)
STORED = {"/bin/stripped": Why.STRIPPED, "/bin/gone": Why.FILE_GONE, "/bin/secret": Why.NO_PERMISSION, "/bin/later": "of-a-later-version"}  # fmt: skip
EXPECTED = {
    Why.STRIPPED: (30, ("/bin/stripped",)),
    Why.NO_MAPPING: (15, ("",)),
    Why.NO_JIT_MAP: (10, ("/tmp/perf-7.map",)),
    Why.NO_KALLSYMS: (9, ("[kernel]",)),
    Why.FILE_GONE: (3, ("/bin/gone",)),
    Why.NO_PERMISSION: (2, ("/bin/secret",)),
    Why.NOT_KNOWN: (1, ("/bin/foreign",)),
}


def store(home, **fields: object):
    samples = [
        captures.Sample(NIGHT + n * SECOND, path, count=count)
        for n, (path, count) in enumerate(STACKS)
    ]
    samples.append(captures.Sample(NIGHT, captures.IDLE, process="swapper", pid=0, count=50))
    built = captures.build(samples, begin=NIGHT, end=NIGHT + 10 * SECOND, **fields)
    return captures.store(home, built)


def test_the_share_of_unknown_stacks_has_its_denominator_reasons_and_fixes(tmp_path) -> None:
    source = store(tmp_path, unknown=STORED)
    for answer in (
        top.top(source, WINDOW),
        top.top(source, WINDOW, kind="functions"),
        flame.flame(source, WINDOW),
        flame.flame(source, Window(WINDOW.begin_us, WINDOW.end_us - 1), reverse=True),
    ):
        found = answer.coverage.unknown
        assert (found.samples, found.of) == (60, 100)
        assert {c.why: (c.samples, c.modules) for c in found.causes} == EXPECTED
        assert [c.samples for c in found.causes] == sorted((c.samples for c in found.causes), reverse=True)  # fmt: skip
        assert all(cause.fix == TEXTS[cause.why][1] for cause in found.causes)
    lines = list(found.lines())
    assert lines[0] == "unknown functions: on the stacks of 60 % of 100 samples"
    assert lines[1] == "30 % stripped binaries (/bin/stripped); to fix: install their debug symbols before recording"  # fmt: skip


def test_filters_and_old_segments_are_counted_as_they_are(tmp_path) -> None:
    source = store(tmp_path)
    (segment,) = source.catalogue.segments("alpha")
    document = json.loads((segment.path / "segment.json").read_text())
    del document["unknown"], document["digest"]  # as an older overnight wrote it
    (segment.path / "segment.json").write_text(json.dumps(document))
    found = top.top(source, WINDOW, Selection(function="^main$")).coverage.unknown
    assert (found.samples, found.of) == (54, 94)
    assert {c.why: c.samples for c in found.causes} == {
        Why.NOT_KNOWN: 30, Why.NO_MAPPING: 15, Why.NO_JIT_MAP: 10, Why.NO_KALLSYMS: 9,
    }  # fmt: skip


def test_without_unknown_functions_nothing_is_said(tmp_path) -> None:
    samples = [captures.Sample(NIGHT, (MAIN, READ))]
    source = captures.store(tmp_path, captures.build(samples, end=NIGHT + SECOND))
    found = top.top(source, WINDOW).coverage.unknown
    assert (dataclasses.astuple(found), list(found.lines())) == ((0, 1, ()), [])
