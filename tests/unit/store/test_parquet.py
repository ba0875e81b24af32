"""Any text is read back from Parquet unchanged."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from overnight.store import parquet


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [""],
        ["", ""],
        ["main", "", "std::map<int, char>::find", "naïve 名 🌙", "x" * 100_000],
        ["ends in a zero\0", "\0", "a\0b"],
        ["\x01", "\x02\x01", "a\x1fb", "\n\t"],
        ["".join(map(chr, range(1, 32))), "all that could stand between"],
    ],
)
def test_texts_come_back(tmp_path: pathlib.Path, texts: list[str]) -> None:
    path = tmp_path / "texts.parquet"
    numbers = np.arange(len(texts), dtype=np.uint32)
    parquet.write(
        path, {"number": numbers, "text": parquet.texts(texts), "again": parquet.texts(texts)}
    )
    columns = parquet.read(path, ("number", "text", "again"))
    assert columns["number"].tolist() == numbers.tolist()
    assert columns["text"].tolist() == columns["again"].tolist() == texts


def test_half_a_surrogate_pair_becomes_a_question_mark(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "texts.parquet"
    parquet.write(path, {"text": parquet.texts(["a\ud800b"])})
    assert parquet.read(path, ("text",))["text"].tolist() == ["a?b"]
