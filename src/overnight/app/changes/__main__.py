"""Make or undo a built-in change, for the agent.

    python -m overnight.app.changes HOME apply TASK BUILTIN [WORD…]
    python -m overnight.app.changes HOME undo TASK

Prints what was done, or why not.
"""

from __future__ import annotations

import pathlib
import sys

from overnight import errors
from overnight.app import changes
from overnight.model import host_changes


def main(words: list[str]) -> int:
    home, action, task, *rest = words
    try:
        if action == "undo":
            says = changes.undo(task)
        else:
            change = host_changes.parse(rest[0], " ".join(rest[1:]))
            says = changes.apply(task, change, pathlib.Path(home))
    except errors.OvernightError as error:
        sys.stdout.write(f"{error.what}: {error.why}; {error.todo}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stdout.write("interrupted; nothing of it is left\n")
        return errors.ExitCode.INTERRUPTED
    sys.stdout.write(f"{says}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
