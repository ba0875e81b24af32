"""Fuzz a reader of tests/support/foreignreaders.py: it answers or refuses; anything else is a finding.

usage: fuzz.py READER CORPUS [libFuzzer options]
with CORPUS a folder of initial files (make_corpus.py); `fuzz.py --list` names the readers.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile

import atheris

with atheris.instrument_imports(include=["overnight"]):
    import foreignreaders

# Too much memory, and too much time for one input, are findings as well.
LIMITS = ("-rss_limit_mb=2048", "-timeout=20", "-max_len=200000")

MEMORY = next((folder for folder in ("/dev/shm",) if pathlib.Path(folder).is_dir()), None)


def main() -> None:
    if sys.argv[1:] == ["--list"]:
        sys.stdout.write("\n".join(foreignreaders.READERS) + "\n")
        return
    name, corpus, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, foreignreaders.ignoring_checksums():
        place = pathlib.Path(folder, "input")

        def read_input(data: bytes) -> None:
            foreignreaders.read(name, place, data)

        atheris.Setup([sys.argv[0], *LIMITS, *options, corpus], read_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
