"""Query time for any window of a 12 h night with 96 cores and 402,278,400 samples.

OVERNIGHT_BENCH_HOME is the folder of the night (out/night; 2.2 GB), OVERNIGHT_BENCH_HOURS shortens it.
`python -m benchmarks night` generates it first if it is missing: about 3 minutes.
"""

from __future__ import annotations

import json
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

from benchmarks import Result, cpu_of_command, median_of
from benchmarks.support import load, questions, synthetic
from overnight.model.selection import Window
from overnight.queries import flame, reader, view
from overnight.reports import html
from overnight.store import segments

__all__ = ["measure"]

SECOND = 1_000_000
SEGMENT = synthetic.SEGMENT_SECONDS * SECOND
TIMES = 9
SCRIPT = pathlib.Path(__file__).parent / "support/page.mjs"
WEB = pathlib.Path(__file__).parents[1] / "web"
REAL_SAMPLES = 1_117_440
REAL_SECONDS = 36.0


def measure() -> list[Result]:
    night = synthetic.make_night(print)
    for note in night.notes:
        print(note)
    files = [f for f in night.home.rglob("*.*") if f.is_file()]
    size = sum(f.stat().st_size for f in files)
    return [
        Result(f"night of {night.hours:.1f} h", night.samples / 1e6, "M samples"),
        Result(
            "night: stored", size / night.samples, "B/sample", "<= 8", size <= 8 * night.samples
        ),
        *_flames(night),
        *_others(night),
        *_peers(),
        *_page(night),
    ]


def _ask(
    night: synthetic.Night,
    kind: str,
    begin: int,
    length: int,
    baseline: tuple[int, int] = (0, 0),
    *,
    drop: bool = True,
) -> questions.Timing:
    first = min(begin, baseline[0] or begin)
    touched = segments.Catalogue(night.home).segments(synthetic.HOST, first, begin + length)
    dropped = tuple(str(segment.path) for segment in touched) if drop else ()
    return questions.ask(
        questions.Question(str(night.home), kind, begin, begin + length, dropped, baseline)
    )


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _flames(night: synthetic.Night) -> list[Result]:
    """Return random 5 s windows: in the first, a middle and the last hour, and across two segments."""
    rng = random.Random(synthetic.SEED)
    hour = min(3600 * SECOND, (night.window.end_us - night.window.begin_us) // 3)
    middle = (night.window.begin_us + night.window.end_us - hour) // 2
    hours = {"first": night.window.begin_us, "middle": middle, "last": night.window.end_us - hour}
    answers = {
        name: [
            _ask(night, "flame", begin + rng.randrange(hour // SEGMENT) * SEGMENT
                 + rng.randrange(SEGMENT - 5 * SECOND), 5 * SECOND)
            for _ in range(TIMES)
        ]
        for name, begin in hours.items()
    }  # fmt: skip
    every = [answer for some in answers.values() for answer in some]
    cold, warm = _median([o.cold_ms for o in every]), _median([o.warm_ms for o in every])
    worst = sorted(o.cold_ms for o in every)[-2]
    edge = [
        _ask(night, "flame", night.window.begin_us + (3 + k) * SEGMENT - 2 * SECOND, 5 * SECOND)
        for k in range(3)
    ]
    return [
        Result("5 s flame graph, cold", cold, "ms", "<= 60", cold <= 60),
        Result("5 s flame graph, warm", warm, "ms", "<= 20", warm <= 20),
        Result(f"cold, the second worst of {len(every)}", worst, "ms"),
        *(
            Result(f"in the {name} hour, cold", _median([o.cold_ms for o in some]), "ms")
            for name, some in answers.items()
        ),
        _at_most("across two segments, cold", _median([o.cold_ms for o in edge]), 60),
        _at_most("across two segments, warm", _median([o.warm_ms for o in edge]), 20),
    ]


def _at_most(name: str, value: float, goal: float) -> Result:
    return Result(name, value, "ms", f"<= {goal:g}", value <= goal)


def _others(night: synthetic.Night) -> list[Result]:
    rng = random.Random(synthetic.SEED + 1)
    begin, end = night.window.begin_us, night.window.end_us
    back = min(600 * SECOND, (end - begin) // 2)

    def some(kind: str, length: int, *, against: int = 0) -> list[questions.Timing]:
        answers = []
        for _ in range(5):
            at = rng.randrange(begin + against, end - length)
            if length == SEGMENT:
                at -= (at - begin) % SEGMENT
            answers.append(_ask(night, kind, at, length, (at - against, at) if against else (0, 0)))
        return answers

    cores = [_ask(night, "cores", begin, end - begin, drop=drop) for drop in (True, False)]
    offsets = some("offsets", SEGMENT)
    diffs = some("diff", 5 * SECOND, against=back)
    tops = some("top", 5 * SECOND)
    functions = some("functions", 5 * SECOND)
    results = [
        _at_most("full-night core heatmap, files on disk", cores[0].cold_ms, 50),
        _at_most("full-night core heatmap, fresh process", cores[1].cold_ms, 50),
        Result(
            "full-night core heatmap, warm", cores[1].warm_ms, "ms", "<= 50",
            cores[1].warm_ms <= 50,
        ),
    ]  # fmt: skip
    for question, goal, answers in (
        ("2-minute sub-second heatmap", 60, offsets),
        ("5 s against 10 min", 300, diffs),
        ("top processes of 5 s", 0, tops),
        ("top functions of 5 s", 0, functions),
    ):
        cold, warm = _median([o.cold_ms for o in answers]), _median([o.warm_ms for o in answers])
        for name, value in ((f"{question}, cold", cold), (f"{question}, warm", warm)):
            met = value <= goal if goal else None
            results.append(Result(name, value, "ms", f"<= {goal}" if goal else "", met))
    return results


def _peers() -> list[Result]:
    """Measure perf itself on 5 s of a real segment with as many samples."""
    with tempfile.TemporaryDirectory(prefix="overnight-bench-") as name:
        folder = pathlib.Path(name)
        with load.record_mixed(folder, REAL_SAMPLES, REAL_SECONDS) as path:
            stored = _stored(path, folder)
            source = reader.Reader(segments.Catalogue(folder))
            first = stored.begin_us
            # As many samples as 5 s of 96 cores at 97 Hz; fewer cores need longer for them.
            share = round(REAL_SECONDS * SECOND * 5 / synthetic.SEGMENT_SECONDS)
            window = Window(first + 10 * SECOND, first + 10 * SECOND + share)
            begin = time.perf_counter()
            flame.flame(source, window)
            ours = (time.perf_counter() - begin) * 1000
            clock = _perf_window(path, window)
            script = ["perf", "script", "--no-inline", "-i", str(path), "--time", clock]
            report = ["perf", "report", "--stdio", "--no-inline", "-i", str(path), "--time", clock]
            scripted = median_of(1, lambda: cpu_of_command(script)) * 1000
            reported = median_of(1, lambda: cpu_of_command(report)) * 1000
    return [
        Result(
            "5 s' worth of a real segment", ours, "ms", "", None, "perf script --time", scripted
        ),
        Result("the same", ours, "ms", "", None, "perf report --time", reported),
    ]


def _stored(path: pathlib.Path, home: pathlib.Path) -> segments.Segment:
    from overnight.ingest import perfdata
    from overnight.store import writer

    profile = perfdata.read(path, perfdata.live_symbols())
    return writer.write_capture(home, profile, segment_seconds=86400)[0]


def _perf_window(path: pathlib.Path, window: Window) -> str:
    from overnight.sources.perf import perfdata

    with perfdata.open_perfdata(path) as file:
        assert file.clock is not None
        shift = file.clock.wall - file.clock.samples
    begin, end = (us * 1000 - shift for us in (window.begin_us, window.end_us))
    return f"{begin / 1e9:.6f},{end / 1e9:.6f}"


def _page(night: synthetic.Night) -> list[Result]:
    source = reader.Reader(segments.Catalogue(night.home))
    at = night.incident.time_us
    with tempfile.TemporaryDirectory(prefix="overnight-bench-") as name:
        path = pathlib.Path(name) / "night.html"
        begin = time.perf_counter()
        shown = view.view(source, night.window, synthetic.HOST, (night.incident,))
        with path.open("wb") as file:
            html.write_view(shown, file)
        took = time.perf_counter() - begin
        size = path.stat().st_size / 1e6
        results = [
            Result("HTML of the night", size, "MB", "<= 30", size <= 30),
            Result("HTML of the night: made in", took, "s"),
        ]
        if not (WEB / "node_modules/playwright-core").is_dir() or not shutil.which("node"):
            print("no browser figures: npm ci --prefix web")
            return results
        opened = subprocess.run(
            [
                "node",
                str(SCRIPT),
                str(WEB),
                str(path),
                str(at - 30 * SECOND),
                str(at + 10 * SECOND),
            ],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=300,
        )
    timings = json.loads(opened.stdout)
    pinned = timings["pinned"]
    print(
        f"page: {timings['rows']} rows selected; of {len(pinned)} places the first is {pinned[:1]}"
    )
    return [
        *results,
        Result(
            "page: first paint", timings["painted"], "ms", "<= 1000", timings["painted"] <= 1000
        ),
        Result("page: all rows read", timings["read"], "ms"),
        Result(
            "page: a selection", timings["selected"], "ms", "<= 100", timings["selected"] <= 100
        ),
    ]
