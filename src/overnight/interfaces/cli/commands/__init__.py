"""One module per command: `ORDER` is its place in `--help`, `register(cli)` adds it."""
