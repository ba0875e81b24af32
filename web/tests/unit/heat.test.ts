import { describe, expect, it } from "vitest";
import { masks, NO_FILTER } from "../../src/model/filter";
import { maxima, pinnedRuns } from "../../src/model/heat";
import { chooseLanes } from "../../src/model/labels";
import { NightSearch } from "../../src/model/matches";
import { paint } from "../../src/model/paint";
import { dragged, nudged, panned, showing, zoomed, type Plot } from "../../src/model/plot";
import { BadPattern, compile, NameSearch } from "../../src/model/search";
import { subsecondGrid } from "../../src/model/subsecond";
import { clock, duration, instant, percent, since, ticks } from "../../src/model/times";
import { heatScale } from "../../src/views/colours";
import { Tables } from "../fixture";
import { decoded, example, payload } from "./small";

const PLOT: Plot = { mode: "cores", left: 10, top: 20, width: 100, height: 40, cores: [0, 1], beginUs: 0, endUs: 10e6 };

describe("the core heatmap", () => {
  it("shows the maximum of the columns that share a pixel", () => {
    const busy = Array.from({ length: 20 }, (_, i) => (i === 7 ? 100 : 10));
    const night = decoded(payload({ tables: new Tables(), rows: [], busy }));
    const grid = maxima(night.heatBusy, night.header, 0, 10e6, 2, [0, 1], 100);
    expect([...grid.values].map((value) => Math.round(value * 100))).toEqual([10, 100, 10, 10]);
  });

  it("finds a core pinned in the kernel for 3 s, not one for 2 s", () => {
    const kernel = Array.from({ length: 20 }, () => 5);
    for (const column of [4, 5, 6]) kernel[column * 2 + 1] = 95;
    for (const column of [8, 9]) kernel[column * 2] = 100;
    const night = decoded(payload({ tables: new Tables(), rows: [], kernel }));
    expect(pinnedRuns(night)).toEqual([{ core: 1, beginUs: 4e6, endUs: 7e6 }]);
  });

  it("paints the cells in which matching samples lie, over their whole step", async () => {
    const { tables, stacks, tasks } = example();
    const detail = [{ begin_us: 0, end_us: 4e6, step_us: 2e6, per_core: true }, { begin_us: 4e6, end_us: 10e6, step_us: 0, per_core: true }];
    const [task, stack] = [tasks[0] as number, stacks[1] as number];
    const rows = [{ us: 0, core: 1, task, stack, count: 8 }, { us: 5e6, core: 0, task, stack }, { us: 5.5e6, core: 0, task, stack: stacks[0] as number }, { us: 6e6, task, stack }];
    const night = decoded(payload({ tables, rows, header: { detail } }));
    const found = await new NightSearch(night).find("^vfs_");
    const painted = paint(night, masks(night, NO_FILTER), found);
    expect(painted).toMatchObject({ painted: 3, samples: 10 });
    expect([...painted.columns]).toEqual([1, 1, 0, 0, 0, 1, 1, 0, 0, 0]);
    expect([painted.cells[1], painted.cells[3], painted.cells[10]]).toEqual([4, 4, 1]);
  });

  it("rises in lightness from end to end, in both schemes", () => {
    const light = ([r, g, b]: [number, number, number]) => 0.2126 * (r / 255) ** 2.2 + 0.7152 * (g / 255) ** 2.2 + 0.0722 * (b / 255) ** 2.2;
    for (const dark of [true, false]) {
      const steps = heatScale(dark).map(light);
      for (let i = 8; i < steps.length; i += 8) {
        const rise = (steps[i] as number) - (steps[i - 8] as number);
        expect(dark ? rise : -rise).toBeGreaterThan(0);
      }
    }
  });
});

describe("the sub-second heatmap", () => {
  it("counts by UTC second and 20 ms, and leaves idle and coarse rows out", () => {
    const { tables, stacks, tasks } = example();
    const [task, stack] = [tasks[0] as number, stacks[0] as number];
    const begin = 1_000_000_500_000;
    const detail = [{ begin_us: begin, end_us: begin + 3e6, step_us: 0, per_core: true }, { begin_us: begin + 3e6, end_us: begin + 10e6, step_us: 1e6, per_core: true }];
    const rows = [
      { us: begin, core: 0, task, stack, count: 2 },
      { us: begin + 519_900, core: 0, task, stack },
      { us: begin + 520_000, core: 0, task, stack, idle: true },
      { us: begin + 4e6, core: 0, task, stack, count: 50 },
    ];
    const night = decoded(payload({ tables, rows, header: { begin_us: begin, end_us: begin + 10e6, detail, heat: { begin_us: begin, step_us: 1e6, columns: 10 } } }));
    const grid = subsecondGrid(night, masks(night, NO_FILTER), begin, begin + 10e6, 500, null);
    expect(grid.seconds).toBe(11);
    expect(grid.values[25]).toBe(1);
    expect(grid.values[50 + 0]).toBe(0.5);
    expect(grid.values.reduce((sum, value) => sum + value, 0)).toBe(1.5);
    const narrow = subsecondGrid(night, masks(night, NO_FILTER), begin, begin + 10e6, 2, null);
    expect([narrow.width, narrow.values[25], narrow.values[0]]).toEqual([2, 1, 0.5]);
  });
});

describe("a drag", () => {
  const { night } = example();
  it("selects whole cells, and cores only when asked", () => {
    expect(dragged(PLOT, night.header, { x: 35, y: 25 }, { x: 78, y: 55 }, false)).toEqual({ beginUs: 2e6, endUs: 7e6, cores: null });
    expect(dragged(PLOT, night.header, { x: 78, y: 55 }, { x: 35, y: 45 }, true)).toEqual({ beginUs: 2e6, endUs: 7e6, cores: [1] });
  });

  it("over the sub-second view goes from an offset in a second to one in another", () => {
    const plot: Plot = { ...PLOT, mode: "subsecond" };
    expect(dragged(plot, night.header, { x: 35, y: 40 }, { x: 55, y: 30 }, false)).toEqual({ beginUs: 2.5e6, endUs: 4.26e6, cores: null });
  });

  it("is followed by keys that stay inside the night", () => {
    const window = { beginUs: 8e6, endUs: 10e6, cores: null };
    expect(nudged(night.header, [0, 1], window, "right", false, 1e6)).toEqual(window);
    expect(nudged(night.header, [0, 1], window, "left", false, 1e6)).toEqual({ beginUs: 7e6, endUs: 9e6, cores: null });
    expect(nudged(night.header, [0, 1], window, "left", true, 1e6).endUs).toBe(9e6);
    expect(nudged(night.header, [0, 1], { ...window, cores: [0] }, "down", true, 1e6).cores).toEqual([0, 1]);
  });

  it("and zooming keep the view inside the night", () => {
    expect(zoomed(night.header, { beginUs: 0, endUs: 10e6 }, 2, 10e6)).toEqual({ beginUs: 5e6, endUs: 10e6 });
    expect(zoomed(night.header, { beginUs: 5e6, endUs: 10e6 }, 0.1, 7e6)).toEqual({ beginUs: 0, endUs: 10e6 });
    expect(panned(night.header, { beginUs: 5e6, endUs: 10e6 }, 3e6)).toEqual({ beginUs: 5e6, endUs: 10e6 });
    expect(showing(night.header, { beginUs: 0, endUs: 2e6 }, { beginUs: 5e6, endUs: 6e6 })).toEqual({ beginUs: 4.5e6, endUs: 6.5e6 });
  });
});

describe("a search", () => {
  it("tells capitals apart only where the pattern has some", () => {
    expect(compile("tcp").test("TCP_v4")).toBe(true);
    expect(compile("Tcp").test("tcp")).toBe(false);
    expect(compile("\\D").flags).toBe("i");
  });

  it("says kindly that a pattern is no pattern", () => {
    expect(() => compile("(")).toThrow(BadPattern);
    expect(() => compile("(")).toThrow(/Invalid regular expression/);
  });

  it("matches every name once, and a later search overtakes an earlier", async () => {
    const search = new NameSearch(["alpha", "beta"]);
    const early = search.find("alpha");
    const late = search.find("beta");
    expect(await early).toBeNull();
    expect([...((await late) ?? [])]).toEqual([0, 1]);
    const forgotten = search.find("alpha");
    search.forget();
    expect(await forgotten).toBeNull();
  });
});

describe("times", () => {
  it("read as people write them", () => {
    expect(clock(Date.UTC(2026, 10, 14, 22, 6, 12) * 1000 + 340_000, 2)).toBe("22:06:12.34");
    expect(instant(Date.UTC(2026, 10, 14, 22, 6, 12) * 1000)).toBe("2026-11-14T22:06:12Z");
    expect(since(3_723_000_000)).toBe("+1h02m03s");
    expect([duration(20e3), duration(5.9e6), duration(600e6), duration(43200e6)]).toEqual(["20 ms", "5.9 s", "10 min", "12 h"]);
    expect([percent(0), percent(0.5), percent(0.0123), percent(1)]).toEqual(["0 %", "50.0 %", "1.23 %", "100 %"]);
  });

  it("have ticks at round distances", () => {
    expect(ticks(0, 600e6, 10).times).toHaveLength(11);
    expect(ticks(0, 600e6, 10).stepUs).toBe(60e6);
    expect(ticks(5e5, 2.5e6, 4).digits).toBe(1);
  });
});

describe("labels of events", () => {
  const label = (x: number, width: number) => ({ x, left: x - 4, right: x - 4 + width });

  it("covers no other label", () => {
    expect(chooseLanes([label(10, 50), label(100, 50), label(130, 50), label(180, 50)])).toEqual([0, 1, 0, -1].map((lane, i) => [0, 1, -1, 0][i] ?? lane));
  });

  it("covers no symbol of another event", () => {
    expect(chooseLanes([label(10, 50), label(40, 50), label(60, 50)])).toEqual([1, -1, 0]);
    expect(chooseLanes([label(10, 50), label(10, 50)])).toEqual([0, 1]);
  });
});
