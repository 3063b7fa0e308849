// The page: a stream of events from one daemon, the state that they make, and the document that shows it.
//
// Events: `cluster` (everything; the state begins anew), `member`, `report`, `summary`, `event` (one line
// of the timeline), `dropped` (this page was cut, and why). Texts from daemons are only ever set as text.

import { Pictures, edgesOf } from "./pictures.js";
import { Ring } from "./ring.js";

const SHOW_MS = 30; // how soon a change is drawn
const TABLE_MS = 250; // how often the table follows
const REST = 3; // so many times longer than a drawing took, nothing is drawn: 1,000 nodes take a while
const FRAMES_MAX = 1500; // moments that the timeline can go back to
const SILENCE_MS = 25000; // the daemon writes at least every 10 s
const RETRY_MS = [300, 600, 1200, 2500, 5000];
const $ = (id) => document.getElementById(id);

const state = {
  ownId: null, canTrace: false, members: new Map(), reports: new Map(), rates: new Map(),
  summary: null, events: [], frames: [], past: null, selected: null, sort: ["id", 1], retries: 0,
  statuses: new Map(), edges: new Map(), pictures: new Pictures(),
};
const ring = new Ring($("ring"), select, point);
window.bmgdRing = ring; // for those who measure frame times

// --- the stream -----------------------------------------------------------------------------------

function token() {
  const found = /[#&]token=([^&]+)/.exec(location.hash);
  if (found) {
    sessionStorage.setItem("token", decoded(found[1]));
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("token") || "";
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    if (!(error instanceof URIError)) throw error;
    return text; // a token may have a % of its own
  }
}

function withToken(options = {}) {
  const key = token();
  return key ? { ...options, headers: { Authorization: `Bearer ${key}` } } : options;
}

let silence = 0; // the timer that gives up a daemon from which nothing comes

function heard(giveUp) {
  clearTimeout(silence);
  silence = setTimeout(() => giveUp.abort(), SILENCE_MS);
}

class Lost extends Error {}

// What a request to the daemon gives, or Lost: for fetch says TypeError where nobody answers, as a bug of this page would.
async function orLost(promise) {
  try {
    return await promise;
  } catch (error) {
    throw error instanceof TypeError || error.name === "AbortError" ? new Lost() : error;
  }
}

async function listen() {
  for (;;) {
    // What a header cannot hold would seem to be a daemon that does not answer.
    while (!/^[!-~]*$/.test(token())) await askForToken();
    const giveUp = new AbortController();
    heard(giveUp);
    try {
      const response = await orLost(fetch("/events", withToken({ cache: "no-store", signal: giveUp.signal })));
      if (response.status === 401) {
        clearTimeout(silence);
        await askForToken();
        continue;
      }
      if (response.ok) await read(response.body.getReader(), giveUp);
      else connected("lost", (await orLost(response.text())).trim());
    } catch (error) {
      if (!(error instanceof Lost)) {
        connected("lost", `a bug of this page: ${error.message}; load it again`);
        throw error;
      }
    }
    clearTimeout(silence);
    if (document.body.dataset.connection !== "lost") {
      connected("lost", state.ownId === null ? "nobody answers here" : `node ${state.ownId} does not answer`);
    }
    const pause = RETRY_MS[Math.min(state.retries, RETRY_MS.length - 1)];
    state.retries += 1;
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

async function read(reader, giveUp) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await orLost(reader.read());
    if (done) return;
    heard(giveUp);
    rest += decoder.decode(value, { stream: true });
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      take(rest.slice(0, end));
      rest = rest.slice(end + 2);
    }
  }
}

function take(block) {
  if (block.startsWith(":")) return;
  const at = block.indexOf("\ndata: ");
  const name = block.slice(7, at);
  const value = JSON.parse(block.slice(at + 7));
  const handler = { cluster: onCluster, member: onMember, report: onReport, summary: onSummary, event: onEvent, dropped: onDropped }[name];
  if (handler) handler(value);
}

function askForToken() {
  const form = $("token-form");
  $("token-problem").textContent = sessionStorage.getItem("token") ? "That is not the token." : "";
  form.hidden = false;
  connected("lost", "the token is wanted");
  $("token").focus();
  return new Promise((resolve) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem("token", $("token").value.trim());
      form.hidden = true;
      resolve();
    };
  });
}

function connected(how, text) {
  document.body.dataset.connection = how;
  $("connection").textContent = text;
}

// --- what comes -----------------------------------------------------------------------------------

function onCluster(cluster) {
  state.ownId = cluster.own_id;
  state.canTrace = cluster.can_trace;
  state.began = performance.now();
  state.settled = false;
  state.retries = 0;
  state.members = new Map(cluster.members.map((member) => [member.id, member]));
  state.reports = new Map();
  state.rates = new Map();
  state.events = [];
  state.frames = [];
  state.pictures = new Pictures();
  $("cluster").textContent = `${cluster.cluster}, seen from node ${cluster.own_id}`;
  document.title = `bmgd ${cluster.cluster}`;
  connected("live", "live");
  for (const report of cluster.reports) onReport(report);
  state.edges = edgesNow();
  ring.connect(state.edges, false);
  $("events").replaceChildren();
  $("scrub").max = 0;
  lookBack(-1);
  for (const [id, row] of rows) {
    if (state.members.has(id)) continue;
    row.remove();
    rows.delete(id);
  }
  // Of what happened before, the first picture is the nearest.
  const before = cluster.events.map((event) => addFrame(event, true));
  if (before.length) takePicture(before);
  onSummary(cluster.summary);
  offerTrace();
  changed();
}

function onMember(member) {
  state.members.set(member.id, member);
  if (isGone(member)) {
    state.reports.delete(member.id);
    state.rates.delete(member.id);
  }
  changed();
}

function onReport(report) {
  const former = state.reports.get(report.id);
  if (former) state.rates.set(report.id, ratesOf(former, report));
  state.reports.set(report.id, report);
  changed();
}

function onSummary(summary) {
  state.summary = summary;
  if (summary.reported >= summary.alive && summary.agree === "yes") state.settled = true;
  const box = $("agreement");
  box.dataset.agree = summary.agree;
  box.textContent = agreementText(summary);
  $("count-alive").textContent = summary.alive;
  $("count-dead").textContent = summary.dead;
  $("count-left").textContent = summary.left;
  $("count-suspected").textContent = summary.suspected.length;
  changed();
}

function agreementText(summary) {
  const count = summary.reported;
  if (summary.agree === "settling") return `A change goes round: ${Math.max(...Object.values(summary.digests))} of ${count} know`;
  if (summary.agree === "no") return `Nodes do not agree: ${Object.keys(summary.digests).length} different memberships`;
  if (summary.agree === "not all answer") return `${list(summary.silent)} ${summary.silent.length > 1 ? "do" : "does"} not answer`;
  if (summary.agree === "asking") return `Asking … ${count} of ${summary.alive} have answered`;
  if (summary.isolated.length) return `Node ${list(summary.isolated)} is cut off from everybody`;
  if (summary.stand_aside.length) return `Nodes ${list(summary.stand_aside)} stand aside`;
  if (summary.settings_differ?.length) return `All ${count} agree; their ${summary.settings_differ.join(", ")} differ`;
  return summary.unsettled.length ? `All ${count} agree; links follow` : `All ${count} nodes agree`;
}

function onDropped({ reason }) {
  connected("lost", `cut by the daemon: ${reason}`);
}

function isGone(member) {
  return ["dead", "excluded", "left"].includes(member.status);
}

function ratesOf(former, report) {
  const seconds = report.uptime_s - former.uptime_s;
  if (!(seconds > 0.05)) return state.rates.get(report.id) || null;
  const before = new Map(former.links.map((row) => [row[0], row]));
  const links = new Map();
  for (const row of report.links) {
    const known = before.get(row[0]);
    if (known && row[5] >= known[5]) links.set(row[0], (row[5] - known[5]) / seconds);
  }
  const per = (key) => Math.max(0, (report[key] - former[key]) / seconds);
  return { links, sent: per("sent_bytes"), received: per("received_bytes"), delivered: per("delivered"), cpu: per("cpu_ms") / 10 };
}

// Both ends tell of a link: it is there while one of them has it and neither is held dead.
function edgesNow() {
  const edges = new Map();
  for (const [id, report] of state.reports) {
    for (const row of report.links) {
      const peer = row[0];
      const member = state.members.get(peer);
      if (!member || isGone(member)) continue;
      const key = id < peer ? `${id}-${peer}` : `${peer}-${id}`;
      let edge = edges.get(key);
      if (!edge) edges.set(key, (edge = { a: Math.min(id, peer), b: Math.max(id, peer), rate: 0, backlog: 0 }));
      edge.rate += state.rates.get(id)?.links.get(peer) || 0;
      edge.backlog = Math.max(edge.backlog, row[7]);
    }
  }
  return edges;
}

function lookOf(member) {
  if (member.status === "left") return "left";
  if (isGone(member)) return "dead";
  if (state.summary?.silent.includes(member.id)) return "silent";
  if (state.summary?.suspected.includes(member.id)) return "suspected";
  const report = state.reports.get(member.id);
  return report && report.state !== "ready" ? "joining" : "alive";
}

// --- showing it -----------------------------------------------------------------------------------

let planned = false;
let tableAt = 0;
let showTook = 0;
let tableTook = 0;

function changed() {
  if (planned) return;
  planned = true;
  setTimeout(show, Math.max(SHOW_MS, REST * showTook));
}

function show() {
  planned = false;
  const began = performance.now();
  const statuses = new Map();
  for (const id of [...state.members.keys()].sort((a, b) => a - b)) statuses.set(id, lookOf(state.members.get(id)));
  if (!sameMap(statuses, state.statuses)) state.statuses = statuses;
  const edges = edgesNow();
  state.edges = edges;
  $("ring-figure").dataset.links = edges.size;
  if (state.past === null) {
    showRing(state.statuses);
    // The first round of reports brings links that are not new.
    ring.connect(edges, performance.now() - state.began > 1500 && state.settled);
  }
  // Who lives and who does not is shown at once, figures follow at their pace.
  for (const [id, look] of statuses) markRow(id, look);
  showTook = performance.now() - began;
  const wait = tableAt + Math.max(TABLE_MS, REST * tableTook) - performance.now();
  if (wait <= 0) showFigures();
  else if (!show.later) show.later = setTimeout(showFigures, wait);
}

function showRing(statuses) {
  ring.show([...statuses].map(([id, look]) => ({ id, look })));
}

function showFigures() {
  clearTimeout(show.later);
  show.later = 0;
  tableAt = performance.now();
  let sent = 0;
  let backlog = 0;
  for (const rate of state.rates.values()) sent += rate?.sent || 0;
  for (const report of state.reports.values()) backlog += report.backlog_bytes || 0;
  $("count-links").textContent = state.edges.size;
  $("total-rate").textContent = `${bytes(sent)}/s`;
  $("total-backlog").textContent = bytes(backlog);
  showTable();
  showDetail();
  tableTook = performance.now() - tableAt;
}

function sameMap(one, other) {
  if (one.size !== other.size) return false;
  for (const [key, value] of one) if (other.get(key) !== value) return false;
  return true;
}

const rows = new Map();

function rowOf(id) {
  let row = rows.get(id);
  if (row) return row;
  row = document.createElement("tr");
  row.dataset.node = id;
  const head = document.createElement("th");
  head.scope = "row";
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = id;
  head.append(button);
  row.append(head);
  for (let i = 0; i < 10; i += 1) row.append(document.createElement("td"));
  row.addEventListener("click", () => select(id));
  rows.set(id, row);
  return row;
}

function markRow(id, look) {
  const row = rowOf(id);
  if (row.dataset.status === look) return;
  row.dataset.status = look;
  set(row.children[1], { silent: "does not answer" }[look] || look);
  if (!row.isConnected) $("nodes").tBodies[0].append(row);
}

function figuresOf(id) {
  const report = state.reports.get(id);
  const rate = state.rates.get(id);
  return {
    id, status: state.statuses.get(id) || "", links: report ? report.links.length : -1, rate: rate ? rate.sent : -1,
    delivered: rate ? rate.delivered : -1, backlog: report ? report.backlog_bytes : -1, cpu: rate ? rate.cpu : -1,
    memory: report ? report.rss_bytes : -1, suspects: report ? report.suspects.join(" ") : "",
    digest: report ? report.digest.slice(0, 8) : "", version: report ? report.version : "",
  };
}

function showTable() {
  const wanted = $("filter").value.trim().toLowerCase();
  const [key, sign] = state.sort;
  const all = [...state.statuses.keys()].map(figuresOf);
  const common = commonest(all.map((row) => row.digest).filter(Boolean));
  all.sort((a, b) => sign * (a[key] < b[key] ? -1 : a[key] > b[key] ? 1 : a.id - b.id));
  const shown = [];
  for (const figures of all) {
    const row = rowOf(figures.id);
    const cells = row.children;
    const known = figures.links >= 0;
    const texts = [figures.links, `${bytes(figures.rate)}/s`, figures.delivered.toFixed(0), bytes(figures.backlog), `${figures.cpu.toFixed(1)} %`, bytes(figures.memory)];
    texts.forEach((text, i) => set(cells[i + 2], known && !(figures.rate < 0 && [1, 2, 4].includes(i)) ? text : "–"));
    set(cells[8], figures.suspects);
    set(cells[9], figures.digest);
    cells[9].className = figures.digest && figures.digest !== common ? "odd" : "";
    set(cells[10], figures.version);
    const report = state.reports.get(figures.id);
    row.dataset.links = report ? report.links.map((link) => link[0]).sort((a, b) => a - b).join(",") : "";
    row.setAttribute("aria-selected", figures.id === state.selected);
    row.hidden = wanted !== "" && !`${figures.id} ${figures.status} ${figures.version}`.includes(wanted);
    shown.push(row);
  }
  const body = $("nodes").tBodies[0];
  shown.forEach((row, i) => {
    if (body.children[i] !== row) body.insertBefore(row, body.children[i] || null);
  });
}

function commonest(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0];
}

function set(cell, text) {
  if (cell.textContent !== String(text)) cell.textContent = text;
}

// --- one node -------------------------------------------------------------------------------------

function select(id) {
  const before = state.selected;
  state.selected = id;
  ring.selected = id;
  for (const one of [before, id]) if (rows.has(one)) rows.get(one).setAttribute("aria-selected", one === id);
  if (id !== null) {
    if ($("path-from").value === "" || $("path-to").value !== "") {
      $("path-from").value = id;
      $("path-to").value = "";
    } else if ($("path-from").value !== String(id)) $("path-to").value = id;
  }
  showDetail();
  ring.redraw();
}

function showDetail() {
  const id = state.selected;
  const member = state.members.get(id);
  $("detail-hint").hidden = Boolean(member);
  $("detail-body").hidden = !member;
  $("detail-heading").textContent = member ? `Node ${id}` : "Node";
  if (!member) return;
  const report = state.reports.get(id);
  const rate = state.rates.get(id);
  const facts = [["state", state.statuses.get(id)], ["address", member.address], ["incarnation", hex(report?.incarnation || member.incarnation)], ["record version", report?.record_version ?? member.version]];
  if (report) {
    facts.push(["digest", report.digest.slice(0, 16)], ["bmgd", `${report.version}, ${report.backend}, ${report.loop}`],
      ["process", `${report.pid}, up ${duration(report.uptime_s)}`], ["CPU", rate ? `${rate.cpu.toFixed(1)} %` : "–"], ["memory", bytes(report.rss_bytes)],
      ["loop lag", `${(report.lag_us / 1000).toFixed(1)} ms`], ["suspects", report.suspects.join(", ") || "nobody"],
      ["underway", report.underway], ["waiting for readers", report.waiting], ["delivered", report.delivered],
      ["dropped frames", report.dropped_frames], ["relayouts", report.relayouts], ["neighbors wanted", report.wanted.join(", ")]);
  } else facts.push(["report", "none: it does not answer"]);
  fill($("detail-facts"), facts);
  const body = $("detail-links").tBodies[0];
  const lines = report ? report.links : [];
  while (body.rows.length > lines.length) body.deleteRow(-1);
  lines.forEach((row, i) => {
    const line = body.rows[i] || body.insertRow();
    while (line.cells.length < 6) line.insertCell();
    [row[0], `${row[2]} ms`, `${(row[8] / 1000).toFixed(2)} ms`, bytes(row[5]), bytes(row[6]), bytes(row[7])].forEach((text, at) => set(line.cells[at], text));
  });
}

function fill(box, facts) {
  while (box.children.length > facts.length) box.lastChild.remove();
  facts.forEach(([name, value], i) => {
    let pair = box.children[i];
    if (!pair) {
      pair = document.createElement("div");
      pair.append(document.createElement("dt"), document.createElement("dd"));
      box.append(pair);
    }
    set(pair.children[0], name);
    set(pair.children[1], value);
  });
}

function point(id, event) {
  const tip = $("tip");
  tip.hidden = id === null;
  $("ring").style.cursor = id === null ? "default" : "pointer";
  if (id === null) return;
  const report = state.reports.get(id);
  tip.textContent = `node ${id}: ${state.statuses.get(id)}${report ? `, ${report.links.length} links` : ""}`;
  const box = $("ring-figure").getBoundingClientRect();
  tip.style.left = `${event.clientX - box.left + 14}px`;
  tip.style.top = `${event.clientY - box.top + 10}px`;
}

// --- the path of a message ------------------------------------------------------------------------

function offerTrace() {
  for (const field of $("path-form").elements) field.disabled = !state.canTrace;
  $("path-result").textContent = state.canTrace ? "" : "A trace sends a message, so it needs a token: start this daemon with --http-token-file.";
}

$("path-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [from, to] = [$("path-from").value, $("path-to").value];
  const result = $("path-result");
  result.textContent = `Tracing from ${from} to ${to} …`;
  try {
    const query = new URLSearchParams({ from, to });
    const response = await fetch(`/api/trace?${query}`, withToken({ method: "POST" }));
    const text = await response.text();
    const answer = text.startsWith("{") ? JSON.parse(text) : { error: text };
    if (answer.path) {
      ring.path = answer.path;
      result.textContent = `${answer.path.join(" → ")}: ${answer.path.length - 1} hops, ${(answer.rtt_us / 1000).toFixed(1)} ms there and back`;
      $("path-clear").hidden = false;
    } else {
      ring.path = null;
      result.textContent = `No path: ${answer.error}`;
    }
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    result.textContent = "The daemon does not answer.";
  }
  ring.redraw();
});

$("path-clear").addEventListener("click", () => {
  ring.path = null;
  $("path-result").textContent = "";
  $("path-clear").hidden = true;
  ring.redraw();
});

// --- the timeline ---------------------------------------------------------------------------------

function onEvent(event) {
  takePicture([addFrame(event, false)]);
}

// What an event has brought about is there a moment later.
function takePicture(frames) {
  const { pictures } = state;
  setTimeout(() => {
    const picture = pictures.take(state.statuses, state.edges);
    for (const frame of frames) frame.picture = picture;
  }, 250);
}

function addFrame(event, isBefore) {
  state.events.push(event);
  const frame = { event, isBefore, picture: null };
  state.frames.push(frame);
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  const time = document.createElement("time");
  time.dateTime = new Date(event.t).toISOString();
  time.textContent = timeOf(event);
  const text = document.createElement("span");
  text.textContent = textOf(event);
  text.className = mood(event);
  button.append(time, text);
  button.dataset.kind = event.kind;
  button.addEventListener("click", () => lookBack(state.frames.indexOf(frame)));
  item.append(button);
  const listing = $("events");
  listing.prepend(item);
  frame.button = button;
  if (state.frames.length > FRAMES_MAX) {
    state.frames.shift();
    state.events.shift();
    listing.lastChild.remove();
    if (state.past !== null) state.past = Math.max(0, state.past - 1);
  }
  const scrub = $("scrub");
  scrub.max = state.frames.length;
  if (state.past === null) scrub.value = scrub.max;
  return frame;
}

function lookBack(at) {
  const frame = state.frames[at];
  document.querySelector("#events [aria-current]")?.removeAttribute("aria-current");
  state.past = frame ? at : null;
  $("past").hidden = !frame;
  $("scrub").value = frame ? at : state.frames.length;
  if (!frame) {
    showRing(state.statuses);
    ring.connect(state.edges, false);
    return;
  }
  frame.button.setAttribute("aria-current", "true");
  frame.button.scrollIntoView({ block: "nearest" });
  const picture = frame.picture?.links ? frame.picture : null;
  const near = frame.isBefore ? "As it was when this page was opened, after" : "As it was at";
  const how = picture ? near : "As it is now; there is no picture any more of";
  $("past-text").textContent = `${how} ${timeOf(frame.event)}: ${textOf(frame.event)}`;
  showRing(picture ? picture.statuses : state.statuses);
  ring.connect(picture ? edgesOf(picture) : state.edges, false);
}

$("scrub").addEventListener("input", (event) => lookBack(Number(event.target.value)));
$("live").addEventListener("click", () => lookBack(-1));

function timeOf(event) {
  return new Date(event.t).toLocaleTimeString([], { hourCycle: "h23" });
}

function textOf(event) {
  const { kind, node, peer, detail, status } = event;
  switch (kind) {
    case "record": return { dead: `node ${node} is dead`, excluded: `node ${node} died; the graph closes over it`, left: `node ${node} left`, alive: `node ${node} lives` }[status] || `node ${node} is ${status}`;
    case "links": return `node ${node}: ${[event.added ? `new links to ${list(event.added)}` : "", event.removed ? `no more links to ${list(event.removed)}` : ""].filter(Boolean).join("; ")}`;
    case "suspects": return `node ${node} suspects node ${peer}`;
    case "suspected": return `node ${node} suspects node ${peer}: ${detail || ""}`;
    case "vetoed": return `node ${peer} was heard (${detail}): the suspicion is vetoed`;
    case "verdict": return `node ${node} declares node ${peer} dead: ${detail || ""}`;
    case "refuted": return `node ${node} refutes that it is dead`;
    case "isolated": return detail === "yes" ? `node ${node} is cut off from everybody` : `node ${node} is connected again`;
    case "stands_aside": return detail === "yes" ? `node ${node} stands aside: no quorum` : `node ${node} goes on`;
    case "state": return `node ${node} is ${detail}`;
    case "agreement": return { yes: "all nodes agree", settling: "a change goes round", no: "the nodes do not agree", asking: "asking the nodes" }[detail] || detail;
    default: return `node ${node}: ${kind}${peer === undefined ? "" : ` ${peer}`}${detail ? ` (${detail})` : ""}`;
  }
}

function mood(event) {
  if (["verdict", "suspected", "suspects"].includes(event.kind)) return "bad";
  if (event.kind === "record") return event.status === "alive" ? "good" : event.status === "left" ? "" : "bad";
  if (event.kind === "agreement") return event.detail === "yes" ? "good" : "";
  return ["isolated", "stands_aside"].includes(event.kind) ? (event.detail === "yes" ? "bad" : "good") : "";
}

// --- words ----------------------------------------------------------------------------------------

function list(ids) {
  return ids.length > 8 ? `${ids.slice(0, 8).join(", ")} and ${ids.length - 8} more` : ids.join(", ");
}

function bytes(count) {
  if (!Number.isFinite(count)) return "–"; // a daemon of another release may not tell it
  if (count < 1000) return `${Math.round(count)} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let at = -1;
  let value = count;
  while (value >= 1000 && at + 1 < units.length) {
    value /= 1000;
    at += 1;
  }
  return `${value.toFixed(value < 10 ? 1 : 0)} ${units[at]}`;
}

function duration(seconds) {
  const whole = Math.round(seconds);
  if (whole < 90) return `${whole} s`;
  if (whole < 5400) return `${Math.round(whole / 60)} min`;
  return `${Math.round(whole / 3600)} h`;
}

function hex(text) {
  return `0x${BigInt(text).toString(16)}`;
}

// --- controls -------------------------------------------------------------------------------------

for (const button of document.querySelectorAll("#nodes thead button")) {
  button.addEventListener("click", () => {
    const key = button.dataset.sort;
    state.sort = [key, state.sort[0] === key ? -state.sort[1] : key === "id" ? 1 : -1];
    for (const head of document.querySelectorAll("#nodes thead th")) head.removeAttribute("aria-sort");
    button.parentElement.setAttribute("aria-sort", state.sort[1] > 0 ? "ascending" : "descending");
    showTable();
  });
}
$("filter").addEventListener("input", showTable);

function theme(choice) {
  if (choice) document.documentElement.dataset.theme = choice;
  else delete document.documentElement.dataset.theme;
  ring.recolour();
}
$("theme").value = localStorage.getItem("theme") || "";
$("theme").addEventListener("change", (event) => {
  localStorage.setItem("theme", event.target.value);
  theme(event.target.value);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => ring.recolour());
document.addEventListener("visibilitychange", () => ring.redraw());
theme($("theme").value);
listen();
