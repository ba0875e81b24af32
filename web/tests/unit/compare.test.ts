import { describe, expect, it } from "vitest";
import { poissonInterval, rankDifferences, rateDifference, surePart } from "../../src/model/compare";
import { random } from "../fixture";

function poisson(mean: number, chance: () => number): number {
  const limit = Math.exp(-mean);
  let count = 0;
  for (let product = chance(); product > limit; product *= chance()) count += 1;
  return count;
}

describe("a difference of rates", () => {
  it("is normalised by exposure", () => {
    const row = rateDifference(100, 10, 100, 100);
    expect(row.rate).toBe(10);
    expect(row.baseRate).toBe(1);
    expect(row.difference).toBe(9);
    expect(row.low).toBeGreaterThan(6);
    expect(row.high).toBeLessThan(12.5);
  });

  it("agrees with the normal interval where counts are large", () => {
    const row = rateDifference(10000, 1, 9000, 1);
    const half = 1.96 * Math.sqrt(19000);
    expect(row.low).toBeCloseTo(1000 - half, -1);
    expect(row.high).toBeCloseTo(1000 + half, -1);
  });

  it("stays unsure about a sample or two that vanished, and is sure about fifty", () => {
    expect(surePart(rateDifference(0, 10, 2, 10))).toBe(0);
    expect(surePart(rateDifference(0, 10, 50, 10))).toBeGreaterThan(3);
    expect(poissonInterval(0)).toMatchObject({ low: 0 });
  });

  it("covers the truth about 95 times of 100, also when events are rare", () => {
    const chance = random(7);
    for (const [mean, base] of [[0.5, 2], [3, 3], [20, 12]] as const) {
      let covered = 0;
      const turns = 6000;
      for (let i = 0; i < turns; i++) {
        const row = rateDifference(poisson(mean, chance), 1, poisson(base * 2, chance), 2);
        if (row.low <= mean - base && mean - base <= row.high) covered += 1;
      }
      expect(covered / turns).toBeGreaterThan(0.93);
      expect(covered / turns).toBeLessThan(0.985);
    }
  });

  it("ranks what is sure before what is merely large", () => {
    const of = (...self: number[]) => ({ self: Float64Array.from(self), total: Float64Array.from(self) });
    const rows = rankDifferences(of(200, 2, 0, 50), 1, of(100, 0, 3, 50), 1, "self", 10);
    expect(rows.map((row) => row.frame)).toEqual([0, 2, 1, 3]);
    expect(rows.map((row) => surePart(row) > 0)).toEqual([true, false, false, false]);
    expect(rankDifferences(of(1), 0, of(1), 1, "self", 10)).toEqual([]);
  });
});
