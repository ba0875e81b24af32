"""Listing, showing and refusing instruments; tests/integration/test_instruments_real.py runs them."""

from __future__ import annotations

import json
import pathlib
import threading

import jsonschema
import pytest

from overnight import errors, instruments
from overnight.app import instrument
from overnight.interfaces import cli
from overnight.model.instrument import Reading, Usage
from overnight.store import readings

SCHEMAS = pathlib.Path(__file__).parents[3] / "docs/schemas"
BEGAN = 1_794_712_000_000_000


def check_schema(name: str, text: str) -> dict[str, object]:
    document = json.loads(text)
    jsonschema.validate(document, json.loads((SCHEMAS / f"{name}.json").read_text()))
    assert isinstance(document, dict)
    return document


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    for host, name in (("db-7", "runqueue-latency"), ("db-8", "talk")):
        writer = readings.ReadingWriter(tmp_path, host, name, "", BEGAN)
        for second in range(1, 61):
            at = BEGAN + second * 1_000_000
            values = {"count": 2.0, "p99_us": 90.0, "max_us": 100.0 * second}
            line = Reading(at, "line", subject="talk", text="[red]x[/red]\x1b[31m")
            writer.add([Reading(at, "run-queue", 3, values=values) if host == "db-7" else line])
        writer.add_usage(Usage(0.6, None, 1, 0), ended=True)
        writer.close()
    return tmp_path


def show(home: pathlib.Path, *words: str) -> int:
    return cli.main(["--home", str(home), "instrument", *words])


def test_readings_of_a_window_are_summed_up(
    home: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(home, "show", "--host", "db-7", "-b", "10s", "-e", "20s", "-O", "json") == 0
    document = check_schema("instrument-1", capsys.readouterr().out)
    (row,) = document["rows"]  # type: ignore[misc]
    assert (row["core"], row["count"], row["max_us"]) == (3, 20, 1900)
    assert show(home, "show") == 0
    text = capsys.readouterr().out
    assert "run-queue  core 3  120 times  p99 90 µs  max 6 ms" in text
    assert "line  talk  60 times  [red]x" in text
    assert "\x1b" not in text
    assert text.count("lost 1 events") == 2


def test_a_recording_is_chosen_by_instrument_or_id(home: pathlib.Path) -> None:
    (of_talk,) = instrument.show(home, name="talk").recordings
    assert instrument.show(home, name=of_talk.id).recordings == (of_talk,)
    with pytest.raises(errors.NotFoundError, match="no readings of nix on db-7"):
        instrument.show(home, name="nix", host="db-7")
    with pytest.raises(errors.CannotError, match="nothing was recorded between"):
        instrument.show(home, begin="2020-01-01", end="2020-01-02")


def test_the_list_fits_its_schema_and_names_what_is_wrong_with_the_file(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(tmp_path, "list", "--config", str(tmp_path / "none"), "-O", "json") == 0
    document = check_schema("instruments-1", capsys.readouterr().out)
    assert len(document["instruments"]) == len(instruments.discover())  # type: ignore[arg-type]
    file = tmp_path / "agent.toml"
    file.write_text("[instruments.x]\nargv = 3")
    file.chmod(0o600)
    listing = instrument.list_instruments(file)
    assert listing.problem
    assert len(listing.instruments) == len(instruments.discover())


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["runqueue-latency", "python"], "takes no TARGET"),
        (["slow-syscalls"], "needs a process"),
        (["runqueue-latency", "--for", "0s"], "--for must be greater than 0"),
        (["runqueue-latency", "--host", "x"], "options of show"),
        (["nix"], "unknown instrument 'nix'"),
    ],
)
def test_wrong_requests_are_refused(
    tmp_path: pathlib.Path, words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(tmp_path, *words, "--config", str(tmp_path / "none")) == errors.ExitCode.USAGE
    assert problem in capsys.readouterr().err


def test_a_failed_run_is_stored_as_ended(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        name, about, tool, target, needs_target = "failing", "", "", "", False

        def prepare(self, _target: str) -> instruments.Pipeline:
            class Reader:
                lost = 0

                def feed(self, _line: bytes) -> tuple[()]:
                    return ()

            return instruments.Pipeline((("/bin/false",),), Reader())

    monkeypatch.setattr(instruments, "discover", lambda: {"failing": Failing()})
    with pytest.raises(errors.CannotError, match="false ended with exit code 1"):
        instrument.run(instrument.Request("failing", home=tmp_path), threading.Event())
    (recording,) = readings.read_recordings(tmp_path)
    assert recording.ended
