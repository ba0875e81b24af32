"""`overnight bundle`: what it says, to people and to programs, and how it ends."""

from __future__ import annotations

import json
import pathlib
import random

import jsonschema
import nights
import pytest

from overnight.interfaces import cli
from overnight.store.bundle import archive, header, packer

SCHEMA = pathlib.Path(__file__).parents[2] / "docs/schemas/bundle-1.json"
EVENT = nights.reset(nights.RESET_S).id


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    made = tmp_path_factory.mktemp("bundle") / "home"
    nights.build(made, nights.Secrets(process="run \x1b[31m ghp_A1b2C3d4E5f6G7h8J9k0"))
    return made


@pytest.fixture
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(home: pathlib.Path, *words: str) -> int:
    return cli.main(["--home", str(home), "bundle", *words])


def test_there_and_back_for_programs(home, place, capsys) -> None:
    assert run(home, "create", "--event", EVENT, "-O", "json") == 0
    made = json.loads(capsys.readouterr().out)
    assert run(home, "open", f"{EVENT}.overnight", "--into", "x", "-O", "json") == 0
    opened = json.loads(capsys.readouterr().out)
    for document in (made, opened):
        jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert opened == made | {"home": "x"}
    assert made["event"] == EVENT
    assert made["masked"]["process names"] == 1
    assert made["bytes"] == (place / f"{EVENT}.overnight").stat().st_size


def test_there_and_back_for_people(home, place, capsys) -> None:
    words = ("create", "--event", EVENT, "-o", "r.overnight", "--before", "5m", "--after", "30s")
    assert run(home, *words) == 0
    said = capsys.readouterr().out
    assert "db-7: 5m30s from 2026-" in said
    assert "1 process names" in said
    assert "--all-recurrences" in said
    assert "wrote r.overnight" in said
    assert run(home, "open", "r.overnight") == 0
    assert f"overnight --home r events {EVENT}" in capsys.readouterr().out
    assert cli.main(["--home", "r", "events", EVENT]) == 0
    assert cli.main(["--home", "r", "flame", "-b", "2026-11-15", "-e", "2026-11-16"]) == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
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
def test_what_cannot_be_done_is_said(home, place, capsys, words, code, said) -> None:
    assert run(home, *words) == code
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told
    assert list(place.iterdir()) == []


def test_a_home_is_never_overwritten(home, place, capsys) -> None:
    assert run(home, "create", "--event", EVENT, "-o", "x") == 0
    assert run(home, "open", "x") == 0
    assert (place / "x.home" / "bundle.json").exists()
    assert run(home, "open", "x", "-O", "json") == 3
    assert json.loads(capsys.readouterr().err.splitlines()[-1])["error"]["exit_code"] == 3


def test_an_empty_home_says_so(tmp_path, capsys) -> None:
    assert run(tmp_path / "nothing", "create", "--event", EVENT) == 3
    assert "overnight events" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(6))
def test_what_a_stranger_packed_with_right_sums_never_fails_on_a_bug(
    home, place, capsys, seed
) -> None:
    """Checksums fit, what they are of does not: every command says so, or answers."""
    chance = random.Random(seed)
    assert run(home, "create", "--event", EVENT, "-o", "x", "--before", "1m", "--after", "1m") == 0
    with (place / "x").open("rb") as file:
        parts = {one.name: b"".join(archive.read(file, one)) for one in archive.members(file)}
    said, inside = header.parse_header(parts.pop(header.HEADER)), parts
    del inside[header.MANIFEST]
    for name in chance.sample(sorted(inside), 4):
        data = bytearray(inside[name])
        for _ in range(1 + len(data) // 50):
            data[chance.randrange(len(data))] = chance.randrange(256)
        inside[name] = bytes(data)
    for name, data in inside.items():
        (place / "forged" / name.removeprefix("home/")).parent.mkdir(parents=True, exist_ok=True)
        (place / "forged" / name.removeprefix("home/")).write_bytes(data)
    packer.pack(place / "forged", place / "y", said)
    assert run(home, "open", "y", "--into", "opened") == 0
    for words in (["events"], ["store", "check"], ["heatmap"], ["top"], ["bundle", "create", "--event", EVENT, "-o", "z"]):  # fmt: skip
        assert cli.main(["--home", "opened", *words]) in (0, 1, 3), words
    assert "Traceback" not in capsys.readouterr().err
