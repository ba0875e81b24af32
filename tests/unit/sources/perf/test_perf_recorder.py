from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from overnight.sources import perf
from overnight.sources.perf import perf_recorder

if TYPE_CHECKING:
    import pytest

# Before 5.9 perf does not know --control and exits with the status for a usage error.
OLD_PERF = """\
#!/bin/sh
for word; do
  case $word in
    --control=*) exit 129 ;;
    --output=*) output=${word#--output=} ;;
  esac
done
head -c 4096 /dev/zero > "$output"
exec sleep 60
"""


def test_an_old_perf_is_restarted_for_returning_cores(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = tmp_path / "perf"
    binary.write_text(OLD_PERF)
    binary.chmod(0o755)
    monkeypatch.setattr(perf_recorder.command, "find_perf", lambda: str(binary))
    online = [(0, 1)]
    recorder = perf_recorder.PerfRecorder(
        perf.Identity("host", "0" * 32), frequency=97, online=lambda: online[0]
    )
    recorder.start(tmp_path)
    try:
        for cores in ((0,), (0, 1)):
            online[0] = cores
            assert recorder.follow_cores() == ""
        assert recorder.alive
    finally:
        gaps = [gap.why for gap in recorder.stop().gaps]
    assert gaps == ["core 1 was off-line", "perf was restarted to sample core 1"]
