"""The name of a program as an operator would say it: the script, not the interpreter that runs it.

Signals and profiles name processes by the same functions, so that both agree on who is who.
"""

from __future__ import annotations

import enum
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from overnight.model.text import printable

COMM = 15  # the kernel cuts names there
MAX_SCRIPT = 36
MAX_NAME = 48
MAX_ANCESTORS = 4
INTERPRETER = re.compile(
    r"(python|pypy|perl|ruby|php|lua|node|nodejs|Rscript|bash|dash|sh|ash|zsh|ksh|java)(\d*)[\d.]*"
)
LABELLED = re.compile(r"(.+) \([a-zA-Z]+\d*\)")
SHELLS = frozenset(("bash", "dash", "sh", "ash", "zsh", "ksh"))
# Options that run a text instead of a script, and options whose value is the next argument.
TEXT = frozenset(("-c", "-e", "-E", "-r", "-p", "-lc", "-ec", "-cx", "--eval", "--print"))
PIPES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")  # not the name of a script
VALUED = {
    "python": frozenset(("-W", "-X", "--check-hash-based-pycs")),
    "pypy": frozenset(("-W", "-X")),
    "node": frozenset(("-r", "--require", "--import", "--loader")),
    "nodejs": frozenset(("-r", "--require", "--import", "--loader")),
    "ruby": frozenset(("-I", "-r", "-C")),
    "java": frozenset(("-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules")),
    **dict.fromkeys(SHELLS, frozenset(("-o", "+o", "-O", "--rcfile", "--init-file"))),
}  # fmt: skip


# They start what others configured, and move it into another cgroup.
MANAGERS = ("systemd", "init", "containerd-shim", "runc", "crun", "conmon")


class Kind(enum.Enum):
    BINARY = enum.auto()
    SCRIPT = enum.auto()
    SHELL_SCRIPT = enum.auto()
    INTERPRETER = enum.auto()  # with a text or a console instead of a script


class Program(NamedTuple):
    name: str
    kind: Kind

    @property
    def short(self) -> str:
        """The name without the interpreter, for what the program started."""
        return self.name.rpartition(" (")[0] or self.name


def identify(comm: str, executable: str, arguments: Sequence[str]) -> Program:
    """Name a program; a name that it gave itself is kept.

    >>> identify("python3", "/usr/bin/python3.11", ["python3", "-u", "/opt/collect.py", "--all"]).name
    'collect.py (python3)'
    >>> identify("java", "/opt/jdk/bin/java", ["java", "-Xmx4g", "org.apache.kafka.Kafka"]).name
    'java org.apache…Kafka'
    >>> identify("ray::IDLE", "/usr/bin/python3.11", ["ray::IDLE"]).name
    'ray::IDLE'
    """
    base = executable.removesuffix(" (deleted)").rpartition("/")[2]
    match = INTERPRETER.fullmatch(base)
    if match is None:
        name = base if len(comm) == COMM and base.startswith(comm) else comm
        return Program(printable(name, limit=MAX_SCRIPT), Kind.BINARY)
    script = _find_script(match[1], arguments)
    own = INTERPRETER.fullmatch(comm)
    usual = own is not None and own[1] == match[1]
    # busybox and Debian run dash as sh.
    usual = usual or comm in SHELLS or comm == script.rpartition("/")[2][:COMM]
    if not script or not usual:
        kind = Kind.INTERPRETER if usual else Kind.BINARY
        return Program(printable(comm, limit=MAX_SCRIPT), kind)
    if match[1] == "java":
        return Program(f"java {printable(_shorten(script), limit=MAX_SCRIPT)}", Kind.SCRIPT)
    label = comm if comm in SHELLS else match[1] + match[2]
    kind = Kind.SHELL_SCRIPT if match[1] in SHELLS else Kind.SCRIPT
    name = printable(script.rstrip("/").rpartition("/")[2], limit=MAX_SCRIPT)
    return Program(f"{name} ({label})", kind)


def full_name(program: Program, ancestors: Iterable[Program] = ()) -> str:
    """Name a program with the script that started it, where its own name would not say enough.

    >>> nightly = identify("nightly.sh", "/bin/bash", ["/bin/bash", "/opt/nightly.sh"])
    >>> full_name(identify("gzip", "/bin/gzip", ["gzip"]), [nightly])
    'nightly.sh → gzip'
    """
    for _, ancestor in zip(range(MAX_ANCESTORS), ancestors, strict=False):
        if ancestor.kind is Kind.INTERPRETER:
            continue  # `sh -c …` only passes on
        nameless = program.kind is Kind.INTERPRETER and ancestor.kind is Kind.SCRIPT
        if nameless or (ancestor.kind is Kind.SHELL_SCRIPT and program.kind is not Kind.SCRIPT):
            return launched_name(ancestor, program.name)
        break
    return program.name[:MAX_NAME]


def launched_name(launcher: Program, name: str) -> str:
    """Name a process by the program that started it; a copy of it keeps its name."""
    if name in (launcher.name, launcher.short):
        return launcher.name
    return f"{launcher.short} → {name}"[:MAX_NAME]


def family_pattern(name: str) -> str:
    """Return a regular expression for a program and the short-lived processes that it starts.

    >>> family_pattern("nightly.sh (bash)")
    '^(nightly\\\\.sh\\\\ \\\\(bash\\\\)|nightly\\\\.sh → .*)$'
    """
    short = Program(name.rpartition(" → ")[2], Kind.BINARY).short
    return f"^({re.escape(name)}|{re.escape(short)} → .*)$"


def pgrep_arguments(name: str) -> str:
    """Return the arguments, quoted for the shell, with which pgrep finds the processes of a name.

    >>> pgrep_arguments("collect.py (python3)"), pgrep_arguments("nightly.sh → gzip")
    ("-f -- '(^|[/ ])collect\\\\.py( |$)'", '-x -- gzip')
    """
    own = name.rpartition(" → ")[2]
    script = LABELLED.fullmatch(own)
    if script is None and own.startswith("java "):
        return f"-f -- {shlex.quote('java .*' + re.escape(own.rpartition('…')[2].removeprefix('java ')))}"
    if script is None and len(own) <= COMM:
        return f"-x -- {shlex.quote(re.escape(own))}"
    path = (script[1] if script else own).rstrip("…")
    return f"-f -- {shlex.quote(f'(^|[/ ]){re.escape(path)}( |$)')}"


def _find_script(interpreter: str, arguments: Sequence[str]) -> str:
    """Return the script, module, class or archive that an interpreter runs; '' if there is none."""
    rest = iter(arguments[1:])
    for argument in rest:
        if interpreter in ("python", "pypy") and argument == "-m":
            return next(rest, "")
        if interpreter == "java" and argument in ("-jar", "-m", "--module"):
            return next(rest, "").rpartition("/")[2]
        if interpreter != "java" and argument in TEXT - VALUED.get(interpreter, frozenset()):
            return ""
        if argument in VALUED.get(interpreter, ()):
            next(rest, "")
        elif argument == "--":
            return next(rest, "")
        elif not argument.startswith(("-", "+")) and argument:
            return "" if argument.startswith(PIPES) else argument
    return ""


def _shorten(name: str) -> str:
    """Shorten a Java class to its first two packages and its name; archives stay."""
    parts = name.split(".")
    if len(parts) <= 3 or parts[-1] in ("jar", "war"):
        return name
    return f"{'.'.join(parts[:2])}…{parts[-1]}"
