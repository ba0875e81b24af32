"""Our function names are the same as perf's, for a load on this machine."""

from __future__ import annotations

import collections
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from overnight.ingest.symbols import files, kallsyms, resolver

FRAME = re.compile(r"^\s+([0-9a-f]+) (.*) \(([/\[].*)\)$")
LOAD = r"""
cd "$1"
timeout 2 "$2" -c 'import json
while True: json.loads(json.dumps(list(range(3000))))' &
timeout 2 sh -c 'while :; do g++ -O1 -x c++ -c -o part.o part.cc; done' &
timeout 2 sh -c 'while :; do head -c 2000000 "$(command -v perf)" | gzip -6 >/dev/null; done' &
timeout 2 sh -c 'while :; do find /usr/lib /proc/self -maxdepth 3; done' >/dev/null 2>&1 &
timeout 2 ./templates &
wait
"""
PART = "#include <map>\n#include <string>\nstd::map<std::string, int> m;\nint f() { return m.size(); }\n"
TEMPLATES = """
#include <algorithm>
#include <string>
#include <vector>
namespace shop { template <class T> struct Basket {
  std::vector<T> items;
  __attribute__((noinline)) void fill(int n) {
    for (int i = 0; i < n; i++) items.push_back(std::to_string(i * 7919 % 1000)); }
  __attribute__((noinline)) void sort() const {
    auto copy = items; std::sort(copy.begin(), copy.end()); } }; }
int main() { for (;;) { shop::Basket<std::string> b; b.fill(5000); b.sort(); } }
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("parity")
    (folder / "part.cc").write_text(PART)
    (folder / "templates.cc").write_text(TEMPLATES)
    command = ["g++", "-O1", "-fno-omit-frame-pointer", "-o", "templates", "templates.cc"]
    subprocess.run(command, cwd=folder, check=True)
    data = folder / "perf.data"
    subprocess.run(
        [
            *("perf", "record", "-q", "-a", "-g", "-F", "997", "-N", "-o", data),
            *("--", "sh", "-c", LOAD, "load", folder, sys.executable),
        ],
        check=True,
        capture_output=True,
    )
    return data


def frames_of(data: pathlib.Path) -> collections.Counter[tuple[str, int, str]]:
    """(module, address, name): perf prints the offset in the file for all but the kernel."""
    text = subprocess.run(
        ["perf", "script", "--no-inline", "-i", data, "-F", "ip,sym,dso"],
        check=True,
        capture_output=True,
    ).stdout.decode("utf-8", "replace")
    frames: collections.Counter[tuple[str, int, str]] = collections.Counter()
    for line in text.splitlines():
        match = FRAME.match(line)
        if match and match[3] != "[unknown]":
            frames[match[3], int(match[1], 16), match[2]] += 1
    return frames


@pytest.mark.needs_root
@pytest.mark.needs_perf
@pytest.mark.together
def test_names_are_the_same_as_in_perf_script(recording: pathlib.Path) -> None:
    frames = frames_of(recording)
    live = files.LiveFiles()
    names = resolver.Resolver(kallsyms.read_kallsyms(), live.find, files.read_vdso(), live.perf_map)
    differ: collections.Counter[tuple[str, str, str]] = collections.Counter()
    for module in {module for module, _, _ in frames}:
        rows = [(at, name, n) for (m, at, name), n in frames.items() if m == module]
        addresses = np.array([at for at, _, _ in rows], np.uint64)
        kernel = module.startswith("[kernel")
        ours = names.resolve_kernel(addresses) if kernel else names.resolve(module, addresses)
        for (_, theirs, count), which in zip(rows, ours.which.tolist(), strict=True):
            if ours.names[which] != theirs:
                differ[module, theirs, ours.names[which]] += count
    total = frames.total()
    share = 1 - differ.total() / total
    assert total > 2000
    shown = {name for _, _, name in frames}
    assert (
        "shop::Basket<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > >::sort"
        in shown
    )
    assert {module for module, _, _ in frames} >= {"[kernel.kallsyms]"}
    assert share >= 0.995, differ.most_common(20)
