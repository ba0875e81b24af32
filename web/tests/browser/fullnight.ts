/** A whole night of 96 cores and 3 million rows: how fast it opens and answers. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { BEGIN_US, FULL_NIGHT, MANY_CORES, night, PINNED } from "../nights";
import { drag, type Bench } from "./page";

const MOST_FIRST_PAINT_MS = 1000;
const MOST_SELECTION_MS = 100;
const at = (second: number) => BEGIN_US + second * 1e6;

export async function fullNight(bench: Bench, folder: string): Promise<void> {
  const address = bench.address("night", night(FULL_NIGHT));
  await bench.visit(address, { width: 1400, height: 900, scheme: "dark" }, async (page) => {
    const times = await page.evaluate(() => ({
      overview: performance.getEntriesByName("overview-drawn")[0]?.startTime ?? Infinity,
      rows: performance.getEntriesByName("rows-read")[0]?.startTime ?? Infinity,
      paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Infinity,
    }));
    console.log(`    heatmap drawn ${times.overview.toFixed(0)} ms, first contentful paint ${times.paint.toFixed(0)} ms, all rows read ${times.rows.toFixed(0)} ms`);
    await page.screenshot({ path: join(folder, "night-1-opened-1400-dark.png") });
    await page.locator("label", { hasText: "Kernel" }).click();
    await page.screenshot({ path: join(folder, "night-2-kernel-1400-dark.png") });
    await page.locator("#places button").first().click();
    const pinned = await page.evaluate(() => window.overnight.state());
    assert.equal(pinned.top[0]?.name, PINNED);
    await page.waitForTimeout(100);
    await drag(page, { from: at(20830), to: at(20885) });
    const took: number[] = [];
    for (let i = 0; i < 7; i++) {
      const one = await page.evaluate(([begin, end]) => {
        window.overnight.select(begin as number, end as number);
        return window.overnight.state();
      }, [at(20830), at(20884)]);
      assert(one.rows > 490_000 && one.rows < 520_000, `${one.rows} rows`);
      took.push(one.milliseconds);
    }
    console.log(`    500 k rows selected in ${took.map((ms) => ms.toFixed(0)).join(", ")} ms`);
    await page.screenshot({ path: join(folder, "night-3-selected-1400-dark.png") });
    await drag(page, { from: at(20800), to: at(20825), key: "Control" });
    const compared = await page.evaluate(() => window.overnight.state());
    assert.equal(compared.differences[0]?.name, PINNED);
    await page.screenshot({ path: join(folder, "night-4-compared-1400-dark.png") });
    await page.locator("label", { hasText: "Sub-second" }).click();
    await page.locator("#zoom-out").click();
    await page.locator("#zoom-out").click();
    await page.waitForTimeout(100);
    await page.screenshot({ path: join(folder, "night-5-subsecond-1400-dark.png") });
    const whole = await page.evaluate(([begin, end]) => {
      window.overnight.select(begin as number, end as number);
      return window.overnight.state();
    }, [at(0), at(43200)]);
    console.log(`    whole night: ${whole.rows} rows in ${whole.milliseconds.toFixed(0)} ms`);
    const begun = performance.now();
    await page.evaluate(() => window.overnight.search("matmul"));
    console.log(`    search painted in ${(performance.now() - begun).toFixed(0)} ms`);
    assert(times.overview <= MOST_FIRST_PAINT_MS, "the first paint came late");
    assert(Math.min(...took) <= MOST_SELECTION_MS, "a selection took too long");
  });
}

/** 192 cores: the pinned one is found and shown, on large and small screens. */
export async function manyCores(bench: Bench, folder: string): Promise<void> {
  const address = bench.address("many", night(MANY_CORES));
  for (const look of [{ width: 1400, height: 900, scheme: "light" }, { width: 1000, height: 700, scheme: "dark" }] as const) {
    await bench.visit(address, look, async (page) => {
      const { pinned } = await page.evaluate(() => window.overnight.state());
      assert.deepEqual(pinned, [{ core: 133, beginUs: at(20850), endUs: at(20856) }]);
      await page.screenshot({ path: join(folder, `many-1-opened-${look.width}-${look.scheme}.png`) });
      await page.locator("#places button").first().click();
      await page.waitForTimeout(100);
      await page.screenshot({ path: join(folder, `many-2-zoomed-${look.width}-${look.scheme}.png`) });
    });
  }
}
