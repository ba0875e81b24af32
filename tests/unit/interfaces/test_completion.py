"""Shell completion: one command installs it, and each shell gets commands, options and values."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import shellingham

from overnight.interfaces import cli

SCRIPTS = {
    "bash": ".bash_completions/overnight.sh",
    "zsh": ".zfunc/_overnight",
    "fish": ".config/fish/completions/overnight.fish",
}
SOURCED = {"bash": (".bashrc", "overnight.sh"), "zsh": (".zshrc", ".zfunc")}


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def install(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shellingham, "detect_shell", lambda *_: (shell, f"/bin/{shell}"))
    assert cli.main(["--install-completion"]) == 0


@pytest.mark.parametrize("shell", SCRIPTS)
def test_one_command_installs_completion(home, monkeypatch, capsys, shell) -> None:
    install(shell, monkeypatch)
    script = home / SCRIPTS[shell]
    assert str(script) in capsys.readouterr().out
    assert f"_OVERNIGHT_COMPLETE=complete_{shell}" in script.read_text()
    if shell in SOURCED:
        name, line = SOURCED[shell]
        assert line in (home / name).read_text()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("overnight ev", {"events"}),
        ("overnight events --se", {"--severity"}),
        ("overnight events -O js", {"json"}),
        ("overnight pool cor", {"cordon"}),
        ("overnight cpu --wo", {"--worst"}),
        ("overnight cpu --sort so", {"soft"}),
    ],
)
@pytest.mark.parametrize("shell", SCRIPTS)
def test_commands_options_and_values_are_completed(monkeypatch, capsys, shell, line, words) -> None:
    monkeypatch.setenv("_OVERNIGHT_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", line.replace(" ", "\n"))
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    assert cli.main([]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in words)
    assert "doctor" not in shown


def test_a_real_bash_completes(home, monkeypatch) -> None:
    install("bash", monkeypatch)
    program = home / "bin/overnight"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m overnight "$@"\n')
    program.chmod(0o755)
    script = """
        . ~/.bashrc
        COMP_WORDS=(overnight diag) COMP_CWORD=1
        $(complete -p overnight | sed 's/.* -F \\([^ ]*\\) .*/\\1/') overnight
        echo "${COMPREPLY[@]}"
    """
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["diagnose"], done.stderr
