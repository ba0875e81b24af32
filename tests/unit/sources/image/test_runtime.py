"""What runs: unit states, results of the boot, modules, taint, listening programs."""

from __future__ import annotations

import json
import pathlib

import pytest

from overnight.sources.image import runtime, tree, unit_states

STAMPS = "ExecMainStartTimestampMonotonic={0}\nActiveEnterTimestampMonotonic={1}\nConditionTimestampMonotonic={2}\n"
# The properties of real units, as `systemctl show` of systemd 252 prints them.
SHOWN = {
    "ssh.service": "Type=notify\nActiveState=active\nSubState=running\nResult=success\nNRestarts=0\nWantedBy=multi-user.target\n"
    + STAMPS.format(7, 8, 6),
    "agent.service": "Type=simple\nActiveState=inactive\nSubState=dead\nResult=success\nNRestarts=0\nWantedBy=multi-user.target\n"
    + STAMPS.format(0, 0, 0),
    "loop.service": "Type=simple\nActiveState=activating\nSubState=auto-restart\nResult=exit-code\nNRestarts=1834\nExecMainStatus=1\n"
    + STAMPS.format(7, 8, 6),
    "ssh.socket": "ActiveState=active\nSubState=listening\nResult=success\n",
    "data.mount": "ActiveState=failed\nSubState=failed\nResult=exit-code\n",
    "root.mount": "ActiveState=active\nSubState=mounted\nResult=success\n",
    "user@0.service": "Type=notify\nActiveState=active\nSubState=running\nResult=success\nNRestarts=0\n",
    "user@7.service": "Type=notify\nActiveState=failed\nSubState=failed\nResult=protocol\nNRestarts=0\n"
    + STAMPS.format(7, 0, 6),
    "cloud-final.service": "Type=oneshot\nActiveState=failed\nSubState=failed\nResult=exit-code\nExecMainStatus=1\nWantedBy=cloud-init.target\n"
    + STAMPS.format(7, 0, 6),
    "setup.service": "Type=oneshot\nActiveState=inactive\nSubState=dead\nResult=success\nRequiredBy=agent.service\n"
    + STAMPS.format(7, 0, 6),
    "late.service": "Type=oneshot\nActiveState=inactive\nSubState=dead\nResult=success\nWantedBy=multi-user.target\n"
    + STAMPS.format(0, 0, 0),
    "seed.service": "Type=oneshot\nActiveState=inactive\nSubState=dead\nResult=success\nWantedBy=sysinit.target\nConditionResult=no\n"
    + STAMPS.format(0, 0, 6),
    "slow.service": "Type=oneshot\nActiveState=activating\nSubState=start\nResult=success\nWantedBy=multi-user.target\n"
    + STAMPS.format(7, 0, 6),
    "daily.service": "Type=oneshot\nActiveState=inactive\nSubState=dead\nResult=success\nNRestarts=0\nWantedBy=x.target\nTriggeredBy=daily.timer\n"
    + STAMPS.format(7, 0, 6),
}


def test_units_that_run_and_steps_of_the_boot() -> None:
    text = "\n".join(f"Id={name}\nLoadState=loaded\n{body}" for name, body in SHOWN.items())
    text += "\nId=gone.service\nLoadState=not-found\nActiveState=failed\nResult=exit-code\n"
    known = {name for name in SHOWN if not name.startswith("user@")} | {"gone.service"}
    running, steps = runtime.parse_units(unit_states.parse_show(text), known)
    brief = {name: " ".join(facts.values()) for name, facts in running.items()}
    assert brief == {
        "agent.service": "inactive success dead 0 never",
        "daily.service": "inactive success dead 0 never",
        "data.mount": "failed exit-code",
        "loop.service": "activating exit-code auto-restart 1834 yes",
        "ssh.service": "active success running 0 yes",
        "ssh.socket": "active success",
        "user@7.service": "failed protocol failed 0 never",
    }
    assert {name: " ".join(facts.values()) for name, facts in steps.items()} == {
        "cloud-final.service": "exit-code 1",
        "late.service": "not run",
        "seed.service": "skipped",
        "setup.service": "success",
        "slow.service": "not finished",
    }


STAGE = {"errors": [], "start": 1794725420.1, "finished": 1794725459.4}
# cloud-init 23: the error of a user-data script that exits with 1.
RUNPARTS = (
    "('scripts_user', RuntimeError('Runparts: 1 failures (part-001) in 1 attempted commands'))"
)


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (STAGE, {"result": "success"}),
        ({**STAGE, "recoverable_errors": {"WARNING": ["x"]}}, {"result": "degraded"}),
        ({**STAGE, "errors": [RUNPARTS, "x"]}, {"result": "failed", "failed modules": "scripts_user", "error": RUNPARTS}),
        ({**STAGE, "errors": ["out of memory\nCommand: x"]}, {"result": "failed", "error": "out of memory"}),
        ({**STAGE, "errors": ["('a', E('failed.\\nCommand: x'))"]}, {"result": "failed", "failed modules": "a", "error": "('a', E('failed."}),
        ({**STAGE, "errors": ["no space " + "x" * 300]}, {"result": "failed", "error": "no space …"}),
        ({**STAGE, "finished": None}, {"result": "not finished"}),
        ({**STAGE, "finished": None, "start": None}, {"result": "not run"}),
    ],
)  # fmt: skip
def test_stages_of_cloud_init(stage: dict[str, object], expected: dict[str, str]) -> None:
    whole = {
        "datasource": "DataSourceEc2Local",
        "stage": None,
        "modules-final": stage,
        "init": "odd",
    }
    parsed = runtime.parse_cloud_init(json.dumps({"v1": whole}))
    assert parsed["cloud-init modules-final"] == expected
    overall = {"degraded": "success", "not run": "not finished"}.get(expected["result"], expected["result"])  # fmt: skip
    assert parsed["cloud-init"] == {"result": overall, "datasource": "DataSourceEc2Local"}
    assert len(parsed) == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"v1": []}', "[" * 100_000])
def test_a_damaged_status_of_cloud_init_is_a_gap(tmp_path: pathlib.Path, text: str) -> None:
    gaps: list[tuple[str, str]] = []
    assert runtime.read_cloud_init(tree.Tree(tmp_path), lambda *gap: gaps.append(gap)) == {}
    assert gaps == []  # a host without cloud-init
    (tmp_path / "var/lib/cloud/data").mkdir(parents=True)
    (tmp_path / "var/lib/cloud/data/status.json").write_text(text)
    assert runtime.read_cloud_init(tree.Tree(tmp_path), lambda *gap: gaps.append(gap)) == {}
    assert [what for what, _ in gaps] == ["/var/lib/cloud/data/status.json"]


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROW = "   0: {}:{:04X} {}:0000 {} 00000000:00000000 00:00000000 00000000     0        0 {} 1 0\n"
SOCKETS = {
    "tcp": [
        ("00000000", 22, "00000000", "0A", 11),
        ("0100007F", 51678, "00000000", "0A", 12),
        ("0100007F", 9001, "00000000", "0A", 13),
        ("0A00000A", 22, "01020304", "01", 14),  # a connection: its peer is not recorded
        ("00000000", 2049, "00000000", "0A", 15),
    ],
    "tcp6": [("0" * 24 + "01000000", 9002, "0" * 32, "0A", 16)],
    "udp": [("00000000", 68, "00000000", "07", 17)],
}


def make_sockets(root: pathlib.Path) -> None:
    for name, rows in SOCKETS.items():
        path = root / "proc/1/net" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + "".join(ROW.format(*row) for row in rows))
    for pid, name, unit, inodes in (
        (7, "sshd", "ssh.service", (11, 14, 17)),
        (8, "agent", "agent.service", (12, 13)),
        (9, "agent", "agent.service", (13, 16)),
    ):
        (root / f"proc/{pid}/fd").mkdir(parents=True)
        (root / f"proc/{pid}/comm").write_text(f"{name}\n")
        (root / f"proc/{pid}/cgroup").write_text(f"0::/system.slice/{unit}\n")
        for number, inode in enumerate(inodes):
            (root / f"proc/{pid}/fd/{number}").symlink_to(f"socket:[{inode}]")


def test_programs_that_listen(tmp_path: pathlib.Path) -> None:
    make_sockets(tmp_path)
    gaps: list[tuple[str, str]] = []
    listening = runtime.read_listening(tree.Tree(tmp_path), lambda *gap: gaps.append(gap))
    assert listening == {
        "(no process)": {"tcp": "2049"},
        "agent": {"tcp loopback": "9001 9002 ephemeral", "unit": "agent.service"},
        "sshd": {"tcp": "22", "udp": "68", "unit": "ssh.service"},
    }
    assert gaps == []
    assert "1020304" not in json.dumps(listening)


def test_programs_of_other_users_are_a_gap(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_sockets(tmp_path)
    read = tree.Tree.entries

    def entries(self: tree.Tree, path: str) -> dict[str, tree.Entry]:
        if path == "/proc/8/fd":
            raise PermissionError(13, "Permission denied")
        return read(self, path)

    monkeypatch.setattr(tree.Tree, "entries", entries)
    gaps: list[tuple[str, str]] = []
    listening = runtime.read_listening(tree.Tree(tmp_path), lambda *gap: gaps.append(gap))
    assert "(no process)" not in listening
    assert gaps == [("listening", "programs of other users are visible to root only")]


def test_every_taint_of_the_kernel_has_a_meaning() -> None:
    letters = "PFSRMBUDAWCIOELKXTNJ"
    assert "".join(runtime.decode_taint((1 << 20) - 1).values()) == letters
    assert runtime.decode_taint(1 << 20) == {"bit 20": "?"}
