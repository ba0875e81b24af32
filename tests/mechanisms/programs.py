"""Build and start the program of a scene: pinned, limited, and ended with this process."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from overnight import errors
from overnight.rehearsals import random_names

if TYPE_CHECKING:
    from tests.mechanisms import Program

HERE = pathlib.Path(__file__).parent
ADDRESSES = 16 << 30  # Java maps far more than it uses
COMPILE_SECONDS = 60
# By language: the ending of the file, and the name by which an operator knows the process.
ENDINGS = {"c": "", "go": ".go", "java": ".java", "python": ".py"}
ACTORS = {"java": "java {name}", "python": r"{name}\.py \(python[\d.]*\)"}
# The build cache stays in the program's folder, and no module is looked up.
GO_SETTINGS = {"GO111MODULE": "off", "GOFLAGS": ""}


@dataclasses.dataclass(frozen=True)
class Built:
    actor: str  # regular expression
    name: str
    command: tuple[str, ...]


def draw_name(chance: random.Random, program: Program) -> str:
    (name,) = random_names.draw(chance, 1)
    if program.language == "java":
        return name.title().replace("-", "")
    return name.replace("-", "_") if program.language == "python" else name


def build(program: Program, folder: pathlib.Path, name: str, seed: int, actor: str = "") -> Built:
    """Write and compile a program; raises CannotError."""
    file, binary = folder / f"{name}{ENDINGS[program.language]}", str(folder / name)
    text = re.sub(r"\bNAME\b", name, program.text)
    match program.language:
        case "python":
            file.write_text(f"SEED = {seed}\n{text}")
            command = (sys.executable, *program.options, str(file))
        case "java":
            file.write_text(re.sub(r"\bSEED\b", str(seed), text))
            _compile("javac", "-d", str(folder), str(file))
            command = (shutil.which("java") or "", *program.options, "-cp", str(folder), name)
        case "go":
            file.write_text(re.sub(r"\bSEED\b", str(seed), text))
            settings = {**GO_SETTINGS, "GOCACHE": str(folder / "cache")}
            _compile("go", "build", "-o", binary, str(file), environment=settings)
            command = (binary,)
        case "c":
            flags = ("-O1", "-fno-omit-frame-pointer", "-pthread", f"-DSEED={seed}")
            header = ("-include", str(HERE / "scene.h"))
            _compile("cc", *flags, *header, "-o", binary, "-x", "c", "-", text=text)
            command = (binary,)
    pattern = actor or ACTORS.get(program.language, "{name}")
    return Built(pattern.replace("{name}", re.escape(name)), name, command)


def _compile(*command: str, text: str = "", environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=COMPILE_SECONDS,
            env={**os.environ, **(environment or {})},
            check=False,
        )
        why = done.stderr if done.returncode else ""
    except FileNotFoundError:
        why = "it is not installed"
    except subprocess.TimeoutExpired:
        why = f"it took longer than {COMPILE_SECONDS} s"
    if why:
        raise errors.CannotError(f"{command[0]} failed", why=why.strip(), todo="install a compiler")


def start(
    built: Built,
    arguments: tuple[str, ...],
    *,
    core: int,
    seconds: float,
    environment: dict[str, str],
    cgroup: str = "",
    network: bool = False,
    nice: int = 0,
) -> subprocess.Popen[str]:
    """Start it through `launch.py`, which sets the limits and becomes the program."""
    settings = {
        "name": built.name, "core": core, "seconds": seconds, "parent": os.getpid(), "nice": nice,
        "cgroup": cgroup, "network": network, "command": (*built.command, *arguments),
    }  # fmt: skip
    if built.command[0].endswith("java"):
        settings["addresses"] = ADDRESSES
    return subprocess.Popen(
        [sys.executable, str(HERE / "launch.py"), json.dumps(settings)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        process_group=0,
    )
