// Opens a view in a real Chromium: node page.mjs PLAYWRIGHT FILE BEGIN_US END_US; prints JSON, times in ms.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [playwright, file, begin, end] = process.argv.slice(2);
const { chromium } = createRequire(playwright + "/")("playwright-core");
const OPENINGS = 5;
const SELECTIONS = 9;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const painted = [], read = [], selected = [];
let rows = 0, pinned = [];
try {
  for (let i = 0; i < OPENINGS; i++) {
    const context = await browser.newContext({ viewport: { width: 1400, height: 900 } });
    const page = await context.newPage();
    await page.goto(pathToFileURL(file).href);
    await page.evaluate(() => window.overnight.ready);
    const times = await page.evaluate(() => ["overview-drawn", "rows-read"].map((name) => performance.getEntriesByName(name)[0]?.startTime ?? Infinity));
    painted.push(times[0]);
    read.push(times[1]);
    if (i === OPENINGS - 1) {
      for (let j = 0; j < SELECTIONS; j++) {
        const state = await page.evaluate(([a, b]) => {
          window.overnight.select(a, b);
          return window.overnight.state();
        }, [Number(begin) + j * 1000, Number(end) + j * 1000]);
        selected.push(state.milliseconds);
        rows = state.rows;
        pinned = state.pinned;
      }
    }
    await context.close();
  }
} finally {
  await browser.close();
}
const median = (times) => [...times].sort((a, b) => a - b)[times.length >> 1];
console.log(JSON.stringify({ painted: median(painted), read: median(read), selected: median(selected), rows, pinned }));
