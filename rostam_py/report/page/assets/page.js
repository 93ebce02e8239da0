// Draws the report's figures and table from the JSON beside them; the page never asks the network for anything.
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

  // A picture for slides: dark ink on white whatever the page's theme.
  function savePicture(plot, name) {
    const layout = JSON.parse(JSON.stringify(plot.layout));
    const ink = inks(false);
    layout.font = { ...layout.font, color: ink.text };
    layout.paper_bgcolor = ink.ground;
    layout.width = Math.max(plot.clientWidth, 900);
    (layout.updatemenus || []).forEach((menu) => { menu.visible = false; });
    return Plotly.downloadImage(
      { data: plot.data, layout },
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
    try {
      const ink = inks(isDark());
      const layout = content.plotly.layout;
      layout.font = { ...layout.font, color: ink.text };
      layout.autosize = true;
      delete layout.width;
      await Plotly.newPlot(plot, content.plotly.data, layout, config);
      await Plotly.relayout(plot, themed(plot.layout, isDark()));
    } catch (error) {
      plot.classList.add("failed");
      plot.textContent = `not drawn: ${error.message}`;
      throw error;
    }
    plots.push(plot);
    buttons[0].addEventListener("click", () => savePicture(plot, name));
  }

  async function drawTable() {
    const place = document.getElementById("points-table");
    if (!place) return;
    const url = URL.createObjectURL(new Blob([read("itables")], { type: "application/javascript" }));
    const { ITable } = await import(url);
    URL.revokeObjectURL(url);
    new ITable(place, read("points-data"));
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
