from collections.abc import Buffer

def fold(
    root: bytes, stack: bytes, end: bytes, frames: bytes, hashes: bytes, flags: bytes
) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes]: ...
def pair(
    process: Buffer, task: Buffer, stack: Buffer, processes: int, stacks: int
) -> tuple[bytes, bytes]: ...
