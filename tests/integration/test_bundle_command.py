"""`overnight bundle`: text, JSON and exit codes."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys

import jsonschema
import nights
import pytest

from overnight.interfaces import cli
from overnight.store.bundle import archive, header, packer

SCHEMA = pathlib.Path(__file__).parents[2] / "docs/schemas/bundle-1.json"
EVENT = nights.reset(nights.RESET_S).id
# Sends itself a signal in the function that works on the temporary copy.
INTERRUPTED = """
import importlib, os, signal, sys
from overnight.interfaces import cli
number, function, *words = sys.argv[1:]
# Not as the tests' own caller left it, which may be nohup.
signal.signal(signal.SIGHUP, signal.SIG_IGN if number == "ignored" else signal.SIG_DFL)
number = signal.SIGHUP if number == "ignored" else number
module, _, name = function.rpartition(".")
loaded = importlib.import_module(module)
real = getattr(loaded, name)
setattr(loaded, name, lambda *given: (os.kill(os.getpid(), int(number)), real(*given))[1])
sys.exit(cli.main(words))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("bundle") / "home"
    nights.build(folder, nights.Secrets(process="run \x1b[31m ghp_A1b2C3d4E5f6G7h8J9k0"))
    return folder


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(home: pathlib.Path, *words: str) -> int:
    return cli.main(["--home", str(home), "bundle", *words])


def test_create_and_open_as_json(home, folder, capsys) -> None:
    assert run(home, "create", "--event", EVENT, "-O", "json") == 0
    created = json.loads(capsys.readouterr().out)
    assert run(home, "open", f"{EVENT}.overnight", "--into", "x", "-O", "json") == 0
    opened = json.loads(capsys.readouterr().out)
    for document in (created, opened):
        jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert opened == created | {"home": "x"}
    assert created["event"] == EVENT
    assert created["masked"]["process names"] == 1
    assert created["bytes"] == (folder / f"{EVENT}.overnight").stat().st_size


def test_create_and_open_as_text(home, folder, capsys) -> None:
    words = ("create", "--event", EVENT, "-o", "r.overnight", "--before", "5m", "--after", "30s")
    assert run(home, *words) == 0
    output = capsys.readouterr().out
    assert "db-7: 5 min 30 s from 2026-" in output
    assert "process names (1)" in output
    assert "--all-recurrences" in output
    assert "wrote r.overnight" in output
    assert run(home, "open", "r.overnight") == 0
    assert (
        f"overnight --home {pathlib.Path('r').absolute()} events {EVENT}" in capsys.readouterr().out
    )
    assert cli.main(["--home", "r", "events", EVENT]) == 0
    assert cli.main(["--home", "r", "flame", "-b", "2026-11-15", "-e", "2026-11-16"]) == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["create", "--event", "no.such-12345678"], 3, "no event 'no.such-12345678'"),
        (["create"], 2, "--event"),
        (["create", "--event", EVENT, "--before", "soon"], 2, "is not a duration"),
        (["create", "--event", EVENT, "-o", "/nonexistent/x"], 3, "cannot be written"),
        (["open", "/nonexistent"], 3, "cannot be read"),
        (["open", "/dev/null"], 3, "it is not a file"),
        (["open", __file__], 3, "is not a valid bundle"),
    ],
)
def test_errors_are_explained(home, folder, capsys, words, code, message) -> None:
    assert run(home, *words) == code
    output = capsys.readouterr().err
    assert message in output
    assert "Traceback" not in output
    assert list(folder.iterdir()) == []


def test_a_home_is_never_overwritten(home, folder, capsys) -> None:
    assert run(home, "create", "--event", EVENT, "-o", "x") == 0
    assert run(home, "open", "x") == 0
    assert (folder / "x.home" / "bundle.json").exists()
    assert run(home, "open", "x", "-O", "json") == 3
    assert json.loads(capsys.readouterr().err.splitlines()[-1])["error"]["exit_code"] == 3


def test_an_empty_home_is_an_error(tmp_path, capsys) -> None:
    assert run(tmp_path / "nothing", "create", "--event", EVENT) == 3
    assert " events` lists" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(6))
def test_a_forged_bundle_with_valid_checksums_is_not_a_bug(home, folder, capsys, seed) -> None:
    """The checksums are right but the data is damaged: commands fail cleanly or succeed."""
    rng = random.Random(seed)
    assert run(home, "create", "--event", EVENT, "-o", "x", "--before", "1m", "--after", "1m") == 0
    with (folder / "x").open("rb") as file:
        parts = {
            member.name: b"".join(archive.read(file, member)) for member in archive.members(file)
        }
    parsed, files = header.parse_header(parts.pop(header.HEADER)), parts
    del files[header.MANIFEST]
    for name in rng.sample(sorted(files), 4):
        data = bytearray(files[name])
        for _ in range(1 + len(data) // 50):
            data[rng.randrange(len(data))] = rng.randrange(256)
        files[name] = bytes(data)
    for name, data in files.items():
        (folder / "forged" / name.removeprefix("home/")).parent.mkdir(parents=True, exist_ok=True)
        (folder / "forged" / name.removeprefix("home/")).write_bytes(data)
    packer.pack(folder / "forged", folder / "y", parsed)
    assert run(home, "open", "y", "--into", "opened") == 0
    for words in (["events"], ["store", "check"], ["heatmap"], ["top"], ["bundle", "create", "--event", EVENT, "-o", "z"]):  # fmt: skip
        assert cli.main(["--home", "opened", *words]) in (0, 1, 3), words
    assert "Traceback" not in capsys.readouterr().err


@pytest.fixture
def bundle(home, folder) -> str:
    assert run(home, "create", "--event", EVENT, "-o", "r.overnight") == 0
    return "r.overnight"


def interrupt(home, folder, number: str, function: str, *words: str) -> int:
    """Return the exit code of a command that gets a signal while it has a temporary copy."""
    command = [sys.executable, "-c", INTERRUPTED, number, function, "--home", str(home), *words]
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("overnight.app.diagnose.choose_event", ["diagnose", "r.overnight"]),
        ("overnight.store.bundle.unpacker._unpack", ["bundle", "open", "r.overnight"]),
        ("overnight.app.bundles._copy_profiles", ["bundle", "create", "--event", EVENT]),
    ],
)
def test_a_signal_leaves_no_temporary_copy(home, folder, bundle, function, words, number) -> None:
    assert interrupt(home, folder, str(int(number)), function, *words) == 130
    assert [path.name for path in folder.iterdir()] == [bundle]


def test_a_hangup_that_nohup_ignores_stays_ignored(home, folder, bundle) -> None:
    function = "overnight.app.diagnose.choose_event"
    assert interrupt(home, folder, "ignored", function, "diagnose", bundle) == 0
