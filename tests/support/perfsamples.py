"""The samples of a perf.data file, for tests of recordings."""

from __future__ import annotations

import dataclasses
import pathlib
import struct

from overnight.sources.perf import perfdata


@dataclasses.dataclass(frozen=True)
class Samples:
    time: tuple[int, ...]
    cpu: tuple[int, ...]
    pid: tuple[int, ...]
    tid: tuple[int, ...]
    thread: tuple[str, ...]
    lost: int
    finished: bool

    def __len__(self) -> int:
        return len(self.time)


def read_samples(path: pathlib.Path) -> Samples:
    with perfdata.open_perfdata(path) as file:
        columns, tasks, _, _, strings, *_, lost = file.decode()
        finished = file.finished
    count, task_count = len(columns[1]) // 4, len(tasks[0]) // 4
    task = struct.unpack(f"<{count}I", columns[2])
    pid, tid = (struct.unpack(f"<{task_count}i", column) for column in tasks[:2])
    names = [
        strings[i].decode(errors="replace") for i in struct.unpack(f"<{task_count}I", tasks[2])
    ]
    return Samples(
        time=struct.unpack(f"<{count}Q", columns[0]),
        cpu=struct.unpack(f"<{count}i", columns[1]),
        pid=tuple(pid[i] for i in task),
        tid=tuple(tid[i] for i in task),
        thread=tuple(names[i] for i in task),
        lost=lost,
        finished=finished,
    )
