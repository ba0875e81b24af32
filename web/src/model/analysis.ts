/** Analyses a window, alone or compared with a baseline. */
import type { Night } from "../data/night";
import { rankDifferences, type DifferenceRow, type Measure } from "./compare";
import type { Masks } from "./filter";
import { functionCounts, topFunctions, type FunctionRow } from "./functions";
import { gather, type Gathered } from "./gather";
import { foldTree, type Tree } from "./tree";
import type { Window } from "./window";

export const TOP = 20;
export const MAX_DIFFERENCES = 30;

export interface Question {
  window: Window;
  baseline: Window | null;
  masks: Masks;
  idle: boolean;
  callers: boolean;
  measure: Measure;
  /** Rows of a table; null: the default. */
  most?: number | null;
}

export interface Answer {
  window: Gathered;
  baseline: Gathered | null;
  tree: Tree;
  top: FunctionRow[];
  differences: DifferenceRow[];
}

export function answer(night: Night, question: Question): Answer {
  const options = { idle: question.idle };
  const window = gather(night, question.window, question.masks, options);
  const baseline = question.baseline ? gather(night, question.baseline, question.masks, options) : null;
  const counts = functionCounts(night, window);
  const differences = baseline
    ? rankDifferences(
        counts, window.capacity.coreSeconds, functionCounts(night, baseline), baseline.capacity.coreSeconds,
        question.measure, question.most ?? MAX_DIFFERENCES,
      )
    : [];
  return {
    window,
    baseline,
    tree: foldTree(night, window, baseline, question.callers),
    top: topFunctions(counts, question.most ?? TOP, question.measure),
    differences,
  };
}
