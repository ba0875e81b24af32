"""The agent of a member: enrols, reports that it is ready or has failed, and sends heartbeats. Run as a script.

`python -I -S _member_agent.py FOLDER [ROOT]`; it imports nothing of overnight, so that it starts quickly.
Restarted in the same folder it continues as the same member. With ROOT the member is the whole machine: it is
ready when none of its units has failed and `ROOT/etc/overnight/ready`, if its template has that, exits with 0.
"""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import time
import urllib.parse

BEAT_SECONDS = 15.0
RETRY_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
DONE, REFUSED, RETRY = "done", "refused", "retry"
READY_COMMAND = "etc/overnight/ready"
REASON = re.compile(r"reason=([a-z][a-z0-9_]{0,63})")  # the last line that the command prints
SYSTEMCTL = (
    "systemctl", "list-units", "--all", "--state=failed,auto-restart", "--plain", "--no-legend", "--no-pager",
)  # fmt: skip
SYSTEMCTL_SECONDS = 30
TAIL = 500


def log(text: str) -> None:
    """Write to the member's log."""
    sys.stdout.write(f"{time.time():.3f} {text}\n")
    sys.stdout.flush()


def ask(
    endpoint: str, path: str, body: dict[str, str], credential: str = ""
) -> tuple[str, dict[str, object]]:
    """Send one request; returns whether it was done, refused for good, or must be repeated."""
    where = urllib.parse.urlsplit(endpoint)
    kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
    connection = kind(where.hostname or "", where.port, timeout=10)
    try:
        headers = {"Content-Type": "application/json"}
        if credential:
            headers["Authorization"] = f"Bearer {credential}"
        connection.request("POST", where.path + path, json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read(65536)
        if answer.status == 200:
            return DONE, json.loads(text)
        # 4xx is final, except for "too early" and the like; server errors are not.
        final = 400 <= answer.status < 500 and answer.status not in (408, 425, 429)
        log(f"{path}: {answer.status} {text[:300]!r}")
        return (REFUSED if final else RETRY), {}
    except (OSError, http.client.HTTPException, ValueError) as error:
        log(f"{path}: {error!r}")
        return RETRY, {}
    finally:
        connection.close()


def ask_until_done(
    endpoint: str, path: str, body: dict[str, str], credential: str = ""
) -> dict[str, object]:
    """Repeat a request until it is done; exits when it is refused."""
    tries = 0
    while True:
        outcome, answer = ask(endpoint, path, body, credential)
        if outcome == DONE:
            return answer
        if outcome == REFUSED:
            sys.exit(1)
        time.sleep(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
        tries += 1


def read_credential(folder: pathlib.Path) -> str:
    """Return the member's credential, saved before its first use so that a lost request can be repeated."""
    kept = folder / "credential"
    if not kept.exists():
        partial = folder / "credential.new"
        partial.touch(mode=0o600)
        partial.write_text(secrets.token_hex(32))
        partial.replace(kept)
    return kept.read_text()


def check_units(order: dict[str, object]) -> tuple[str, str]:
    """Return why the units of this machine are not ready: reason and text; no reason: they may still be."""
    if order.get("ignore_failed_units"):
        return "", ""
    try:
        answer = subprocess.run(
            SYSTEMCTL, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
            timeout=SYSTEMCTL_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return "", f"systemctl: {error}"[:TAIL]
    # UNIT LOAD ACTIVE SUB DESCRIPTION; old versions of systemctl begin the line with a bullet.
    units = [line.strip("\u25cf\u00d7* ").split() for line in answer.stdout.splitlines()]
    if failed := [words[0] for words in units if words[2:3] == ["failed"]]:
        return "unit_failed", ", ".join(failed)[:TAIL]
    restarting = ", ".join(words[0] for words in units if words)
    return "", restarting and f"restarting: {restarting}"[:TAIL]


def run_command(command: pathlib.Path, seconds: float) -> tuple[str, str]:
    """Run the readiness command; returns as `check_units` does."""
    try:
        with subprocess.Popen(
            [command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as started:  # fmt: skip
            try:
                output = started.communicate(timeout=seconds)[0].decode(errors="replace")
            except subprocess.TimeoutExpired:
                os.killpg(started.pid, signal.SIGKILL)
                return "", f"{command} has not exited"
    except OSError as error:
        return "readiness_failed", str(error)
    if started.returncode == 0:
        return "", ""
    last = "".join(output.strip().splitlines()[-1:])
    reason = REASON.fullmatch(last)
    return reason[1] if reason else "", f"{command} exited with {started.returncode}: {last}"[:TAIL]


def check(root: pathlib.Path, order: dict[str, object], seconds: float) -> tuple[str, str]:
    """Check the units and run the readiness command; returns as `check_units` does."""
    reason, detail = check_units(order)
    command = root / READY_COMMAND
    if detail or not command.exists():
        return reason, detail
    return run_command(command, seconds)


def wait_until_ready(root: pathlib.Path, order: dict[str, object]) -> dict[str, str]:
    """Check until the machine is ready, has failed, or the time is over; returns the phase to report."""
    deadline = time.monotonic() + float(str(order.get("readiness_timeout_seconds", 300)))
    tries = 0
    while True:
        left = deadline - time.monotonic()
        reason, detail = check(root, order, max(1.0, left))
        if not detail:
            return {"phase": "ready"}
        log(f"not ready: {reason or 'waiting'}, {detail}")
        if reason or left <= 0:
            return {"phase": "failed", "reason": reason or "readiness_timeout", "detail": detail}
        time.sleep(min(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)], left))
        tries += 1


def main(folder: pathlib.Path, root: pathlib.Path | None = None) -> None:
    # Not model.process_identity: this script imports nothing of overnight. Its own name is ASCII.
    began = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    (folder / "agent").write_text(f"{os.getpid()} {began}")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    order = json.loads((folder / "order.json").read_text())
    endpoint = order["endpoint"]
    credential = read_credential(folder)
    if order["token"]:
        ask_until_done(endpoint, "/v1/enrol", {"token": order["token"], "credential": credential})
        # Used, and not for other readers of the folder.
        (folder / "order.json").write_text(json.dumps({**order, "token": ""}))
    phase = {"phase": "ready"}
    checked = folder / "checked"  # after a restart a unit that its user broke does not matter
    if root is not None and not checked.exists():
        phase = wait_until_ready(root, order)
    ask_until_done(endpoint, "/v1/phase", phase, credential)
    if phase["phase"] == "failed":
        return
    checked.touch()
    while True:
        time.sleep(BEAT_SECONDS)
        outcome, answer = ask(endpoint, "/v1/beat", {}, credential)
        if outcome == REFUSED or answer.get("gone"):
            return
        if root is not None and answer.get("state") == "ready":
            reason, detail = check_units(order)
            if reason:
                failed = {"phase": "failed", "reason": reason, "detail": detail}
                ask_until_done(endpoint, "/v1/phase", failed, credential)


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
