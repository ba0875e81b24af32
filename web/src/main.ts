/** Opens the data in this page: draws the heatmap as soon as possible, then reads the rest. */
import { App, showProblem } from "./app";
import { join, open, suggest } from "./controls";
import { readPage } from "./data/page";
import { hookOf } from "./hook";
import { byId } from "./views/elements";

async function start(): Promise<App | null> {
  let app: App | null = null;
  let filter = (): void => undefined;
  try {
    const night = await readPage(document, {
      overview(overview) {
        app = new App(overview);
        performance.mark("overview-drawn");
        filter = join(app);
      },
    });
    if (!night) {
      byId("message").hidden = false;
      byId("message").textContent = "This page has no data. Create a page with data: overnight heatmap -O html -o night.html";
      return null;
    }
    const opened = app as App | null;
    opened?.complete(night);
    suggest(night);
    if (opened && night.header.open) open(opened, night.header.open, filter);
    performance.mark("rows-read");
    return opened;
  } catch (error) {
    showProblem(error);
    return null;
  }
}

window.overnight = hookOf(start());
