from __future__ import annotations

import pathlib

import fakehost
import pytest

from overnight.sources import softnet


def test_a_real_text(captured: pathlib.Path) -> None:
    rows = softnet.open_softnet(captured)()
    for core, line in enumerate((captured / "proc/net/softnet_stat").read_text().splitlines()):
        words = [int(word, 16) for word in line.split()]
        assert rows[str(core)] == (*words[:3], *words[9:11])
    assert rows["0"][2] == 1


@pytest.mark.parametrize("columns", [11, 13, 15])
def test_every_width_the_kernel_has_had(tmp_path: pathlib.Path, columns: int) -> None:
    host = fakehost.FakeHost(tmp_path, 8, offline=(0, 5), softnet_columns=columns)
    rows = softnet.open_softnet(tmp_path)()
    assert rows == {str(core): tuple(host.softnet[core]) for core in (1, 2, 3, 4, 6, 7)}


def test_a_large_host_with_offline_cores(large: fakehost.FakeHost) -> None:
    rows = softnet.open_softnet(large.root)()
    assert list(rows) == [str(core) for core in large.online]


def test_the_core_is_read_from_the_line_if_it_has_one() -> None:
    text = b"00000001 " * 12 + b"00000027 00000000 00000000\n"

    def never() -> list[int]:
        raise AssertionError("the line names its core")

    assert softnet.parse_softnet(text, never) == {"39": (1, 1, 1, 1, 1)}


def test_lines_cut_short_are_an_error_not_wrong_numbers() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        softnet.parse_softnet(b"00000001 00000002 00000003\n00000001 00000002\n", lambda: [0, 1])
    with pytest.raises(ValueError, match="differ in length"):
        softnet.parse_softnet(b"", list)
