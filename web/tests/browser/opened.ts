/** Pages that are opened on a question: its window, its baseline, its filters, its table. */
import assert from "node:assert/strict";
import { join } from "node:path";
import type { Page } from "playwright-core";
import type { Opening } from "../../src/data/night";
import { BEGIN_US, INCIDENT, night, PINNED } from "../nights";
import type { Bench, Look } from "./page";

const at = (second: number) => BEGIN_US + second * 1e6;
const state = (page: Page) => page.evaluate(() => window.overnight.state());
const part = (from: number, to: number) => ({ begin_us: at(from), end_us: at(to) });
const PLAIN: Opening = {
  window: null, baseline: null, map: "cores", measure: "busy", top: "functions", rank: "self", limit: 20, tables_first: false, callers: false, idle: false,
  process: "", thread: "", unit: "", cores: "",
};
const LOOKS: Look[] = [{ width: 1400, height: 900, scheme: "dark" }, { width: 1000, height: 700, scheme: "light" }];

export async function opened(bench: Bench, folder: string): Promise<void> {
  const open = (name: string, opening: Partial<Opening>, act: (page: Page) => Promise<void>) => {
    const address = bench.address(name, night(INCIDENT, { ...PLAIN, ...opening }));
    return Promise.all(LOOKS.map((look) => bench.visit(address, look, async (page) => {
      await act(page);
      await page.screenshot({ path: join(folder, `${name}-${look.width}-${look.scheme}.png`), fullPage: true });
    })));
  };
  await open("opened-1-nothing", {}, async (page) => {
    assert.equal((await state(page)).selection, null);
    assert(await page.locator("#hint").isVisible());
  });
  await open("opened-5-subsecond", { map: "subsecond", measure: "kernel" }, async (page) => {
    assert(await page.locator("input[value=subsecond]").isChecked());
    assert(await page.locator("input[value=kernel]").isDisabled());
    await page.waitForFunction(() => /of all cores busy/.test(document.querySelector("#legend-text")?.textContent ?? ""));
  });
  await open("opened-6-kernel", { measure: "kernel" }, async (page) => {
    await page.waitForFunction(() => /in the kernel/.test(document.querySelector("#legend-text")?.textContent ?? ""));
  });
  await open("opened-2-compared", { window: part(372, 378), baseline: part(200, 300), rank: "total", limit: 25 }, compared);
  await open("opened-3-top", { window: part(372, 378), top: "processes", rank: "total", limit: 3, tables_first: true }, top);
  await open("opened-4-filtered", { window: part(300, 400), process: "^kube", cores: "0-11", callers: true, idle: true }, filtered);
}

async function compared(page: Page): Promise<void> {
  const found = await state(page);
  assert.deepEqual([found.selection?.beginUs, found.baseline?.endUs], [at(372), at(300)]);
  assert.equal(await page.locator("#flame-title").textContent(), "Comparison");
  assert(found.differences.some(({ name, low }) => name === PINNED && low > 0), "the pinned function is not among what grew");
  assert.equal(found.differences.length, 25);
  assert.equal(await page.locator("#differences + .bar [aria-pressed=true]").textContent(), "Rank by total");
}

async function top(page: Page): Promise<void> {
  const cells = () => page.locator("#top tbody tr").evaluateAll((rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent)));
  const rows = await cells();
  assert.equal(rows.length, 3);
  assert.equal(rows[0]?.[0], "python3");
  assert.equal(await page.locator("#kinds [aria-pressed=true]").textContent(), "Processes");
  assert(await page.locator("#top").isVisible());
  const table = await page.locator("#tables").boundingBox();
  const flame = await page.locator("#flame-part").boundingBox();
  assert(table && flame && (table.x < flame.x || table.y < flame.y), "the table does not come first");
  const kubelet = page.locator("#top tbody button", { hasText: "kubelet" });
  await kubelet.click();
  await page.waitForFunction(() => document.querySelectorAll("#top tbody tr").length === 1);
  assert.equal(await page.inputValue("#process"), "kubelet");
  await page.locator("#process").fill("");
  await page.waitForFunction(() => document.querySelectorAll("#top tbody tr").length === 3);
  await page.locator("#kinds button", { hasText: "Units" }).click();
  assert.match(String((await cells())[0]?.[0]), /training/);
  await page.locator("#kinds button", { hasText: "Functions" }).click();
  assert.equal((await cells()).length, 3);
  await page.locator("#kinds button", { hasText: "Processes" }).click();
}

async function filtered(page: Page): Promise<void> {
  const found = await state(page);
  assert.equal(await page.inputValue("#process"), "/^kube/");
  assert.equal(await page.inputValue("#cores"), "0-11");
  assert.equal(await page.locator("#flame-title").textContent(), "Callers");
  assert(await page.locator("#callers").isChecked());
  assert(await page.locator("#idle").isChecked());
  assert(found.samples > 0 && found.functions.includes(PINNED), "the filtered window is empty");
  await page.locator("#process").fill("");
  await page.waitForFunction((before) => window.overnight.state().samples > before, found.samples);
}
