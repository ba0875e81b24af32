"""Names as people wrote them, from the names that compilers of C++, Rust and OCaml give to linkers.

The form is that of `perf script`: no parameters, no return type, no suffix of a compiler's copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from overnight.ingest.symbols import cplusplus, rust

__all__ = ["expect", "readable"]

# Longer ones exist in template-heavy programs, and are of no use to a reader in either form.
LONGEST = 4096
EXPECTED = b"_Z"  # how names begin that it helps to say before

RUST_HASH = re.compile(r"17h[0-9a-f]{16}E")  # at the end of Rust's older names, which look like C++
OCAML = re.compile(r"caml[A-Z]")
OCAML_PART = re.compile(r"__|\$([0-9a-fA-F]{2})")


def readable(name: str) -> str:
    """The name that perf would show; the name itself where no compiler's scheme fits."""
    if name.endswith("@plt"):
        return _plain(name[:-4]) + "@plt"
    return _plain(name)


def expect(names: Iterable[str]) -> None:
    """Say which names `readable` will be asked for next; it is quicker then."""
    plain = (name.removesuffix("@plt") for name in names if name.startswith("_Z"))
    cplusplus.expect(name for name in plain if len(name) <= LONGEST and not RUST_HASH.search(name))


def _plain(name: str) -> str:
    if len(name) > LONGEST:
        return name
    demangled = None
    if name.startswith(("_R", "_ZN")):
        demangled = rust.demangle(name)
    if demangled is None and name.startswith("_Z"):
        demangled = cplusplus.demangle(name)
    if demangled is None and OCAML.match(name):
        return OCAML_PART.sub(lambda part: chr(int(part[1], 16)) if part[1] else ".", name[4:])
    return name if demangled is None else demangled
