import { describe, expect, it } from "vitest";
import { answer } from "../../src/model/analysis";
import { coresText, masks, NO_FILTER, parseCores } from "../../src/model/filter";
import { functionCounts, topFunctions } from "../../src/model/functions";
import { gather } from "../../src/model/gather";
import { boxAt, boxes, childrenOf, neighbour, REST } from "../../src/model/layout";
import { foldTree, type Tree } from "../../src/model/tree";
import { recordedSeconds, snapped } from "../../src/model/window";
import type { Night } from "../../src/data/night";
import { decoded, example, payload } from "./small";
import { Tables } from "../fixture";

const ALL = { beginUs: 0, endUs: 10e6, cores: null };

function paths(night: Night, tree: Tree): Record<string, number> {
  const name = (label: number) => night.header.strings[label < tree.frames ? (night.frameName[label] as number) : label - tree.frames];
  const found: Record<string, number> = {};
  for (let node = 1; node < tree.nodes; node++) {
    const parts: string[] = [];
    for (let at = node; at > 0; at = tree.parent[at] as number) parts.unshift(name(tree.label[at] as number) as string);
    found[parts.join(";")] = tree.total[node] as number;
  }
  return found;
}

describe("unknown functions in a row", () => {
  it("are one node of a tree, which knows how many they are", () => {
    const tables = new Tables();
    const task = tables.task("app", "", 1);
    const towers = [["main", "[unknown]", "[unknown] in jit", "[unknown]", "work"], ["main", "[unknown]", "work"], ["[unknown]", "[unknown]_[k]", "[unknown]_[k]"]];
    const rows = towers.map((names) => ({ us: 1e6, task, stack: tables.stack("/app", ...names) }));
    const night = decoded(payload({ tables, rows }));
    const window = gather(night, ALL, masks(night, NO_FILTER), { idle: false });
    const folded = (callers: boolean) => {
      const tree = foldTree(night, window, null, callers);
      return { runs: [...tree.run].filter((run) => run > 1), paths: Object.keys(paths(night, tree)) };
    };
    expect(folded(false)).toEqual({
      runs: [3, 2],
      paths: ["app", "app;main", "app;main;[unknown]", "app;main;[unknown];work", "app;[unknown]", "app;[unknown];[unknown]"],
    });
    expect(folded(true).runs).toEqual([3, 2]);
  });
});

describe("a window", () => {
  it("holds its rows from begin up to, not with, end, without idle ones", () => {
    const { night } = example();
    const all = masks(night, NO_FILTER);
    expect(gather(night, ALL, all, { idle: false })).toMatchObject({ samples: 21, idleHidden: 7, rows: 5, coreless: 0 });
    expect(gather(night, ALL, all, { idle: true })).toMatchObject({ samples: 28, idleHidden: 0 });
    expect(gather(night, { beginUs: 1e6, endUs: 8e6, cores: null }, all, { idle: false }).samples).toBe(5);
    expect(gather(night, { ...ALL, cores: [1] }, all, { idle: false }).samples).toBe(5);
  });

  it("has three denominators, with gaps left out", () => {
    const { tables } = example();
    const gaps = [{ begin_us: 2e6, end_us: 4e6, why: "" }, { begin_us: 3e6, end_us: 5e6, why: "" }];
    const night = decoded(payload({ tables, rows: [], header: { gaps } }));
    expect(recordedSeconds(night.header, ALL)).toBe(7);
    const { capacity } = gather(night, { ...ALL, cores: [0] }, masks(night, NO_FILTER), { idle: false });
    expect(capacity).toEqual({ seconds: 7, cores: 1, coreSeconds: 7, samples: 700, samplesOfOneCore: 700 });
  });

  it("is widened where only sums were kept, and counts samples without a core", () => {
    const { tables, stacks, tasks } = example();
    const detail = [{ begin_us: 0, end_us: 6e6, step_us: 2e6, per_core: false }, { begin_us: 6e6, end_us: 10e6, step_us: 0, per_core: true }];
    const rows = [{ us: 2e6, task: tasks[0] as number, stack: stacks[0] as number, count: 40 }, { us: 7e6, core: 1, task: tasks[0] as number, stack: stacks[0] as number }];
    const night = decoded(payload({ tables, rows, header: { detail } }));
    const wanted = { beginUs: 3e6, endUs: 7.5e6, cores: null };
    expect(snapped(night.header, wanted)).toEqual({ beginUs: 2e6, endUs: 7.5e6, cores: null });
    expect(gather(night, wanted, masks(night, NO_FILTER), { idle: false }).samples).toBe(41);
    expect(gather(night, { ...wanted, cores: [1] }, masks(night, NO_FILTER), { idle: false })).toMatchObject({ samples: 1, coreless: 40 });
  });

  it("is filtered by process, thread, unit and core", () => {
    const { night } = example();
    const of = (filter: Partial<typeof NO_FILTER>) => gather(night, ALL, masks(night, { ...NO_FILTER, ...filter }), { idle: false }).samples;
    expect(of({ process: "alpha" })).toBe(7);
    expect(of({ process: "ALP" })).toBe(7);
    expect(of({ unit: "b.service" })).toBe(14);
    expect(of({ cores: "0" })).toBe(16);
    expect(of({ thread: "nobody" })).toBe(0);
  });

  it("reads and writes cores as people do", () => {
    expect(parseCores("0-2, 8")).toEqual([0, 1, 2, 8]);
    expect(parseCores("3-1")).toBeNull();
    expect(parseCores("x")).toBeNull();
    expect(coresText([0, 1, 2, 8])).toBe("0-2, 8");
  });
});

describe("a flame tree", () => {
  it("has processes below the root, then the stack", () => {
    const { night } = example();
    const tree = foldTree(night, gather(night, ALL, masks(night, NO_FILTER), { idle: false }), null, false);
    expect(tree.total[0]).toBe(21);
    expect(paths(night, tree)).toMatchObject({ alpha: 7, "alpha;main": 7, "alpha;main;work;work;leaf": 5, "alpha;main;read;vfs_read": 2, beta: 14, "beta;main;work": 11 });
  });

  it("turned round begins at the leaves", () => {
    const { night } = example();
    const tree = foldTree(night, gather(night, ALL, masks(night, NO_FILTER), { idle: false }), null, true);
    expect(paths(night, tree)).toMatchObject({ leaf: 16, vfs_read: 5, "vfs_read;read;main;beta": 3, "leaf;work;work;main;alpha": 5 });
  });

  it("keeps frames that vanished, as wide as they were", () => {
    const { night } = example();
    const all = masks(night, NO_FILTER);
    const now = gather(night, { beginUs: 0, endUs: 1e6, cores: null }, all, { idle: false });
    const before = gather(night, { beginUs: 1e6, endUs: 3e6, cores: null }, all, { idle: false });
    const tree = foldTree(night, now, before, false);
    const beta = [...childrenOf(tree, 0)].find((node) => tree.total[node] === 0) as number;
    expect(tree.baseTotal[beta]).toBe(3);
    expect(tree.width[beta]).toBeCloseTo(3 / 4);
    expect(tree.width[0]).toBeCloseTo(5 / 2 + 3 / 4);
  });

  it("is laid out widest first, and is found again under the pointer", () => {
    const { night } = example();
    const tree = foldTree(night, gather(night, ALL, masks(night, NO_FILTER), { idle: false }), null, false);
    const levels = boxes(tree, 0, 0.01);
    const first = levels[1]?.[0];
    expect(first?.width).toBeCloseTo(14 / 21);
    expect(boxAt(levels, 1, 0.9)?.node).toBe(levels[1]?.[1]?.node);
    expect(boxAt(levels, 9, 0.5)).toBeNull();
    expect(neighbour(tree, first?.node as number, "right")).toBe(levels[1]?.[1]?.node);
    expect(neighbour(tree, first?.node as number, "out")).toBe(0);
    const zoomed = boxes(tree, first?.node as number, 0.01);
    expect(zoomed[0]?.[0]?.width).toBe(1);
    expect(zoomed[2]?.[0]?.width).toBe(1);
  });

  it("shows the frames too narrow to draw as one", () => {
    const tables = new Tables();
    const task = tables.task("p", "", 1);
    const rows = Array.from({ length: 100 }, (_, i) => ({ us: i * 100, core: 0, task, stack: tables.stack("m", "main", `f${i}`) }));
    const night = decoded(payload({ tables, rows }));
    const tree = foldTree(night, gather(night, ALL, masks(night, NO_FILTER), { idle: false }), null, false);
    expect(boxes(tree, 0, 0.02)[3]).toEqual([{ node: REST, x: 0, width: 1, level: 3 }]);
  });

  it("adds up stacks that are kept twice", () => {
    const tables = new Tables();
    const task = tables.task("p", "", 1);
    const rows = [0, 1].map((i) => ({ us: i * 100, core: 0, task, stack: tables.stack("m", "main"), count: 2 + i }));
    const night = decoded(payload({ tables, rows }));
    const tree = foldTree(night, gather(night, ALL, masks(night, NO_FILTER), { idle: false }), null, false);
    expect(paths(night, tree)).toEqual({ p: 5, "p;main": 5 });
  });

  it("counts a recursion once", () => {
    const { night } = example();
    const counts = functionCounts(night, gather(night, ALL, masks(night, NO_FILTER), { idle: false }));
    const rows = topFunctions(counts, 20).map(({ frame, self, total }) => [night.header.strings[night.frameName[frame] as number], self, total]);
    expect(rows).toEqual([["leaf", 16, 16], ["vfs_read", 5, 5], ["main", 0, 21], ["work", 0, 16], ["read", 0, 5]]);
  });

  it("answers everything about an empty window", () => {
    const { night } = example();
    const nothing = { beginUs: 9e6, endUs: 9e6, cores: null };
    const found = answer(night, { window: nothing, baseline: nothing, masks: masks(night, NO_FILTER), idle: false, callers: false, measure: "self" });
    expect(found.tree.nodes).toBe(1);
    expect(found.differences).toEqual([]);
    expect(boxes(found.tree, 0, 0.1)).toHaveLength(1);
  });
});
