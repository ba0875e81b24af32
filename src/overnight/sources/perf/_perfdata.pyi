from collections.abc import Callable

from overnight.sources.perf.decode import Decoded

def decode(
    stream: memoryview,
    sample_type: int,
    read_format: int,
    sample_id_all: bool,
    build_ids: bool,
    ids: bytes,
    events: bytes,
    forget: Callable[[int], None] | None = None,
) -> Decoded: ...
