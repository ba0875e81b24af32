/** Nothing that runs in the page could send anything away; pages without data or with damaged data say so, and do nothing else. */
import assert from "node:assert/strict";
import { INCIDENT, night } from "../nights";
import type { Page } from "playwright-core";
import type { Bench, Look } from "./page";

const LOOK: Look = { width: 1000, height: 700, scheme: "light" };

export async function damagedPages(bench: Bench): Promise<void> {
  const good = night({ ...INCIDENT, cores: 2, seconds: 10, whole: [0, 10], pinned: { core: 1, from: 2, to: 8 } });
  const cases: [string, Uint8Array | null, RegExp][] = [
    ["empty", null, /has no data/],
    ["cut", good.subarray(0, good.length - 1000), /damaged: the samples end after/],
    ["noise", new Uint8Array(64).fill(255), /damaged/],
  ];
  await bench.visit(bench.address("policy", good), LOOK, refusesNetwork, /Content Security Policy|Refused to|asked for/);
  for (const [name, payload, says] of cases) {
    await bench.visit(bench.address(name, payload), LOOK, async (page) => {
      assert.match((await page.locator("#message").textContent()) ?? "", says);
      assert(await page.locator("#message").isVisible());
    });
  }
}

async function refusesNetwork(page: Page): Promise<void> {
  const refused = await page.evaluate(
    () =>
      new Promise<string[]>((resolve) => {
        const seen: string[] = [];
        document.addEventListener("securitypolicyviolation", (event) => {
          seen.push(event.effectiveDirective);
          if (seen.length === 3) resolve(seen.sort());
        });
        void fetch("http://127.0.0.1:9/").catch(() => undefined);
        const image = new Image();
        image.src = "http://127.0.0.1:9/x.png";
        const script = document.createElement("script");
        script.textContent = "document.title = 'owned'";
        document.body.append(image, script);
      }),
  );
  assert.deepEqual(refused, ["connect-src", "img-src", "script-src-elem"]);
}
