/**
 * The viewer in a real Chromium, from file://. Usage: npm run test:browser [-- FOLDER]
 * keeps screenshots in FOLDER (shots/ where none is given). CHROMIUM names another browser.
 */
import { mkdirSync } from "node:fs";
import { Bench } from "./page";
import { damagedPages } from "./damaged";
import { fullNight, manyCores } from "./fullnight";
import { incident } from "./incident";
import { opened } from "./opened";

const given = process.argv.slice(2); // vite-node leaves its own words out
const folder = given[0] ?? "shots";
mkdirSync(folder, { recursive: true });
const bench = await Bench.open();
try {
  for (const [name, test] of Object.entries({ incident, opened, fullNight, manyCores, damagedPages })) {
    await test(bench, folder);
    console.log(`ok  ${name}`);
  }
} finally {
  await bench.close();
}
