"""`--server`: the same commands print the same answers from a control plane as from a data home."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import re
import shutil
import stat
import threading
import time
from collections.abc import Iterator

import controlplane
import jsonschema
import pytest

import scenarios
from overnight.app import events, remote, server_requests, server_settings
from overnight.interfaces import cli
from overnight.model import times
from scenarios import fleet

SCHEMAS = pathlib.Path(__file__).parents[3] / "docs/schemas"
KIND = "net.driver_reset"
FLEET = ["--kind", KIND]
QUESTIONS = {
    "cohorts": ["cohorts", *FLEET],
    "cohorts in a window": ["cohorts", *FLEET, "-b", "2026-11-05", "-e", "2026-11-15"],
    "hazard": ["hazard", *FLEET],
    "drift": ["drift", *FLEET],
    "drift of named hosts": ["drift", "--sick", "NAME"],
    "compare": ["compare", *FLEET, "--at", "2026-11-08"],
    "compare groups": ["compare", *FLEET, "--group", "zone=ZONE"],
    "events": ["events", "--kind", KIND],
    "events of a host": ["events", "--host", "NAME", "--severity", "critical"],
    "an event": ["events", "EVENT"],
}


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> scenarios.Truth:
    home = tmp_path_factory.mktemp("night") / "home"
    return scenarios.build("reference", home, seed=11, minutes=16.0, cores=8)


@pytest.fixture(scope="module")
def home(night: scenarios.Truth, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A data home with the night of one host, and thirty hosts of a fleet."""
    folder = tmp_path_factory.mktemp("fleet") / "home"
    shutil.copytree(night.home, folder)
    fleet.build_fleet(folder, 3)
    return folder


@pytest.fixture
def plane(
    home: pathlib.Path, night: scenarios.Truth, monkeypatch: pytest.MonkeyPatch
) -> Iterator[controlplane.ControlPlane]:
    monkeypatch.setenv("OVERNIGHT_TOKEN", controlplane.TOKEN)
    monkeypatch.setattr("time.sleep", lambda _: None)
    with controlplane.serve(controlplane.ControlPlane(home, {night.host: night.home})) as served:
        yield served


@pytest.fixture
def show(plane, capsys):
    """Run a command on the server, or on a data home; return what it printed."""

    def run(*words: str, code: int = 0, home: pathlib.Path | None = None) -> str:
        place = ["--server", plane.url] if home is None else ["--home", str(home)]
        assert cli.main([*words, *place]) == code, capsys.readouterr().err
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return run


def connect(plane: controlplane.ControlPlane) -> remote.Server:
    return remote.Server(server_settings.read_settings(plane.url))


def check(text: str) -> dict:
    document = json.loads(text)
    name = document["schema"].removeprefix("overnight.").replace("/", "-")
    jsonschema.validate(document, json.loads((SCHEMAS / f"{name}.json").read_text()))
    return document


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_has_the_same_answer(show, home, plane, night, name: str) -> None:
    some = plane.events[0]
    values = {"NAME": some.host, "EVENT": some.id, "zone=ZONE": f"zone={plane.rows[some.host]['labels']['zone']}"}  # fmt: skip
    words = [values.get(word, word) for word in QUESTIONS[name]]
    if name == "drift of named hosts":
        words += ["--sick", night.host]
    local, there = (check(show(*words, "-O", "json", home=place)) for place in (home, None))
    if words[0] == "events":  # a server does not know gaps, nor which hosts have no events
        assert there["events"] == local["events"] != []
    else:
        assert there == local
        assert there != {}
    command = f"overnight --server {plane.url} "
    assert show(*words).replace(command, f"overnight --home {home} ") == show(*words, home=home)


def test_hosts_are_listed_by_label(show, home, plane) -> None:
    document = check(show("hosts", "-O", "json"))
    assert [host["name"] for host in document["hosts"]] == sorted(plane.rows)
    assert plane.requests.count("GET /api/v1/hosts") == -(-len(plane.rows) // controlplane.PAGE)
    zones = {host["labels"]["zone"] for host in document["hosts"] if "zone" in host["labels"]}
    zone = min(zones)
    for place in (home, None):
        listed = check(show("hosts", "--label", f"zone={zone}", "-O", "json", home=place))["hosts"]
        assert {host["labels"]["zone"] for host in listed} == {zone}
        assert 0 < len(listed) < len(document["hosts"])
    name = document["hosts"][0]["name"]
    plane.offline.add(name)
    lines = show("hosts").splitlines()
    assert lines[0].split()[:2] == ["host", "state"]
    assert lines[1].split()[:2] == [name, "offline"]
    assert lines[2].split()[1] == "online"
    assert "no host has these labels" in show("hosts", "--label", "zone=nowhere")
    plane.rows.clear()
    assert "no host has enrolled" in show("hosts")


def test_the_text_explains_denominators_p_and_intervals(show) -> None:
    text = show("cohorts", *FLEET)
    assert "watched hosts (" in text
    assert "watched host days" in text
    assert "p: how often chance alone" in text
    assert "found: net.driver_reset follows zone" in text
    text = show("hazard", *FLEET)
    assert "per host week" in text
    assert "95 % interval: rates with which" in text
    assert "found: net.driver_reset depends on uptime" in text


def test_a_diagnosis_argues_with_the_findings_of_the_fleet(show, home, plane, night) -> None:
    words = ["diagnose", night.event.id, "-O", "json"]
    local, there = (check(show(*words, home=place)) for place in (home, None))
    alone = check(show(*words, home=night.home))
    # Each names where it found the evidence.
    plain = [
        re.sub(r"overnight --(home|server) \S+", "overnight", json.dumps(each["verdict"]))
        for each in (local, there)
    ]
    assert plain[0] == plain[1]
    assert there["fleet"]["findings"] == local["fleet"]["findings"] != []
    detectors = {answer["detector"]: answer["status"] for answer in there["detectors"]}
    assert detectors["fleet.cohort"] == "found"
    assert alone["fleet"] == {}
    assert alone["verdict"] != local["verdict"], "the fleet argues"
    assert plane.tasks.keys() == {"t0"}, "the window is fetched once, then held"


def test_a_diagnosis_does_not_fail_with_the_fleet(show, plane, night) -> None:
    show("diagnose", night.event.id, "-O", "json")
    plane.other_version = True
    document = check(show("diagnose", night.event.id, "-O", "json"))
    detectors = {answer["detector"]: answer for answer in document["detectors"]}
    assert detectors["fleet"]["status"] == "failed"
    assert "is not understood" in detectors["fleet"]["why"]
    assert document["verdict"]


def test_the_last_serious_event_is_diagnosed(show, plane, night) -> None:
    document = check(show("diagnose", "--host", night.host, "-O", "json"))
    assert document["event"]["host"] == night.host
    assert "GET /api/v1/events" in plane.requests


def test_windows_are_read_as_on_the_host(show, home, night) -> None:
    at = f"{night.event.time_us // 1_000_000 - 20}"
    for words in (
        ["cpu", night.event.id],
        ["cpu", "-b", at, "-e", "+30s", "--host", night.host],
        ["flame", "-b", at, "-e", "+30s", "--host", night.host],
        ["heatmap", "-b", at, "-e", "+30s", "--host", night.host],
    ):
        local, there = (check(show(*words, "-O", "json", home=place)) for place in (home, None))
        for document in (local, there):  # a bundle has whole segments, and notes of its own
            document.pop("coverage", None)
            document.pop("notes", None)
        assert there == local, words
    assert night.event.kind in show("diagnose", "--at", at, "--host", night.host, "--kind", night.event.kind)  # fmt: skip


def test_a_bundle_is_fetched_to_a_private_file(show, plane, night, tmp_path) -> None:
    file = tmp_path / "reset.overnight"
    document = check(show("bundle", "create", night.event.id, "-o", str(file), "-O", "json"))
    assert (document["event"], document["hosts"]) == (night.event.id, [night.host])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert f"diagnose {file}" not in plane.requests
    assert check(show("diagnose", str(file), "-O", "json"))["fleet"]["hosts"] > 3


def test_an_offline_host_is_reported_with_what_there_is(show, plane, night) -> None:
    plane.offline.add(night.host)
    text = show("diagnose", night.event.id, code=3)
    assert f"host {night.host} is offline" in text
    assert "it was last seen 2023-11-14T22:13:20.000Z; the server holds no window of it" in text
    other = next(e for e in plane.events if e.host == night.host and e.id != night.event.id)
    plane.upload(night.host, {"event": other.id})
    text = show("cpu", night.event.id, code=3)
    assert f"the server holds 1 window of it: {other.id}" in text
    assert f"diagnose {other.id}`" in text


@pytest.mark.parametrize(("state", "words"), [("failed", "is failed"), ("refused", "is refused"), ("expired", "is expired")])  # fmt: skip
def test_a_task_that_ends_without_a_window(show, plane, night, state: str, words: str) -> None:
    plane.ends = state
    text = show("diagnose", night.event.id, code=3)
    assert words in text
    assert "not allowed" in text


def test_a_task_without_progress_is_not_waited_for_for_ever(
    show, plane, night, monkeypatch
) -> None:
    plane.polls = 1 << 30
    monkeypatch.setattr(remote, "STALLED_SECONDS", 0.0)
    text = show("diagnose", night.event.id, code=3)
    assert "does not upload the window: task t0 is running" in text


def test_a_window_that_is_waited_for_says_when_its_host_was_last_seen(plane, night) -> None:
    plane.waits, steps = 1, []
    with (
        contextlib.closing(connect(plane)) as server,
        server.evidence(event_id=night.event.id, progress=lambda step, _: steps.append(step)),
    ):
        seen_us = {each.name: each.seen_us for each in server.list_hosts().hosts}[night.host]
    assert list(dict.fromkeys(steps)) == [
        f"waiting for {night.host}, last seen {times.format_instant(seen_us)}",
        f"{night.host} uploads the window",
        "downloading the window",
    ]


def test_a_changed_or_broken_download_is_refused(show, plane, night) -> None:
    plane.cut = 1
    assert night.event.kind in show("diagnose", night.event.id)
    assert plane.requests[-2:] != plane.requests[-3:-1]
    plane.cut = server_requests.ATTEMPTS
    assert "the connection ended within the answer" in show("diagnose", night.event.id, code=3)
    plane.damaged = True
    assert "has the digest" in show("diagnose", night.event.id, code=3)


def test_a_window_of_another_host_is_refused(show, plane, night) -> None:
    other = next(event for event in plane.events if event.host != night.host)
    sha256 = plane.upload(other.host, {"event": other.id})
    plane.held[sha256] = (night.event, plane.held[sha256][1])
    text = show("diagnose", night.event.id, code=3)
    assert f"the window of {night.host} holds evidence of {other.host}" in text


def test_a_server_that_is_busy_or_loses_a_connection_is_asked_again(show, plane) -> None:
    plane.faults = [503, 429, controlplane.LOST, 503]
    assert check(show("hazard", *FLEET, "-O", "json"))["status"] == "found"
    plane.faults = [503] * 100
    text = show("hazard", *FLEET, code=3)
    assert "a fault of 503" in text
    assert 10 < len(plane.faults) < 90, "it gives up after a minute"
    plane.faults = [controlplane.LOST] * 10
    assert "no answer from 127.0.0.1" in show("hosts", code=3)


def test_refusals_state_what_to_do(show, plane, monkeypatch) -> None:
    plane.faults = [403]
    assert "a fault of 403" in show("hosts", code=3)
    assert "no host 'nobody' is recorded" in show("drift", "--sick", "nobody", code=3)
    assert "mutually exclusive" in show("drift", "--sick", "x", "--kind", "y", code=2)
    assert "--kind is missing" in show("cohorts", code=2)
    assert "no event 'zzzz'" in show("events", "zzzz", code=3)
    monkeypatch.setenv("OVERNIGHT_TOKEN", "wrong")
    text = show("hosts", code=3)
    assert "refuses the token" in text
    assert "OVERNIGHT_TOKEN" in text
    assert "wrong" not in text


def test_another_version_is_not_misread(show, plane) -> None:
    plane.other_version = True
    for words in (["hosts"], ["events"], ["cohorts", *FLEET], ["drift", *FLEET]):
        text = show(*words, code=3)
        assert "is not understood" in text
        assert "same version" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["doctor"], "overnight doctor does not take --server"),
        (["bundle", "open", "x"], "overnight bundle open does not take --server"),
        (["flame", "--host", "db-7"], "--server needs a window"),
        (["heatmap", "-b", "1h ago"], "--server needs one host (got 0)"),
        (["cpu", "--host", "db-7", "-b", "10m"], "counts from the begin of a recording"),
        (["events", "-b", "10m"], "counts from the begin of a recording"),
        (["diagnose", "--at", "now", "--save"], "--save and --server are mutually exclusive"),
        (["events", "--home", "/x"], "--server and --home are mutually exclusive"),
        (["audit"], "--server needs one host (got 0)"),
        (
            ["audit", "--host", "db-7", "--fix", "shell"],
            "--fix cannot be combined with --server or --host",
        ),
        (["audit", "--host", "db-7", "--apply", "--yes"], "--apply cannot be combined"),
        (["audit", "--undo"], "--undo cannot be combined"),
    ],
)
def test_what_a_server_cannot_do_is_a_usage_error(show, words: list[str], message: str) -> None:
    assert message in show(*words, code=2)


def test_the_environment_and_a_file_name_the_server(
    plane, home, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("OVERNIGHT_TOKEN")
    monkeypatch.setenv("OVERNIGHT_HOME", str(tmp_path))
    token = tmp_path / "token"
    token.write_text(f"{controlplane.TOKEN}\n")
    monkeypatch.setenv("OVERNIGHT_SERVER", plane.url)
    assert cli.main(["hosts", "--token-file", str(token)]) == 0
    assert plane.requests
    plane.requests.clear()
    assert cli.main(["--home", str(home), "hosts"]) == 0, "a home on the command line is nearer"
    assert cli.main(["store", "pin"]) == 0, "a command that cannot ask a server reads the home"
    assert plane.requests == []
    monkeypatch.delenv("OVERNIGHT_SERVER")
    folder = tmp_path / "overnight"
    folder.mkdir()
    (folder / "server.toml").write_text(f'url = "{plane.url}"\ntoken_file = "{token}"\n')
    assert cli.main(["hosts"]) == 0
    assert plane.requests
    capsys.readouterr()
    (folder / "server.toml").write_text("url = 5\n")
    assert cli.main(["hosts"]) == 2
    assert "has an invalid 'url'" in capsys.readouterr().err
    token.write_text("two words")
    assert cli.main(["hosts", "--server", plane.url, "--token-file", str(token)]) == 2
    (folder / "server.toml").unlink()
    assert cli.main(["hosts", "--server", plane.url, "--token-file", str(token)]) == 3
    assert "does not hold a token" in capsys.readouterr().err
    for text in ("a\nb", "a b", "ü", "x" * 5000, " "):
        monkeypatch.setenv("OVERNIGHT_TOKEN", text)
        assert cli.main(["hosts", "--server", plane.url]) == 3, text
        assert "OVERNIGHT_TOKEN does not hold a token" in capsys.readouterr().err
    token.write_text("")
    assert cli.main(["hosts", "--server", plane.url, "--token-file", str(token)]) == 3


def test_a_token_is_not_sent_unencrypted_nor_to_another_server(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert cli.main(["hosts", "--server", "http://db.example.com"]) == 2
    assert "insecure = true" in capsys.readouterr().err
    (tmp_path / "overnight").mkdir()
    (tmp_path / "token").write_text("secret")
    (tmp_path / "overnight/server.toml").write_text(
        f'url = "https://one"\ntoken_file = "{tmp_path}/token"\n'
    )
    monkeypatch.delenv("OVERNIGHT_TOKEN", raising=False)
    assert server_settings.read_settings("https://one").token == "secret"
    assert server_settings.read_settings("https://two").token == ""
    assert "secret" not in repr(server_settings.read_settings("https://one"))


def test_new_events_are_followed(plane) -> None:
    known, stop, changes = plane.events[0], threading.Event(), []

    def happen(count: int) -> None:
        soon = time.time_ns() // 1000 + 500_000
        plane.events = (known, dataclasses.replace(known, id="new", time_us=soon, count=count))

    with contextlib.closing(connect(plane)) as server:
        happen(1)
        for event, before in server.follow(events.Request(pathlib.Path(), kinds=(KIND,)), stop):
            changes.append((event.id, event.count, before.count if before else None))
            happen(2)
            if len(changes) == 2:
                stop.set()
    assert changes == [("new", 1, None), ("new", 2, 1)]


def test_a_host_may_have_any_name(plane, capsys) -> None:
    plane.rows["a/b ?#ü"] = plane.rows[min(plane.rows)] | {"name": "a/b ?#ü"}
    with contextlib.closing(connect(plane)) as server:
        assert "a/b ?#ü" in [host.name for host in server.list_hosts().hosts]
        assert server._find_host("a/b ?#ü").name == "a/b ?#ü"
