/** The texts of the page: file, suggested windows, selection, exclusions. */
import { cut, visible } from "../data/names";
import type { Header, Night } from "../data/night";
import { coresText } from "../model/filter";
import type { Gathered } from "../model/gather";
import type { PinnedRun } from "../model/heat";
import { clock, day, duration, grouped, instant, percent } from "../model/times";
import type { Window } from "../model/window";
import { byId, make } from "./elements";
import { SYMBOL } from "./marks";

const MAX_PLACES = 40;
const BEFORE_EVENT_US = 10e6;

export function showFacts(header: Header): void {
  const title = visible(header.title);
  byId("title").textContent = cut(title, 120);
  byId("title").title = title;
  document.title = `${cut(title, 120)} \u2013 overnight`;
  const host = make("b", cut(visible(header.host), 80));
  const facts = [
    ` \u00b7 ${instant(header.begin_us)} to ${instant(header.end_us)} (${duration(header.end_us - header.begin_us)})`,
    `${header.cores.length} cores`,
    header.frequency > 0 ? `${header.frequency} Hz` : "unknown sampling rate",
    `${grouped(header.lost)} samples lost`,
  ];
  byId("facts").replaceChildren(host, facts.join(" \u00b7 "));
  const notes = header.notes.map((note) => make("li", cut(visible(note), 1000)));
  const list = make("ul");
  list.append(...notes);
  const created = make("p", `Created ${cut(visible(header.generated), 40)} by overnight.`);
  byId("notes").replaceChildren(...(notes.length > 0 ? [make("h2", "Notes"), list, created] : [created]));
}

/** Buttons that select cores saturated in the kernel, and the seconds before events. */
export function showPlaces(header: Header, pinned: PinnedRun[], go: (window: Window) => void): void {
  const places: HTMLElement[] = [];
  const button = (text: string, className: string, title: string, window: Window) => {
    const element = make("button", text, className);
    element.type = "button";
    element.title = title;
    element.addEventListener("click", () => go(window));
    places.push(element);
  };
  for (const run of pinned.slice(0, MAX_PLACES)) {
    const text = `\u25a1 core ${run.core} in the kernel for ${duration(run.endUs - run.beginUs)}, ${clock(run.beginUs)}`;
    button(text, "pinned", "Select this window and core", { beginUs: run.beginUs, endUs: run.endUs, cores: [run.core] });
  }
  const events = [...header.events].sort((a, b) => "cwi".indexOf(a.severity[0] ?? "i") - "cwi".indexOf(b.severity[0] ?? "i") || a.time_us - b.time_us);
  for (const event of events.slice(0, MAX_PLACES)) {
    const window = { beginUs: Math.max(header.begin_us, event.time_us - BEFORE_EVENT_US), endUs: event.time_us, cores: null };
    const text = `${SYMBOL[event.severity]} ${cut(visible(event.kind), 60)} ${clock(event.time_us)}`;
    button(text, event.severity, `${visible(event.text)}\nSelect the 10 s before the event`, window);
  }
  const left = Math.max(0, pinned.length - MAX_PLACES) + Math.max(0, header.events.length - MAX_PLACES);
  if (left > 0) places.push(make("p", `and ${grouped(left)} more on the heatmap`));
  byId("places").replaceChildren(...places);
}

export function windowText(header: Header, window: Window): string {
  const fine = window.endUs - window.beginUs < 60e6 ? ((window.beginUs % 1e6) + (window.endUs % 1e6) === 0 ? 0 : 2) : 0;
  const which = window.cores === null ? "" : `, core${window.cores.length === 1 ? "" : "s"} ${cut(coresText(window.cores), 60)}`;
  const days = header.end_us - header.begin_us > 86400e6 ? `${day(window.beginUs)} ` : "";
  return `${days}${clock(window.beginUs, fine)} \u2013 ${clock(window.endUs, fine)} UTC (${duration(window.endUs - window.beginUs)}${which})`;
}

function windowLine(header: Header, gathered: Gathered, letter: string): HTMLElement {
  const line = make("p");
  const { capacity, samples } = gathered;
  const shares = Number.isFinite(capacity.samples)
    ? ` \u00b7 ${percent(samples / capacity.samples)} of ${capacity.cores} core${capacity.cores === 1 ? "" : "s"} \u00b7 ${(samples / capacity.samplesOfOneCore).toFixed(2)} cores used`
    : "";
  line.append(make("span", letter, letter === "B" ? "tag base" : "tag"), windowText(header, gathered.window), ` \u00b7 ${grouped(samples)} samples${shares}`);
  return line;
}

export interface Shown {
  night: Night;
  wanted: Window;
  wantedBaseline: Window | null;
  window: Gathered;
  baseline: Gathered | null;
  unknown: number;
  milliseconds: number;
  matched: string;
}

/** Shows the selection, how it was widened, what is excluded, and how long it took. */
export function showWindows(shown: Shown): void {
  const { night, window, baseline } = shown;
  const lines = [windowLine(night.header, window, "A")];
  if (baseline) lines.push(windowLine(night.header, baseline, "B"));
  byId("windows").replaceChildren(...lines);
  const print: string[] = [];
  const widened = (got: Window, wanted: Window) => got.beginUs !== wanted.beginUs || got.endUs !== wanted.endUs;
  if (widened(window.window, shown.wanted)) print.push("widened to whole steps: only sums are stored here");
  if (baseline && shown.wantedBaseline && widened(baseline.window, shown.wantedBaseline)) print.push("B widened to whole steps: only sums are stored there");
  const coreless = window.coreless + (baseline?.coreless ?? 0);
  if (coreless > 0) print.push(`${grouped(coreless)} samples excluded: their core is unknown`);
  print.push(`${grouped(window.idleHidden)} idle samples hidden`, `${grouped(night.header.lost)} samples lost in this file`);
  if (shown.unknown > 0) print.unshift(`unknown functions on the stacks of ${percent(shown.unknown / window.samples)} of the samples (overnight flame says why)`);
  if (shown.matched !== "") print.unshift(shown.matched);
  print.push(`${grouped(window.rows + (baseline?.rows ?? 0))} rows in ${shown.milliseconds.toFixed(0)} ms`);
  byId("small-print").textContent = print.join(" \u00b7 ");
}

export function showKeys(colours: { text: string; fill: string; outline: string }[]): void {
  byId("keys").replaceChildren(
    ...colours.map(({ text, fill, outline }) => {
      const item = make("span");
      const swatch = make("span", "", "swatch");
      swatch.style.background = fill;
      if (outline !== "") swatch.style.border = `1px dashed ${outline}`;
      item.append(swatch, text);
      return item;
    }),
  );
}
