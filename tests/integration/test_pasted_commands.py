"""Every command that an output suggests is pasted into a shell, in another folder, and works on the same data home."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
import rings
import typer.main

import scenarios
from overnight.interfaces import cli

# Up to the end of the backticks or the line.
NAMES = "|".join(typer.main.get_command(cli.build()).commands)  # type: ignore[attr-defined]
COMMAND = re.compile(rf"(?<![\w/.-])(overnight (?:--|(?:{NAMES})\b)[^`\n]*?)(?=`|$)", re.MULTILINE)
PLACEHOLDER = re.compile(r"(?<![\w./'-])[A-Z]{2,}(?![\w])")
# They change the host, or run until they are stopped: tests/unit/interfaces/test_suggestions.py parses them.
LASTING = re.compile(
    r" (record|agent|live|load|age|rehearse|instrument|reserve|serve|mcp|census)\b"
)
NARROW = 40


class Shell:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.user = folder / "user"
        self.user.mkdir()
        bins = pathlib.Path(sys.executable).parent
        kept = {
            n: v for n, v in os.environ.items() if not n.startswith(("OVERNIGHT", "SUDO", "XDG"))
        }
        self.environment = {**kept, "HOME": str(self.user), "COLUMNS": str(NARROW), "PATH": f"{bins}:{kept['PATH']}"}  # fmt: skip

    def run(self, line: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", line],
            check=False,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stdout + done.stderr

    @property
    def wrote_default_home(self) -> bool:
        return (self.user / ".local/share/overnight").exists()


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> scenarios.Truth:
    home = tmp_path_factory.mktemp("night") / "data $home's"
    home.mkdir()
    return scenarios.build("reference", home, seed=11, minutes=16.0, cores=8)


@pytest.fixture
def shell(tmp_path: pathlib.Path) -> Shell:
    return Shell(tmp_path)


FLOWS = {
    "verdict": ["diagnose", "diagnose -O md", "diagnose nonesuch", "events", "events {event}"],
    "stacks": ["diff", "flame -b 40d", "hosts --label nonesuch", "drift --kind x", "rules test nonesuch", "run --example x", "cohorts", "hazard --kind x"],
    "pools": [
        "pool list", "pool create ci --provider process --template plain --target 1", "pool show ci",
        "pool acquire ci", "pool explain ci", "pool create ci --template plain", "pool show nonesuch",
        "pool update ci --pause", "pool replenish ci", "pool size --pool ci",
        "pool size --pool ci --claims-per-minute 4 --warmup 90s", "pool list -O json", "pool delete ci",
        "pool member nonesuch", "pool return nonesuch", "cluster list", "reservations list", "release nonesuch",
    ],
    "quiet": ["diagnose", "diagnose -O json", "diagnose -O md"],
    "store": ["load --list", "rehearse --list", "age --list", "store check", "store unpin nonesuch", "event remove nonesuch", "token list", "doctor"],
}  # fmt: skip
FEWEST = {"verdict": 9, "stacks": 1, "pools": 6, "quiet": 1, "store": 1}  # commands that are pasted


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A home in which nothing serious happened."""
    home = tmp_path_factory.mktemp("quiet") / "data $home's"
    ring = rings.open_writer(home)
    rings.record(ring, range(5))
    ring.close()
    return home


@pytest.mark.parametrize("flow", FLOWS)
def test_pasted_commands_work_on_the_same_home(
    truth: scenarios.Truth, quiet: pathlib.Path, shell: Shell, flow: str
) -> None:
    at = shlex.quote(str(quiet if flow == "quiet" else truth.home))
    pasted: set[str] = set()
    ran = 0
    for words in FLOWS[flow]:
        line = f"overnight --home {at} {words}".replace("{event}", truth.event.id)
        _, output = shell.run(line)
        output = output.replace('\\"', '"') if "-O json" in line else output
        assert "internal error" not in output
        assert not re.search(r"`(sudo )?overnight [^`\n]*\n", output), (
            f"{line} wraps a command:\n{output}"
        )
        for match in COMMAND.finditer(output):
            command = match[1].rstrip()
            if command in pasted or "Example:" in output:
                continue
            pasted.add(command)
            if LASTING.search(command) or PLACEHOLDER.search(command):
                assert f"--home {at}" in command or "--home" in command, command
                continue
            assert f"--home {at} " in command, f"{line} suggests {command!r}:\n{output}"
            # One generation: what they suggest is the same again. None is refused.
            code, answer = shell.run(command)
            assert code in (0, 1), f"{line} suggests {command!r}:\n{answer}"
            ran += 1
    assert ran >= FEWEST[flow], pasted
    assert not shell.wrote_default_home


def test_the_home_of_root_is_suggested_with_sudo(
    truth: scenarios.Truth, shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    monkeypatch.setenv("SUDO_USER", "somebody")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert cli.main(["--home", str(truth.home), "events", "nonesuch"]) == 3
    assert "do:    `sudo overnight --home '" in capsys.readouterr().err


def test_times_with_a_date_have_one_style(truth: scenarios.Truth, shell: Shell) -> None:
    at = shlex.quote(str(truth.home))
    for words in (
        "diagnose", "diagnose -O md", "diagnose -O html", "events", f"events {truth.event.id}", "top", "flame", "heatmap",
        "heatmap -O svg", "flame -O svg",
    ):  # fmt: skip
        code, output = shell.run(f"overnight --home {at} {words}")
        assert code == 0, output
        assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d", output), words
        assert not re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d", output), words
