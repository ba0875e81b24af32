"""Fuzz the readers with damaged captures: each must answer or raise DamagedFileError.

usage: fuzz_perfdata.py READER CORPUS [libFuzzer options]
with READER perfdata, perfscript, collapsed or pprof, and CORPUS a folder of initial files.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile

import atheris

with atheris.instrument_imports(include=["overnight"]):
    from overnight import errors
    from overnight.ingest import perfdata as ingest
    from overnight.ingest.formats import collapsed, perfscript, pprof
    from overnight.sources.perf import perfdata

SYMBOLS = ingest.foreign_symbols(None, pathlib.Path("/nonexistent"))


def read_perfdata(path: pathlib.Path) -> None:
    with perfdata.open_perfdata(path, ingest._zstd) as file:
        file.decode()
    ingest.read(path, SYMBOLS)


READERS = {
    "perfdata": read_perfdata,
    "perfscript": lambda path: perfscript.read(path, ""),
    "collapsed": lambda path: collapsed.read(path, ""),
    "pprof": lambda path: pprof.read(path, ""),
}


def main() -> None:
    name, corpus, *options = sys.argv[1:]
    read = READERS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "input")

        def read_input(data: bytes) -> None:
            path.write_bytes(data)
            try:
                read(path)
            except errors.DamagedFileError as error:
                if error.path != str(path) or error.offset < 0:
                    raise

        # -rss_limit_mb and -timeout make too much memory and too much time findings as well.
        limits = ["-rss_limit_mb=2048", "-timeout=20", "-max_len=200000"]
        atheris.Setup([sys.argv[0], *limits, *options, corpus], read_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
