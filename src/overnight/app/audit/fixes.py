"""The fix as text: a preset file, shell, Packer or cloud-init."""

from __future__ import annotations

import enum
import json
import shlex

from overnight.model.audit import Report, Risk
from overnight.model.text import printable
from overnight.sources.image import units as unit_files

PRESET = "/etc/systemd/system-preset/00-overnight.preset"


class Form(enum.StrEnum):
    PRESET = "preset"
    SHELL = "shell"
    PACKER = "packer"
    CLOUD_INIT = "cloud-init"


def write_fix(report: Report, form: Form) -> str:
    """Return text that disables and masks units; findings to fix by hand become comments."""
    writers = {
        Form.PRESET: preset_text,
        Form.SHELL: _shell,
        Form.PACKER: _packer,
        Form.CLOUD_INIT: _cloud_init,
    }
    return writers[form](report, report.to_turn_off)


def preset_text(report: Report, units: tuple[str, ...]) -> str:
    """Return a preset file; its name sorts before the vendors', and the first match wins."""
    lines = [f"# {PRESET}: written by overnight audit"]
    for unit in units:
        lines += [f"# {reason}" for reason in _reasons(report, unit)]
        lines.append(f"disable {unit}")
    return "\n".join(lines) + "\n"


def describe_unmaskable(report: Report) -> tuple[str, ...]:
    """Return why units are disabled but not masked."""
    return tuple(
        f"{unit} is disabled but not masked, because {unit_files.CONFIG}/{unit} is a regular file"
        for unit in report.unmaskable
    )


def _commands(report: Report, units: tuple[str, ...]) -> list[str]:
    return [
        f"systemctl {verb} -- {shlex.quote(unit)}" for unit in units for verb in report.verbs(unit)
    ]


def _shell(report: Report, units: tuple[str, ...]) -> str:
    lines = ["#!/bin/sh", "set -eu"]
    for unit in units:
        lines += [f"# {reason}" for reason in _reasons(report, unit)]
        lines += _commands(report, (unit,))
    lines += _remarks(report, units)
    return "\n".join(lines) + "\n"


def _packer(report: Report, units: tuple[str, ...]) -> str:
    lines = [*_remarks(report, units), 'provisioner "shell" {', "  inline = ["]
    # HCL takes JSON's quotes, but for its own templates.
    for command in _commands(report, units):
        quoted = json.dumps(f"sudo {command}").replace("${", "$${").replace("%{", "%%{")
        lines.append(f"    {quoted},")
    return "\n".join([*lines, "  ]", "}"]) + "\n"


def _cloud_init(report: Report, units: tuple[str, ...]) -> str:
    # bootcmd runs before the units of multi-user.target are started; runcmd would come too late.
    lines = ["#cloud-config", *_remarks(report, units), "bootcmd:"]
    for unit in units:
        lines += [f"  - [systemctl, {verb}, --now, --, {json.dumps(unit)}]" for verb in report.verbs(unit)]  # fmt: skip
    return "\n".join(lines if units else [*lines[:-1], "bootcmd: []"]) + "\n"


def _reasons(report: Report, unit: str) -> list[str]:
    return [
        printable(f"{finding.unit}: {finding.what}")
        for finding in report.findings
        if finding.unit == unit and finding.turn_off
    ]


def _remarks(report: Report, units: tuple[str, ...]) -> list[str]:
    # Names in an image are its author's; escaped, they cannot end the comment.
    by_hand = [
        f"{finding.unit}: {finding.what}: {finding.fix}"
        for finding in report.findings
        if not finding.turn_off and finding.unit not in units and finding.risk is not Risk.LOW
    ]
    return [printable(f"# by hand: {text}") for text in (*describe_unmaskable(report), *by_hand)]
