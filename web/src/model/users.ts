/** Samples by process, thread or unit. */
import type { Night, UserKind } from "../data/night";
import type { Gathered } from "./gather";

export interface UserRow {
  name: string;
  /** Text of the filter field that selects only this one; "" if there is none. */
  filter: string;
  samples: number;
}

export type TaskKind = Exclude<UserKind, "functions">;

const NO_UNIT = "kernel threads and ended processes";

function nameOf(night: Night, task: number, kind: TaskKind): { name: string; filter: string } {
  const ids = { processes: night.taskProcess, threads: night.taskThread, units: night.taskUnit }[kind];
  const filter = night.header.strings[ids[task] as number] as string;
  if (filter !== "") return { name: filter, filter };
  return { name: kind === "units" ? NO_UNIT : `pid ${night.taskPid[task]}`, filter };
}

/** Ranks by samples, then by name. */
export function topUsers(night: Night, gathered: Gathered, kind: TaskKind, most: number): UserRow[] {
  const rows = new Map<string, UserRow>();
  gathered.byTask.forEach((samples, task) => {
    if (samples === 0) return;
    const { name, filter } = nameOf(night, task, kind);
    const row = rows.get(name);
    if (row) row.samples += samples;
    else rows.set(name, { name, filter, samples });
  });
  return [...rows.values()].sort((a, b) => b.samples - a.samples || (a.name < b.name ? -1 : 1)).slice(0, most);
}
