// What the ring showed at moments of the past: the links packed into numbers, the oldest forgotten at a bound.
//
// A picture of 1,000 nodes with 10,000 links takes 0.2 MB; as the objects that the ring draws it took ten times that.

const BYTES_MAX = 32 << 20;
const STATUS_BYTES = 48; // about, of an entry in a map

export class Pictures {
  constructor() {
    this.kept = []; // oldest first
    this.bytes = 0;
    this.seen = null; // the maps of the newest picture: moments between two changes share it
  }

  // statuses: Map id -> look; edges: Map key -> {a, b, rate, backlog}; neither may change later.
  take(statuses, edges) {
    if (this.seen && this.seen.statuses === statuses && this.seen.edges === edges) return this.kept.at(-1);
    const picture = { statuses, links: packed(edges) };
    this.seen = { statuses, edges };
    this.kept.push(picture);
    this.bytes += bytesOf(picture);
    while (this.bytes > BYTES_MAX && this.kept.length > 1) {
      const oldest = this.kept.shift();
      this.bytes -= bytesOf(oldest);
      oldest.statuses = oldest.links = null;
    }
    return picture;
  }
}

// The links of a picture as the ring draws them.
export function edgesOf(picture) {
  const edges = new Map();
  for (let at = 0; at < picture.links.length; at += 4) {
    const [a, b, rate, backlog] = picture.links.subarray(at, at + 4);
    edges.set(`${a}-${b}`, { a, b, rate, backlog });
  }
  return edges;
}

function packed(edges) {
  const numbers = new Float32Array(4 * edges.size);
  let at = 0;
  for (const { a, b, rate, backlog } of edges.values()) {
    numbers.set([a, b, rate, backlog], at);
    at += 4;
  }
  return numbers;
}

function bytesOf(picture) {
  return picture.links.byteLength + STATUS_BYTES * picture.statuses.size;
}
