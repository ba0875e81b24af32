"""`overnight token`: text, JSON and exit codes."""

from __future__ import annotations

import json
import os
import pathlib

import jsonschema
import pooldatabases
import pytest

from overnight.interfaces import cli

SCHEMA = json.loads((pathlib.Path(__file__).parents[3] / "docs/schemas/tokens-1.json").read_text())


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    pooldatabases.prepare(f"sqlite:///{tmp_path / 'pools' / 'pools.db'}")
    return tmp_path


def run(home: pathlib.Path, *words: str) -> int:
    return cli.main(["--home", str(home), "token", *words])


def test_a_token_is_printed_alone_and_listed_without_its_text(home, capsys) -> None:
    assert run(home, "create", "--role", "viewer", "--name", "grafana") == 0
    printed = capsys.readouterr()
    [token] = printed.out.splitlines()  # a script reads this
    assert token.startswith("ovn_")
    assert token not in printed.err
    assert run(home, "list") == 0
    listed = capsys.readouterr().out
    assert "grafana" in listed
    assert "valid" in listed
    assert token.rpartition("_")[2] not in listed


def test_json_fits_the_schema(home, capsys) -> None:
    assert run(home, "create", "--role", "agent", "--host", "db-7", "-O", "json") == 0
    created = json.loads(capsys.readouterr().out)
    assert run(home, "list", "-O", "json") == 0
    listed = json.loads(capsys.readouterr().out)
    for document in (created, listed):
        jsonschema.validate(document, SCHEMA)
    [token] = created.pop("tokens")
    assert token.pop("text").startswith("ovn_")
    assert listed["tokens"] == [token]
    assert token["host"] == "db-7"
    assert token["expires_us"] - token["created_us"] < 86_400_000_000 + 10_000_000


def test_a_revoked_token_is_shown_as_revoked(home, capsys) -> None:
    run(home, "create", "--role", "admin")
    token_id = capsys.readouterr().out.split("_")[1]
    assert run(home, "revoke", token_id, "--why", "leaked") == 0
    assert run(home, "list") == 0
    assert "revoked" in capsys.readouterr().out
    assert run(home, "revoke", "000000000000") == 3


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--role", "root"), "root"),
        (("--role", "viewer", "--host", "db-7"), "--host"),
        (("--role", "viewer", "--expires", "0s"), "--expires"),
        (("--role", "agent", "--host", "a b"), "--host"),
    ],
)
def test_options_that_make_no_sense_are_refused(home, capsys, words, why) -> None:
    assert run(home, "create", *words) == 2
    assert why in capsys.readouterr().err


def test_no_blob_folder_is_needed_or_created(home) -> None:
    run(home, "create", "--role", "admin")
    assert not (home / "blobs").exists()


def test_a_token_in_a_file_is_private_and_not_printed(home, capsys, monkeypatch) -> None:
    before = os.umask(0)
    try:
        file = home / "token"
        file.write_text("old")
        file.chmod(0o644)
        assert run(home, "create", "--role", "viewer", "-o", str(file)) == 0
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    token = file.read_text().strip()
    assert token.startswith("ovn_")
    printed = capsys.readouterr()
    assert token not in printed.out + printed.err
    assert run(home, "create", "--role", "viewer", "-o", str(file), "-O", "json") == 0
    assert "text" not in json.loads(capsys.readouterr().out)["tokens"][0]
    # A token that cannot be delivered is not created.
    assert run(home, "list", "-O", "json") == 0
    known = json.loads(capsys.readouterr().out)
    assert run(home, "create", "--role", "admin", "-o", str(home / "none" / "token")) == 3
    capsys.readouterr()
    assert run(home, "list", "-O", "json") == 0
    assert json.loads(capsys.readouterr().out) == known
