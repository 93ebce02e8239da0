// Draws the report's figures and table from the JSON next to them; the page never asks the network for anything.
(() => {
  "use strict";

  const root = document.documentElement;
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const plots = [];

  function inks(isDark) {
    return isDark
      ? { text: "#e8ebef", ground: "#14171c", box: "#1d2229" }
      : { text: "#1b1f24", ground: "#ffffff", box: "#ffffff" };
  }

  // What the theme decides of a layout, as plotly's attribute paths.
  function themed(layout, isDark) {
    const ink = inks(isDark);
    const update = {
      "font.color": ink.text, "hoverlabel.bgcolor": ink.box, "hoverlabel.font.color": ink.text,
      "legend.bgcolor": "rgba(0,0,0,0)",
    };
    (layout.updatemenus || []).forEach((menu, index) => {
      update[`updatemenus[${index}].bgcolor`] = isDark ? "#7d8794" : "#e9edf2";
      update[`updatemenus[${index}].font.color`] = "#14171c";
      update[`updatemenus[${index}].bordercolor`] = "rgba(128,128,128,0.5)";
    });
    return update;
  }

  function isDark() {
    return root.classList.contains("dark");
  }

  function setTheme(dark) {
    root.classList.toggle("dark", dark);
    root.dataset.theme = dark ? "dark" : "light";
    const button = document.getElementById("theme");
    button.textContent = dark ? "light" : "dark";
    plots.forEach((plot) => Plotly.relayout(plot, themed(plot.layout, dark)));
  }

  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // Width [px] below which a figure is drawn for a phone.
  const NARROW = 520;

  // Breaks a text into lines of at most so many characters, between words.
  function broken(text, most) {
    return text.split(" ").reduce((lines, word) => {
      const last = lines[lines.length - 1];
      if (last && last.length + word.length + 1 > most) return [...lines, word];
      return [...lines.slice(0, -1), last ? `${last} ${word}` : word];
    }, [""]).join("<br>");
  }

  const longest = (texts) => Math.max(0, ...texts.map((text) => String(text).replace(/<[^>]*>|&[^;]*;/g, "x").length));

  // A figure for a phone: small type, broken titles, the colour bar below, room for a legend of one name a row.
  function narrowed({ data, layout }, width) {
    layout.font.size = 11;
    layout.margin = { ...layout.margin, l: Math.min(layout.margin.l, 44), r: 12 };
    const names = data.filter((trace) => trace.showlegend !== false && trace.name).map((trace) => trace.name);
    const perRow = Math.max(1, Math.floor((width - 60) / (longest(names) * 6 + 50)));
    const rows = Math.ceil(names.length / perRow);
    if (layout.meta && layout.meta.phone_height) layout.height = layout.meta.phone_height;
    layout.height += 18 * Math.max(0, rows - 2);
    for (const [key, axis] of Object.entries(layout)) {
      if (!/^[xy]axis\d*$/.test(key) || !axis.title || !axis.title.text) continue;
      axis.title = { ...axis.title, text: broken(axis.title.text, key[0] === "x" ? 30 : 24), font: { size: 12 } };
      if (key[0] === "y") axis.title.standoff = 6;
    }
    (layout.annotations || []).forEach((note) => {
      note.font = { ...note.font, size: 10 };
      const most = Math.floor((width - 50) / 5.4);
      if (note.xanchor === "left" && note.text.length > most) {
        note.text = `${note.text.slice(0, most - 15)}...${note.text.slice(-12)}`;
      }
    });
    data.forEach((trace) => {
      const bar = trace.colorbar || (trace.marker && trace.marker.showscale && trace.marker.colorbar);
      if (!bar) return;
      Object.assign(bar, {
        orientation: "h", x: 0.5, xanchor: "center", y: -0.02, yanchor: "top", len: 1, thickness: 10,
        title: { text: bar.title.text.replace("<br>", " "), side: "top", font: { size: 11 } },
      });
      if (layout.xaxis.title && layout.xaxis.visible !== false) bar.ypad = 64;
      layout.margin.b = (layout.margin.b || 40) + 44;
      layout.height += 40;
      const side = layout.yaxis.scaleanchor ? width + 130 : 0; // a square needs no more height than it has width
      if (side) layout.height = Math.min(layout.height, side);
      if (trace.type === "heatmap" && trace.texttemplate) fitTexts(trace, width);
    });
    return { data, layout };
  }

  // Texts of a heat map's cells in a size that fits its columns; none where they would be too small to read.
  function fitTexts(trace, width) {
    const column = (width - 56 - 6.2 * longest(trace.y)) / trace.x.length;
    const lines = trace.text.flat().flatMap((text) => text.split("<br>"));
    const size = Math.min(11, Math.floor(column / (0.56 * longest(lines))));
    if (size >= 8) trace.textfont.size = size;
    else delete trace.texttemplate;
  }

  // A fresh copy of a figure for a width.
  function fitted(content, width) {
    const figure = JSON.parse(JSON.stringify(content));
    return width < NARROW ? narrowed(figure, width) : figure;
  }

  // A picture for slides: wide, dark ink on white, whatever the page's width and theme.
  function savePicture(plot, name, content) {
    const wide = Math.max(plot.clientWidth, 900);
    const { data, layout } = fitted(content, wide);
    const ink = inks(false);
    layout.font = { ...layout.font, color: ink.text };
    layout.paper_bgcolor = ink.ground;
    layout.width = wide;
    (layout.updatemenus || []).forEach((menu) => { menu.visible = false; });
    return Plotly.downloadImage(
      { data, layout },
      { format: "png", filename: name, width: layout.width, height: layout.height || plot.clientHeight, scale: 2 },
    );
  }

  async function draw(card) {
    const name = card.dataset.figure;
    const content = read(`json-${name}`);
    const plot = card.querySelector(".plot");
    const buttons = card.querySelectorAll("button");
    buttons[1].addEventListener("click", () => save(`${name}.csv`, "text/csv", content.csv));
    const config = { responsive: true, displayModeBar: false };
    let wasNarrow;
    async function redraw() {
      const { data, layout } = fitted(content.plotly, plot.clientWidth);
      wasNarrow = plot.clientWidth < NARROW;
      layout.font = { ...layout.font, color: inks(isDark()).text };
      layout.autosize = true;
      delete layout.width;
      await Plotly.newPlot(plot, data, layout, config);
      await Plotly.relayout(plot, themed(plot.layout, isDark()));
    }
    try {
      await redraw();
      window.addEventListener("resize", () => {
        if (plot.clientWidth && plot.clientWidth < NARROW !== wasNarrow) redraw();
      });
    } catch (error) {
      plot.classList.add("failed");
      plot.textContent = `not drawn: ${error.message}`;
      throw error;
    }
    plots.push(plot);
    buttons[0].addEventListener("click", () => savePicture(plot, name, content.plotly));
  }

  async function drawTable() {
    const place = document.getElementById("points-table");
    if (!place) return;
    const url = URL.createObjectURL(new Blob([read("itables")], { type: "application/javascript" }));
    const { ITable } = await import(url);
    URL.revokeObjectURL(url);
    const { numbers, ...options } = read("points-data");
    const table = new ITable(place, options).dt;
    table.columns().every(function () {
      const input = this.footer().querySelector("input");
      input.setAttribute("aria-label", `filter ${input.placeholder}`);
      input.placeholder = numbers.includes(this.index()) ? ">= 0" : "contains";
      if (numbers.includes(this.index())) filterNumbers(this, input);
    });
  }

  const COMPARE = {
    ">=": (a, b) => a >= b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, "<": (a, b) => a < b,
    "!=": (a, b) => a !== b, "=": (a, b) => a === b, "": (a, b) => a === b,
  };

  // "> 2", "= 400", "400..1600" or several such, "> 2 < 5", as tests of a number; null if it is none.
  function conditions(text) {
    const number = "[-+]?(?:\\d[\\d,]*\\.?\\d*|\\.\\d+)(?:[eE][-+]?\\d+)?";
    const one = new RegExp(`\\s*(?:(${number})\\s*\\.\\.\\s*(${number})|(>=|<=|!=|>|<|==?|)\\s*(${number}))\\s*(?:and|&)?\\s*`, "y");
    const value = (digits) => Number(digits.replace(/,/g, ""));
    const tests = [];
    while (one.lastIndex < text.length) {
      const found = one.exec(text);
      if (!found) return null;
      if (found[1] !== undefined) tests.push((x) => x >= value(found[1]) && x <= value(found[2]));
      else tests.push((x) => COMPARE[found[3].replace("==", "=")](x, value(found[4])));
    }
    return tests;
  }

  // Replaces a column's text filter: the copy of its input has none of the library's listeners.
  function filterNumbers(column, input) {
    const own = input.cloneNode(true);
    input.replaceWith(own);
    own.addEventListener("input", () => {
      const tests = conditions(own.value);
      own.classList.toggle("wrong", tests === null);
      const at = column.index();
      const holds = (_, row) => row[at] !== null && row[at] !== "" && tests.every((test) => test(Number(row[at])));
      column.search.fixed("number", tests && tests.length ? holds : null).draw();
    });
  }

  async function start() {
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    setTheme(dark.matches);
    dark.addEventListener("change", (event) => setTheme(event.matches));
    document.getElementById("theme").addEventListener("click", () => setTheme(!isDark()));
    const table = drawTable();
    for (const card of document.querySelectorAll("figure.card")) {
      await draw(card);
      await new Promise((resolve) => setTimeout(resolve, 0)); // keeps the page alive between figures
    }
    await table;
    root.dataset.ready = "true";
  }

  start();
})();
