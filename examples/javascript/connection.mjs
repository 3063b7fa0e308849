// One connection to a daemon: requests, and what comes back for them.
//
// Theory of operation. Every request has a number of its own. A RESULT or an ERROR with that number ends it;
// for a stream a RESULT opens it, ITEMs follow, and an END closes it. A stream belongs to a *sink*, which is
// told of each ITEM (`onItem`) and of the end (`onEnd`). When the connection ends, so does everything that waits.

import { createConnection } from "node:net";

import { Kind, Splitter, frame } from "./frames.mjs";

/** What the daemon says went wrong. `name` is that of the protocol: DeadError, NoReaderError, ... */
export class BmgdError extends Error {
  constructor(name, message, fields = {}) {
    super(message);
    // destination, detail, sent: false says that repeating is safe
    Object.assign(this, fields, { name: name ?? "RequestError", message: this.message });
  }
}

/** The daemon answers within so many seconds, or it is taken for stopped. */
export const ANSWER_S = 10;

/** What `promise` gives, or the error that `late` makes after so many seconds. */
export function inTime(promise, seconds, late) {
  let timer;
  const over = new Promise((_, reject) => (timer = setTimeout(() => reject(late()), 1000 * seconds)));
  return Promise.race([promise, over]).finally(() => clearTimeout(timer));
}

export function silent(what, fields = {}) {
  return new BmgdError("SilentDaemonError", `the daemon does not answer to ${what}`, fields);
}

/** A socket connected to `path`. Throws NoDaemonError where none listens. */
export function connected(path) {
  return new Promise((resolve, reject) => {
    const socket = createConnection({ path });
    const failed = (error) => reject(new BmgdError("NoDaemonError", `no daemon at ${path}: ${error.message}`));
    socket.once("error", failed);
    socket.once("connect", () => {
      socket.off("error", failed);
      resolve(socket);
    });
  });
}

export class Connection {
  #socket;
  #splitter = new Splitter();
  #waiting = new Map(); // the number of a request -> { resolve, reject, sink }
  #sinks = new Map(); // the number of a stream -> its sink
  #next = 1;
  #ended = null;

  constructor(socket) {
    this.#socket = socket;
    socket.on("data", (chunk) => this.#received(chunk));
    socket.on("error", (error) => this.#end(new BmgdError("NoDaemonError", error.message)));
    socket.on("close", () => this.#end(new BmgdError("NoDaemonError", "the daemon ended the connection")));
  }

  /** The value that a request is answered with. */
  request(verb, parameters) {
    return this.#ask(verb, parameters, null).answer;
  }

  /** Open a stream: `{number, answer}`, where `answer` is what it is opened with. */
  open(verb, parameters, sink) {
    return this.#ask(verb, parameters, sink);
  }

  /** Write a frame that belongs to a stream. */
  write(kind, number, ...elements) {
    if (!this.#ended) this.#socket.write(frame(kind, number, ...elements));
  }

  /** End the connection; of a daemon that is stopped it is cut. What still waits fails with NoDaemonError. */
  async close() {
    this.#socket.end();
    const closed = new Promise((resolve) => (this.#socket.closed ? resolve() : this.#socket.once("close", resolve)));
    await inTime(closed, ANSWER_S, () => silent("the end")).catch(() => this.#socket.destroy());
  }

  #ask(verb, parameters, sink) {
    const number = this.#next++;
    if (this.#ended) return { number, answer: Promise.reject(this.#ended) };
    this.#socket.write(frame(Kind.REQUEST, number, verb, parameters));
    const answer = new Promise((resolve, reject) => this.#waiting.set(number, { resolve, reject, sink }));
    return { number, answer };
  }

  #received(chunk) {
    try {
      for (const { kind, sequence, elements } of this.#splitter.feed(chunk)) this.#take(kind, sequence, elements);
    } catch (error) {
      this.#end(error instanceof BmgdError ? error : new BmgdError("ProtocolError", error.message));
      this.#socket.destroy();
    }
  }

  #take(kind, number, elements) {
    if (number === 0) throw new BmgdError(...elements); // the daemon is about to close
    switch (kind) {
      case Kind.RESULT: return this.#answered(number, elements[0]);
      case Kind.ERROR: return this.#claim(number).reject(new BmgdError(...elements));
      case Kind.ITEM: return this.#sink(number).onItem(elements[0]);
      case Kind.END: {
        const [name, message, fields] = elements;
        this.#sink(number).onEnd(name ? new BmgdError(name, message, fields) : null);
        return this.#sinks.delete(number);
      }
      default: throw new RangeError(`a frame of kind 0x${kind.toString(16)}`);
    }
  }

  #answered(number, value) {
    const { resolve, sink } = this.#claim(number);
    if (sink) this.#sinks.set(number, sink);
    resolve(value);
  }

  #sink(number) {
    const sink = this.#sinks.get(number);
    if (!sink) throw new RangeError(`something of stream ${number}, which nobody opened`);
    return sink;
  }

  #claim(number) {
    const waiting = this.#waiting.get(number);
    if (!waiting) throw new RangeError(`an answer to request ${number}, which nobody made`);
    this.#waiting.delete(number);
    return waiting;
  }

  #end(error) {
    if (this.#ended) return;
    this.#ended = error;
    for (const { reject } of this.#waiting.values()) reject(error);
    for (const sink of this.#sinks.values()) sink.onEnd(error);
    this.#waiting.clear();
    this.#sinks.clear();
  }
}
