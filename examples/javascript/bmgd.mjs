// A client of bmgd for Node.js, in nothing but Node.js: what docs/control-protocol.md says is all it needs.
//
//     import { connect } from "./bmgd.mjs";
//
//     const daemon = await connect("/run/bmgd/3.sock");
//     await daemon.send(7, Buffer.from("x"), { topic: "jobs", timeout: 10 });
//     const answer = await daemon.request(7, Buffer.from("q"), { topic: "rpc", timeout: 2 });
//     for await (const message of await daemon.subscribe("jobs")) ...   // .source .topic .payload
//     await daemon.answer("rpc", async (question, source) => Buffer.from("a"));
//     for await (const change of await daemon.membership()) ...         // the snapshot first, then changes
//     await daemon.close();

import { Answering } from "./answering.mjs";
import { Asking } from "./asking.mjs";
import { ANSWER_S, BmgdError, Connection, connected, inTime, silent } from "./connection.mjs";
import { Kind } from "./frames.mjs";
import { Items } from "./items.mjs";
import { MESSAGE_BYTES_MAX } from "./outgoing.mjs";

export { BmgdError } from "./connection.mjs";

const HELLO = { versions: [1], features: ["requests"] };
const TIMEOUT_S_MAX = 86_400;

/**
 * Connect to the daemon whose control socket is at `path`, and agree on a version of the protocol.
 * Throws NoDaemonError where none listens, VersionError where it does not speak this version, and
 * SilentDaemonError where it does not answer.
 */
export async function connect(path) {
  const connection = new Connection(await connected(path));
  await inTime(connection.request("hello", HELLO), ANSWER_S, () => silent("hello"));
  return new Daemon(connection);
}

class Daemon {
  #connection;
  #asking;
  #answering = [];

  constructor(connection) {
    this.#connection = connection;
    this.#asking = new Asking(connection);
  }

  /** The map that `bmgd status --json` prints. */
  status() {
    return this.#connection.request("status", {});
  }

  /** `{revision, members}`, sorted by id. */
  members() {
    return this.#connection.request("members", {});
  }

  /** Send up to 64 KiB; done when the destination's daemon has it. */
  async send(destination, payload, { topic, timeout = 30 }) {
    const parameters = { destination: idOf(destination), topic, payload: Buffer.from(payload), timeout: checked(timeout) };
    // The daemon ends the connection for a frame that is too long.
    if (parameters.payload.length > MESSAGE_BYTES_MAX) throw new BmgdError("RequestError", "at most 64 KiB can be sent", { sent: false });
    // The daemon minds the timeout, unless it is stopped: then it may have sent this already, or do so later.
    const answer = this.#connection.request("send", parameters);
    await inTime(answer, timeout + ANSWER_S, () => silent("send", { destination, sent: true }));
  }

  /** Ask who reads `topic` at a node, with up to 64 KiB; the answer, or NoReaderError, ReaderLostError, DeadError. */
  async request(destination, payload, { topic, timeout = 30 }) {
    return this.#asking.ask(idOf(destination), Buffer.from(payload), topic, checked(timeout));
  }

  /**
   * Answer all questions to `topic` by the Buffer or text (up to 64 KiB) that `answerTo(question, source)` returns; what
   * it throws is told to the asker. Gives `{ended}`: a promise that is done when no further question comes, with the error
   * or null. Without a look at it a program does not learn that it answers nobody any more.
   */
  async answer(topic, answerTo) {
    const answering = new Answering(this.#connection, topic, answerTo);
    await answering.begin();
    this.#answering.push(answering);
    return { ended: answering.ended };
  }

  /**
   * Read a topic: an async iterable of `{source, topic, payload}`, and of `{missed: {source, first, last}}` where broadcasts
   * were lost. A message is consumed when the next one is asked for, or by `consumed()`. Broadcasts above 64 KiB, which come
   * in pieces, are left out.
   */
  subscribe(topic, { credit = 64 } = {}) {
    // Broadcasts, their pieces, and what says that some are missing, have a credit of their own.
    const kindOf = (item) => (item.broadcast || item.missed || item.piece ? Kind.CONSUMED_BROADCASTS : Kind.CONSUMED);
    const consume = (number, item) => this.#connection.write(kindOf(item), number, 1);
    return this.#iterable("subscribe", { topic, credit }, consume, (item) => !item.piece);
  }

  /** All members first (`{revision, members}`), then each change, without a gap. */
  membership() {
    return this.#iterable("membership", {}, () => {});
  }

  /** End the connection, once all answers are taken. What else still waits fails with NoDaemonError. */
  async close() {
    for (const answering of this.#answering) await answering.flush();
    await this.#connection.close();
  }

  async #iterable(verb, parameters, consume, isWanted) {
    const items = new Items(
      (item) => consume(number, item),
      () => this.#connection.write(Kind.CANCEL, number),
      isWanted,
    );
    const { number, answer } = this.#connection.open(verb, parameters, items);
    await answer;
    return items;
  }
}

// The daemon ends the connection, and all that goes on over it, for a field that is not of its kind.

function checked(timeout) {
  if (typeof timeout === "number" && timeout > 0 && timeout <= TIMEOUT_S_MAX) return timeout;
  throw new BmgdError("RequestError", `a timeout is a number of seconds above 0, at most ${TIMEOUT_S_MAX}`, { sent: false });
}

function idOf(destination) {
  const id = Number(destination);
  if (Number.isSafeInteger(id) && id >= 0) return id;
  throw new BmgdError("RequestError", `a destination is the id of a node, not ${destination}`, { sent: false });
}
