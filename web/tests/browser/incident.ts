/** The small incident, driven as a person would: drag, compare, search, filter, keys. */
import assert from "node:assert/strict";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { BEGIN_US, INCIDENT, night, PINNED } from "../nights";
import { drag, type Bench, type Look } from "./page";

const at = (second: number) => BEGIN_US + second * 1e6;
const state = (page: Page) => page.evaluate(() => window.overnight.state());
const LOOKS: Look[] = [
  { width: 1400, height: 900, scheme: "dark" },
  { width: 1400, height: 900, scheme: "light" },
  { width: 1000, height: 700, scheme: "dark" },
  { width: 1000, height: 700, scheme: "light" },
];

export async function incident(bench: Bench, folder: string): Promise<void> {
  const address = bench.address("incident", night(INCIDENT));
  for (const look of LOOKS) await bench.visit(address, look, (page) => pictures(page, look, folder));
  await bench.visit(address, LOOKS[0] as Look, walk);
  for (const look of LOOKS.slice(1, 3)) await bench.visit(address, look, (page) => oddities(page, look, folder));
}

async function oddities(page: Page, look: Look, folder: string): Promise<void> {
  const shot = (name: string) => page.screenshot({ path: join(folder, `incident-${name}-${look.width}-${look.scheme}.png`) });
  await page.evaluate(([begin, end]) => window.overnight.select(begin as number, end as number), [at(300), at(400)]);
  await page.locator("#callers").check();
  await page.locator("label", { hasText: "Flame" }).last().click();
  await page.evaluate(() => document.querySelector("#flame-part")?.scrollIntoView());
  const flame = await page.locator("#flame").boundingBox();
  assert(flame, "there is no flame graph");
  await page.mouse.move(flame.x + 60, flame.y + flame.height - 27);
  await shot("6-callers");
  await page.locator("#callers").uncheck();
  await page.locator("label", { hasText: "Icicle" }).click();
  await page.locator("#process").fill("xxxxx");
  await page.waitForFunction(() => window.overnight.state().functions[0]?.startsWith("xxxxx"));
  const whole = await page.locator("#flame").boundingBox();
  assert(whole, "there is no flame graph");
  await page.mouse.move(whole.x + 200, whole.y + 27);
  await page.waitForSelector("#tooltip:not([hidden])");
  assert.equal(((await page.locator("#tooltip b").textContent()) ?? "").length, 8192, "the tooltip does not hold the whole name");
  await shot("7-hostile");
  await page.locator("#process").fill("");
  await page.mouse.move(5, 5);
  await page.locator("h2", { hasText: "Flame graph" }).click();
  await page.keyboard.press("?");
  await shot("8-help");
}

async function pictures(page: Page, look: Look, folder: string): Promise<void> {
  const shot = (name: string) => page.screenshot({ path: join(folder, `incident-${name}-${look.width}-${look.scheme}.png`) });
  await shot("1-opened");
  await drag(page, { from: at(366), to: at(380) });
  const selected = await state(page);
  assert(selected.selection && Math.abs(selected.selection.beginUs - at(366)) <= 1.5e6, "the drag selected another window");
  assert(selected.functions.includes(PINNED), "the flame graph lacks the pinned function");
  assert(selected.idleHidden > 0, "idle samples were not hidden");
  await page.mouse.move(look.width * 0.3, 10);
  await shot("2-selected");
  await drag(page, { from: at(200), to: at(300), key: "Control" });
  const compared = await state(page);
  assert.equal(compared.differences[0]?.name, PINNED, "the pinned function is not first");
  assert((compared.differences[0]?.low ?? 0) > 0, "its interval holds zero");
  const first = await page.locator("#differences tbody tr:first-child td:first-child").textContent();
  assert.equal(first, PINNED, "the table on the page has something else first");
  await shot("3-compared");
  await page.locator("#search").fill("mem_cgroup.*iter|futex");
  await page.waitForFunction(() => window.overnight.state().painted > 0);
  await shot("4-searched");
  await page.locator("#clear").click();
  await page.locator("label", { hasText: "Sub-second" }).click();
  await page.locator("#search").fill(PINNED);
  await page.waitForFunction(() => document.querySelector("#search-says")?.textContent?.startsWith("1 function"));
  await drag(page, { from: at(371), to: at(379), top: 0.3, bottom: 0.7 });
  await shot("5-subsecond");
  const sub = await state(page);
  assert(sub.painted > 100 && sub.functions.includes(PINNED), "the sub-second view does not show the pinned core");
}

async function walk(page: Page): Promise<void> {
  await page.evaluate(() => window.overnight.search("mem_cgroup_iter"));
  const found = await state(page);
  assert.equal(found.selection, null);
  assert(found.painted >= 6 && found.painted <= 8, `6 s of one core were painted as ${found.painted} cells`);

  await page.locator("#search").fill("(");
  await page.waitForFunction(() => document.querySelector("#search-says.bad") !== null);
  assert.match((await page.locator("#search-says").textContent()) ?? "", /Invalid regular expression/);
  await page.locator("#search").fill("(x+x+)+y");
  await page.waitForFunction(() => /takes too long/.test(document.querySelector("#search-says")?.textContent ?? ""), null, { timeout: 9000 });
  await page.locator("#search").fill("");

  await drag(page, { from: at(372), to: at(378), top: (11 + 0.5) / 16, bottom: (11 + 0.6) / 16, key: "Alt" });
  const one = await state(page);
  assert.deepEqual(one.selection?.cores, [11], "Alt-drag did not select the core");
  assert.equal(one.top[0]?.name, PINNED);

  await page.locator("#map-over").focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Shift+ArrowRight");
  assert.deepEqual((await state(page)).selection, one.selection, "keys changed the window before Enter");
  await page.keyboard.press("Enter");
  const moved = await state(page);
  assert.equal(moved.selection?.beginUs, (one.selection?.beginUs ?? 0) + 1e6);
  assert.equal(moved.selection?.endUs, (one.selection?.endUs ?? 0) + 2e6);

  await page.evaluate(([begin, end]) => window.overnight.select(begin as number, end as number), [at(300), at(400)]);
  const before = (await state(page)).samples;
  await page.locator("#process").fill("kubelet");
  await page.waitForFunction((samples) => window.overnight.state().samples < samples, before);
  assert((await state(page)).painted > 0, "a filter paints no cells");
  await page.locator("#process").fill("");
  await page.waitForFunction((samples) => window.overnight.state().samples === samples, before);

  const flame = await page.locator("#flame").boundingBox();
  assert(flame, "there is no flame graph");
  await page.mouse.move(flame.x + 40, flame.y + 27);
  const told = (await page.locator("#tooltip").textContent()) ?? "";
  for (const share of ["samples", "share of selected samples", "share of capacity", "cores used"]) assert(told.includes(share), `the tooltip lacks ${share}`);
  const map = await page.locator("#map-over").boundingBox();
  assert(map, "there is no heatmap");
  await page.mouse.move(map.x + map.width / 2, map.y + map.height / 2);
  await page.mouse.wheel(0, -240);
  await page.waitForFunction(() => window.overnight.state().view.endUs - window.overnight.state().view.beginUs < 500e6);
  await page.locator("#map-over").focus();
  await page.keyboard.press("0");
  await page.waitForFunction(() => window.overnight.state().view.endUs - window.overnight.state().view.beginUs === 600e6);

  const reached = new Set<string>();
  await page.locator("#help-open").focus();
  for (let i = 0; i < 70; i++) {
    await page.keyboard.press("Tab");
    reached.add(await page.evaluate(() => document.activeElement?.id ?? ""));
  }
  for (const id of ["search", "process", "thread", "unit", "cores", "map-over", "callers", "idle", "clear", "flame", "zoom-in", "by-core"]) {
    assert(reached.has(id), `Tab does not reach #${id}`);
  }

  await page.locator("#flame").focus();
  for (const key of ["ArrowDown", "ArrowDown", "ArrowDown", "Enter"]) await page.keyboard.press(key);
  assert(await page.locator("#flame-out").isEnabled(), "Enter did not zoom");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Backspace");
  assert(await page.locator("#flame-out").isDisabled(), "Escape and Backspace did not zoom out");
  await page.locator("#callers").check();
  await page.locator("#idle").check();
  assert.equal((await state(page)).idleHidden, 0);
  await page.keyboard.press("?");
  assert(await page.locator("#help").isVisible());
  await page.keyboard.press("Escape");
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "search");
  assert.equal(await page.locator("#tables tbody tr").count(), 20);
  assert.match(await page.title(), /^The night/, "a hostile name ran as a script");
  assert.equal(await page.locator("img, body b script").count(), 0);
}
