/** The page and the pictures of overnight colour kernel and user code alike: both read one table. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { frameColour } from "../../src/views/colours";

const table = JSON.parse(readFileSync(new URL("../frame_colours.json", import.meta.url), "utf-8")) as [
  "user" | "kernel" | "process", string, string, string,
][];

function hex(css: string): string {
  return `#${(css.match(/\d+/g) ?? []).map((part) => Number(part).toString(16).padStart(2, "0")).join("")}`;
}

test("frames have the colours of the table", () => {
  expect(table.map(([kind, module, name]) => hex(frameColour(kind, module, name, false)))).toEqual(table.map((row) => row[3]));
});
