/**
 * What overnight made of questions about a real recording, opened in a browser.
 * Usage: vite-node tests/browser/asked.ts FOLDER FUNCTION PROCESS SHOTS
 * FOLDER holds diff.html, top.html, heatmap.svg, offset.svg and diff.svg; FUNCTION is new in the window and ran in PROCESS.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { Bench, type Look } from "./page";

const given = process.argv.slice(2); // vite-node leaves its own words out
const [folder, name, who, shots] = given as [string, string, string, string];
const LOOKS: Look[] = [{ width: 1400, height: 900, scheme: "light" }, { width: 1400, height: 900, scheme: "dark" }];
const page = (file: string) => pathToFileURL(join(folder, file)).href;

const bench = await Bench.open();
try {
  for (const look of LOOKS) {
    await bench.visit(page("diff.html"), look, async (opened) => {
      const found = await opened.evaluate(() => window.overnight.state());
      assert(found.selection && found.baseline, "nothing is compared");
      const change = found.differences.find((difference) => difference.name === name);
      assert(change && change.low > 0, `${name} is not among what grew`);
      await opened.screenshot({ path: join(shots, `asked-diff-${look.scheme}.png`), fullPage: true });
    });
    await bench.visit(page("top.html"), look, async (opened) => {
      const names = await opened.locator("#top tbody td:first-child").allTextContents();
      assert(names.includes(who), `${who} is not among ${names.join(", ")}`);
      assert.equal(await opened.locator("#kinds [aria-pressed=true]").textContent(), "Processes");
      await opened.screenshot({ path: join(shots, `asked-top-${look.scheme}.png`), fullPage: true });
    });
    for (const picture of ["heatmap", "offset", "diff"]) {
      const size = await bench.picture(join(folder, `${picture}.svg`), look, join(shots, `asked-${picture}-svg-${look.scheme}.png`));
      assert(size.width >= 700 && size.height >= 80, `${picture}.svg is drawn ${size.width} x ${size.height}`);
      assert.equal(size.dark, look.scheme === "dark", `${picture}.svg does not follow the scheme`);
    }
  }
  console.log("ok  asked");
} finally {
  await bench.close();
}
