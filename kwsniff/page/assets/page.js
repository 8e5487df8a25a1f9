// Draws what the page's data holds: charts by ECharts, tables that sort and filter, calls that open to their
// fields. Every text becomes a text node or a text of a canvas; no markup is ever made from data.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const phone = matchMedia("(max-width: 600px)");
  const FIRST_ROWS = 15;
  let printing = false;

  // Values as people read them

  const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
  const digits = (value) =>
    Math.abs(value) >= 99.95 ? whole.format(value) : String(Number(value.toPrecision(3)));
  const duration = (us) => {
    if (us === 0) return "0";
    if (us < 999.5) return `${digits(us)} µs`;
    if (us < 999.5e3) return `${digits(us / 1e3)} ms`;
    if (us < 120e6) return `${digits(us / 1e6)} s`;
    return us < 7200e6 ? `${digits(us / 60e6)} min` : `${digits(us / 3600e6)} h`;
  };
  const bytes = (size) => {
    const units = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let unit = 0;
    for (; size >= 999.5 && unit < units.length - 1; unit++) size /= 1000;
    return `${digits(size)} ${units[unit]}`;
  };
  const moment = (us) => {
    const day = new Date(Math.floor(us / 1000)).toISOString();
    const more = String(Math.floor(us % 1000)).padStart(3, "0");
    return `${day.slice(0, 10)} ${day.slice(11, 23)}${more}`;
  };
  const SHOW = {
    count: (value) => whole.format(value),
    number: digits,
    factor: (value) => `${digits(value)}×`,
    duration,
    bytes,
    time: moment,
    ratio: (value) => `${digits(100 * value)} %`,
    flag: (value) => (value ? "yes" : "no"),
    list: (value) => value.join(", "),
    text: (value) => value,
  };
  const LEFT = new Set(["text", "list", "time", "flag"]);
  const shown = (value, kind) => (value === null || value === undefined ? "" : SHOW[kind](value));

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "text") element.textContent = value;
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };

  // Tables

  const compare = (a, b, kind) => {
    if (kind === "text" || kind === "list") return String(a).localeCompare(String(b), "en", { numeric: true });
    return a - b;
  };

  const drawTable = (place, name) => {
    const { columns, rows, left } = data.tables[name];
    const kinds = columns.map((column) => column[1]);
    const opens = name === "slow" ? data.slow : null;
    const used = columns.map((_, at) => rows.some((row) => row[at] !== null && String(row[at]) !== ""));
    if (!rows.length) {
      place.append(make("p", { class: "note", text: "Nothing of this kind was seen." }));
      return;
    }
    const texts = rows.map((row) => row.map((value, at) => shown(value, kinds[at])));
    const order = rows.map((_, at) => at);
    const state = { sort: -1, down: false, all: rows.length <= FIRST_ROWS + 5, filter: "" };
    const body = make("tbody");
    const told = make("span", { "aria-live": "polite" });
    const more = make("button", { type: "button", class: "link", onclick: () => { state.all = true; fill(); } });
    const input = make("input", {
      type: "search", placeholder: "filter rows", "aria-label": `filter rows of ${name}`,
      oninput: () => { state.filter = input.value.toLowerCase(); fill(); },
    });
    const heads = columns.map(([heading, kind, meaning], at) =>
      make("th", { scope: "col", title: meaning, class: LEFT.has(kind) ? "" : "num", "aria-sort": "none" },
        make("button", { type: "button", text: heading, onclick: () => sort(at) })));
    const lead = opens ? [make("th", { class: "toggle" })] : [];
    const table = make("table", {},
      make("thead", {}, make("tr", {}, ...lead, ...heads.filter((_, at) => used[at]))), body);

    const sort = (at) => {
      const first = !LEFT.has(kinds[at]);
      state.down = state.sort === at ? !state.down : first;
      state.sort = at;
      order.sort((a, b) => {
        const [x, y] = [rows[a][at], rows[b][at]];
        if (x === null || y === null) return (x === null) - (y === null) || a - b;
        return (state.down ? -1 : 1) * compare(x, y, kinds[at]) || a - b;
      });
      heads.forEach((head, place) => head.setAttribute("aria-sort",
        place !== at ? "none" : state.down ? "descending" : "ascending"));
      fill();
    };

    const cell = (text, kind) => {
      if (kind === "time") return make("td", { text, class: "time" });
      if (!LEFT.has(kind)) return make("td", { text, class: "num" });
      return make("td", { class: "text" }, make("div", { text, class: text.length > 28 ? "words" : "name" }));
    };
    const cells = (number) => texts[number].flatMap((text, at) => (used[at] ? [cell(text, kinds[at])] : []));

    const row = (number) => {
      if (!opens) return [make("tr", {}, ...cells(number))];
      const button = make("button", { type: "button", text: "▸", "aria-expanded": "false",
        "aria-label": `fields of call ${number + 1}` });
      const line = make("tr", { class: "opens" }, make("td", { class: "toggle" }, button), ...cells(number));
      let inner = null;
      line.addEventListener("click", () => {
        if (inner) {
          inner.remove();
          inner = null;
        } else {
          inner = make("tr", { class: "open" }, make("td", { colspan: line.children.length },
            detail(opens[number])));
          line.after(inner);
        }
        button.textContent = inner ? "▾" : "▸";
        button.setAttribute("aria-expanded", String(Boolean(inner)));
      });
      return [line];
    };

    const fill = () => {
      const match = order.filter((number) => !state.filter
        || texts[number].some((text) => text.toLowerCase().includes(state.filter)));
      const visible = state.all ? match : match.slice(0, FIRST_ROWS);
      body.replaceChildren(...visible.flatMap(row));
      const out = left ? `; ${whole.format(left)} more are left out of this page` : "";
      told.textContent = `${whole.format(visible.length)} of ${whole.format(rows.length)} rows${out}`;
      more.hidden = visible.length === match.length;
      more.textContent = `show all ${whole.format(match.length)}`;
    };
    fill();
    place.append(make("div", { class: "tools" }, input, told, more), make("div", { class: "scroll", tabindex: "0" }, table));
  };

  const detail = (call) => {
    const facts = call.details.map(([heading, kind, value]) => `${heading}: ${shown(value, kind)}`);
    const parts = [make("p", { class: "command" }, make("code", { text: call.command }))];
    if (facts.length) parts.unshift(make("p", { class: "facts", text: facts.join(" · ") }));
    for (const tree of call.trees) {
      const from = tree.packets.length
        ? `, packet${tree.packets.length > 1 ? "s" : ""} ${tree.packets.join(", ")}` : "";
      const others = tree.more_packets ? ` and ${whole.format(tree.more_packets)} more` : "";
      parts.push(make("h4", { text: `${tree.what}, ${bytes(tree.bytes)}${from}${others}` }));
      parts.push(make("table", { class: "tree" }, make("tbody", {}, ...tree.fields.map(field))));
      if (tree.more) parts.push(make("p", { class: "note", text: `and ${whole.format(tree.more)} more fields` }));
      if (tree.problem) parts.push(make("p", { class: "note", text: tree.problem }));
    }
    return make("div", { class: "detail" }, ...parts);
  };

  const field = ([depth, offset, hex, name, type, value]) => make("tr", {},
    make("td", { class: "num dim", text: offset === null ? "" : String(offset) }),
    make("td", { class: "dim", text: hex }),
    make("td", { text: "  ".repeat(depth) + name }),
    make("td", { class: "dim", text: type }),
    make("td", { class: "value", text: value }));

  // Charts

  const look = () => {
    const night = dark.matches && !printing;
    return {
      ink: night ? "#e3e8ef" : "#1b2430", soft: night ? "#9aa6b5" : "#5b6675", line: night ? "#303a47" : "#dfe3e8",
      // Where names stand beside a chart, on a telephone with less room.
      side: (left) => (phone.matches && !printing ? { left: 116, right: 14 } : { left, right: 40 }),
      name: (most) => (text) => short(text, phone.matches && !printing ? 15 : most),
      card: night ? "#1a2029" : "#ffffff", shade: night ? "#212936" : "#f1f4f8",
      // Okabe and Ito's colours, told apart by nearly everybody.
      colors: night ? ["#5aa9e6", "#f0b65a", "#ff8a7e", "#5fcaa4", "#d8a1d0", "#c9c46a"]
        : ["#0072b2", "#e69f00", "#d55e00", "#009e73", "#b0659a", "#8c8a2a"],
      bad: night ? "#ff8a7e" : "#c2371d", ramp: night ? ["#233247", "#3f7fb8", "#f0d58a"] : ["#e8f1fa", "#6fa8d6", "#0b3a66"],
    };
  };
  const FONT = 'system-ui, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif';
  const short = (text, most = 34) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  // In rich text `{name|` begins a style. The library keeps what it knows of a name in plain objects, where
  // `__proto__` is no key like any other.
  const plain = (text) => {
    const safe = String(text).replaceAll("{", "(").replaceAll("}", ")").replaceAll("|", "/");
    return safe in {} ? `${safe} ` : safe;
  };

  const tooltip = (style, more = {}) => ({
    renderMode: "richText", confine: true, backgroundColor: style.card, borderColor: style.line, borderWidth: 1,
    textStyle: { color: style.ink, fontSize: 12, fontFamily: FONT }, ...more,
  });
  const category = (style, names, more = {}) => ({
    type: "category", data: names.map(plain), axisLine: { lineStyle: { color: style.line } },
    axisTick: { show: false }, axisLabel: { color: style.soft, formatter: (text) => short(text), hideOverlap: false, interval: 0 }, ...more,
  });
  const value = (style, more = {}) => ({
    type: "value", axisLabel: { color: style.soft }, splitLine: { lineStyle: { color: style.line } },
    nameTextStyle: { color: style.soft }, ...more,
  });
  const percent = (amount) => `${digits(amount)} %`;

  const CHARTS = {
    timeline: (style) => {
      const line = data.timeline;
      if (!line.time.length) return null;
      const wide = duration(line.width);
      const count = (amount) => (amount >= 10000 ? `${digits(amount / 1000)}k` : whole.format(amount));
      const strips = [
        [`calls per ${wide}`, count, [["calls", line.calls, style.colors[0]]]],
        ["latency, p50 and p95", duration, [["p50", line.p50_us, style.colors[2]], ["p95", line.p95_us, style.colors[1]]]],
        [`bytes per ${wide}`, bytes, [["bytes", line.bytes, style.colors[5]]]],
        ["errors", count, [["errors", line.errors, style.bad]]],
        ["unanswered", count, [["unanswered", line.unanswered, style.colors[4]]]],
        ["rebalances", count, [["rebalances", line.rebalances, style.colors[3]]]],
        ["throttled ms", count, [["throttled ms", line.throttle_ms, style.colors[1]]]],
      ].filter(([, , parts], at) => !at || parts.some(([, values]) => values.some((each) => each)));
      const tell = Object.fromEntries(strips.flatMap(([, show, parts]) => parts.map(([name]) => [name, show])));
      const spansDecades = (parts) => {
        const known = parts.flatMap(([, values]) => values.filter((each) => each));
        return known.length > 0 && known.reduce((a, b) => Math.max(a, b)) > 100 * known.reduce((a, b) => Math.min(a, b));
      };
      const heights = [130, ...strips.slice(1).map(() => 62)];
      const gap = 34;
      const breaks = line.stretches.map(([first, last]) => ({ start: first / 1000, end: last / 1000, gap: "1.5%" }));
      const first = line.time[0] / 1000;
      const last = (line.time[line.time.length - 1] + line.width) / 1000;
      const empty = line.stretches.reduce((sum, [from, to]) => sum + to - from, 0) / 1000;
      const barWidth = Math.min(Math.max((phone.matches ? 210 : 900) * line.width / 1000 / Math.max(last - first - empty, 1), 1.5), 12);
      const grids = heights.map((height, at) => ({
        left: 76, right: 24, height, top: 30 + heights.slice(0, at).reduce((sum, each) => sum + each + gap, 0),
      }));
      const series = strips.flatMap(([, , parts], at) => parts.map(([name, values, color]) => ({
        ...(parts.length > 1 ? { type: "scatter", symbolSize: 4 } : { type: "bar", barWidth }),
        name, xAxisIndex: at, yAxisIndex: at, itemStyle: { color }, cursor: "default",
        data: values.flatMap((count, place) => count ? [[(line.time[place] + line.width / 2) / 1000, count]] : []),
      })));
      return {
        height: 30 + heights.reduce((sum, each) => sum + each + gap, 0) + 52,
        option: {
          useUTC: true, grid: grids, series,
          axisPointer: { link: [{ xAxisIndex: "all" }], lineStyle: { color: style.soft } },
          tooltip: tooltip(style, {
            trigger: "axis", axisPointer: { type: "line" },
            formatter: (items) => [moment(items[0].axisValue * 1000).slice(0, 23),
              ...items.map((item) => `${item.seriesName}  ${tell[item.seriesName](item.value[1])}`)].join("\n"),
          }),
          title: strips.map(([name], at) => ({ text: name, left: 8, top: grids[at].top - 26,
            textStyle: { color: style.soft, fontSize: 12, fontWeight: 500, fontFamily: FONT } })),
          xAxis: strips.map((_, at) => ({
            type: "time", gridIndex: at, min: first, max: last, breaks,
            breakArea: { show: breaks.length > 0, zigzagAmplitude: 3, itemStyle: { color: style.shade, borderColor: style.line, opacity: 1 }, expandOnClick: false },
            axisLabel: { show: at === strips.length - 1, color: style.soft, hideOverlap: true },
            axisLine: { lineStyle: { color: style.line } }, axisTick: { show: at === strips.length - 1 }, splitLine: { show: false },
          })),
          yAxis: strips.map(([, show, parts], at) => value(style, { gridIndex: at, splitNumber: at ? 1 : 3,
            ...(spansDecades(parts) ? { type: "log" } : { minInterval: 1, min: 0, max: ({ max }) => (max >= 1 ? null : 1) }),
            axisLabel: { color: style.soft, hideOverlap: true, formatter: show } })),
          dataZoom: printing ? [] : [
            { type: "inside", xAxisIndex: strips.map((_, at) => at), zoomOnMouseWheel: "ctrl", moveOnMouseMove: true },
            { type: "slider", xAxisIndex: strips.map((_, at) => at), bottom: 8, height: 18, borderColor: style.line, showDetail: false,
              fillerColor: "rgba(110,150,200,.2)", handleStyle: { color: style.soft }, moveHandleSize: 4, showDataShadow: false },
          ],
        },
      };
    },

    split: (style) => {
      const { apis, series } = data.split;
      if (!apis.length) return null;
      return {
        height: (phone.matches ? 90 : 74) + 24 * apis.length,
        option: {
          color: style.colors, grid: { ...style.side(190), top: phone.matches ? 52 : 36, bottom: 30 },
          legend: { top: 0, left: 0, textStyle: { color: style.ink, fontFamily: FONT }, itemWidth: 14, itemHeight: 10 },
          tooltip: tooltip(style, {
            trigger: "axis", axisPointer: { type: "shadow" },
            formatter: (items) => [items[0].name, ...items.filter((item) => item.value)
              .map((item) => `${item.seriesName}  ${percent(item.value)}`)].join("\n"),
          }),
          xAxis: value(style, { axisLabel: { color: style.soft, hideOverlap: true, formatter: percent } }),
          yAxis: category(style, apis, { inverse: true, axisLabel: { color: style.ink, formatter: style.name(26), interval: 0 } }),
          series: series.map(([name, values]) => ({ type: "bar", name, stack: "time", data: values, barMaxWidth: 16 })),
        },
      };
    },

    latency: (style) => {
      const { apis, edges, cells } = data.latency;
      if (!apis.length) return null;
      const names = edges.slice(0, -1).map((edge) => duration(edge));
      return {
        height: 84 + 24 * apis.length,
        option: {
          grid: { ...style.side(190), top: 10, bottom: 70 },
          tooltip: tooltip(style, {
            formatter: ({ value: [x, y, share, count] }) =>
              `${plain(apis[y])}\n${duration(edges[x])} to ${duration(edges[x + 1])}\n${whole.format(count)} calls, ${digits(share)} % of this API`,
          }),
          xAxis: category(style, names, { axisLabel: { color: style.soft, hideOverlap: true, interval: (at) => /^[125]0*( |$)/.test(names[at]) }, splitArea: { show: false } }),
          yAxis: category(style, apis, { inverse: true, axisLabel: { color: style.ink, formatter: style.name(26), interval: 0 },
            splitLine: { show: true, lineStyle: { color: style.line } } }),
          visualMap: { min: 0, max: Math.min(Math.max(...cells.map((cell) => cell[2])), 40), dimension: 2, orient: "horizontal", left: phone.matches ? 0 : 190, bottom: 4, itemHeight: 120, itemWidth: 10,
            text: ["40 % of its calls or more", "0"], textStyle: { color: style.soft, fontFamily: FONT }, inRange: { color: style.ramp }, calculable: false },
          series: [{ type: "heatmap", data: cells, itemStyle: { borderColor: style.card, borderWidth: 1 }, progressive: 0 }],
        },
      };
    },

    matrix: (style) => {
      const { clients, topics, cells } = data.matrix;
      if (!cells.length) return null;
      const points = cells.map((cell) => [...cell.slice(0, 2), Math.log10(Math.max(cell[2], 1)), ...cell.slice(2)]);
      const most = Math.max(...points.map((point) => point[2]), 1);
      const rotated = topics.length > 1;
      return {
        height: (rotated ? 150 : 84) + 24 * clients.length,
        option: {
          grid: { ...style.side(240), right: undefined, width: `${Math.min(100 * topics.length / 12, 76)}%`, top: 10, bottom: rotated ? 136 : 70 },
          tooltip: tooltip(style, {
            formatter: ({ value: point }) => [`${short(plain(clients[point[1]]), 60)} and ${short(plain(topics[point[0]]), 60)}`,
              `${bytes(point[3])} of record data in ${whole.format(point[6])} records`,
              `${whole.format(point[4])} calls, ${whole.format(point[5])} with errors`, plain(point[7])].join("\n"),
          }),
          xAxis: category(style, topics, { position: "bottom", axisLabel: { color: style.ink, rotate: rotated ? 40 : 0, formatter: (text) => short(text, 22), interval: 0 } }),
          yAxis: category(style, clients, { inverse: true, axisLabel: { color: style.ink, formatter: style.name(32), interval: 0 },
            splitLine: { show: true, lineStyle: { color: style.line } } }),
          visualMap: { min: 0, max: most, dimension: 2, orient: "horizontal", left: phone.matches ? 0 : 240, bottom: 4, itemHeight: 120, itemWidth: 10, calculable: false,
            text: [bytes(10 ** most), "no record data"], textStyle: { color: style.soft, fontFamily: FONT }, inRange: { color: style.ramp } },
          series: [{ type: "heatmap", data: points, itemStyle: { borderColor: style.card, borderWidth: 1 }, progressive: 0 }],
        },
      };
    },

    groups: (style) => {
      const { lanes, bars } = data.groups;
      if (!bars.length) return null;
      const first = Math.min(...bars.map((bar) => bar[1])) / 1000;
      const last = Math.max(...bars.map((bar) => bar[2])) / 1000;
      return {
        height: 70 + 26 * lanes.length,
        option: {
          useUTC: true, grid: { ...style.side(240), top: 10, bottom: 40 },
          tooltip: tooltip(style, {
            formatter: ({ value: bar }) => `${plain(lanes[bar[0]].join(" · "))}\n${plain(short(bar[3], 300))}\n${moment(bar[1] * 1000).slice(11, 23)} to ${moment(bar[2] * 1000).slice(11, 23)}`,
          }),
          xAxis: { type: "time", min: first, max: Math.max(last, first + 1), axisLabel: { color: style.soft, hideOverlap: true }, axisLine: { lineStyle: { color: style.line } }, splitLine: { show: false } },
          yAxis: category(style, lanes.map((lane) => lane.join(" · ")), { inverse: true, axisLabel: { color: style.ink, formatter: style.name(32), interval: 0 },
            splitLine: { show: true, lineStyle: { color: style.line } } }),
          series: [{
            type: "custom", encode: { x: [1, 2], y: 0 }, clip: true,
            data: bars.map(([lane, from, until, share, kind]) => [lane, from / 1000, until / 1000, share, kind]),
            renderItem: (_, api) => {
              const start = api.coord([api.value(1), api.value(0)]);
              const end = api.coord([api.value(2), api.value(0)]);
              const width = Math.max(end[0] - start[0], 2);
              const text = plain(api.value(3));
              return {
                type: "rect", shape: { x: start[0], y: start[1] - 9, width, height: 18, r: 3 },
                style: { fill: text === "nothing" ? style.line : style.colors[api.value(4) % style.colors.length], stroke: style.card },
                textContent: { style: { text: width > 60 ? short(text, Math.floor(width / 7)) : "", fill: text === "nothing" ? style.soft : printing || !dark.matches ? "#fff" : "#12161c", fontSize: 11, fontFamily: FONT } },
                textConfig: { position: "insideLeft" },
              };
            },
          }],
        },
      };
    },
  };

  const drawn = new Map();
  const draw = (place) => {
    const made = CHARTS[place.dataset.chart](look());
    if (!made) {
      place.classList.remove("chart");
      place.replaceChildren(make("p", { class: "note", text: "There is nothing to draw." }));
      return;
    }
    place.style.height = `${made.height}px`;
    let chart = drawn.get(place);
    if (!chart) {
      chart = echarts.init(place, null, { renderer: "canvas" });
      drawn.set(place, chart);
    }
    chart.setOption({ animation: false, textStyle: { fontFamily: FONT }, ...made.option }, true);
    chart.resize();
  };
  const places = [...document.querySelectorAll("[data-chart]")];
  const drawAll = () => places.forEach(draw);

  document.querySelectorAll("[data-table]").forEach((place) => drawTable(place, place.dataset.table));
  drawAll();
  dark.addEventListener("change", drawAll);
  phone.addEventListener("change", drawAll);
  addEventListener("resize", () => drawn.forEach((chart) => chart.resize()));
  // What is printed is one canvas a chart, painted at once: some charts consist of several, painted later.
  addEventListener("beforeprint", () => {
    printing = true;
    drawAll();
    drawn.forEach((chart, place) => {
      const canvas = chart.renderToCanvas({ pixelRatio: 2, backgroundColor: "#ffffff" });
      canvas.classList.add("printed");
      place.querySelectorAll(".printed").forEach((before) => before.remove());
      place.append(canvas);
    });
  });
  addEventListener("afterprint", () => {
    printing = false;
    document.querySelectorAll(".printed").forEach((canvas) => canvas.remove());
    drawAll();
  });
  document.documentElement.dataset.ready = "yes";
})();
