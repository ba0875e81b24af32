"""Reports of verdicts in a real Chromium: light, dark, narrow and on paper.

Pictures and PDFs are kept in out/shots/diagnosis for inspection.
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
    process = subprocess.run(
        command, cwd=WEB, capture_output=True, text=True, check=False, timeout=300
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    return process.stdout


# The fullest page and the one with hostile names; the others are variations of these.
FIRST = ("reference", "hostile")


@pytest.mark.needs_chromium
@pytest.mark.timeout(300)
def test_a_report_is_shown_and_printed(tmp_path: pathlib.Path) -> None:
    check_in_browser(tmp_path, {name: verdicts.ALL[name]() for name in FIRST})


@pytest.mark.long
@pytest.mark.needs_chromium
@pytest.mark.timeout(300)
def test_every_report_is_shown_and_printed(tmp_path: pathlib.Path) -> None:
    pages = {name: make() for name, make in verdicts.ALL.items() if name not in FIRST}
    verdict, material = verdicts.ALL["reference"]()
    pages["cores-192"] = verdict, dataclasses.replace(material, cores=verdicts.cores(192))
    check_in_browser(tmp_path, pages)


def check_in_browser(folder: pathlib.Path, pages: dict[str, Report]) -> None:
    if not (WEB / "node_modules/.bin/vite-node").exists():
        run("npm", "ci", "--silent", "--ignore-scripts")
    SHOTS.mkdir(parents=True, exist_ok=True)
    for name, (verdict, material) in pages.items():
        with (folder / f"{name}.html").open("wb") as file:
            html.write(verdict, file, material)
    output = run(
        "npx", "--no-install", "vite-node", "tests/browser/diagnosis.ts", str(folder), str(SHOTS)
    )
    assert output.count("ok  ") == len(pages)
    for name in pages:
        for suffix in ("light.png", "dark.png", "narrow.png", "print.png", "print.pdf"):
            assert (SHOTS / f"{name}-{suffix}").stat().st_size > 5_000
