def fold(
    root: memoryview,
    stack: memoryview,
    end: memoryview,
    frames: memoryview,
    flags: memoryview,
) -> tuple[bytes, bytes, bytes, bytes, bytes]: ...
def pair(
    process: memoryview, task: memoryview, stack: memoryview, processes: int, stacks: int
) -> tuple[bytes, bytes]: ...
