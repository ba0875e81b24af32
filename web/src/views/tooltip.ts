/** The tooltip: the whole name, and a table of its numbers. */
import { byId, make } from "./elements";

const LONG = 600;

export class Tooltip {
  private readonly box = byId("tooltip");

  show(x: number, y: number, title: string, rows: [string, string][]): void {
    const long = title.length > LONG;
    this.box.classList.toggle("long", long);
    const table = make("table");
    for (const [name, value] of rows) {
      const row = table.insertRow();
      row.insertCell().textContent = name;
      row.insertCell().textContent = value;
    }
    const name = make("b", title);
    this.box.replaceChildren(...(long ? [table, name] : [name, table])); // a long name may fill the screen
    this.box.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const left = x + 14 + width > innerWidth ? Math.max(4, x - width - 10) : x + 14;
    const top = y + 16 + height > innerHeight ? Math.max(4, y - height - 10) : y + 16;
    this.box.style.left = `${left}px`;
    this.box.style.top = `${top}px`;
  }

  hide(): void {
    this.box.hidden = true;
  }
}
