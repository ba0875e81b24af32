/** Tables: the top functions or tasks of a window, and the ranked differences. */
import { cut, visible } from "../data/names";
import { USER_KINDS, type Night, type UserKind } from "../data/night";
import { surePart, type DifferenceRow, type Measure } from "../model/compare";
import type { FunctionRow } from "../model/functions";
import type { Gathered } from "../model/gather";
import type { TaskKind, UserRow } from "../model/users";
import { grouped, percent } from "../model/times";
import { make } from "./elements";

const MAX_LENGTH = 160;

export interface TableActions {
  search(name: string): void;
  measure(measure: Measure): void;
  kind(kind: UserKind): void;
  only(kind: TaskKind, name: string): void;
}

function frameCell(night: Night, frame: number, actions: TableActions): HTMLTableCellElement {
  const name = night.header.strings[night.frameName[frame] as number] as string;
  const module = night.header.strings[night.frameModule[frame] as number] as string;
  const cell = make("td");
  const button = make("button", cut(visible(name), MAX_LENGTH));
  button.type = "button";
  button.title = `${visible(name)}\n${module === "" ? "" : `${visible(module)}\n`}Click to search`;
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

function choice<T extends string>(label: string, texts: [T, string][], now: T, act: (value: T) => void): HTMLElement {
  const bar = make("div", "", "bar");
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", label);
  for (const [value, text] of texts) {
    const button = make("button", text);
    button.type = "button";
    button.setAttribute("aria-pressed", String(value === now));
    button.addEventListener("click", () => act(value));
    bar.append(button);
  }
  return bar;
}

function rankBar(measure: Measure, actions: TableActions): HTMLElement {
  return choice("Rank", [["self", "Rank by self"], ["total", "Rank by total"]], measure, actions.measure);
}

/** Buttons that choose the table. */
export function kindBar(kind: UserKind, actions: TableActions): HTMLElement {
  const bar = choice("Table", USER_KINDS.map((each) => [each, each[0]?.toUpperCase() + each.slice(1)]), kind, actions.kind);
  bar.id = "kinds";
  return bar;
}

const NAMED: Record<TaskKind, string> = { processes: "Process", threads: "Thread", units: "Unit" };

export function userTable(gathered: Gathered, rows: UserRow[], kind: TaskKind, actions: TableActions): HTMLElement {
  const table = headed(`Top ${rows.length} ${kind}`, "by samples; capacity: all shown cores \u00d7 time", [
    [NAMED[kind], "auto"],
    ["Samples", "66px"],
    ["of samples", "66px"],
    ["of capacity", "68px"],
    ["Cores", "52px"],
  ]);
  table.id = "top";
  const body = table.createTBody();
  const { capacity, samples } = gathered;
  for (const entry of rows) {
    const row = body.insertRow();
    const button = make("button", cut(visible(entry.name), MAX_LENGTH));
    button.type = "button";
    button.disabled = entry.filter === "";
    button.title = entry.filter === "" ? visible(entry.name) : `${visible(entry.name)}\nClick to filter`;
    button.addEventListener("click", () => actions.only(kind, entry.filter));
    row.insertCell().append(button);
    row.insertCell().textContent = grouped(entry.samples);
    row.insertCell().textContent = percent(entry.samples / samples);
    row.insertCell().textContent = percent(entry.samples / capacity.samples);
    row.insertCell().textContent = Number.isFinite(capacity.samplesOfOneCore) ? (entry.samples / capacity.samplesOfOneCore).toFixed(2) : "unknown";
  }
  return table;
}

export function topTable(night: Night, gathered: Gathered, rows: FunctionRow[], measure: Measure, actions: TableActions): HTMLElement {
  const by = measure === "self" ? "by self: samples in the function itself; total includes its callees" : "by total: samples with the function anywhere on the stack";
  const table = headed(`Top ${rows.length} functions`, by, [
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
    row.insertCell().textContent = percent(entry[measure] / gathered.samples);
    row.insertCell().textContent = percent(entry[measure] / gathered.capacity.samples);
    row.insertCell().textContent = grouped(entry.total);
  }
  table.id = "top";
  const part = make("div");
  part.append(table, rankBar(measure, actions));
  return part;
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
  const table = headed("Differences, A \u2212 B", "samples per core-second, ranked by lower bound", [
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
    interval.title = sure ? "" : "The interval includes 0: this may be chance";
    if (!sure) interval.className = "unsure";
  }
  const part = make("div");
  part.append(table, rankBar(measure, actions));
  return part;
}
