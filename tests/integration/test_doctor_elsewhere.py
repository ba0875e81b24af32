"""`overnight doctor` for real: as root, as nobody, without perf, with perf_event_paranoid at 4.

Nothing of this host is changed: what is pretended is bind-mounted in a mount namespace of its own.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import jsonschema
import pytest

import overnight
from overnight import errors

REPOSITORY = pathlib.Path(__file__).parents[2]
SCHEMA = json.loads((REPOSITORY / "docs/schemas/doctor-1.json").read_text())
NOBODY = "65534"


def run(command: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def answers(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, object]]:
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    return {"can_record": document["can_record"], **{c["id"]: c for c in document["checks"]}}


@pytest.fixture
def open_place() -> Iterator[pathlib.Path]:
    """A folder that nobody may enter; pytest's own are for the owner alone."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="overnight-test-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def as_nobody(place: pathlib.Path, *arguments: str, paranoid: int | None = None) -> list[str]:
    """The doctor as nobody, wherever this checkout and its Python lie.

    Bind mounts make them reachable: a parent folder that only root may enter does not matter.
    """
    binds = {
        "source": pathlib.Path(overnight.__file__).parents[1],
        "prefix": pathlib.Path(sys.prefix),
        "base": pathlib.Path(sys.base_prefix),
    }
    lines = ["set -e"]
    for name, path in binds.items():
        (place / name).mkdir(exist_ok=True)
        lines.append(f"mount --bind '{path}' '{place / name}'")
    if paranoid is not None:
        (place / "paranoid").write_text(f"{paranoid}\n")
        lines.append(f"mount --bind '{place}/paranoid' /proc/sys/kernel/perf_event_paranoid")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    path = f"{place}/source:{place}/prefix/lib/{version}/site-packages"
    lines.append(
        f"exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups env PYTHONPATH='{path}' "
        f"HOME=/nonexistent '{place}/base/bin/{version}' -m overnight {' '.join(arguments)}"
    )
    return ["unshare", "--mount", "sh", "-c", "\n".join(lines)]


def test_this_host_as_it_is() -> None:
    found = answers(run([sys.executable, "-m", "overnight", "doctor", "-O", "json"]))
    assert len(found) == 17


@pytest.mark.needs_root
@pytest.mark.needs_perf
def test_root_can_record_everything() -> None:
    done = run([sys.executable, "-m", "overnight", "doctor", "-O", "json"])
    assert done.returncode == 0
    found = answers(done)
    assert found["can_record"] == {"profiles": True, "signals": True}
    assert found["perf_event_open"]["facts"]["cores"] == os.cpu_count()


@pytest.mark.needs_root
def test_without_perf_the_native_recorder_does_it() -> None:
    done = run([sys.executable, "-m", "overnight", "doctor", "-O", "json"], PATH="/nonexistent")
    found = answers(done)
    assert done.returncode == 0
    assert found["perf_binary"]["status"] == "missing"
    assert found["perf_event_open"]["status"] == "ok"
    assert found["can_record"] == {"profiles": True, "signals": True}


@pytest.mark.needs_root
@pytest.mark.parametrize("paranoid", [2, 4])
def test_nobody_is_refused_by_the_kernel_and_told_so(
    open_place: pathlib.Path, paranoid: int
) -> None:
    done = run(as_nobody(open_place, "doctor", "-O", "json", paranoid=paranoid))
    found = answers(done)
    assert done.returncode == 0
    assert found["perf_event_paranoid"]["status"] == "degraded"
    assert found["perf_event_paranoid"]["facts"] == {"level": paranoid}
    assert found["perf_event_open"]["status"] == "missing"
    assert "EACCES" in found["perf_event_open"]["found"]
    assert found["kallsyms"]["status"] == "degraded"
    assert found["nspawn"]["status"] != "ok"
    assert found["can_record"] == {"profiles": False, "signals": True}


@pytest.mark.needs_root
def test_nobody_records_what_it_may(open_place: pathlib.Path) -> None:
    home = open_place / "home"
    home.mkdir()
    home.chmod(0o777)
    done = run(
        as_nobody(open_place, "--home", str(home), "record", "--for", "1s", "-O", "json"),
    )
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["profile"] is None
    assert "EACCES" in made["gaps"][0]
    assert len(made["cores"]) == os.cpu_count()


def test_a_host_that_shows_nothing_ends_with_3(tmp_path: pathlib.Path) -> None:
    done = run([sys.executable, "-m", "overnight", "doctor", "--root", str(tmp_path), "-O", "json"])
    assert done.returncode == 3
    assert answers(done)["can_record"] == {"profiles": False, "signals": False}


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    command = f"'{sys.executable}' -m overnight doctor | true"
    done = run(["bash", "-o", "pipefail", "-c", command])
    assert done.stderr == ""
    assert done.returncode == errors.ExitCode.READER_GONE
