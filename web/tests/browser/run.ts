/**
 * The viewer in a real Chromium, from file://. Usage: npm run test:browser [-- FOLDER]
 * keeps screenshots in FOLDER (shots/ where none is given). CHROMIUM names another browser.
 */
import { mkdirSync } from "node:fs";
import { Bench } from "./page";
import { damagedPages } from "./damaged";
import { fullNight, manyCores } from "./fullnight";
import { incident } from "./incident";

const folder = process.argv.at(-1)?.endsWith("run.ts") === false ? (process.argv.at(-1) as string) : "shots";
mkdirSync(folder, { recursive: true });
const bench = await Bench.open();
try {
  for (const [name, test] of Object.entries({ incident, fullNight, manyCores, damagedPages })) {
    await test(bench, folder);
    console.log(`ok  ${name}`);
  }
} finally {
  await bench.close();
}
