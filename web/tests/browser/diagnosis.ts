/**
 * Reports of diagnoses, opened in a real browser and printed.
 * Usage: vite-node tests/browser/diagnosis.ts FOLDER SHOTS
 * FOLDER holds *.html; of each, SHOTS gets a picture in light, dark, narrow and as on paper, and a PDF.
 */
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium, type Browser, type Page } from "playwright-core";

const [folder, shots] = process.argv.slice(2) as [string, string]; // vite-node leaves its own words out

interface Look {
  name: string;
  width: number;
  scheme: "light" | "dark";
  media: "screen" | "print";
}

const LOOKS: Look[] = [
  { name: "light", width: 1200, scheme: "light", media: "screen" },
  { name: "dark", width: 1200, scheme: "dark", media: "screen" },
  { name: "narrow", width: 420, scheme: "light", media: "screen" },
  { name: "print", width: 696, scheme: "dark", media: "print" }, // A4 less its margins; paper is light all the same
];

async function visit(browser: Browser, file: string, look: Look): Promise<void> {
  const address = pathToFileURL(join(folder, file)).href;
  const context = await browser.newContext({ viewport: { width: look.width, height: 900 }, colorScheme: look.scheme });
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on("console", (message) => complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => {
    if (request.url() !== address) complaints.push(`asked for ${request.url()}`);
  });
  await page.emulateMedia({ media: look.media, colorScheme: look.scheme });
  await page.goto(address);
  await check(page, look);
  const shot = join(shots, `${basename(file, ".html")}-${look.name}`);
  await page.screenshot({ path: `${shot}.png`, fullPage: true });
  if (look.media === "print") {
    await page.pdf({ path: `${shot}.pdf`, preferCSSPageSize: true });
    const text = readFileSync(`${shot}.pdf`, "latin1");
    const sizes = [...text.matchAll(/\/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]/g)];
    assert(sizes.length >= 1, "the PDF has no pages");
    for (const [, across, down] of sizes) assert(Math.abs(Number(across) - 595) < 2 && Math.abs(Number(down) - 842) < 2, `a page of ${across} x ${down}`);
  } else {
    await useKeyboard(page);
  }
  assert.deepEqual(complaints, [], `${file} complained or asked the network`);
  await context.close();
}

/** What holds for every report, whatever names its host chose. */
async function check(page: Page, look: Look): Promise<void> {
  const seen = await page.evaluate(() => {
    const light = (colour: string) => (colour.match(/\d+/g) ?? []).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) > 384;
    const handlers = [...document.querySelectorAll("*")].filter((one) => [...one.attributes].some((attribute) => attribute.name.startsWith("on")));
    return {
      broken: "broken" in window,
      scripts: document.scripts.length,
      sources: document.querySelectorAll("[src], link, iframe, object, embed, img, form").length,
      handlers: handlers.length,
      ground: light(getComputedStyle(document.documentElement).backgroundColor),
      ink: light(getComputedStyle(document.body).color),
      over: document.documentElement.scrollWidth - document.documentElement.clientWidth,
      unnamed: [...document.querySelectorAll("svg")].filter((one) => !one.querySelector(":scope > title")).length,
      tables: [...document.querySelectorAll("table")].filter((one) => !one.caption || !one.querySelector("th[scope]")).length,
      headings: document.querySelectorAll("h1").length,
      targets: [...document.querySelectorAll<HTMLAnchorElement>("a[href^='#']")].filter((one) => !document.querySelector(one.getAttribute("href") ?? "")).length,
      outside: [...document.querySelectorAll<SVGSVGElement>("svg")].flatMap((drawn) => {
        const whole = drawn.getBoundingClientRect();
        return [...drawn.querySelectorAll("text")].filter((one) => one.getBoundingClientRect().right > whole.right + 2 || one.getBoundingClientRect().left < whole.left - 2).map((one) => one.textContent?.slice(0, 80));
      }),
    };
  });
  const begins = await page.evaluate(() => [...document.querySelectorAll("#timeline .hot")].map((one) => one.getBoundingClientRect().left));
  for (const left of begins) assert(left >= 0 && left < look.width - 100, `the incident window begins at ${left} of ${look.width} px`);
  const dark = look.scheme === "dark" && look.media === "screen";
  assert.deepEqual(seen, {
    broken: false, scripts: 1, sources: 0, handlers: 0, ground: !dark, ink: dark, over: 0, unnamed: 0, tables: 0, headings: 1, targets: 0, outside: [],
  });
}

/** The first stop leads past the header, and a command is copied with the keyboard alone. */
async function useKeyboard(page: Page): Promise<void> {
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement?.className), "skip");
  const copy = page.locator("button.copy").first();
  if ((await copy.count()) === 0) return;
  await copy.focus();
  await page.keyboard.press("Enter");
  await page.locator("#said", { hasText: "copied" }).waitFor();
}

const browser = await chromium.launch({
  executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium",
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
try {
  for (const file of readdirSync(folder).filter((name) => name.endsWith(".html")).sort()) {
    for (const look of LOOKS) await visit(browser, file, look);
    console.log(`ok  ${file}`);
  }
} finally {
  await browser.close();
}
