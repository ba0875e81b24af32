/** Real tables beside the pictures: the top functions of a window, and the ranked differences. */
import { cut, visible } from "../data/names";
import type { Night } from "../data/night";
import { surePart, type DifferenceRow, type Measure } from "../model/compare";
import type { FunctionRow } from "../model/functions";
import type { Gathered } from "../model/gather";
import { grouped, percent } from "../model/times";
import { make } from "./elements";

const LONGEST = 160;

export interface TableActions {
  search(name: string): void;
  measure(measure: Measure): void;
}

function frameCell(night: Night, frame: number, actions: TableActions): HTMLTableCellElement {
  const name = night.header.strings[night.frameName[frame] as number] as string;
  const module = night.header.strings[night.frameModule[frame] as number] as string;
  const cell = make("td");
  const button = make("button", cut(visible(name), LONGEST));
  button.type = "button";
  button.title = `${visible(name)}\n${module === "" ? "" : `${visible(module)}\n`}Click to search for it`;
  button.addEventListener("click", () => actions.search(name));
  cell.append(button);
  return cell;
}

function headed(caption: string, explained: string, heads: [string, string][]): HTMLTableElement {
  const table = make("table");
  const title = make("caption", caption);
  title.append(make("small", explained));
  table.append(title);
  const columns = make("colgroup");
  for (const [, width] of heads) {
    const column = make("col");
    column.style.width = width;
    columns.append(column);
  }
  table.append(columns);
  const row = table.createTHead().insertRow();
  for (const [text] of heads) {
    const head = make("th", text);
    head.scope = "col";
    row.append(head);
  }
  return table;
}

export function topTable(night: Night, gathered: Gathered, rows: FunctionRow[], actions: TableActions): HTMLTableElement {
  const table = headed(`Top ${Math.min(20, rows.length)} functions`, "by samples of their own (self); total is with what they call", [
    ["Function", "auto"],
    ["Self", "58px"],
    ["of samples", "66px"],
    ["of capacity", "68px"],
    ["Total", "62px"],
  ]);
  const body = table.createTBody();
  for (const entry of rows) {
    const row = body.insertRow();
    row.append(frameCell(night, entry.frame, actions));
    row.insertCell().textContent = grouped(entry.self);
    row.insertCell().textContent = percent(entry.self / gathered.samples);
    row.insertCell().textContent = percent(entry.self / gathered.capacity.samples);
    row.insertCell().textContent = grouped(entry.total);
  }
  return table;
}

function rate(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : size >= 0.1 ? value.toFixed(2) : value.toFixed(3);
}

function signed(value: number): string {
  return value > 0 ? `+${rate(value)}` : rate(value).replace("-", "\u2212");
}

export function differenceTable(night: Night, rows: DifferenceRow[], measure: Measure, actions: TableActions): HTMLElement {
  const table = headed("What differs, A less B", "samples a core-second, by the sure part of the difference", [
    ["Function", "auto"],
    ["A", "50px"],
    ["B", "50px"],
    ["A \u2212 B", "58px"],
    ["95 % interval", "124px"],
  ]);
  table.id = "differences";
  const body = table.createTBody();
  for (const entry of rows) {
    const row = body.insertRow();
    row.append(frameCell(night, entry.frame, actions));
    row.insertCell().textContent = rate(entry.rate);
    row.insertCell().textContent = rate(entry.baseRate);
    const sure = surePart(entry) > 0;
    const difference = row.insertCell();
    difference.textContent = signed(entry.difference);
    difference.className = !sure ? "unsure" : entry.difference > 0 ? "more" : "less";
    const interval = row.insertCell();
    interval.textContent = `${signed(entry.low)} \u2026 ${signed(entry.high)}`;
    interval.title = sure ? "" : "The interval holds zero: this may be chance";
    if (!sure) interval.className = "unsure";
  }
  const part = make("div");
  const choice = make("div", "", "bar");
  for (const [value, text] of [["self", "Rank by self"], ["total", "Rank by total"]] as const) {
    const button = make("button", text);
    button.type = "button";
    button.setAttribute("aria-pressed", String(value === measure));
    button.disabled = value === measure;
    button.addEventListener("click", () => actions.measure(value));
    choice.append(button);
  }
  part.append(table, choice);
  return part;
}
