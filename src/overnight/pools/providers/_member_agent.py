"""The agent of a member: enrols, reports that it is ready, and sends heartbeats. Run as a script.

`python -I -S _member_agent.py FOLDER`; it imports nothing of overnight, so that it starts quickly. Restarted
in the same folder it continues as the same member.
"""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import secrets
import signal
import sys
import time
import urllib.parse

BEAT_SECONDS = 15.0
RETRY_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
DONE, REFUSED, RETRY = "done", "refused", "retry"


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


def main(folder: pathlib.Path) -> None:
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
    ask_until_done(endpoint, "/v1/phase", {"phase": "ready"}, credential)
    while True:
        time.sleep(BEAT_SECONDS)
        outcome, answer = ask(endpoint, "/v1/beat", {}, credential)
        if outcome == REFUSED or answer.get("gone"):
            return


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
