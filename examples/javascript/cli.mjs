// A command line over bmgd.mjs, a line of JSON for everything that comes:
//
//     node cli.mjs SOCKET send DEST TOPIC TEXT
//     node cli.mjs SOCKET recv TOPIC COUNT
//     node cli.mjs SOCKET request DEST TOPIC TEXT
//     node cli.mjs SOCKET answer TOPIC COUNT   the first COUNT questions, each with its text in capitals
//     node cli.mjs SOCKET members
//     node cli.mjs SOCKET watch COUNT          the first COUNT changes of the membership

import { connect } from "./bmgd.mjs";

const COUNTED = ["recv", "answer", "watch"]; // whose last word is COUNT

const COMMANDS = {
  async send(daemon, destination, topic, text) {
    await daemon.send(Number(destination), Buffer.from(text), { topic });
    print({ confirmed: Number(destination) });
  },

  async recv(daemon, topic, count) {
    const messages = await daemon.subscribe(topic);
    print({ reading: topic });
    await first(messages, count, ({ source, payload, broadcast = false, missed }) =>
      print(missed ? { missed } : { source, payload: payload.toString("utf8"), broadcast }),
    );
  },

  async request(daemon, destination, topic, text) {
    const answer = await daemon.request(Number(destination), Buffer.from(text), { topic, timeout: 10 });
    print({ answer: answer.toString("utf8") });
  },

  async answer(daemon, topic, count) {
    if (count === 0) return;
    let left = count;
    let enough;
    const over = new Promise((resolve) => (enough = resolve));
    const { ended } = await daemon.answer(topic, (question, source) => {
      print({ question: question.toString("utf8"), source });
      if (--left === 0) setImmediate(enough);
      return Buffer.from(question.toString("utf8").toUpperCase());
    });
    print({ answering: topic });
    const error = await Promise.race([over, ended]);
    if (error) throw error;
  },

  async members(daemon) {
    print(await daemon.members());
  },

  async watch(daemon, count) {
    const changes = await daemon.membership();
    await first(changes, count + 1, print);
  },
};

async function first(items, count, show) {
  if (count === 0) return;
  for await (const item of items) {
    show(item);
    items.consumed(); // before the loop is left
    if (--count === 0) return;
  }
}

function whole(count) {
  if (!/^[0-9]{1,9}$/.test(count)) usage(`COUNT is a whole number, not ${count}`);
  return Number(count);
}

function usage(text) {
  process.stderr.write(`${text}\n`);
  process.exit(2);
}

function print(value) {
  const text = JSON.stringify(value, (_, field) => (typeof field === "bigint" ? field.toString() : field));
  process.stdout.write(text + "\n");
}

// Nobody reads any more, or there is no room: nothing that it does is of use.
process.stdout.on("error", () => process.exit(1));

const [path, name, ...words] = process.argv.slice(2);
if (!Object.hasOwn(COMMANDS, name ?? "")) {
  usage(`usage: node cli.mjs SOCKET ${Object.keys(COMMANDS).join("|")} ...`);
}
const missing = COMMANDS[name].length - 1 - words.length;
if (missing !== 0) {
  usage(`${name} takes ${COMMANDS[name].length - 1} arguments: ${missing > 0 ? "too few" : "too many"} are given`);
}
if (COUNTED.includes(name)) words.push(whole(words.pop()));
let daemon = null;
try {
  daemon = await connect(path);
  await COMMANDS[name](daemon, ...words);
} catch (error) {
  print({ error: error.name, detail: error.message, sent: error.sent ?? null });
  process.exitCode = error.name === "NoDaemonError" ? 3 : 1;
} finally {
  await daemon?.close();
}
