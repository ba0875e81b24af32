/** A tiny night built by hand, so that a test can say what must come out. */
import { NO_CORE, type Header, type Night } from "../../src/data/night";
import { PayloadReader } from "../../src/data/payload";
import { encode, Tables } from "../fixture";

export interface Row {
  us: number;
  core?: number;
  task: number;
  stack: number;
  count?: number;
  idle?: boolean;
}

export interface Made {
  tables: Tables;
  header?: Partial<Omit<Header, "arrays">>;
  rows: Row[];
  busy?: number[];
  kernel?: number[];
}

export function payload({ tables, header = {}, rows, busy = [], kernel = [] }: Made): Uint8Array {
  const whole: Omit<Header, "arrays"> = {
    schema: "overnight.view/1", title: "small", host: "h", generated: "", frequency: 100, cores: [0, 1], begin_us: 0, end_us: 10e6,
    events: [], gaps: [], lost: 0, notes: [], heat: { begin_us: 0, step_us: 1e6, columns: 10 }, detail: [], strings: tables.strings, ...header,
  };
  const cells = whole.heat.columns * whole.cores.length;
  const filled = (values: number[]) => Uint16Array.from({ length: cells }, (_, i) => values[i] ?? 0);
  return encode(whole, {
    heat_busy: filled(busy), heat_kernel: filled(kernel), ...tables.arrays(),
    row_time: Uint32Array.from(rows, (row) => (row.us - whole.begin_us) / 100),
    row_core: Uint16Array.from(rows, (row) => row.core ?? NO_CORE),
    row_task: Uint32Array.from(rows, (row) => row.task),
    row_stack: Uint32Array.from(rows, (row) => row.stack),
    row_count: Uint32Array.from(rows, (row) => row.count ?? 1),
    row_idle: Uint8Array.from(rows, (row) => (row.idle ? 1 : 0)),
  });
}

export function decoded(bytes: Uint8Array): Night {
  const reader = new PayloadReader({ overview: () => undefined });
  reader.push(bytes);
  return reader.finish();
}

/** Two processes, a recursion, an idle task; rows of known counts. */
export function example(): { night: Night; stacks: number[]; tasks: number[]; tables: Tables } {
  const tables = new Tables();
  const stacks = [tables.stack("/bin/a", "main", "work", "work", "leaf"), tables.stack("/bin/a", "main", "read", "vfs_read_[k]"), tables.stack("", "do_idle_[k]")];
  const tasks = [tables.task("alpha", "a.service", 1), tables.task("beta", "b.service", 2), tables.task("swapper", "", 0)];
  const rows: Row[] = [
    { us: 0, core: 0, task: 0, stack: 0, count: 5 },
    { us: 1e6, core: 1, task: 1, stack: 1, count: 3 },
    { us: 2e6, core: 0, task: 2, stack: 2, count: 7, idle: true },
    { us: 3e6, core: 1, task: 0, stack: 1, count: 2 },
    { us: 8e6, core: 0, task: 1, stack: 0, count: 11 },
  ];
  return { night: decoded(payload({ tables, rows })), stacks, tasks, tables };
}
