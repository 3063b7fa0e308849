// The picture: nodes on a ring, links as curves, drawn on a canvas only when something has changed.
//
// A frame is drawn while a link or a node is in transition, and once after each change. Links of one
// colour and width are stroked together, so 256 nodes with 2,000 links need some twenty strokes.

const FADE_IN_MS = 900;
const FADE_OUT_MS = 1400;
const DEATH_MS = 1200;
const WIDTHS = [0.8, 1.4, 2.2, 3.2, 4.6, 6.2];
const BACKLOG_BYTES = 65536;

export class Ring {
  // canvas: where it is drawn; onPick: is told which node was chosen; onPoint: which one is pointed at.
  constructor(canvas, onPick, onPoint) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.onPick = onPick;
    this.nodes = []; // {id, look}
    this.at = new Map(); // id -> {x, y, angle}
    this.links = new Map(); // key -> {a, b, rate, backlog, born, lost}
    this.deaths = new Map(); // id -> when
    this.selected = null;
    this.path = null;
    this.still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.planned = false;
    this.frames = 0;
    this.slowest_ms = 0;
    this.colours = {};
    new ResizeObserver(() => this.resize()).observe(canvas);
    canvas.addEventListener("click", (event) => {
      const id = this.nearest(event);
      if (id !== null) onPick(id);
    });
    canvas.addEventListener("mousemove", (event) => onPoint(this.nearest(event), event));
    canvas.addEventListener("mouseleave", (event) => onPoint(null, event));
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.resize();
  }

  recolour() {
    const style = getComputedStyle(document.documentElement);
    const names = ["back", "card", "ink", "soft", "line", "alive", "suspected", "silent", "dead", "dead-mark", "left",
      "new", "lost", "link", "busy", "backlog", "path", "focus"];
    for (const name of names) this.colours[name] = style.getPropertyValue("--" + name).trim();
    this.redraw();
  }

  resize() {
    const scale = Math.min(window.devicePixelRatio || 1, 2);
    const box = this.canvas.getBoundingClientRect();
    this.width = box.width;
    this.height = box.height;
    this.canvas.width = Math.round(box.width * scale);
    this.canvas.height = Math.round(box.height * scale);
    this.scale = scale;
    this.place();
    this.recolour();
  }

  // nodes: [{id, look}] in the order of the ring; look: alive, joining, suspected, silent, dead or left.
  show(nodes) {
    const before = new Map(this.nodes.map((node) => [node.id, node.look]));
    const now = performance.now();
    for (const node of nodes) {
      const former = before.get(node.id);
      if (node.look === "dead" && former !== undefined && former !== "dead") this.deaths.set(node.id, now);
      if (node.look !== "dead") this.deaths.delete(node.id);
    }
    const moved = nodes.length !== this.nodes.length || nodes.some((node, i) => node.id !== this.nodes[i].id);
    this.nodes = nodes;
    if (moved) this.place();
    this.redraw();
  }

  place() {
    const radius = Math.max(40, Math.min(this.width, this.height) / 2 - 34);
    this.centre = { x: this.width / 2, y: this.height / 2 };
    this.radius = radius;
    this.at.clear();
    const count = this.nodes.length;
    this.nodes.forEach((node, i) => {
      const angle = (i / count) * 2 * Math.PI - Math.PI / 2;
      this.at.set(node.id, { angle, x: this.centre.x + radius * Math.cos(angle), y: this.centre.y + radius * Math.sin(angle) });
    });
    this.size = Math.max(3, Math.min(15, (radius * 2.2) / Math.max(1, count)));
  }

  // links: Map key -> {a, b, rate, backlog}; those that are new fade in, those that are gone fade out.
  connect(links, animate) {
    const now = performance.now();
    for (const [key, link] of links) {
      const known = this.links.get(key);
      if (known && !known.lost) {
        known.rate = link.rate;
        known.backlog = link.backlog;
      } else {
        this.links.set(key, { ...link, born: animate ? now : 0, lost: 0 });
      }
    }
    for (const [key, link] of this.links) {
      if (!links.has(key) && !link.lost) {
        if (animate) link.lost = now;
        else this.links.delete(key);
      }
    }
    this.redraw();
  }

  redraw() {
    if (this.planned) return;
    this.planned = true;
    requestAnimationFrame(() => this.frame());
  }

  frame() {
    this.planned = false;
    if (document.hidden) return;
    const began = performance.now();
    const moving = this.draw(began);
    this.frames += 1;
    this.slowest_ms = Math.max(this.slowest_ms, performance.now() - began);
    this.last_ms = performance.now() - began;
    if (moving && !this.still) this.redraw();
  }

  draw(now) {
    const { context, colours } = this;
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    let moving = this.drawLinks(now);
    if (this.path) this.drawPath();
    moving = this.drawNodes(now) || moving;
    context.fillStyle = colours.ink;
    return moving;
  }

  drawLinks(now) {
    const batches = new Map();
    const changing = [];
    for (const [key, link] of this.links) {
      if (!this.at.has(link.a) || !this.at.has(link.b)) continue;
      if (link.lost) {
        if (this.still || now - link.lost > FADE_OUT_MS) this.links.delete(key);
        else changing.push(link);
        continue;
      }
      if (link.born && now - link.born < FADE_IN_MS && !this.still) {
        changing.push(link);
        continue;
      }
      const width = widthOf(link.rate);
      const colour = link.backlog > BACKLOG_BYTES ? "backlog" : width > 1 ? "busy" : "link";
      const name = colour + width;
      if (!batches.has(name)) batches.set(name, { colour, width: WIDTHS[width], links: [] });
      batches.get(name).links.push(link);
    }
    const { context, colours } = this;
    // Many links on one ring would cover each other.
    const thinner = Math.max(0.3, Math.min(1, 64 / this.nodes.length));
    const dim = this.path || this.selected !== null;
    for (const { colour, width, links } of batches.values()) {
      context.strokeStyle = colours[colour];
      context.lineWidth = width * thinner;
      context.globalAlpha = dim ? 0.4 : this.nodes.length > 100 ? 0.55 : 0.9;
      context.beginPath();
      for (const link of links) this.curve(link.a, link.b);
      context.stroke();
    }
    if (this.selected !== null && !this.path) {
      context.globalAlpha = 1;
      context.strokeStyle = colours.focus;
      context.lineWidth = 2;
      context.beginPath();
      for (const link of this.links.values()) {
        if (!link.lost && (link.a === this.selected || link.b === this.selected)) this.curve(link.a, link.b);
      }
      context.stroke();
    }
    for (const link of changing) {
      const share = link.lost ? (now - link.lost) / FADE_OUT_MS : (now - link.born) / FADE_IN_MS;
      context.globalAlpha = link.lost ? 1 - share : 0.25 + 0.75 * share;
      context.strokeStyle = colours[link.lost ? "lost" : "new"];
      context.lineWidth = 2.6;
      context.setLineDash(link.lost ? [6, 4] : []);
      context.beginPath();
      this.curve(link.a, link.b);
      context.stroke();
      context.setLineDash([]);
    }
    context.globalAlpha = 1;
    return changing.length > 0;
  }

  curve(a, b) {
    const from = this.at.get(a);
    const to = this.at.get(b);
    if (!from || !to) return;
    // The farther apart, the nearer to the centre it bends.
    const x = (from.x + to.x) / 2;
    const y = (from.y + to.y) / 2;
    const bend = 0.35;
    this.context.moveTo(from.x, from.y);
    this.context.quadraticCurveTo(x + (this.centre.x - x) * bend, y + (this.centre.y - y) * bend, to.x, to.y);
  }

  drawPath() {
    const { context, colours } = this;
    context.strokeStyle = colours.path;
    context.lineWidth = 4;
    context.globalAlpha = 1;
    for (let i = 0; i + 1 < this.path.length; i += 1) {
      context.beginPath();
      this.curve(this.path[i], this.path[i + 1]);
      context.stroke();
      this.arrow(this.path[i], this.path[i + 1]);
    }
  }

  arrow(a, b) {
    const from = this.at.get(a);
    const to = this.at.get(b);
    if (!from || !to) return;
    const mid = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
    const bent = { x: mid.x + (this.centre.x - mid.x) * 0.175, y: mid.y + (this.centre.y - mid.y) * 0.175 };
    const angle = Math.atan2(to.y - from.y, to.x - from.x);
    const { context } = this;
    context.fillStyle = this.colours.path;
    context.beginPath();
    for (const [turn, length] of [[0, 10], [2.5, 9], [-2.5, 9]]) {
      context.lineTo(bent.x + length * Math.cos(angle + turn), bent.y + length * Math.sin(angle + turn));
    }
    context.fill();
  }

  drawNodes(now) {
    const { context, colours, size } = this;
    let moving = false;
    const onPath = new Set(this.path || []);
    const every = this.nodes.length <= 64 ? 1 : this.nodes.length <= 128 ? 4 : 8;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const [i, node] of this.nodes.entries()) {
      const { x, y, angle } = this.at.get(node.id);
      const died = this.deaths.get(node.id);
      if (died !== undefined && now - died < DEATH_MS && !this.still) {
        const share = (now - died) / DEATH_MS;
        context.globalAlpha = 1 - share;
        context.strokeStyle = colours.lost;
        context.lineWidth = 3;
        context.beginPath();
        context.arc(x, y, size + share * 26, 0, 2 * Math.PI);
        context.stroke();
        context.globalAlpha = 1;
        moving = true;
      }
      this.dot(node.look, x, y, size);
      if (node.id === this.selected || onPath.has(node.id)) {
        context.strokeStyle = onPath.has(node.id) ? colours.path : colours.focus;
        context.lineWidth = 3;
        context.beginPath();
        context.arc(x, y, size + 4, 0, 2 * Math.PI);
        context.stroke();
      }
      const odd = node.look !== "alive" && node.look !== "left";
      if (i % every === 0 || odd || node.id === this.selected || onPath.has(node.id)) {
        context.fillStyle = odd ? colours.lost : colours.soft;
        context.font = `${odd || node.id === this.selected ? "bold " : ""}${this.nodes.length <= 32 ? 13 : 11}px system-ui, sans-serif`;
        context.fillText(node.id, x + (size + 12) * Math.cos(angle), y + (size + 12) * Math.sin(angle));
      }
    }
    return moving;
  }

  dot(look, x, y, size) {
    const { context, colours } = this;
    context.beginPath();
    context.arc(x, y, size, 0, 2 * Math.PI);
    context.setLineDash([]);
    if (look === "dead") {
      context.fillStyle = colours.dead;
      context.fill();
      context.strokeStyle = colours["dead-mark"];
      context.lineWidth = Math.max(1.4, size / 5);
      const arm = size * 0.5;
      context.beginPath();
      context.moveTo(x - arm, y - arm);
      context.lineTo(x + arm, y + arm);
      context.moveTo(x - arm, y + arm);
      context.lineTo(x + arm, y - arm);
      context.stroke();
      return;
    }
    context.fillStyle = look === "alive" || look === "suspected" ? colours.alive : colours.card;
    context.fill();
    if (look === "alive") return;
    context.strokeStyle = colours[look === "joining" ? "alive" : look];
    context.lineWidth = look === "suspected" ? Math.max(3, size / 2.2) : 2;
    context.setLineDash(look === "silent" ? [3, 3] : []);
    context.stroke();
    context.setLineDash([]);
  }

  nearest(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    let best = null;
    let least = (this.size + 14) ** 2;
    for (const [id, place] of this.at) {
      const distance = (place.x - x) ** 2 + (place.y - y) ** 2;
      if (distance < least) {
        least = distance;
        best = id;
      }
    }
    return best;
  }

  onKey(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") this.onPick(null);
    if (!step || !this.nodes.length) return;
    event.preventDefault();
    const at = this.nodes.findIndex((node) => node.id === this.selected);
    this.onPick(this.nodes[(at + step + this.nodes.length) % this.nodes.length].id);
  }
}

// Bytes per second to one of the widths: heartbeats alone give the thinnest.
function widthOf(rate) {
  const bounds = [2000, 20000, 200000, 2e6, 2e7];
  let width = 0;
  while (width < bounds.length && rate > bounds[width]) width += 1;
  return width;
}
