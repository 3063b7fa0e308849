// Questions to other nodes, and the inbox that their answers come to.
//
// Theory of operation. All questions to one topic of one node share a stream, which counts them from `first`
// on; an answer names the number. A question is over with its answer, with an answer that says why there is
// none, with the end of its stream, or with its time; then SETTLED gives back the room of its answer.

import { BmgdError, inTime } from "./connection.mjs";
import { Kind } from "./frames.mjs";
import { Incoming, Outcome, answerOf } from "./incoming.mjs";
import { Outgoing } from "./outgoing.mjs";

const CREDIT_BYTES = 1 << 20;
const REASONS = {
  [Outcome.FAILED]: ["FailedAnswerError", "the program that was asked has no answer"],
  [Outcome.READER_LOST]: ["ReaderLostError", "the program that was asked went away"],
  [Outcome.NO_READER]: ["NoReaderError", "nobody there reads that topic"],
};

export class Asking {
  #connection;
  #incoming;
  #inbox = null; // a promise of its number
  #stream = 0; // the number of the inbox's own stream
  #streams = new Map(); // "destination topic" -> { out, next }
  #asked = new Map(); // the number of a question -> { stream, destination, resolve, reject }

  constructor(connection) {
    this.#connection = connection;
    this.#incoming = new Incoming(connection);
  }

  /** The answer to one question. `timeout` is in seconds. */
  async ask(destination, payload, topic, timeout) {
    const until = performance.now() + 1000 * timeout;
    const unsent = () => failure("UnreachableError", destination, "no answer in time", false);
    const known = this.#streams.get(keyOf(destination, topic));
    const isOpen = known && known.next !== null && !known.out.over;
    const stream = isOpen ? known : await inTime(this.#openStreamTo(destination, topic), timeout, unsent);
    timeout = Math.max((until - performance.now()) / 1000, 0.001);
    return new Promise((resolve, reject) => {
      let number = 0; // until it is put
      const outcome = (settle) => (value) => {
        clearTimeout(timer);
        if (number) this.#settled(0, this.#asked.delete(number) ? [number] : []);
        settle(value);
      };
      const late = () => {
        takeBack(); // one that waits for room is not sent any more
        outcome(reject)(failure("UnreachableError", destination, "no answer in time", number > 0));
      };
      const timer = setTimeout(late, 1000 * timeout);
      const onPut = () => {
        number = stream.next++;
        this.#asked.set(number, { stream, destination, resolve: outcome(resolve), reject: outcome(reject) });
      };
      const takeBack = stream.out.send(payload, timeout, { onPut, onFailed: outcome(reject) });
    });
  }

  // --- the inbox's stream -----------------------------------------------------------------------------

  onItem(item) {
    const messages = this.#incoming.messagesOf(this.#stream, item);
    if (item.count) this.#settled(item.count, []);
    for (const message of messages) this.#answered(item.source, answerOf(message));
  }

  onEnd(error) {
    for (const { reject } of [...this.#asked.values()]) reject(error ?? new BmgdError("NoDaemonError", "the inbox ended"));
  }

  #answered(source, { outcome, question, rest }) {
    const asked = this.#asked.get(question);
    if (asked?.destination !== source) return; // over, or not from the one who was asked
    if (outcome === Outcome.ANSWER) return asked.resolve(rest);
    const [name, text] = REASONS[outcome];
    asked.reject(failure(name, source, rest.toString("utf8") || text, outcome !== Outcome.NO_READER));
  }

  #settled(count, questions) {
    if (count || questions.length) this.#connection.write(Kind.SETTLED, this.#stream, count, questions);
  }

  #opened() {
    if (this.#inbox === null) {
      const { number, answer } = this.#connection.open("inbox", { credit_bytes: CREDIT_BYTES }, this);
      this.#stream = number;
      this.#inbox = answer.then(({ inbox }) => inbox);
    }
    return this.#inbox;
  }

  async #openStreamTo(destination, topic) {
    const stream = this.#streamTo(destination, topic, await this.#opened());
    const { first } = await stream.out.opened;
    stream.next ??= first;
    return stream;
  }

  #streamTo(destination, topic, inbox) {
    const key = keyOf(destination, topic);
    const known = this.#streams.get(key);
    if (known && !known.out.over) return known;
    const stream = { next: null, out: null };
    const parameters = { destination, topic, priority: "normal", inbox };
    stream.out = new Outgoing(this.#connection, "questions", parameters, (error) => this.#over(stream, error));
    this.#streams.set(key, stream);
    return stream;
  }

  // The other daemon had taken these questions; no answer to them comes.
  #over(stream, error) {
    for (const asked of [...this.#asked.values()]) if (asked.stream === stream) asked.reject(error);
  }
}

function keyOf(destination, topic) {
  return `${destination} ${topic}`;
}

function failure(name, destination, detail, sent) {
  return new BmgdError(name, `node ${destination}: ${detail}`, { destination, detail, sent });
}
