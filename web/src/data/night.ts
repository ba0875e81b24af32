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

/** How fine the rows are in a stretch: `step_us` 0 keeps every sample, else rows are sums. */
export interface Detail {
  begin_us: number;
  end_us: number;
  step_us: number;
  per_core: boolean;
}

/** What the page shows when it is opened, as if its reader had just chosen it. Patterns are regular expressions. */
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

/** Whose samples a table counts. */
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

/** What the whole-night heatmap needs: there before the rows have been read. */
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

/** The file is not what it says it is; the message is for the person who opened it. */
export class DamagedNight extends Error {}
