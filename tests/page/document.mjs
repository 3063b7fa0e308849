// As much of a browser as the page needs: a document, a clock that a test moves, and a daemon that it plays.
//
// `load()` runs page.js of the current directory. Its events come through `daemon.tell`.

const elements = new Map();
const listeners = new Map();

class Element {
  constructor(tag = "div") {
    this.tag = tag;
    this.children = [];
    this.dataset = {};
    this.style = {};
    this.attributes = {};
    this.hidden = false;
    this.value = "";
    this.parent = null;
    this.content = "";
    this.handlers = {};
  }
  get textContent() {
    return this.children.length ? this.children.map((child) => child.textContent).join("") : this.content;
  }
  set textContent(text) {
    this.children = [];
    this.content = String(text);
  }
  get tBodies() { return [(this.body ??= new Element("tbody"))]; }
  get rows() { return this.children; }
  get cells() { return this.children; }
  get elements() { return this.children; }
  get lastChild() { return this.children.at(-1) ?? null; }
  get parentElement() { return this.parent; }
  get isConnected() { return this.parent !== null; }
  append(...added) { for (const child of added) this.insertBefore(child, null); }
  prepend(child) { this.insertBefore(child, this.children[0] ?? null); }
  insertBefore(child, before) {
    child.remove();
    this.children.splice(before ? this.children.indexOf(before) : this.children.length, 0, child);
    child.parent = this;
  }
  remove() {
    if (this.parent) this.parent.children.splice(this.parent.children.indexOf(this), 1);
    this.parent = null;
  }
  replaceChildren() { for (const child of [...this.children]) child.remove(); }
  insertRow() { return this.added("tr"); }
  insertCell() { return this.added("td"); }
  deleteRow() { this.lastChild.remove(); }
  added(tag) {
    const child = new Element(tag);
    this.append(child);
    return child;
  }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  removeAttribute(name) { delete this.attributes[name]; }
  addEventListener(name, handler) { this.handlers[name] = handler; }
  focus() {}
  scrollIntoView() {}
  getBoundingClientRect() { return { left: 0, top: 0, width: 400, height: 400 }; }
  getContext() { return new Proxy({}, { get: () => () => {}, set: () => true }); }
}

export const $ = (id) => {
  if (!elements.has(id)) elements.set(id, new Element());
  return elements.get(id);
};

// --- the clock ----------------------------------------------------------------------------------------------

let now_ms = 0;
let last = 0;
const timers = new Map();
const settle = async () => { for (let i = 0; i < 50; i += 1) await null; };

/** Let so much time pass, with everything that is due in it. */
export async function pass(ms) {
  const until = now_ms + ms;
  await settle();
  for (;;) {
    const due = [...timers].filter(([, timer]) => timer.at <= until).sort((a, b) => a[1].at - b[1].at)[0];
    if (!due) break;
    timers.delete(due[0]);
    now_ms = Math.max(now_ms, due[1].at);
    due[1].run();
    await settle();
  }
  now_ms = Math.max(now_ms, until);
}

/** What runs now takes so long. */
export function spend(ms) {
  now_ms += ms;
}

// --- the daemon ---------------------------------------------------------------------------------------------

export const daemon = {
  asked: [], // the options of each fetch
  status: 200,
  answers: true, // whether it answers at all
  stream: null,
  tell(name, value) {
    this.write(`event: ${name}\ndata: ${JSON.stringify(value)}\n\n`);
  },
  write(text) {
    this.stream.chunks.push(new TextEncoder().encode(text));
    this.stream.wake?.();
  },
  end() {
    this.stream.over = true;
    this.stream.wake?.();
  },
};

function reader(stream, signal) {
  return {
    async read() {
      for (;;) {
        if (signal?.aborted) throw new DOMException("aborted", "AbortError");
        if (stream.chunks.length) return { done: false, value: stream.chunks.shift() };
        if (stream.over) return { done: true };
        await new Promise((resolve) => (stream.wake = resolve));
      }
    },
  };
}

async function fetched(path, options = {}) {
  daemon.asked.push(options);
  const { signal } = options;
  const stream = { chunks: [], over: false, wake: null };
  signal?.addEventListener("abort", () => stream.wake?.());
  if (!daemon.answers) {
    await new Promise((_, reject) =>
      signal?.addEventListener("abort", () => reject(new DOMException("aborted", "AbortError"))));
  }
  daemon.stream = stream;
  const { status } = daemon;
  return { status, ok: status === 200, text: async () => `${status} no`, body: { getReader: () => reader(stream, signal) } };
}

const storage = () => {
  const kept = new Map();
  return { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) };
};

/** What a member, a report and everything at once look like. */
export const member = (id, status = "alive") => ({ id, status, incarnation: "1", version: 0, address: `h${id}` });
export const report = (id, peers, more = {}) => ({
  id, state: "ready", digest: "00", incarnation: "1", suspects: [], wanted: peers, isolated: false, stands_aside: false,
  links: peers.map((peer) => [peer, 0, 0, 0, 0, 0, 0, 0, 0]), uptime_s: 1, backlog_bytes: 0, rss_bytes: 1, ...more,
});
export const summary = (alive, more = {}) => ({
  alive, dead: 0, left: 0, reported: alive, silent: [], agree: "yes", digests: { "00": alive }, unsettled: [],
  isolated: [], stand_aside: [], suspected: [], ...more,
});
export const cluster = (ids, more = {}) => ({
  own_id: 0, now: 0, period_s: 1, cluster: "c", can_trace: true, members: ids.map((id) => member(id)),
  reports: ids.map((id) => report(id, ids.filter((peer) => peer !== id))), summary: summary(ids.length), events: [], ...more,
});

/** Run the page. */
export async function load({ hash = "" } = {}) {
  const body = new Element("body");
  Object.assign(globalThis, {
    window: { devicePixelRatio: 1 },
    document: {
      body, hidden: false, title: "", documentElement: new Element("html"),
      getElementById: $, createElement: (tag) => new Element(tag),
      querySelector: () => null, querySelectorAll: () => [],
      addEventListener: (name, handler) => listeners.set(name, handler),
    },
    location: { hash, pathname: "/" },
    history: { replaceState: () => { globalThis.location.hash = ""; } },
    sessionStorage: storage(), localStorage: storage(),
    matchMedia: () => ({ matches: false, addEventListener() {} }),
    getComputedStyle: () => ({ getPropertyValue: () => "" }),
    ResizeObserver: class { observe() {} },
    requestAnimationFrame: () => 0,
    fetch: fetched,
    setTimeout: (run, ms = 0) => { timers.set(++last, { run, at: now_ms + ms }); return last; },
    clearTimeout: (id) => timers.delete(id),
  });
  globalThis.performance.now = () => now_ms;
  await import(`${process.cwd()}/page.js`);
  await settle();
  return globalThis.window.bmgdRing;
}
