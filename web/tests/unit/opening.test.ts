import { describe, expect, it } from "vitest";
import { DamagedNight, type Opening } from "../../src/data/night";
import { masks, NO_FILTER, slashed } from "../../src/model/filter";
import { functionCounts, topFunctions } from "../../src/model/functions";
import { gather } from "../../src/model/gather";
import { topUsers } from "../../src/model/users";
import { Tables } from "../fixture";
import { decoded, example, payload } from "./small";

const ALL = { beginUs: 0, endUs: 10e6, cores: null };
const OPENING: Opening = {
  window: { begin_us: 5, end_us: 9 }, baseline: null, map: "cores", measure: "busy", top: "threads", rank: "total", limit: 7, tables_first: true,
  callers: false, idle: false, process: "", thread: "", unit: "", cores: "",
};

describe("an opening", () => {
  const read = (open: unknown) => decoded(payload({ tables: new Tables(), rows: [], header: { open: open as Opening } })).header.open;

  it("comes with the night, or is not there", () => {
    expect(read(OPENING)).toEqual(OPENING);
    expect(decoded(payload({ tables: new Tables(), rows: [] })).header.open).toBeUndefined();
    expect(read({ ...OPENING, limit: 99999 })?.limit).toBe(1000);
    expect(read({ ...OPENING, window: null })?.window).toBeNull();
  });

  it("that is damaged says so", () => {
    const bad: unknown[] = [
      null, 7, {}, { ...OPENING, window: { begin_us: 9, end_us: 5 } }, { ...OPENING, baseline: "x" }, { ...OPENING, top: "hosts" },
      { ...OPENING, rank: "size" }, { ...OPENING, map: "hosts" }, { ...OPENING, measure: "idle" }, { ...OPENING, limit: 0 }, { ...OPENING, process: 3 }, { ...OPENING, window: undefined },
    ];
    for (const open of bad) expect(() => read(open), JSON.stringify(open)).toThrow(DamagedNight);
  });
});

describe("a pattern between slashes", () => {
  it("is a regular expression, and anything else is not", () => {
    expect(slashed("/^a|b$/")?.test("xb")).toBe(true);
    expect(slashed("plain")).toBeNull();
    expect(slashed("/(/")).toBeNull();
    expect(slashed("//")).toBeNull();
  });

  it("filters by what it finds", () => {
    const { night } = example();
    const of = (process: string) => gather(night, ALL, masks(night, { ...NO_FILTER, process }), { idle: false }).samples;
    expect(of("/^al/")).toBe(7);
    expect(of("/AL/")).toBe(0);
    expect(of("/alpha|beta/")).toBe(21);
    expect(of("/(/")).toBe(0);
  });
});

describe("who ran", () => {
  it("is counted by process, thread and unit", () => {
    const tables = new Tables();
    const stack = tables.stack("m", "main");
    const tasks = [tables.task("p", "u", 1, "t1", 1), tables.task("p", "u", 1, "t2", 2), tables.task("q", "", 3, "", 3), tables.task("r", "", 4, "t2", 4)];
    const rows = tasks.map((task, i) => ({ us: i * 100, core: 0, task, stack, count: i + 1 }));
    const night = decoded(payload({ tables, rows }));
    const found = gather(night, ALL, masks(night, NO_FILTER), { idle: false });
    const of = (kind: "processes" | "threads" | "units") => topUsers(night, found, kind, 10).map(({ name, samples }) => [name, samples]);
    expect(of("processes")).toEqual([["r", 4], ["p", 3], ["q", 3]]);
    expect(of("threads")).toEqual([["t2", 6], ["pid 3", 3], ["t1", 1]]);
    expect(of("units")).toEqual([["kernel threads and ended processes", 7], ["u", 3]]);
    expect(topUsers(night, found, "threads", 1)).toEqual([{ name: "t2", filter: "t2", samples: 6 }]);
    expect(topUsers(night, found, "units", 1)[0]?.filter).toBe("");
  });

  it("leaves idle and filtered samples out", () => {
    const { night } = example();
    const masked = masks(night, { ...NO_FILTER, cores: "0" });
    const names = (idle: boolean) => topUsers(night, gather(night, ALL, masked, { idle }), "processes", 9).map(({ name }) => name);
    expect(names(false)).toEqual(["beta", "alpha"]);
    expect(names(true)).toEqual(["beta", "swapper", "alpha"]);
  });

  it("ranks functions by their own samples or by all", () => {
    const { night } = example();
    const counts = functionCounts(night, gather(night, ALL, masks(night, NO_FILTER), { idle: false }));
    const first = (measure: "self" | "total") => topFunctions(counts, 1, measure).map(({ frame }) => night.header.strings[night.frameName[frame] as number]);
    expect(first("self")).toEqual(["leaf"]);
    expect(first("total")).toEqual(["main"]);
  });
});
