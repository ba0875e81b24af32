"""Write docs/schemas/plan-1.json and the table of keys in docs/investigations.md from the types of a plan."""

from __future__ import annotations

import json
import pathlib

from overnight.investigations import plan_file

DOCS = pathlib.Path(__file__).parents[1] / "docs"
HEAD = "| key | default | meaning |\n|---|---|---|\n"


def main() -> None:
    schema = json.dumps(plan_file.schema(), indent=2)
    (DOCS / "schemas/plan-1.json").write_text(schema + "\n")
    page = DOCS / "investigations.md"
    before, _, after = page.read_text().partition(HEAD)
    rows = "".join(
        f"| `{key}` | {default} | {about} |\n" for key, default, about in plan_file.list_keys()
    )
    page.write_text(before + HEAD + rows + after[after.index("\n\n") + 1 :])


if __name__ == "__main__":
    main()
