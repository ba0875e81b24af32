"""Write initial files for `fuzz.py`: whole, truncated and with flipped bits, one folder per reader.

Captures are recorded here and programs compiled; the rest comes from tests/support/foreignseeds.py.

usage: make_corpus.py FOLDER
"""

from __future__ import annotations

import gzip
import pathlib
import random
import subprocess
import sys
import tempfile

import foreignseeds

RECORD = ("perf", "record", "-q", "-a", "-g", "-N", "-k", "CLOCK_MONOTONIC", "-F", "49", "-o")
SHAPES: dict[str, tuple[str, ...]] = {
    "file": (),
    "packed": ("-z",),
    "build-ids": ("--buildid-mmap",),
    "two-events": ("-e", "cpu-clock", "-e", "task-clock"),
}
PROGRAM = b"int twice(int n) { return 2 * n; } int main(int n, char **a) { return atoi(a[n - 1]); }"
COLLAPSED = b"server;main;read_[k] 12\nserver;main;write 3.5\nswapper;idle 1\n"


def variable(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + variable(value >> 7)


def field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return variable(number << 3) + variable(content)
    return variable(number << 3 | 2) + variable(len(content)) + content


def profile() -> bytes:
    """A pprof profile of two samples."""
    strings = (b"", b"samples", b"count", b"main", b"work", b"/bin/server")
    return b"".join(
        [
            field(1, field(1, 1) + field(2, 2)),
            *(field(2, field(1, bytes([1, 2])) + field(2, bytes([n]))) for n in (3, 9)),
            field(3, field(1, 1) + field(2, 4096) + field(3, 8192) + field(5, 5)),
            *(field(4, field(1, n) + field(2, 1) + field(4, field(1, n))) for n in (1, 2)),
            *(field(5, field(1, n) + field(2, n + 2)) for n in (1, 2)),
            *(field(6, text) for text in strings),
            field(9, 1_700_000_000_000_000_000),
            field(10, 10_000_000_000),
        ]
    )


def spoiled(data: bytes, rng: random.Random) -> dict[str, bytes]:
    flipped = bytearray(data)
    for _ in range(8):
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return {"whole": data, "cut": data[: len(data) * 2 // 3], "flipped": bytes(flipped)}


def captures(folder: pathlib.Path) -> dict[tuple[str, str], bytes]:
    corpus: dict[tuple[str, str], bytes] = {
        (reader, str(number)): data
        for reader, many in foreignseeds.seeds(folder / "seeds").items()
        for number, data in enumerate(many)
    }
    corpus |= {
        ("collapsed", "small"): COLLAPSED,
        ("pprof", "plain"): profile(),
        ("pprof", "gzip"): gzip.compress(profile()),
    }
    sleep = ("--", "sleep", "0.2")
    for name, options in SHAPES.items():
        path = folder / name
        subprocess.run([*RECORD, path, *options, *sleep], check=True, capture_output=True)
        corpus["perfdata", name] = path.read_bytes()
        script = ["perf", "script", "--no-inline", "--header", "-i", path]
        printed = subprocess.run(script, check=True, capture_output=True)
        corpus["perfscript", name] = printed.stdout[:50_000]
        path.unlink()
    for name, options in (("jumps", ("-Wl,-z,ibtplt", "-Wl,-z,lazy")), ("stripped", ("-s",))):
        compiler = ["gcc", "-w", "-x", "c", *options, "-", "-o", folder / name]
        subprocess.run(compiler, input=PROGRAM, check=True)
        corpus["elf", name] = (folder / name).read_bytes()
    piped = subprocess.run([*RECORD, "-", *sleep], check=True, capture_output=True)
    corpus["perfdata", "pipe"] = piped.stdout
    return corpus


def main() -> None:
    corpus, rng = pathlib.Path(sys.argv[1]), random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        for (reader, name), data in captures(pathlib.Path(folder)).items():
            (corpus / reader).mkdir(parents=True, exist_ok=True)
            for kind, content in spoiled(data, rng).items():
                (corpus / reader / f"{name}-{kind}").write_bytes(content)


if __name__ == "__main__":
    main()
