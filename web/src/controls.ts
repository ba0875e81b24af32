/** Connects the page's buttons, fields and keys to the viewer. */
import type { App } from "./app";
import type { Night, Opening } from "./data/night";
import { parseCores, slashed } from "./model/filter";
import { panned, zoomed } from "./model/plot";
import { byId, make, radios } from "./views/elements";

const MAX_SUGGESTED = 400;
const MAX_SUGGESTED_LENGTH = 120;
const PAUSE_MS = 140;

function afterPause(act: () => void): () => void {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = window.setTimeout(act, PAUSE_MS);
  };
}

function onRadio<T extends string>(name: string, act: (value: T) => void): void {
  for (const radio of radios(name)) radio.addEventListener("change", () => act(radio.value as T));
}

function onCheck(id: string, act: (checked: boolean) => void): void {
  const box = byId<HTMLInputElement>(id);
  box.addEventListener("change", () => act(box.checked));
}

function joinView(app: App): void {
  const { header } = app.overview;
  const zoom = (factor: number) => app.setView(zoomed(header, app.view, factor, (app.view.beginUs + app.view.endUs) / 2));
  const pan = (share: number) => app.setView(panned(header, app.view, share * (app.view.endUs - app.view.beginUs)));
  const all = () => app.setView({ beginUs: header.begin_us, endUs: Math.max(header.begin_us + 1, header.end_us) });
  byId("zoom-in").addEventListener("click", () => zoom(2));
  byId("zoom-out").addEventListener("click", () => zoom(0.5));
  byId("zoom-reset").addEventListener("click", all);
  byId("pan-left").addEventListener("click", () => pan(-0.4));
  byId("pan-right").addEventListener("click", () => pan(0.4));
  const keys: Record<string, () => void> = {
    "+": () => zoom(2), "=": () => zoom(2), "-": () => zoom(0.5), "0": all, "[": () => pan(-0.4), "]": () => pan(0.4),
    "/": () => byId("search").focus(), "?": () => byId<HTMLDialogElement>("help").showModal(),
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLInputElement && !["radio", "checkbox"].includes(event.target.type);
    if (typing || event.ctrlKey || event.metaKey || event.altKey || byId<HTMLDialogElement>("help").open) return;
    if (event.key === "Escape" || event.key === "Backspace") {
      app.flame.zoomOut();
      return;
    }
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

function joinChoices(app: App): void {
  onRadio<"cores" | "subsecond">("mode", (mode) => {
    byId("measures").classList.toggle("off", mode === "subsecond");
    for (const radio of radios("measure")) radio.disabled = mode === "subsecond";
    app.choose({ mode });
  });
  onRadio<"busy" | "kernel">("measure", (measure) => app.choose({ measure }));
  onRadio<"icicle" | "flame">("way", (way) => app.choose({ rootsBelow: way === "flame" }));
  onCheck("by-core", (byCore) => app.choose({ byCore }));
  onCheck("callers", (callers) => app.choose({ callers }));
  onCheck("idle", (idle) => app.choose({ idle }));
  byId("clear").addEventListener("click", () => app.select(null));
  const help = byId<HTMLDialogElement>("help");
  byId("help-open").addEventListener("click", () => help.showModal());
  byId("help-close").addEventListener("click", () => help.close());
}

function joinFields(app: App): () => void {
  const search = byId<HTMLInputElement>("search");
  search.addEventListener("input", afterPause(() => void app.search(search.value)));
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") void app.search(search.value);
  });
  const value = (id: string) => byId<HTMLInputElement>(id).value;
  const filter = () => {
    const cores = byId<HTMLInputElement>("cores");
    const bad = parseCores(cores.value) === null;
    cores.setAttribute("aria-invalid", String(bad));
    cores.title = bad ? "Invalid core list; for example: 0-7, 12" : "";
    for (const id of ["process", "thread", "unit"]) {
      const odd = /^\/.*\/$/.test(value(id)) && value(id) !== "//" && slashed(value(id)) === null;
      byId(id).setAttribute("aria-invalid", String(odd));
      byId(id).title = odd ? "Invalid regular expression" : "Name, part of a name, or regular expression between slashes: /^kube|dd$/";
    }
    app.filter({ process: value("process"), thread: value("thread"), unit: value("unit"), cores: bad ? "" : cores.value });
  };
  for (const id of ["process", "thread", "unit", "cores"]) byId(id).addEventListener("input", afterPause(filter));
  return filter;
}

/** Applies the settings that the page opens with: fields, choices, windows. Needs the complete data. */
export function open(app: App, opening: Opening, filter: () => void): void {
  const set = (id: string, text: string) => (byId<HTMLInputElement>(id).value = text);
  const pattern = (text: string) => (text === "" ? "" : `/${text}/`);
  set("process", pattern(opening.process));
  set("thread", pattern(opening.thread));
  set("unit", pattern(opening.unit));
  set("cores", opening.cores);
  byId<HTMLInputElement>("callers").checked = opening.callers;
  byId<HTMLInputElement>("idle").checked = opening.idle;
  for (const [name, value] of [["measure", opening.measure], ["mode", opening.map]] as const) {
    for (const radio of radios(name)) {
      if (radio.value !== value || radio.checked) continue;
      radio.checked = true;
      radio.dispatchEvent(new Event("change"));
    }
  }
  byId("below").classList.toggle("tables-first", opening.tables_first);
  Object.assign(app.choices, {
    callers: opening.callers, idle: opening.idle, ranking: opening.rank, top: opening.top, most: opening.window ? opening.limit : null,
  });
  if ([opening.process, opening.thread, opening.unit, opening.cores].some((text) => text !== "")) filter();
  const all = (part: { begin_us: number; end_us: number }) => ({ beginUs: part.begin_us, endUs: part.end_us, cores: null });
  if (opening.window) app.select(all(opening.window));
  if (opening.window && opening.baseline) app.compare(all(opening.baseline));
}

/** Fills the suggestions of the filter fields. */
export function suggest(night: Night): void {
  const { strings } = night.header;
  const lists: [string, Uint32Array][] = [["processes", night.taskProcess], ["threads", night.taskThread], ["units", night.taskUnit]];
  for (const [id, ids] of lists) {
    const names = [...new Set(ids)].map((name) => strings[name] as string).filter((name) => name !== "" && name.length <= MAX_SUGGESTED_LENGTH);
    names.sort();
    const options = names.slice(0, MAX_SUGGESTED).map((name) => {
      const option = make("option");
      option.value = name;
      return option;
    });
    byId(id).replaceChildren(...options);
  }
}

/** Connects everything; returns a function that applies the filter fields. */
export function join(app: App): () => void {
  joinView(app);
  joinChoices(app);
  return joinFields(app);
}
