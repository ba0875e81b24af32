from __future__ import annotations

import pathlib

import pytest

from overnight.sources import kernel


@pytest.mark.parametrize(
    ("text", "level"), [("-1\n", -1), ("4\n", 4), ("what\n", None), (None, None)]
)
def test_paranoid(tmp_path: pathlib.Path, text: str | None, level: int | None) -> None:
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    if text is not None:
        (tmp_path / "proc/sys/kernel/perf_event_paranoid").write_text(text)
    assert kernel.read_paranoid(tmp_path) == level


def test_hidden_kernel_symbols_are_all_zeros(tmp_path: pathlib.Path) -> None:
    (tmp_path / "proc").mkdir()
    symbols = tmp_path / "proc/kallsyms"
    assert not kernel.read_kallsyms_visible(tmp_path)
    symbols.write_text("0000000000000000 T _text\n" * 500)
    assert not kernel.read_kallsyms_visible(tmp_path)
    symbols.write_text("0000000000000000 A fixed\nffffffff81000000 T _text\n")
    assert kernel.read_kallsyms_visible(tmp_path)


def test_release_of_this_host() -> None:
    assert kernel.read_release()[0].isdigit()
