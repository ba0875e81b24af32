/** Opens built pages in a real Chromium and watches what they must not do. */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium, type Browser, type Page } from "playwright-core";
import { inPage } from "../fixture";

export interface Look {
  width: number;
  height: number;
  scheme: "light" | "dark";
}

export class Bench {
  private readonly folder = mkdtempSync(join(tmpdir(), "overnight-view-"));
  private constructor(
    private readonly browser: Browser,
    private readonly template: string,
  ) {}

  static async open(): Promise<Bench> {
    const template = readFileSync(new URL("../../dist/viewer.html", import.meta.url), "utf8");
    const executablePath = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
    const browser = await chromium.launch({
      executablePath,
      args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
    });
    return new Bench(browser, template);
  }

  /** Writes the page and gives its file:// address. */
  address(name: string, payload: Uint8Array | null): string {
    const path = join(this.folder, `${name}.html`);
    writeFileSync(path, payload ? inPage(this.template, payload) : this.template);
    return pathToFileURL(path).href;
  }

  /** Opens an address, waits until it is ready, runs `act`, and asserts that the page behaved. */
  async visit(address: string, look: Look, act: (page: Page) => Promise<void>, expected: RegExp | null = null): Promise<void> {
    const context = await this.browser.newContext({ viewport: { width: look.width, height: look.height }, colorScheme: look.scheme });
    const page = await context.newPage();
    const complaints: string[] = [];
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) complaints.push(message.text());
    });
    page.on("pageerror", (error) => complaints.push(String(error)));
    page.on("request", (request) => {
      if (!/^(data|blob):/.test(request.url()) && request.url() !== address) complaints.push(`asked for ${request.url()}`);
    });
    await page.goto(address);
    await page.evaluate(() => window.overnight.ready);
    await act(page);
    assert.deepEqual(complaints.filter((text) => !expected?.test(text)), [], "the page complained or asked the network");
    await context.close();
  }

  /** Draws an SVG as an image of a page; gives its size, and whether its corner is dark. */
  async picture(path: string, look: Look, shot: string): Promise<{ width: number; height: number; dark: boolean }> {
    const context = await this.browser.newContext({ viewport: { width: look.width, height: look.height }, colorScheme: look.scheme });
    const page = await context.newPage();
    const holder = join(this.folder, "picture.html");
    const image = `<img src="data:image/svg+xml;base64,${readFileSync(path).toString("base64")}">`;
    writeFileSync(holder, `<!doctype html><meta name="color-scheme" content="light dark"><body style="margin:0">${image}`);
    await page.goto(pathToFileURL(holder).href);
    await page.screenshot({ path: shot, fullPage: true });
    const size = await page.evaluate(async () => {
      const drawn = document.querySelector("img") as HTMLImageElement;
      await drawn.decode();
      const canvas = document.createElement("canvas");
      canvas.width = canvas.height = 4;
      const brush = canvas.getContext("2d") as CanvasRenderingContext2D;
      brush.drawImage(drawn, 0, 0);
      const [red] = brush.getImageData(1, 1, 1, 1).data as unknown as number[];
      return { width: drawn.naturalWidth, height: drawn.naturalHeight, dark: (red as number) < 128 };
    });
    await context.close();
    return size;
  }

  async close(): Promise<void> {
    await this.browser.close();
    rmSync(this.folder, { recursive: true });
  }
}

export interface Drag {
  from: number;
  to: number;
  /** Shares of the plot's height, from 0 to 1. */
  top?: number;
  bottom?: number;
  key?: "Control" | "Alt" | "Shift";
}

/** Drags over the heatmap with the real mouse, from one instant to another. */
export async function drag(page: Page, { from, to, top = 0.4, bottom = 0.6, key }: Drag): Promise<void> {
  const { view, plot } = await page.evaluate(() => window.overnight.state());
  assert(plot, "there is no heatmap to drag on");
  const box = await page.locator("#map-over").boundingBox();
  assert(box, "the heatmap is not on the page");
  const x = (us: number) => box.x + plot.left + ((us - view.beginUs) / (view.endUs - view.beginUs)) * plot.width;
  const y = (share: number) => box.y + plot.top + share * plot.height;
  if (key) await page.keyboard.down(key);
  await page.mouse.move(x(from), y(top));
  await page.mouse.down();
  await page.mouse.move((x(from) + x(to)) / 2, y((top + bottom) / 2), { steps: 3 });
  await page.mouse.move(x(to), y(bottom), { steps: 3 });
  await page.mouse.up();
  if (key) await page.keyboard.up(key);
}
