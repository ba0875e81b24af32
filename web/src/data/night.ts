/** A night of samples as the viewer reads it: the payload "overnight.view/1", decoded and checked. */

export const SCHEMA = "overnight.view/1";
export const NO_CORE = 65535;

export type Severity = "info" | "warning" | "critical";

export interface NightEvent {
  time_us: number;
  kind: string;
  text: string;
  core: number | null;
  severity: Severity;
}

export interface Gap {
  begin_us: number;
  end_us: number;
  why: string;
}

/** The resolution of the rows in a part of the window; `step_us` 0: every sample, else sums. */
export interface Detail {
  begin_us: number;
  end_us: number;
  step_us: number;
  per_core: boolean;
}

/** What the page shows first; a reader can change all of it. Patterns are regular expressions. */
export interface Opening {
  window: { begin_us: number; end_us: number } | null;
  baseline: { begin_us: number; end_us: number } | null;
  map: "cores" | "subsecond";
  measure: "busy" | "kernel";
  top: UserKind;
  rank: "self" | "total";
  limit: number;
  tables_first: boolean;
  callers: boolean;
  idle: boolean;
  process: string;
  thread: string;
  unit: string;
  cores: string;
}

/** What a table ranks by samples. */
export const USER_KINDS = ["functions", "processes", "threads", "units"] as const;
export type UserKind = (typeof USER_KINDS)[number];

export interface Header {
  schema: string;
  title: string;
  host: string;
  generated: string;
  frequency: number;
  cores: number[];
  begin_us: number;
  end_us: number;
  events: NightEvent[];
  gaps: Gap[];
  lost: number;
  notes: string[];
  heat: { begin_us: number; step_us: number; columns: number };
  detail: Detail[];
  strings: string[];
  arrays: Record<string, { type: string; offset: number; length: number }>;
  open?: Opening;
}

/** The data of the whole-night heatmap; available before the rows are read. */
export interface Overview {
  header: Header;
  heatBusy: Uint16Array;
  heatKernel: Uint16Array;
}

export interface Night extends Overview {
  frameName: Uint32Array;
  frameModule: Uint32Array;
  frameKind: Uint8Array;
  stackOffset: Uint32Array;
  stackFrame: Uint32Array;
  taskPid: Int32Array;
  taskTid: Int32Array;
  taskThread: Uint32Array;
  taskProcess: Uint32Array;
  taskUnit: Uint32Array;
  rowTime: Uint32Array;
  rowCore: Uint16Array;
  rowTask: Uint32Array;
  rowStack: Uint32Array;
  rowCount: Uint32Array;
  rowIdle: Uint8Array;
}

/** The data is damaged; the message is shown on the page. */
export class DamagedNight extends Error {}
