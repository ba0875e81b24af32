"""The flight recorder's ring: what each look saw, for days, in a bounded place.

Standard library only, for the host's agent writes it. docs/decisions/0014 has the reasons and figures.

    HOME/signals/HOST/
        <µs>-<boot>.ring     finished blocks, an hour in a file; append-only
        <µs>-<boot>.open     the block being written: each look is appended as it comes
        events-<month>.jsonl events, the last word on each id counts
        gaps.jsonl           when nothing was recorded, and why
        pins/<id>.json       windows to keep: begin, end, why
        host                 the host's name, as it is

`writer.Writer` writes, `reader.Reader` reads, also while it is written, `check.check` verifies.
Integers are stored as they were read, to 64 bits; rates and shares are derived on read.

What is lost: after kill -9 or a full disk at most the look that was being written; after a power cut
at most the open blocks (10 minutes, as a rule the last 30 s), for a block is synced before the looks
it was made of are deleted, and looks are left to the kernel to write.
"""
