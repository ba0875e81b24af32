"""Stacks with functions that have no name: how many, why, and what would name them."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterator

SHOWN_SHARE = 0.01
NOWHERE = ("", "[unknown]")  # modules of addresses outside every file
JIT = re.compile(r"/tmp/perf-\d{1,10}\.map|//anon|\[anon.*\]")  # noqa: S108 - names to recognise, not to open


class Why(enum.StrEnum):
    """Why a function has no name; the values are stored in segments."""

    NO_KALLSYMS = "no-kallsyms"
    NO_MAPPING = "no-mapping"
    NO_JIT_MAP = "no-jit-map"
    FILE_GONE = "file-gone"
    NO_PERMISSION = "no-permission"
    DAMAGED = "damaged"
    STRIPPED = "stripped"
    NOT_KNOWN = "not-known"


# Reason, fix.
TEXTS = {
    Why.NO_KALLSYMS: ("kernel addresses without a symbol in kallsyms", "record as root; import with --kallsyms FILE of that boot"),
    Why.NO_MAPPING: ("addresses outside every file, as in code without frame pointers", "build it with -fno-omit-frame-pointer"),
    Why.NO_JIT_MAP: ("JIT code without a perf map", "start it with node --perf-basic-prof, python -X perf or java -XX:+DumpPerfMapAtExit"),
    Why.FILE_GONE: ("the file was removed or replaced", "restart what still runs the old file; import with --root DIR that has it"),
    Why.NO_PERMISSION: ("the file was not readable", "record as root"),
    Why.DAMAGED: ("the file or perf map is not valid, or others may write it", "replace it"),
    Why.STRIPPED: ("stripped binaries", "install their debug symbols before recording"),
    Why.NOT_KNOWN: ("the capture does not say why", "record again, or import with --root DIR and --kallsyms FILE of that host"),
}  # fmt: skip


def find_why(module: str, *, kernel: bool, stored: str | None, otherwise: Why) -> Why:
    """Return the stored reason, else what the module reveals; `otherwise` where it depends on its file."""
    if stored is not None:
        return Why(stored) if stored in set(Why) else Why.NOT_KNOWN
    if kernel:
        return Why.NO_KALLSYMS
    if module in NOWHERE:
        return Why.NO_MAPPING
    return Why.NO_JIT_MAP if JIT.fullmatch(module) else otherwise


@dataclasses.dataclass(frozen=True)
class Cause:
    """Samples with a function without a name for one reason; a stack may have several."""

    why: Why
    samples: int
    modules: tuple[str, ...]  # the largest first
    fix: str


@dataclasses.dataclass(frozen=True)
class Unknown:
    """The samples of an answer that have a function without a name on their stack."""

    samples: int
    of: int
    causes: tuple[Cause, ...]

    def lines(self) -> Iterator[str]:
        """Yield the share with its denominator, and a line for each reason of at least one percent."""
        percent = {part: f"{100 * part / max(1, self.of):.3g} %" for part in (self.samples, *(c.samples for c in self.causes))}  # fmt: skip
        if self.samples:
            yield f"unknown functions: on the stacks of {percent[self.samples]} of {self.of:,} samples"
        for cause in self.causes:
            if cause.samples >= SHOWN_SHARE * self.of:
                named = ", ".join(name for name in cause.modules if name not in NOWHERE)
                why = TEXTS[cause.why][0] + (f" ({named})" if named else "")
                yield f"{percent[cause.samples]} {why}; to fix: {cause.fix}"
