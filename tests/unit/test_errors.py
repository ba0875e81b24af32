from __future__ import annotations

import errno

import pytest

from overnight import errors


def everyone(root: type[errors.OvernightError]) -> list[type[errors.OvernightError]]:
    return [root, *(found for child in root.__subclasses__() for found in everyone(child))]


def test_kind_is_the_name_for_programs() -> None:
    error = errors.MissingToolError("a", why="b", todo="c")
    assert error.kind == "missing-tool"
    assert error.as_json() == {
        "error": {"kind": "missing-tool", "what": "a", "why": "b", "todo": "c", "exit_code": 3}
    }


def test_a_damaged_file_names_itself_and_the_byte() -> None:
    error = errors.DamagedFileError("/x/perf.data", 104, "a record of 3 bytes")
    assert "/x/perf.data" in error.what
    assert "byte 104" in error.what


@pytest.mark.parametrize("kind", everyone(errors.OvernightError))
def test_every_error_ends_with_a_code_of_the_table(kind: type[errors.OvernightError]) -> None:
    assert kind.exit_code in (errors.ExitCode.USAGE, errors.ExitCode.CANNOT)


def test_errors_of_this_process_are_told_from_those_of_the_host() -> None:
    for name in ("EMFILE", "ENFILE", "ENOMEM", "ENOSPC", "EDQUOT", "EROFS"):
        error = OSError(getattr(errno, name), "failed", "/x")
        assert errors.is_own(error), name
        with pytest.raises(OSError, match="failed"):
            errors.raise_own(error)
        report = errors.own_error(error)
        assert report.exit_code == errors.ExitCode.CANNOT
        assert "/x" in report.what
        assert "failed" in report.why
    for name in ("ENOENT", "EACCES", "EIO", "ESRCH"):
        error = OSError(getattr(errno, name), "failed")
        assert not errors.is_own(error), name
        errors.raise_own(error)
