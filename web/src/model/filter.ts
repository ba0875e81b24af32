/** Filters by process, thread, unit and core, as masks. */
import { NO_CORE, type Night } from "../data/night";

export interface Filter {
  process: string;
  thread: string;
  unit: string;
  cores: string;
}

export const NO_FILTER: Filter = { process: "", thread: "", unit: "", cores: "" };

/** One byte per task and per core number; `cores` are the selected cores, in the order of the night. */
export interface Masks {
  task: Uint8Array;
  core: Uint8Array;
  cores: number[];
  /** Whether a filter other than that of cores is set. */
  tasksFiltered: boolean;
  coresFiltered: boolean;
}

/** Parses "0-3, 8"; null if it is invalid. */
export function parseCores(text: string): number[] | null {
  const cores = new Set<number>();
  for (const part of text.split(",")) {
    const trimmed = part.trim();
    if (trimmed === "") continue;
    const range = /^(\d{1,5})(?:\s*-\s*(\d{1,5}))?$/.exec(trimmed);
    if (!range) return null;
    const first = Number(range[1]);
    const last = Number(range[2] ?? range[1]);
    if (last < first || last >= NO_CORE) return null;
    for (let core = first; core <= last; core++) cores.add(core);
  }
  return [...cores].sort((a, b) => a - b);
}

/** Formats core numbers: "0-3, 8". */
export function coresText(cores: number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < cores.length; i++) {
    const first = cores[i] as number;
    while (i + 1 < cores.length && cores[i + 1] === (cores[i] as number) + 1) i++;
    parts.push(cores[i] === first ? String(first) : `${first}-${cores[i]}`);
  }
  return parts.join(", ");
}

/** The regular expression between slashes; null if it is not one. */
export function slashed(text: string): RegExp | null {
  if (text.length < 3 || !text.startsWith("/") || !text.endsWith("/")) return null;
  try {
    return new RegExp(text.slice(1, -1));
  } catch {
    return null;
  }
}

/** The names that a text selects: the one equal to it, those that /it/ matches, or else all that contain it. */
function matcher(names: string[], wanted: string): (name: string) => boolean {
  if (wanted === "") return () => true;
  const pattern = slashed(wanted);
  if (pattern) return (name) => pattern.test(name);
  if (names.includes(wanted)) return (name) => name === wanted;
  const lower = wanted.toLowerCase();
  return (name) => name.toLowerCase().includes(lower);
}

export function masks(night: Night, filter: Filter): Masks {
  const { strings, cores } = night.header;
  const named = (ids: Uint32Array) => [...new Set(ids)].map((id) => strings[id] as string);
  const process = matcher(named(night.taskProcess), filter.process);
  const thread = matcher(named(night.taskThread), filter.thread);
  const unit = matcher(named(night.taskUnit), filter.unit);
  const task = new Uint8Array(night.taskPid.length);
  const name = (ids: Uint32Array, i: number) => strings[ids[i] as number] as string;
  for (let i = 0; i < task.length; i++) {
    const selected = process(name(night.taskProcess, i)) && thread(name(night.taskThread, i)) && unit(name(night.taskUnit, i));
    task[i] = selected ? 1 : 0;
  }
  const wanted = filter.cores.trim() === "" ? null : parseCores(filter.cores);
  const chosen = wanted ? cores.filter((core) => wanted.includes(core)) : cores;
  const core = new Uint8Array(NO_CORE + 1);
  for (const number of chosen) core[number] = 1;
  if (!wanted) core[NO_CORE] = 1;
  return {
    task,
    core,
    cores: chosen,
    tasksFiltered: filter.process !== "" || filter.thread !== "" || filter.unit !== "",
    coresFiltered: wanted !== null,
  };
}
