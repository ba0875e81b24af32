"""The flight recorder's ring: the readings of all signals, for days, in bounded space.

Standard library only, because the agent writes it. docs/decisions/0014 has reasons and measurements.

    HOME/signals/HOST/
        <µs>-<boot>.ring     finished blocks, an hour in a file; append-only
        <µs>-<boot>.open     the block being written: each reading is appended as it comes
        events-<month>.jsonl events; the last line of each id counts
        gaps.jsonl           when nothing was recorded, and why
        pins/<id>.json       windows to keep: begin, end, why
        host                 the host's name

`writer.Writer` writes, `reader.Reader` reads, also during writing, `check.check` verifies. Integers are
stored as they were read, in 64 bits; rates and shares are derived on read.

After kill -9 or a full disk, at most the reading being written is lost. After a power cut, at most the
open blocks are lost (10 minutes, usually the last 30 s): a block is synced before the readings it was
made of are deleted; readings themselves are written back by the kernel.
"""
