from overnight.sources.perf.decode import Decoded

def decode(
    stream: memoryview,
    sample_type: int,
    read_format: int,
    sample_id_all: bool,
    ids: bytes,
    events: bytes,
) -> Decoded: ...
