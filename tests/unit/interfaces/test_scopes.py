"""A named server is asked, or the command refuses: no command answers from the local data home in silence."""

from __future__ import annotations

import pathlib
import shlex
from typing import Any

import pytest
import typer.main

from overnight.interfaces import cli
from overnight.interfaces.cli import session

SERVER, HOME, HOST = session.Scope.SERVER, session.Scope.HOME, session.Scope.HOST
URL = "http://127.0.0.1:9"  # nothing listens there
# Every command with what it works on where a server is named. A new command needs a row.
SCOPES = {
    SERVER: (
        "audit", "bundle create", "cluster cancel", "cluster create", "cluster list", "cluster release",
        "cluster renew", "cluster show", "cohorts", "compare", "confirm", "confirmations", "cpu", "diagnose", "drift",
        "events", "flame", "hazard", "heatmap", "hosts", "mcp", "pool acquire", "pool autoscale", "pool cancel",
        "pool cordon", "pool create", "pool delete", "pool drain", "pool events", "pool explain", "pool forget",
        "pool list", "pool member", "pool recycle", "pool renew", "pool replenish", "pool return", "pool show",
        "pool size", "pool terminate", "pool uncordon", "pool update", "release", "reservations check",
        "reservations extend", "reservations list", "reservations show", "reserve", "run list", "run resume",
        "run start", "run status", "run stop", "top",
    ),
    HOME: ("diff", "event add", "event remove", "import", "token create", "token list", "token revoke"),
    # About this machine, its recorder and what it recorded, whatever server people ask.
    HOST: (
        "age", "agent", "bundle open", "census", "doctor", "instrument", "janitor", "live", "load", "node-events",
        "pool serve", "record", "rehearse", "rules import", "rules list", "rules test", "serve", "snapshot",
        "store check", "store ingest", "store pin", "store unpin",
    ),
}  # fmt: skip
# Not with the arguments of their example: audit is of this host without --host, mcp serves, a plan is a file.
OTHERWISE = {
    "audit": "audit --host db-7",
    "pool size": "pool size --pool ci",
    "cohorts": "cohorts --kind net.driver_reset",
    "flame": "flame -b '1h ago' --host db-7",
    "heatmap": "heatmap -b '1h ago' --host db-7",
    "top": "top -b '1h ago' --host db-7",
    "cpu": "cpu -b '1h ago' --host db-7",
    "diagnose": "diagnose",
}
SKIPPED = {"mcp", "run start"}


def _walk(command: Any, words: tuple[str, ...] = ()) -> dict[str, Any]:
    found = {}
    for name, child in command.commands.items():
        path = (*words, name)
        found |= _walk(child, path) if hasattr(child, "commands") else {" ".join(path): child}
    return found


COMMANDS = _walk(typer.main.get_command(cli.build()))


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty data home of the user, and a server in the environment."""
    for name in ("OVERNIGHT_HOME", "OVERNIGHT_POOLS_DATABASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("OVERNIGHT_SERVER", URL)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    return tmp_path / "data" / "overnight"


def test_every_command_has_a_scope() -> None:
    expected = {name: scope for scope, names in SCOPES.items() for name in names}
    assert {name: command.callback.scope for name, command in COMMANDS.items()} == expected


@pytest.mark.parametrize("name", [name for name in SCOPES[SERVER] if name not in SKIPPED])
def test_a_command_with_a_server_asks_it(
    name: str, home: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = COMMANDS[name].epilog.removeprefix("Example: overnight ")
    words = shlex.split(OTHERWISE.get(name, example))
    assert cli.main(words) == 3
    assert URL.removeprefix("http://") in capsys.readouterr().err
    assert not home.exists(), "the local data home was used"


@pytest.mark.parametrize("name", SCOPES[HOME])
def test_a_command_that_cannot_ask_refuses(
    name: str, home: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(COMMANDS[name].epilog.removeprefix("Example: overnight "))
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert f"overnight {name} cannot ask {URL}" in error
    assert f"--home {home}" in error
    assert not home.exists()
    # The advice works: the data home that it names is used, with whatever it has.
    cli.main([*words, "--home", str(tmp_path / "named")])
    assert "cannot ask" not in capsys.readouterr().err


def test_a_database_is_named_as_well_as_a_data_home(
    home: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["token", "list", "--database", f"sqlite:///{tmp_path / 'x.db'}"]) == 0
    assert "no tokens" in capsys.readouterr().out
    assert not home.exists()


def test_suggestions_name_the_server_and_its_token_file(
    home: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "a token"
    token.write_text("ovn_1_x\n")
    current = session.Session(chosen_server=URL, token_file=token)
    asked = f"overnight --server {URL} --token-file '{token}' "
    assert current.command("pool show ci") == asked + "pool show ci"
    assert current.command("run plan.yaml") == asked + "run plan.yaml"
    assert current.command("record --for 12h") == "overnight record --for 12h", "on the host"
    assert current.command("--home /x events") == "overnight --home /x events"
    # Refused where the environment names a server, unless with a data home: of the server, or of a host.
    assert (
        current.command("token create --role agent")
        == "overnight --home DIR token create --role agent"
    )
    current.opened.close()


def test_an_agent_without_a_token_names_no_data_home_for_its_server(
    home: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--home", str(tmp_path / "agent"), "agent", "--signals-only"]) == 2
    error = capsys.readouterr().err
    assert "on the server: `overnight --home DIR token create --role agent`; here: " in error
    assert f"`overnight --home {tmp_path}/agent agent --token-file FILE`" in error


def test_suggestions_name_the_database_without_its_password(
    home: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    current = session.Session(
        chosen_home=tmp_path,
        home_given=True,
        chosen_server="",
        database="postgresql://me:s3cret@db/x?password=hunter2&sslmode=require",
    )
    line = current.command("pool show ci")
    assert (
        line
        == f"overnight --home {tmp_path} pool show ci --database 'postgresql://me@db/x?sslmode=require'"
    )
    assert current.command("events") == f"overnight --home {tmp_path} events"


def test_a_database_is_named_once(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERNIGHT_SERVER", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    at = f"--database sqlite:///{tmp_path / 'x.db'}"
    assert (
        cli.main(f"pool create ci --provider process --template plain --target 1 {at}".split()) == 0
    )
    for words in (
        "pool show ci",
        "pool explain ci",
        "pool acquire ci --wait 0",
        "pool list -O json",
    ):
        cli.main(f"{words} {at}".split())
        printed = "".join(capsys.readouterr())
        assert at in printed or words.endswith("json")
        assert f"{at} --database" not in printed


def test_settings_that_cannot_be_read_hide_no_other_error(
    home: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.delenv("OVERNIGHT_SERVER")
    (tmp_path / "config/overnight").mkdir(parents=True)
    (tmp_path / "config/overnight/server.toml").write_text("url = [")
    assert cli.main(["bundle", "create"]) == 2
    assert "do:    `overnight bundle create ID`, or" in capsys.readouterr().err
    assert cli.main(["events"]) == 3
    assert "server.toml cannot be read" in capsys.readouterr().err
