/** The interface for tests: `window.overnight`. */
import type { App } from "./app";
import type { Window } from "./model/window";

export interface State {
  selection: Window | null;
  baseline: Window | null;
  samples: number;
  idleHidden: number;
  rows: number;
  nodes: number;
  /** Names of the functions in the flame tree, by samples, descending. */
  functions: string[];
  top: { name: string; self: number; total: number }[];
  differences: { name: string; difference: number; low: number; high: number }[];
  painted: number;
  milliseconds: number;
  view: { beginUs: number; endUs: number };
  plot: { left: number; top: number; width: number; height: number } | null;
  pinned: { core: number; beginUs: number; endUs: number }[];
}

export interface Hook {
  ready: Promise<void>;
  select(beginUs: number, endUs: number, cores?: number[]): void;
  compare(beginUs: number, endUs: number): void;
  search(text: string): Promise<void>;
  state(): State;
}

declare global {
  interface Window {
    overnight: Hook;
  }
}

const MAX_NAMES = 1000;

function stateOf(app: App): State {
  const { night, answer, map } = app;
  const name = (frame: number) => (night ? (night.header.strings[night.frameName[frame] as number] as string) : "");
  const totals = new Map<number, number>();
  if (answer) {
    for (let node = 1; node < answer.tree.nodes; node++) {
      const label = answer.tree.label[node] as number;
      if (label < answer.tree.frames) totals.set(label, (totals.get(label) ?? 0) + (answer.tree.total[node] as number));
    }
  }
  const ranked = [...totals].sort((a, b) => b[1] - a[1]).slice(0, MAX_NAMES);
  return {
    selection: app.selection,
    baseline: app.baseline,
    samples: answer?.window.samples ?? 0,
    idleHidden: answer?.window.idleHidden ?? 0,
    rows: answer?.window.rows ?? 0,
    nodes: answer?.tree.nodes ?? 0,
    functions: ranked.map(([frame]) => name(frame)),
    top: (answer?.top ?? []).map(({ frame, self, total }) => ({ name: name(frame), self, total })),
    differences: (answer?.differences ?? []).map(({ frame, difference, low, high }) => ({ name: name(frame), difference, low, high })),
    painted: map.painted,
    milliseconds: app.milliseconds,
    view: app.view,
    plot: map.plot,
    pinned: map.pinned,
  };
}

export function hookOf(started: Promise<App | null>): Hook {
  let app: App | null = null;
  const ready = started.then((opened) => {
    app = opened;
  });
  const opened = (): App => {
    if (!app) throw new Error("no data is loaded: await overnight.ready first");
    return app;
  };
  return {
    ready,
    select: (beginUs, endUs, cores) => opened().select({ beginUs, endUs, cores: cores ?? null }),
    compare: (beginUs, endUs) => opened().compare({ beginUs, endUs, cores: null }),
    search: (text) => opened().search(text),
    state: () => stateOf(opened()),
  };
}
