"""`overnight doctor` on this host: as root, as nobody, without perf, with perf_event_paranoid at 4.

This host is not changed: fake files are bind-mounted in a separate mount namespace.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import jsonschema
import otherusers
import pytest

from overnight import errors
from overnight.app import units

REPOSITORY = pathlib.Path(__file__).parents[2]
SCHEMA = json.loads((REPOSITORY / "docs/schemas/doctor-1.json").read_text())


def run(command: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def parse_checks(process: subprocess.CompletedProcess[str]) -> dict[str, dict[str, object]]:
    assert "Traceback" not in process.stderr
    document = json.loads(process.stdout)
    jsonschema.validate(document, SCHEMA)
    return {"can_record": document["can_record"], **{c["id"]: c for c in document["checks"]}}


@pytest.fixture
def open_folder() -> Iterator[pathlib.Path]:
    """A folder that the user nobody can enter; pytest's folders are only for their owner."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="overnight-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_nobody(folder: pathlib.Path, *arguments: str, paranoid: int | None = None) -> list[str]:
    """Return the command that runs overnight as the user nobody."""
    before = ""
    if paranoid is not None:
        (folder / "paranoid").write_text(f"{paranoid}\n")
        before = f"mount --bind '{folder}/paranoid' /proc/sys/kernel/perf_event_paranoid"
    return otherusers.command(folder, *arguments, before=before)


def test_this_host_has_every_check() -> None:
    checks = parse_checks(run([sys.executable, "-m", "overnight", "doctor", "-O", "json"]))
    assert len(checks) == 21


@pytest.mark.needs_root
@pytest.mark.needs_perf
def test_root_can_record_everything() -> None:
    process = run([sys.executable, "-m", "overnight", "doctor", "-O", "json"])
    assert process.returncode == 0
    checks = parse_checks(process)
    assert checks["can_record"] == {"profiles": True, "signals": True}
    assert checks["perf_event_open"]["facts"]["cores"] == os.cpu_count()


@pytest.mark.needs_root
def test_without_perf_the_native_recorder_is_used() -> None:
    process = run([sys.executable, "-m", "overnight", "doctor", "-O", "json"], PATH="/nonexistent")
    checks = parse_checks(process)
    assert process.returncode == 0
    assert checks["perf_binary"]["status"] == "missing"
    assert checks["perf_event_open"]["status"] == "ok"
    assert checks["can_record"] == {"profiles": True, "signals": True}


@pytest.mark.needs_root
@pytest.mark.parametrize("paranoid", [2, 4])
def test_the_user_nobody_is_refused_by_the_kernel(open_folder: pathlib.Path, paranoid: int) -> None:
    process = run(as_nobody(open_folder, "doctor", "-O", "json", paranoid=paranoid))
    checks = parse_checks(process)
    assert process.returncode == 0
    assert checks["perf_event_paranoid"]["status"] == "degraded"
    assert checks["perf_event_paranoid"]["facts"] == {"level": paranoid}
    assert checks["perf_event_open"]["status"] == "missing"
    assert "EACCES" in checks["perf_event_open"]["found"]
    assert checks["kallsyms"]["status"] == "degraded"
    assert checks["nspawn"]["status"] != "ok"
    assert checks["can_record"] == {"profiles": False, "signals": True}


@pytest.mark.needs_root
def test_the_documented_capabilities_suffice_and_each_is_needed(open_folder: pathlib.Path) -> None:
    """The table of docs/security.md names the checks that fail without each capability of the unit."""
    text = (REPOSITORY / "docs/security.md").read_text()
    rows = re.findall(r"^\| `(CAP_\w+)` \|.*\| (`[a-z_`, ]+`) \|$", text, re.MULTILINE)
    needed = {capability: set(re.findall(r"\w+", checks)) for capability, checks in rows}
    unit = units.render("record", python=sys.executable)
    assert f"\nAmbientCapabilities={' '.join(needed)}\n" in unit
    assert f"\nCapabilityBoundingSet={' '.join(needed)}\n" in unit
    if pathlib.Path("/proc/sys/kernel/dmesg_restrict").read_text() == "0\n":
        needed["CAP_SYSLOG"].remove("kmsg")
    for left_out in ("", *needed):
        granted = [capability for capability in needed if capability != left_out]
        process = run(otherusers.command(open_folder, "doctor", "-O", "json", uid=otherusers.STRANGER, capabilities=granted))  # fmt: skip
        checks = parse_checks(process)
        lacking = {name for name in set().union(*needed.values()) if checks[name]["status"] != "ok"}
        assert lacking == needed.get(left_out, set())
        assert all(left_out in checks[name]["fix"] for name in lacking)


@pytest.mark.needs_root
def test_the_user_nobody_records_only_signals(open_folder: pathlib.Path) -> None:
    home = open_folder / "home"
    home.mkdir(mode=0o700)
    os.chown(home, otherusers.NOBODY, otherusers.NOBODY)
    process = run(
        as_nobody(
            open_folder,
            "--home",
            str(home),
            "record",
            "--allow-partial",
            "--for",
            "1s",
            "-O",
            "json",
        ),
    )
    assert process.returncode == 0, process.stderr
    recording = json.loads(process.stdout)
    assert recording["profile"] is None
    assert "EACCES" in recording["gaps"][0]
    assert len(recording["cores"]) == os.cpu_count()


def test_an_empty_root_exits_with_3(tmp_path: pathlib.Path) -> None:
    process = run(
        [sys.executable, "-m", "overnight", "doctor", "--root", str(tmp_path), "-O", "json"]
    )
    assert process.returncode == 3
    assert parse_checks(process)["can_record"] == {"profiles": False, "signals": False}


def test_a_closed_pipe_ends_it_quietly() -> None:
    command = f"'{sys.executable}' -m overnight doctor | true"
    process = run(["bash", "-o", "pipefail", "-c", command])
    assert process.stderr == ""
    assert process.returncode == errors.ExitCode.READER_GONE
