"""Names as people wrote them, from the names that compilers of C++, Rust and OCaml give to linkers.

The form is that of `perf script`: no parameters, no return type, no suffix of a compiler's copy.
"""

from __future__ import annotations

import ctypes
import functools
import re

from overnight.ingest.symbols import expansion, rust

__all__ = ["readable"]

# Longer ones exist in template-heavy programs, and are of no use to a reader in either form.
LONGEST = 4096
LONGEST_RESULT = 1_000_000

SUFFIX = re.compile(r"[.@]")

QUALIFIER = re.compile(r" (?:const|volatile|restrict|noexcept|&&?)$|\[clone [^\]]*\]$| $")
# What looks like a bracket or the end of a return type, and is none: `operator<< <int>`, and the
# qualifiers of a function around the one that is named: `f() const::{lambda()#1}::operator()`.
ATOM = re.compile(
    r"operator(?:<=>|<<=?|>>=?|<=?|>=?|->\*?|\(\)|\[\]) ?"
    r"|(?<=\))(?: (?:const|volatile|&&?))+(?=::)"
)
SPACED_OPERATOR = re.compile(r"\boperator(?: |\"\")")
OCAML = re.compile(r"caml[A-Z]")
OCAML_PART = re.compile(r"__|\$([0-9a-fA-F]{2})")


def readable(name: str) -> str:
    """The name that perf would show; the name itself where no compiler's scheme fits."""
    if name.endswith("@plt"):
        return _plain(name[:-4]) + "@plt"
    return _plain(name)


def _plain(name: str) -> str:
    if len(name) > LONGEST:
        return name
    if name.startswith(("_R", "_ZN")):
        found = rust.demangle(name)
        if found is not None:
            return found
    if name.startswith("_Z"):
        return _cplusplus(name) or name
    if OCAML.match(name):
        return OCAML_PART.sub(lambda m: chr(int(m[1], 16)) if m[1] else ".", name[4:])
    return name


def _cplusplus(name: str) -> str | None:
    native = _native()
    if native is None or not name.isascii():
        return None
    mangled = SUFFIX.split(name, maxsplit=1)[0]
    if expansion.expansion(mangled) > LONGEST_RESULT:
        return None
    text = native(mangled)
    if text is None or mangled.startswith(("_ZT", "_ZG")):
        return text
    return _without_signature(text)


def _without_signature(text: str) -> str:
    """`void f<int>(int) const` -> `f<int>`. Only the outermost function loses its signature."""
    bare = text
    while match := QUALIFIER.search(bare):
        bare = bare[: match.start()]
    if not bare.endswith(")"):
        return text
    depth = 0
    for at in range(len(bare) - 1, -1, -1):
        depth += (bare[at] == ")") - (bare[at] == "(")
        if not depth:
            break
    name = bare[:at]
    return name[_return_type(name) :] if name else text


def _return_type(name: str) -> int:
    """Where the name begins after a return type, which only instances of templates show."""
    begin = depth = at = 0
    while at < len(name):
        atom = ATOM.match(name, at)
        if atom:
            at = atom.end()
            continue
        if depth == 0 and SPACED_OPERATOR.match(name, at):
            return begin
        letter = name[at]
        if letter in "<({[":
            depth += 1
        elif letter in ">)}]":
            depth -= 1
        elif letter == " " and depth == 0:
            begin = at + 1
        at += 1
    return begin if depth == 0 else 0


@functools.cache
def _native() -> _Native | None:
    try:
        return _Native(ctypes.CDLL("libstdc++.so.6"), ctypes.CDLL(None))
    except (OSError, AttributeError):  # no C++ here: names stay as the linker has them
        return None


class _Native:
    """`__cxa_demangle` of the C++ library, which every C++ program has beside it."""

    def __init__(self, cplusplus: ctypes.CDLL, c: ctypes.CDLL) -> None:
        self._demangle = cplusplus.__getattr__("__cxa_demangle")
        self._demangle.restype = ctypes.c_void_p
        self._demangle.argtypes = [ctypes.c_char_p] + [ctypes.c_void_p] * 3
        self._free = c.free
        self._free.restype = None
        self._free.argtypes = [ctypes.c_void_p]

    def __call__(self, mangled: str) -> str | None:
        text = self._demangle(mangled.encode(), None, None, None)
        if not text:
            return None
        try:
            return ctypes.string_at(text).decode("utf-8", "replace")
        finally:
            self._free(text)
