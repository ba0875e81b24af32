"""What a process can be doing while it saturates a core, read from mechanisms.toml."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import tomllib
from collections.abc import Sequence

from overnight.model.flame import Frame, FrameKind

# Suffixes that compilers and symbol versions give a user function.
USER_SUFFIX = re.compile(r"@.*|\.(?:isra|part|constprop|cold|lto_priv|llvm)\b.*")


@dataclasses.dataclass(frozen=True)
class Counter:
    """The sum of these columns must reach `least` a second where the signal is recorded."""

    signal: str
    columns: tuple[str, ...]
    least: float
    own_core: bool = False  # the row of the core, else all rows


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """The head of mechanisms.toml describes the fields."""

    name: str
    title: str
    does: str
    why: str
    functions: str
    share: float
    look: str
    command: str
    change: str
    experiment: str
    matches: tuple[str, ...]
    misses: tuple[str, ...]
    space: str = "kernel"
    modules: str = "(?!)"
    under: str = ""
    without: str = "(?!)"
    named: str = ""
    ends: bool = False
    specific: float = 1.0
    yields_to: str = ""
    counters: tuple[Counter, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of its findings."""
        return f"mechanism.{self.name}"

    @property
    def noun(self) -> str:
        """The title inside a sentence.

        >>> [each.noun for each in mechanisms() if each.name in ("audit", "bpf")]
        ['system call auditing', 'BPF programs']
        """
        return self.title[0].lower() + self.title[1:] if self.title[1].islower() else self.title

    def name_function(self, stack: Sequence[Frame], at: int) -> str:
        """Return the function that a finding names."""
        if self.named == "callee":
            return strip(stack[at + 1]) if at + 1 < len(stack) else ""
        if self.named:
            wanted = re.compile(self.named).fullmatch
            return next((frame.name for frame in reversed(stack) if wanted(frame.name)), "")
        return strip(stack[at])


@dataclasses.dataclass(frozen=True)
class _Roles:
    """The mechanisms, by number, for which a frame has each role."""

    functions: frozenset[int]
    under: frozenset[int]
    without: frozenset[int]


@functools.cache
def mechanisms() -> tuple[Mechanism, ...]:
    path = pathlib.Path(__file__).with_name("mechanisms.toml")
    tables = tomllib.loads(path.read_text(encoding="utf-8"))["mechanism"]
    return tuple(_build(table) for table in tables)


def _build(table: dict[str, object]) -> Mechanism:
    fields = {name: tuple(v) if isinstance(v, list) else v for name, v in table.items()}
    counters = table.get("counters", ())
    assert isinstance(counters, list | tuple)
    fields["counters"] = tuple(
        Counter(**{**counter, "columns": tuple(counter["columns"])}) for counter in counters
    )
    return Mechanism(**fields)  # type: ignore[arg-type]  # a test builds every entry


def strip(frame: Frame) -> str:
    """Return the name of a function without the suffixes of compilers."""
    if frame.kind == FrameKind.KERNEL:
        return frame.name.partition(".")[0] or frame.name
    return USER_SUFFIX.sub("", frame.name) or frame.name


@functools.lru_cache(maxsize=1 << 15)
def _read_roles(frame: Frame) -> _Roles:
    if frame.kind == FrameKind.PROCESS:
        return _Roles(frozenset(), frozenset(), frozenset())
    name, module = strip(frame), frame.module.rpartition("/")[2]
    is_kernel = frame.kind == FrameKind.KERNEL
    functions, under, without = set[int](), set[int](), set[int]()
    for number, patterns in enumerate(_patterns()):
        if (patterns.mechanism.space == "kernel") is is_kernel and (
            patterns.functions(name) or patterns.modules(module)
        ):
            functions.add(number)
        if is_kernel and patterns.under(name):
            under.add(number)
        if is_kernel and patterns.without(name):
            without.add(number)
    return _Roles(frozenset(functions), frozenset(under), frozenset(without))


class _Patterns:
    def __init__(self, mechanism: Mechanism) -> None:
        self.mechanism = mechanism
        self.functions = re.compile(mechanism.functions).fullmatch
        self.modules = re.compile(mechanism.modules).fullmatch
        self.under = re.compile(mechanism.under or "(?!)").fullmatch
        self.without = re.compile(mechanism.without).fullmatch


@functools.cache
def _patterns() -> tuple[_Patterns, ...]:
    return tuple(map(_Patterns, mechanisms()))


def classify(stack: Sequence[Frame]) -> tuple[Mechanism, int] | None:
    """Return the first mechanism that fits a stack, outermost first, and the place of its function."""
    roles = [_read_roles(frame) for frame in stack]
    candidates = frozenset[int]().union(*(role.functions for role in roles))
    for number in sorted(candidates.difference(*(role.without for role in roles))):
        mechanism = mechanisms()[number]
        for at in range(len(stack) - 1, -1, -1):
            if number in roles[at].functions and (
                not mechanism.under or any(number in role.under for role in roles[:at])
            ):
                return mechanism, at
            if mechanism.ends:
                break
    return None
