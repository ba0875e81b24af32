"""Reports of investigations in a real Chromium: light, dark, narrow and on paper.

Pictures and PDFs are kept in out/shots/investigation for inspection.
"""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING

import nightreports
import pytest
import verdicts

from overnight.reports.investigation import html

if TYPE_CHECKING:
    from overnight.reports import investigation

REPOSITORY = pathlib.Path(__file__).parents[2]
WEB = REPOSITORY / "web"
SHOTS = REPOSITORY / "out/shots/investigation"


def make_hostile() -> investigation.Report:
    return nightreports.hostile_report("".join(verdicts.HOSTILE))


@pytest.mark.needs_chromium
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("hostile", make_hostile),  # has every section, and names that try to break out of it
        pytest.param("reproduced", nightreports.full_report, marks=pytest.mark.long),
        pytest.param("quiet", nightreports.quiet_report, marks=pytest.mark.long),
    ],
)
def test_a_report_is_shown_and_printed(
    tmp_path: pathlib.Path, name: str, make: Callable[[], investigation.Report]
) -> None:
    if not (WEB / "node_modules/.bin/vite-node").exists():
        subprocess.run(("npm", "ci", "--silent", "--ignore-scripts"), cwd=WEB, check=True)
    with (tmp_path / f"{name}.html").open("wb") as file:
        html.write(make(), file)
    SHOTS.mkdir(parents=True, exist_ok=True)
    # The checks of a diagnosis hold for every report: no network, one script, nothing outside its picture.
    command = ("npx", "--no-install", "vite-node", "tests/browser/diagnosis.ts", str(tmp_path), str(SHOTS))  # fmt: skip
    process = subprocess.run(command, cwd=WEB, capture_output=True, text=True, check=False, timeout=300)  # fmt: skip
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    assert process.stdout.count("ok  ") == 1
