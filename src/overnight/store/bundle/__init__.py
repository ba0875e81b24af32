"""Evidence bundles: what is known around one event, in one file that another machine can open.

    bundle.json          first, not packed: format, version, who wrote it and when, hosts, event, windows,
                         and the checksum of the manifest
    manifest.json        size and SHA-256 of every other member
    home/signals/…       a small ring: the windows in full, the census and the facts of all stored time
    home/profiles/…      the segments that overlap the windows, whole
    home/snapshots/…     the newest before the event and the first after it
    home/loads/…         loads that ran in the windows, whole

`home` is a data home: every question works on an opened bundle as on the host. The
file is a zip of one strict form (`archive`), so that each byte of it is accounted for. docs/bundles.md
describes it for other tools.
"""
