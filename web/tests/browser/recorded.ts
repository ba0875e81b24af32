/**
 * A page that overnight made of a real recording, driven with the mouse.
 * Usage: vite-node tests/browser/recorded.ts PAGE FUNCTION BEGIN_US END_US FOLDER
 * FUNCTION ran from BEGIN_US to END_US and at no other time.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { Bench, drag } from "./page";

const given = process.argv.slice(2); // vite-node leaves its own words out
const [path, name, begin, end, folder] = given as [string, string, string, string, string];
const [from, to] = [Number(begin), Number(end)];

const bench = await Bench.open();
try {
  await bench.visit(pathToFileURL(path).href, { width: 1400, height: 900, scheme: "dark" }, async (page) => {
    const state = () => page.evaluate(() => window.overnight.state());
    await page.screenshot({ path: join(folder, "recorded-1-opened.png") });
    await drag(page, { from, to });
    const selected = await state();
    assert(selected.functions.includes(name), `the flame graph lacks ${name}`);
    await page.screenshot({ path: join(folder, "recorded-2-selected.png") });
    const { view } = selected;
    await drag(page, { from: view.beginUs, to: from - 0.2e6, key: "Control" });
    const compared = await state();
    const change = compared.differences.find((difference) => difference.name === name);
    assert(change && change.low > 0, `${name} is not among what grew`);
    await page.screenshot({ path: join(folder, "recorded-3-compared.png") });
    await page.locator("#search").fill(name);
    await page.waitForFunction(() => window.overnight.state().painted > 0);
    await page.screenshot({ path: join(folder, "recorded-4-searched.png") });
  });
  console.log("ok  recorded");
} finally {
  await bench.close();
}
