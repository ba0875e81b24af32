"""A stored load is read up to its last complete line, however it ended."""

from __future__ import annotations

import json
import pathlib

import pytest

from overnight.model.load import Load
from overnight.store import loads

BEGAN = 1_794_712_000_000_000
VERDICT = {"status": "not constant", "says": "cpu CV 12 %; steal 0 %", "crossed": ["cpu CV 12 %"]}


def write(home: pathlib.Path, seconds: int = 25, *, ended: bool = True, began: int = BEGAN):
    writer = loads.LoadWriter(home, "gpu/17", "cpu", (1, 2), began, {"duty": 0.6, "name": "worker"})
    for n in range(1, seconds + 1):
        writer.second({"us": began + n * 1_000_000, "values": {"cpu": 0.6}})
        if n % 10 == 0:
            writer.verdict(began + n * 1_000_000, VERDICT)
    if ended:
        writer.verdict(
            began + (seconds + 1) * 1_000_000, {**VERDICT, "status": "constant"}, ended=True
        )
    writer.close()
    return writer


def test_a_load_is_read_back(tmp_path: pathlib.Path) -> None:
    writer = write(tmp_path)
    (load,) = loads.read_loads(tmp_path, "gpu/17")
    assert load == Load(
        writer.id, "gpu/17", "cpu", (1, 2), BEGAN, BEGAN + 26_000_000,
        ended=True, running=False, status="constant", says=VERDICT["says"], crossed=("cpu CV 12 %",),
    )  # fmt: skip
    assert len(list(loads.read_seconds(tmp_path, load))) == 25
    assert loads.read_loads(tmp_path) == (load,)


def test_a_load_that_is_running_or_was_cut_off_has_its_last_verdict(tmp_path: pathlib.Path) -> None:
    writer = write(tmp_path, ended=False)
    (load,) = loads.read_loads(tmp_path)
    assert (load.ended, load.running, load.status) == (False, True, "not constant")
    assert load.until_us == BEGAN + 25_000_000
    text = writer.path.read_text()
    dead = json.loads(text.splitlines()[0]) | {"started": "1"}
    writer.path.write_text(json.dumps(dead) + text[text.index("\n") :])
    (load,) = loads.read_loads(tmp_path)
    assert (load.ended, load.running) == (False, False)


def test_a_file_cut_at_any_byte_is_read(tmp_path: pathlib.Path) -> None:
    writer = write(tmp_path, 12)
    whole = writer.path.read_bytes()
    first = whole.index(b"\n")
    for length in range(0, len(whole), 7):
        writer.path.write_bytes(whole[:length])
        stored = loads.read_loads(tmp_path)
        assert len(stored) == (length >= first)
        if stored:
            assert stored[0].until_us <= BEGAN + 13_000_000


@pytest.mark.parametrize(
    "head",
    [b"", b"[]", b"{}", b'{"format":"overnight.load","version":2}', b'{"format":"overnight.load","version":1}', b"\xff\x00"],
)  # fmt: skip
def test_other_files_are_not_loads(tmp_path: pathlib.Path, head: bytes) -> None:
    path = write(tmp_path).path
    path.write_bytes(head + b"\n" + path.read_bytes())
    (path.parent / "other.txt").write_text("x")
    assert loads.read_loads(tmp_path) == ()


def test_loads_are_selected_by_time_and_host(tmp_path: pathlib.Path) -> None:
    write(tmp_path)
    end = BEGAN + 26_000_000
    assert loads.read_loads(tmp_path, "", end + 1, end + 2) == ()
    assert loads.read_loads(tmp_path, "", BEGAN - 2, BEGAN - 1) == ()
    assert len(loads.read_loads(tmp_path, "", end, end + 5)) == 1
    assert len(loads.read_loads(tmp_path, "", BEGAN - 5, BEGAN)) == 1
    assert loads.read_loads(tmp_path, "other") == ()
    assert loads.read_loads(tmp_path / "nothing") == ()


def test_a_copy_is_the_same_load_with_its_texts_cleaned(tmp_path: pathlib.Path) -> None:
    writer = write(tmp_path)
    target = tmp_path / "there"

    def clean(text: str) -> str:
        return text.replace("worker", "(masked)")

    assert loads.copy_loads(tmp_path, target, "gpu/17", BEGAN, BEGAN + 1, clean) == 1
    assert loads.read_loads(target) == loads.read_loads(tmp_path)
    copied = target / writer.path.relative_to(tmp_path)
    assert "worker" not in copied.read_text()
    assert loads.copy_loads(tmp_path, target, "gpu/17", 0, 1, clean) == 0


def test_the_oldest_loads_are_removed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path).path
    monkeypatch.setattr(loads, "MAX_BYTES", first.stat().st_size * 2)
    for n in range(1, 5):
        write(tmp_path, began=BEGAN + n * 60_000_000)
    assert not first.exists()
    assert 2 <= len(loads.read_loads(tmp_path)) <= 3
