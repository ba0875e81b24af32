/** A whole night of 96 cores and 3 million rows: it opens and answers; how fast is printed, and judged by `make bench`. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { BEGIN_US, FULL_NIGHT, MANY_CORES, night, PINNED } from "../nights";
import { drag, type Bench, type Look } from "./page";

const LOOK: Look = { width: 1400, height: 900, scheme: "dark" };
const listed = (times: number[]) => times.map((ms) => ms.toFixed(0)).join(", ");
const at = (second: number) => BEGIN_US + second * 1e6;

export async function fullNight(bench: Bench, folder: string): Promise<void> {
  const address = bench.address("night", night(FULL_NIGHT));
  await bench.visit(address, LOOK, async (page) => {
    const [drawn, read] = await page.evaluate(() => ["overview-drawn", "rows-read"].map((name) => performance.getEntriesByName(name)[0]?.startTime ?? Infinity));
    console.log(`    heatmap drawn after ${listed([drawn as number])} ms, all rows read after ${listed([read as number])} ms`);
    await page.screenshot({ path: join(folder, "night-1-opened-1400-dark.png") });
    await page.locator("label", { hasText: "Kernel" }).click();
    await page.screenshot({ path: join(folder, "night-2-kernel-1400-dark.png") });
    await page.locator("#places button").first().click();
    const pinned = await page.evaluate(() => window.overnight.state());
    assert.equal(pinned.top[0]?.name, PINNED);
    await page.waitForTimeout(100);
    await drag(page, { from: at(20830), to: at(20885) });
    const took: number[] = [];
    for (let i = 0; i < 2; i++) {
      const one = await page.evaluate(([begin, end]) => {
        window.overnight.select(begin as number, end as number);
        return window.overnight.state();
      }, [at(20830), at(20884)]);
      assert(one.rows > 490_000 && one.rows < 520_000, `${one.rows} rows`);
      took.push(one.milliseconds);
    }
    console.log(`    500 k rows selected in ${listed(took)} ms`);
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
