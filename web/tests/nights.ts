/** The nights the tests look at: ordinary training everywhere, one core pinned before a driver reset. */
import type { Detail, Header, Opening } from "../src/data/night";
import { encode, random, Tables } from "./fixture";

export const BEGIN_US = Date.UTC(2026, 10, 14, 22, 0, 0) * 1000;
export const PINNED = "mem_cgroup_iter";

export interface Shape {
  cores: number;
  seconds: number;
  frequency: number;
  /** Seconds [from, to) in which every sample is kept; elsewhere sums over `coarse` seconds. */
  whole: [number, number];
  coarse: number;
  pinned: { core: number; from: number; to: number };
  variety: number;
  hostile: boolean;
  seed: number;
}

export const INCIDENT: Shape = {
  cores: 16, seconds: 600, frequency: 97, whole: [0, 600], coarse: 10,
  pinned: { core: 11, from: 372, to: 378 }, variety: 300, hostile: true, seed: 3,
};

export const FULL_NIGHT: Shape = {
  cores: 96, seconds: 43200, frequency: 97, whole: [20700, 21005], coarse: 10,
  pinned: { core: 61, from: 20850, to: 20856 }, variety: 20000, hostile: false, seed: 4,
};

export const MANY_CORES: Shape = {
  cores: 192, seconds: 43200, frequency: 97, whole: [20840, 20870], coarse: 10,
  pinned: { core: 133, from: 20850, to: 20856 }, variety: 500, hostile: false, seed: 5,
};

interface Cast {
  tables: Tables;
  train: { stacks: number[]; tasks: number[] };
  system: { stack: number; task: number }[];
  pinned: { stack: number; task: number };
  idle: { stack: number; task: number };
}

function cast(shape: Shape, chance: () => number): Cast {
  const tables = new Tables();
  const python = "/usr/bin/python3.11";
  const calls = ["forward", "backward", "step", "collate", "augment", "tokenize", "all_reduce", "matmul", "softmax", "layer_norm", "gelu", "embedding", "attention", "dropout", "cross_entropy", "clip_grad"];
  const stacks: number[] = [];
  for (let i = 0; i < shape.variety; i++) {
    const names = ["_start", "Py_BytesMain", "_PyEval_EvalFrameDefault", "train.py:main"];
    const depth = 4 + Math.floor(chance() * 14);
    for (let level = 0; level < depth; level++) {
      const kind = calls[Math.floor(chance() ** 2 * calls.length)] as string;
      names.push(level % 3 === 2 ? `torch::autograd::${kind}_${Math.floor(chance() ** 3 * (1 + i / 20))}` : `model.py:${kind}`);
    }
    if (chance() < 0.12) names.push("entry_SYSCALL_64_[k]", "do_syscall_64_[k]", chance() < 0.5 ? "ksys_read_[k]" : "futex_wait_[k]", "copy_user_generic_[k]");
    stacks.push(tables.stack(python, ...names));
  }
  const tasks = Array.from({ length: 2 * shape.cores }, (_, i) => tables.task("python3", "training.slice/trial.service", 4000 + i, `pt_data_worker:${i % 8}`, 9000 + i));
  const syscall = ["entry_SYSCALL_64_[k]", "do_syscall_64_[k]"];
  const kubelet = ["runtime.goexit", "k8s.io/kubelet.(*Kubelet).syncLoop", "cadvisor/manager.(*containerData).housekeeping", "os.ReadFile", "syscall.Syscall"];
  const kubeletTask = tables.task("kubelet", "kubelet.service", 812);
  const system = [
    { stack: tables.stack("/usr/bin/kubelet", ...kubelet, "runtime.mallocgc"), task: kubeletTask },
    { stack: tables.stack("/usr/bin/containerd", "runtime.goexit", "containerd/ttrpc.(*Server).run", "runtime.futex", ...syscall, "futex_wait_[k]"), task: tables.task("containerd", "containerd.service", 640) },
    { stack: tables.stack("", "ret_from_fork_[k]", "kthread_[k]", "smpboot_thread_fn_[k]", "run_ksoftirqd_[k]", "net_rx_action_[k]", "ena_io_poll_[k]"), task: tables.task("ksoftirqd/3", "", 27) },
    { stack: tables.stack("/usr/sbin/sshd", "main", "sshd::accept_loop", ...syscall, "ksys_read_[k]", "copy_user_generic_[k]"), task: tables.task("sshd", "ssh.service", 901) },
  ];
  if (shape.hostile) {
    const names = ["<script>document.title='owned'</script>", "\u202egnp.exe", "tab\there\u0000nul", "x".repeat(8192), "<img src=x onerror=alert(1)>"];
    names.forEach((name, i) => {
      const stack = tables.stack("/tmp/\u202e<b>evil</b>", name, `f_${name}`);
      system.push({ stack, task: tables.task(name, "", 7000 + i) });
    });
  }
  const memory = ["vfs_read_[k]", "seq_read_iter_[k]", "memcg_stat_show_[k]", "mem_cgroup_flush_stats_[k]", `${PINNED}_[k]`];
  const pinned = { stack: tables.stack("/usr/bin/kubelet", ...kubelet, ...syscall, ...memory), task: kubeletTask };
  const idle = { stack: tables.stack("", "secondary_startup_64_[k]", "cpu_startup_entry_[k]", "do_idle_[k]", "intel_idle_[k]"), task: tables.task("swapper", "", 0) };
  return { tables, train: { stacks, tasks }, system, pinned, idle };
}

/** Busy share of a core in a second: trials of some minutes, each with its own cores and level. */
function load(shape: Shape, core: number, second: number, noise: number): number {
  const length = Math.max(90, shape.seconds / 40);
  const trial = Math.floor(second / length + (core % 8) * 0.37);
  const level = random(trial * 131 + (core % 8) * 7 + shape.seed)();
  const into = second / length + (core % 8) * 0.37 - trial;
  const epoch = 0.08 * Math.sin(second / 6.5 + trial + core * 0.2);
  return into < 0.06 ? 0.03 + noise * 0.1 : Math.min(0.95, Math.max(0.02, 0.15 + 0.55 * level + epoch + (noise - 0.5) * 0.24));
}

function isPinned(shape: Shape, core: number, second: number): boolean {
  return core === shape.pinned.core && second >= shape.pinned.from && second < shape.pinned.to;
}

function gap(shape: Shape): [number, number] {
  const from = Math.floor(shape.seconds * 0.8);
  return [from, from + Math.ceil(shape.seconds * 0.02)];
}

function inGap(shape: Shape, second: number): boolean {
  const [from, to] = gap(shape);
  return second >= from && second < to;
}

function heat(shape: Shape): { busy: Uint16Array; kernel: Uint16Array } {
  const chance = random(shape.seed + 1);
  const busy = new Uint16Array(shape.seconds * shape.cores);
  const kernel = new Uint16Array(busy.length);
  for (let second = 0; second < shape.seconds; second++) {
    if (inGap(shape, second)) continue;
    for (let core = 0; core < shape.cores; core++) {
      const cell = second * shape.cores + core;
      const pinned = isPinned(shape, core, second);
      busy[cell] = pinned ? shape.frequency : Math.round(shape.frequency * load(shape, core, second, chance()));
      kernel[cell] = pinned ? shape.frequency : Math.round((busy[cell] as number) * (0.06 + 0.12 * chance()));
    }
  }
  return { busy, kernel };
}

class Rows {
  size = 0;
  time: Uint32Array;
  core: Uint16Array;
  task: Uint32Array;
  stack: Uint32Array;
  count: Uint32Array;
  idle: Uint8Array;

  constructor(most: number) {
    this.time = new Uint32Array(most);
    this.core = new Uint16Array(most);
    this.task = new Uint32Array(most);
    this.stack = new Uint32Array(most);
    this.count = new Uint32Array(most);
    this.idle = new Uint8Array(most);
  }

  add(us: number, core: number, task: number, stack: number, count: number, idle: boolean): void {
    const i = this.size++;
    this.time[i] = Math.floor(us / 100);
    this.core[i] = core;
    this.task[i] = task;
    this.stack[i] = stack;
    this.count[i] = count;
    this.idle[i] = idle ? 1 : 0;
  }
}

function addWhole(rows: Rows, shape: Shape, who: Cast, busy: Uint16Array, chance: () => number): void {
  const [from, to] = shape.whole;
  for (let tick = from * shape.frequency; tick < to * shape.frequency; tick++) {
    for (let core = 0; core < shape.cores; core++) {
      const us = ((tick + core / shape.cores) * 1e6) / shape.frequency;
      const second = Math.floor(us / 1e6);
      if (inGap(shape, second)) continue;
      if (isPinned(shape, core, second)) {
        rows.add(us, core, who.pinned.task, who.pinned.stack, 1, false);
      } else if (chance() * shape.frequency >= (busy[second * shape.cores + core] as number)) {
        rows.add(us, core, who.idle.task, who.idle.stack, 1, true);
      } else if (chance() < 0.06) {
        const other = who.system[Math.floor(chance() * who.system.length)] as Cast["pinned"];
        rows.add(us, core, other.task, other.stack, 1, false);
      } else {
        const stack = who.train.stacks[Math.floor(chance() ** 2 * who.train.stacks.length)] as number;
        rows.add(us, core, who.train.tasks[2 * core + (tick & 1)] as number, stack, 1, false);
      }
    }
  }
}

function addCoarse(rows: Rows, shape: Shape, who: Cast, from: number, to: number, chance: () => number): void {
  for (let second = from; second < to; second += shape.coarse) {
    if (inGap(shape, second)) continue;
    const capacity = shape.coarse * shape.frequency * shape.cores;
    for (let i = 0; i < 36; i++) {
      const stack = who.train.stacks[Math.floor(chance() ** 2 * who.train.stacks.length)] as number;
      rows.add(second * 1e6, 65535, who.train.tasks[0] as number, stack, Math.round(capacity / 72), false);
    }
    for (const other of who.system) rows.add(second * 1e6, 65535, other.task, other.stack, Math.round(capacity / 400), false);
    rows.add(second * 1e6, 65535, who.idle.task, who.idle.stack, Math.round(capacity / 2.2), true);
  }
}

/** The payload of a night of this shape, not yet packed. */
export function night(shape: Shape, open: Opening | null = null): Uint8Array {
  const chance = random(shape.seed);
  const who = cast(shape, chance);
  const { busy, kernel } = heat(shape);
  const [from, to] = shape.whole;
  const rows = new Rows((to - from) * shape.frequency * shape.cores + Math.ceil(shape.seconds / shape.coarse) * 60);
  addCoarse(rows, shape, who, 0, from, chance);
  addWhole(rows, shape, who, busy, chance);
  addCoarse(rows, shape, who, to, shape.seconds, chance);
  const us = (second: number) => BEGIN_US + second * 1e6;
  const detail: Detail[] = [
    { begin_us: us(0), end_us: us(from), step_us: shape.coarse * 1e6, per_core: false },
    { begin_us: us(from), end_us: us(to), step_us: 0, per_core: true },
    { begin_us: us(to), end_us: us(shape.seconds), step_us: shape.coarse * 1e6, per_core: false },
  ].filter((part) => part.end_us > part.begin_us);
  const [gapFrom, gapTo] = gap(shape);
  const header: Omit<Header, "arrays"> = {
    schema: "overnight.view/1", title: "The night of 14 November", host: "ip-10-0-3-17", generated: "2026-11-15T06:00:00Z",
    frequency: shape.frequency, cores: Array.from({ length: shape.cores }, (_, core) => core),
    begin_us: us(0), end_us: us(shape.seconds),
    events: [
      { time_us: us(shape.pinned.to + 0.4), kind: "net.driver_reset", text: "ena 0000:00:05.0 eth0: TX was not completed on time, resetting the device", core: null, severity: "critical" },
      { time_us: us(shape.seconds * 0.2), kind: "unit.restart", text: "node-problem-detector.service restarted, 41st time", core: null, severity: "warning" },
      { time_us: us(shape.seconds * 0.35), kind: "cgroup.census", text: "1,204 dying memory cgroups", core: null, severity: "info" },
    ],
    gaps: [{ begin_us: us(gapFrom), end_us: us(gapTo), why: "perf was restarted" }],
    lost: 128, notes: ["Symbols of 2 binaries were not found."],
    heat: { begin_us: us(0), step_us: 1e6, columns: shape.seconds }, detail, strings: who.tables.strings,
    ...(open ? { open } : {}),
  };
  return encode(header, {
    heat_busy: busy, heat_kernel: kernel, ...who.tables.arrays(),
    row_time: rows.time.subarray(0, rows.size), row_core: rows.core.subarray(0, rows.size),
    row_task: rows.task.subarray(0, rows.size), row_stack: rows.stack.subarray(0, rows.size),
    row_count: rows.count.subarray(0, rows.size), row_idle: rows.idle.subarray(0, rows.size),
  });
}
