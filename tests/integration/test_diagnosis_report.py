"""Reports of verdicts in a real Chromium: light, dark, narrow and on paper.

Pictures and PDFs are kept in out/shots/diagnosis, to be looked at.
"""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess

import pytest
import verdicts

from overnight.model.verdict import Verdict
from overnight.reports import diagnosis
from overnight.reports.diagnosis import html

Report = tuple[Verdict, diagnosis.Material]

REPOSITORY = pathlib.Path(__file__).parents[2]
WEB = REPOSITORY / "web"
SHOTS = REPOSITORY / "out/shots/diagnosis"


def run(*command: str) -> str:
    done = subprocess.run(
        command, cwd=WEB, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


# The fullest page, and the one that wants to break out; the others are variations of these.
FIRST = ("reference", "hostile")


@pytest.mark.needs_chromium
@pytest.mark.timeout(300)
def test_a_report_is_shown_and_printed(tmp_path: pathlib.Path) -> None:
    shown_and_printed(tmp_path, {name: verdicts.ALL[name]() for name in FIRST})


@pytest.mark.long
@pytest.mark.needs_chromium
@pytest.mark.timeout(300)
def test_every_report_is_shown_and_printed(tmp_path: pathlib.Path) -> None:
    made = {name: make() for name, make in verdicts.ALL.items() if name not in FIRST}
    told, beside = verdicts.ALL["reference"]()
    made["cores-192"] = told, dataclasses.replace(beside, cores=verdicts.cores(192))
    shown_and_printed(tmp_path, made)


def shown_and_printed(folder: pathlib.Path, made: dict[str, Report]) -> None:
    if not (WEB / "node_modules/.bin/vite-node").exists():
        run("npm", "ci", "--silent", "--ignore-scripts")
    SHOTS.mkdir(parents=True, exist_ok=True)
    for name, (said, material) in made.items():
        with (folder / f"{name}.html").open("wb") as file:
            html.write(said, file, material)
    said = run(
        "npx", "--no-install", "vite-node", "tests/browser/diagnosis.ts", str(folder), str(SHOTS)
    )
    assert said.count("ok  ") == len(made)
    for name in made:
        for look in ("light.png", "dark.png", "narrow.png", "print.png", "print.pdf"):
            assert (SHOTS / f"{name}-{look}").stat().st_size > 5_000
