"""Names and texts of a host reach the terminal as visible characters, never as control sequences."""

from __future__ import annotations

import ast
import io
import pathlib

import captures
import pytest
import rich.console
import rich.table
import rich.text

from overnight.interfaces import cli
from overnight.interfaces.cli import safe_console, session, terminal

HOSTILE = "db\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
SHOWN = r"db\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
CLI = pathlib.Path(cli.__file__).parent


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Two hosts with hostile names, and hostile names of everything else."""
    home = tmp_path_factory.mktemp("home")
    for host in (HOSTILE, HOSTILE + "2"):
        samples = [
            captures.Sample(
                captures.NIGHT + n * captures.SECOND,
                (captures.user(HOSTILE), captures.kernel("f" + HOSTILE)),
                process=HOSTILE,
                thread=HOSTILE,
                unit=HOSTILE,
            )
            for n in range(20)
        ]
        captures.store(home, captures.build(samples, host=host, notes=(HOSTILE,)))
    return home


@pytest.mark.parametrize(
    "words",
    [
        ["heatmap"],
        ["heatmap", "--mark", f"1s={HOSTILE}"],
        ["top"],
        ["top", "--by", "function"],
        ["flame"],
        ["flame", "--host", HOSTILE],
        ["diff", "--before", "..+10s", "--after", "+10s.."],
        ["store", "check"],
        ["events"],
    ],
    ids=lambda words: " ".join(words).replace(HOSTILE, "HOSTILE"),
)
def test_no_control_character_of_a_name_is_printed(
    home: pathlib.Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["--home", str(home), *words])
    printed = capsys.readouterr()
    for character in "\x1b\x07\x9b\u202e":
        assert character not in printed.out + printed.err


def test_the_heatmap_shows_the_hostile_name(
    home: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--home", str(home), "heatmap"]) == 0
    assert SHOWN in capsys.readouterr().out


def rendered(*renderables: object, **options: object) -> str:
    out = io.StringIO()
    safe_console.Console(file=out, width=60, highlight=False).print(*renderables, **options)  # type: ignore[arg-type]
    return out.getvalue()


def test_every_kind_of_content_is_made_visible() -> None:
    table = rich.table.Table(HOSTILE)
    table.add_row(HOSTILE)
    table.add_row(rich.text.Text(HOSTILE))
    for shown in (
        rendered(HOSTILE),
        rendered(HOSTILE, markup=False, soft_wrap=True),
        rendered(rich.text.Text(HOSTILE)),
        rendered(terminal.cell(HOSTILE)),
        rendered(table),
    ):
        assert set(shown) & set("\x1b\x07\x9b\u202e") == set()
        assert SHOWN in shown.replace("owned\\x1b", r"owned\x07\x1b")  # rich.text.Text drops a BEL


def test_columns_keep_their_width() -> None:
    table = terminal.table("name", "next")
    table.add_row(terminal.cell("a\x1bb"), "x")
    table.add_row("plain", "x")
    lines = rendered(table).splitlines()
    assert lines[1].index("x", 4) == lines[2].index("x")


def test_markup_of_a_name_is_shown_and_that_of_a_command_is_used() -> None:
    out = io.StringIO()
    console = safe_console.Console(file=out, force_terminal=True, color_system="standard", width=60)
    name = terminal.cell("[red]\x1b[31m")
    console.print(f"[bold]{name}[/]", highlight=False)
    assert out.getvalue() == "\x1b[1m[red]\\x1b[31m\x1b[0m\n"


def test_lines_and_tabs_stay() -> None:
    assert rendered("a\n\tb") == "a\n        b\n"


def test_both_consoles_of_a_session_are_safe() -> None:
    current = session.Session()
    assert {type(current.console()), type(current.notes())} == {safe_console.Console}


def test_echoed_lines_are_safe(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.echo(HOSTILE + "\n")
    terminal.echo(HOSTILE, err=True)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (SHOWN + "\\n\n", SHOWN + "\n")
    terminal.echo("two\nlines", keep="\n")
    assert capsys.readouterr().out == "two\nlines\n"


def test_commands_print_only_through_the_safe_console() -> None:
    """One place escapes, so that no command can forget it."""
    unsafe = {"typer.echo", "typer.secho", "rich.console.Console", "rich.print", "print"}
    allowed = {"terminal.py": {"typer.echo"}, "__init__.py": {"typer.secho"}}
    found = {
        f"{path.name}: {ast.unparse(node.func)}"
        for path in CLI.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in unsafe - allowed.get(path.name, set())
    }
    assert found == set()
