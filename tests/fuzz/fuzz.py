"""Fuzz a reader of tests/support/foreignreaders.py: it answers or refuses; anything else is a finding.

usage: fuzz.py READER CORPUS [libFuzzer options]
with CORPUS a folder of initial files (make_corpus.py); `fuzz.py --list` names the readers.
"""

from __future__ import annotations

import pathlib
import resource
import sys
import tempfile

import atheris

with atheris.instrument_imports(include=["overnight"]):
    import foreignreaders

# Too much memory, and too much time for one input, are findings as well. The limit of libFuzzer counts what the
# instrumented code of earlier inputs left behind (5 kB each with numpy), so `read_input` has one of its own.
LIMITS = ("-rss_limit_mb=8192", "-timeout=20", "-max_len=200000")
MAX_GROWTH_KB = 1 << 20

MEMORY = next((folder for folder in ("/dev/shm",) if pathlib.Path(folder).is_dir()), None)


def main() -> None:
    if sys.argv[1:] == ["--list"]:
        sys.stdout.write("\n".join(foreignreaders.READERS) + "\n")
        return
    name, corpus, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, foreignreaders.ignoring_checksums():
        place = pathlib.Path(folder, "input")

        def read_input(data: bytes) -> None:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            foreignreaders.read(name, place, data)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            if grown > MAX_GROWTH_KB:
                raise MemoryError(f"one input took {grown} kB")

        atheris.Setup([sys.argv[0], *LIMITS, *options, corpus], read_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
