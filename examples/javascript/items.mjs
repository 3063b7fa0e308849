// What a stream brings, as an async iterable.

/**
 * One item after the other. An item is consumed when the next one is asked for; leaving the loop ends the stream.
 * What `isWanted` does not want is consumed as it comes, and not given to anybody.
 */
export class Items {
  #ready = [];
  #asking = []; // promises that wait for an item
  #held = null; // the item given last, until it is consumed
  #over = false;
  #error = null;
  #consume;
  #cancel;
  #isWanted;

  constructor(consume, cancel, isWanted = () => true) {
    this.#consume = consume;
    this.#cancel = cancel;
    this.#isWanted = isWanted;
  }

  onItem(item) {
    if (!this.#isWanted(item)) return this.#consume(item);
    this.#ready.push(item);
    this.#serve();
  }

  onEnd(error) {
    this.#over = true;
    this.#error = error;
    this.#serve();
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /** The item given last is done. To be called before a loop is left by `break`, else its item comes again to the next reader. */
  consumed() {
    if (this.#held && !this.#over) this.#consume(this.#held);
    this.#held = null;
  }

  next() {
    this.consumed();
    return new Promise((resolve, reject) => {
      this.#asking.push({ resolve, reject });
      this.#serve();
    });
  }

  async return() {
    if (!this.#over) this.#cancel();
    return { done: true, value: undefined };
  }

  #serve() {
    while (this.#asking.length && (this.#ready.length || this.#over)) {
      const { resolve, reject } = this.#asking.shift();
      if (this.#ready.length) {
        this.#held = this.#ready.shift();
        resolve({ done: false, value: this.#held });
      } else if (this.#error) reject(this.#error);
      else resolve({ done: true, value: undefined });
    }
  }
}
