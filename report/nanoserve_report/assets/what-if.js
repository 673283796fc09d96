// The split of a pair, computed here from the published trials, as the report computes it:
// geometric means over the blocks, Student's t on the logs, printed to the same digits.
// It reads three files beside the page and nothing else; only pairs that the gate found comparable
// are in them.
(() => {
  const TIMES = "\u00d7", EN = "\u2013", EQUIVALENCE = 0.03;

  // --- CSV: quoted fields may hold commas, quotes and line breaks.
  const parse = (text) => {
    const rows = [[]];
    const field = /("(?:[^"]|"")*"|[^,\n]*)(,|\n|$)/y;
    while (field.lastIndex < text.length) {
      const [, raw, end] = field.exec(text);
      rows.at(-1).push(raw.startsWith('"') ? raw.slice(1, -1).replaceAll('""', '"') : raw);
      if (end === "\n") rows.push([]);
    }
    const [head, ...body] = rows.filter((row) => row.length > 0);
    return body.map((row) => Object.fromEntries(head.map((name, i) => [name, row[i]])));
  };

  const read = async (address) => {
    const answer = await fetch(address);
    if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
    return parse(await answer.text());
  };

  // --- Estimates. A trial's figures are ratios of integers, so their logs are sums.
  const LOGS = {
    throughput: (t) => Math.log(t.output_tokens) + 9 * Math.LN10 - Math.log(t.wall_ns),
    batch: (t) => Math.log(t.served_ns) - Math.log(t.wall_ns),
    slot: (t) => Math.log(t.output_tokens) + 9 * Math.LN10 - Math.log(t.served_ns),
  };

  const estimate = (logs, quantiles) => {
    const n = logs.length;
    const mean = logs.reduce((sum, x) => sum + x, 0) / n;
    const squares = logs.reduce((sum, x) => sum + (x - mean) ** 2, 0);
    const half = quantiles[n] * Math.sqrt(squares / (n - 1) / n);
    return { point: Math.exp(mean), low: Math.exp(mean - half), high: Math.exp(mean + half) };
  };

  const known = (figure, trial) => figure === "throughput" || trial.served_ns !== null;

  const ofCell = (trials, figure, quantiles) =>
    estimate([...trials.values()].map(LOGS[figure]), quantiles);

  const ofPair = (above, below, figure, quantiles) => {
    const blocks = [...above.keys()].filter((block) => below.has(block));
    if (!blocks.every((b) => known(figure, above.get(b)) && known(figure, below.get(b)))) return null;
    const log = LOGS[figure];
    return estimate(blocks.map((b) => log(above.get(b)) - log(below.get(b))), quantiles);
  };

  const verdict = (ratio, pair) => {
    if (pair.kind === "doubling") {
      return ratio.low > 1 ? "worth it" : ratio.high < 1 ? "not worth it" : "undecided";
    }
    if (ratio.low > Math.max(1, Number(pair.envelope_high))) return "faster";
    if (ratio.high < Math.min(1, Number(pair.envelope_low))) return "slower";
    const same = ratio.low >= 1 / (1 + EQUIVALENCE) && ratio.high <= 1 + EQUIVALENCE;
    return same ? "no difference" : "undecided";
  };

  // --- Digits. `toFixed` rounds an exact half up; the report rounds it to even.
  const fixed = (value, places) => {
    const up = value.toFixed(places);
    const half = /^50*$/.test(value.toFixed(60).split(".")[1].slice(places)) && Number(up) > value;
    const down = half && Number(up.at(-1)) % 2 === 1;
    const text = down ? (Number(up) - 10 ** -places).toFixed(places) : up;
    const [whole, rest] = text.split(".");
    const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
    return rest === undefined ? grouped : `${grouped}.${rest}`;
  };

  const decimals = (value, digits) => {
    const magnitude = Math.floor(Math.log10(Math.abs(value)));
    const places = digits - 1 - magnitude;
    if (places <= 0) return 0;
    return Number(value.toFixed(places)) >= 10 ** (magnitude + 1) ? places - 1 : places;
  };

  const shown = (found, places, unit) => [
    `${fixed(found.point, places)}${unit}`,
    `${fixed(found.low, places)}${EN}${fixed(found.high, places)}`,
  ];
  const ratio = (found) =>
    shown(found, found.point < 0.1 ? 3 : found.point < 100 ? 2 : 1, TIMES);
  const quantity = (found) => shown(found, decimals(found.point, 3), "");

  // --- The page.
  const make = (name, text, attributes = {}) => {
    const element = document.createElement(name);
    element.textContent = text;
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };

  const choice = (form, label, id) => {
    const select = make("select", "", { id });
    const box = make("p", "");
    box.append(make("label", label, { for: id }), select);
    form.append(box);
    return select;
  };

  const fill = (select, entries) => {
    const kept = select.value;
    select.replaceChildren(...entries.map(([value, text]) => make("option", text, { value })));
    if (entries.some(([value]) => value === kept)) select.value = kept;
  };

  const trialsOf = (rows) => {
    const cells = new Map();
    for (const row of rows) {
      if (!cells.has(row.cell)) cells.set(row.cell, { name: row.name, blocks: new Map() });
      cells.get(row.cell).blocks.set(row.block, {
        output_tokens: Number(row.output_tokens),
        wall_ns: Number(row.wall_ns),
        served_ns: row.served_ns === "" ? null : Number(row.served_ns),
      });
    }
    return cells;
  };

  const show = (place, cells, pair, quantiles) => {
    const above = cells.get(pair.candidate), below = cells.get(pair.baseline);
    // Where a slot means something else on the other side, held time is not compared.
    const alike = pair.slots_alike === "1";
    const split = ["throughput", "batch", "slot"].map((figure) =>
      figure === "throughput" || alike
        ? ofPair(above.blocks, below.blocks, figure, quantiles) : null);
    const row = (id, label, [point, interval]) => {
      const line = make("tr", "", { "data-figure": id });
      const cell = make("td", "", { class: "ns-num" });
      cell.append(make("span", point), make("small", interval));
      line.append(make("th", label, { scope: "row" }), cell);
      return line;
    };
    const printed = split.map((found) => (
      found === null ? ["\u2014", alike ? "slots not told" : "slots of two kinds"] : ratio(found)));
    const body = make("tbody", "");
    body.append(
      row("speedup", pair.kind === "doubling" ? "throughput, times" : "speedup", printed[0]),
      row("batch", "= batch factor", printed[1]),
      row("slot", `${TIMES} per-slot-second factor`, printed[2]),
      row("candidate", `${above.name}, tok/s`, quantity(ofCell(above.blocks, "throughput", quantiles))),
      row("baseline", `${below.name}, tok/s`, quantity(ofCell(below.blocks, "throughput", quantiles))),
    );
    const table = make("table", "", { class: "ns-table" });
    table.append(make("caption", `${above.name} over ${below.name}: ${verdict(split[0], pair)}`), body);
    place.replaceChildren(table);
  };

  const start = async (root) => {
    const base = new URL(root.dataset.pairs, document.location);
    const [pairs, quantileRows] = await Promise.all(
      [base, new URL("quantiles.csv", base)].map(read));
    const quantiles = Object.fromEntries(quantileRows.map((q) => [q.blocks, Number(q.t_quantile)]));
    if (pairs.length === 0) return;
    const files = new Map();
    const form = make("form", "", { class: "ns-form" });
    const study = choice(form, "Run and setting", "ns-study");
    const candidate = choice(form, "Candidate", "ns-candidate");
    const baseline = choice(form, "Over", "ns-baseline");
    const place = make("div", "", { class: "ns-scroll", "aria-live": "polite", tabindex: "0" });
    const keyOf = (pair) => [pair.run, pair.device, pair.dtype, pair.model, pair.workload].join(", ");
    const names = (list, side) =>
      [...new Map(list.map((p) => [p[side], p[`${side}_name`]])).entries()];

    const update = async () => {
      const here = pairs.filter((pair) => keyOf(pair) === study.value);
      fill(candidate, names(here, "candidate"));
      const fitting = here.filter((pair) => pair.candidate === candidate.value);
      fill(baseline, names(fitting, "baseline"));
      const pair = fitting.find((entry) => entry.baseline === baseline.value);
      if (!files.has(pair.data)) files.set(pair.data, read(new URL(pair.data, base)).then(trialsOf));
      show(place, await files.get(pair.data), pair, quantiles);
    };

    fill(study, [...new Set(pairs.map(keyOf))].map((key) => [key, key]));
    form.addEventListener("change", update);
    form.addEventListener("submit", (event) => event.preventDefault());
    root.replaceChildren(form, place);
    await update();
    root.dataset.ready = "";
  };

  globalThis.nsWhatIf = { fixed, decimals };  // for whoever wants to check the digits
  const root = document.getElementById("ns-what-if");
  if (root !== null) {
    start(root).catch((error) => {
      root.textContent = `The published trials could not be read (${error.message}). `
        + "The pages have to come from a web server.";
    });
  }
})();
