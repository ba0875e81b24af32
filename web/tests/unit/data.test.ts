import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { cut, visible } from "../../src/data/names";
import { DamagedNight, type Overview } from "../../src/data/night";
import { base64Bytes, readPacked } from "../../src/data/page";
import { PayloadReader } from "../../src/data/payload";
import { random, Tables } from "../fixture";
import { INCIDENT, night } from "../nights";
import { decoded, payload } from "./small";

const SHAPE = { ...INCIDENT, cores: 2, seconds: 4, whole: [0, 4] as [number, number], pinned: { core: 1, from: 1, to: 3 }, hostile: false, variety: 5 };

function stream(bytes: Uint8Array): ReadableStream<Uint8Array<ArrayBuffer>> {
  return new Blob([new Uint8Array(bytes)]).stream() as ReadableStream<Uint8Array<ArrayBuffer>>;
}

describe("a payload", () => {
  it("comes out as it went in, whatever the size of its chunks", () => {
    const bytes = night(SHAPE);
    const whole = decoded(bytes);
    const order: string[] = [];
    const reader = new PayloadReader({ overview: (seen: Overview) => order.push(seen.header.host) });
    for (let at = 0; at < bytes.length; at += 777) reader.push(bytes.subarray(at, at + 777));
    expect(reader.finish()).toEqual(whole);
    expect(order).toEqual(["ip-10-0-3-17"]);
  });

  it("tells the overview before the rows have arrived", () => {
    const bytes = night(SHAPE);
    let told = false;
    const reader = new PayloadReader({ overview: () => (told = true) });
    reader.push(bytes.subarray(0, bytes.length - 8));
    expect(told).toBe(true);
    expect(() => reader.finish()).toThrow(/the samples end after/);
  });

  it("is unpacked from gzip, and says when it was cut off", async () => {
    const packed = gzipSync(night(SHAPE));
    const nobody = { overview: () => undefined };
    expect((await readPacked(stream(packed), nobody)).header.cores).toEqual([0, 1]);
    await expect(readPacked(stream(packed.subarray(0, packed.length / 2)), nobody)).rejects.toThrow(DamagedNight);
    await expect(readPacked(stream(new Uint8Array(9)), nobody)).rejects.toThrow(/cannot be decompressed/);
  });

  it("refuses another schema by name", () => {
    const tables = new Tables();
    expect(() => decoded(payload({ tables, rows: [], header: { schema: "overnight.view/9" } }))).toThrow(/overnight.view\/9/);
  });

  it("refuses indices that point past their tables", () => {
    const tables = new Tables();
    const stack = tables.stack("m", "f");
    const task = tables.task("p", "u", 1);
    expect(() => decoded(payload({ tables, rows: [{ us: 0, task, stack: stack + 1 }] }))).toThrow(/row_stack/);
    expect(() => decoded(payload({ tables, rows: [{ us: 0, task: task + 1, stack }] }))).toThrow(/row_task/);
    expect(() => decoded(payload({ tables, rows: [{ us: 500, task, stack }, { us: 100, task, stack }] }))).toThrow(/not in order/);
  });

  it("with flipped bytes gives a night or says that it is damaged, never anything else", () => {
    const good = night(SHAPE);
    const chance = random(11);
    for (let turn = 0; turn < 400; turn++) {
      const bad = good.slice();
      for (let flips = 0; flips < 3; flips++) bad[Math.floor(chance() ** 3 * bad.length)] = Math.floor(chance() * 256);
      try {
        decoded(bad);
      } catch (error) {
        expect(error).toBeInstanceOf(DamagedNight);
      }
    }
  });

  it("refuses times that no clock shows", () => {
    const tables = new Tables();
    expect(() => decoded(payload({ tables, rows: [], header: { end_us: 1e300 } }))).toThrow(/not a valid time/);
    expect(() => decoded(payload({ tables, rows: [], header: { begin_us: 5, end_us: 4 } }))).toThrow(DamagedNight);
  });

  it("that is not base64 says so", () => {
    expect([...base64Bytes("AQID")]).toEqual([1, 2, 3]);
    expect(() => base64Bytes("%%%%")).toThrow(DamagedNight);
  });
});

describe("names", () => {
  it("show what cannot be seen", () => {
    expect(visible("a\u0000b\tc\u007f")).toBe("a\u2400b\u2409c\u2421");
    expect(visible("\u202egnp.exe")).toBe("\u27e8U+202E\u27e9gnp.exe");
    expect(visible("x\ud800y")).toBe("x\ufffdy");
    expect(visible("<script>")).toBe("<script>");
    expect(visible("")).toBe("(no name)");
    expect(visible("\u{1f600}")).toBe("\u{1f600}");
  });

  it("are cut with an ellipsis, never inside a character", () => {
    expect(cut("abcdef", 6)).toBe("abcdef");
    expect(cut("abcdefg", 6)).toBe("abcde\u2026");
    expect(cut("ab\u{1f600}cd", 4)).toBe("ab\u2026");
  });
});
