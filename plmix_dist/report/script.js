"use strict";
(() => {
  const table = document.getElementById("items");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const headers = Array.from(table.tHead.rows[0].cells);
  const number = (text) => {
    const found = /-?[\d.]+/.exec(text.replace(/,/g, ""));
    return found ? parseFloat(found[0]) + (text.startsWith(">") ? 0.5 : text.startsWith("<") ? -0.5 : 0) : -Infinity;
  };
  const sortBy = (place, ascending) => {
    const key = place === 0
      ? (row) => row.cells[0].textContent
      : (row) => number(row.cells[place].textContent);
    const order = place === 0
      ? (a, b) => a[0].localeCompare(b[0], undefined, { numeric: true })
      : (a, b) => a[0] - b[0];
    const keyed = rows.map((row) => [key(row), row]);
    keyed.sort((a, b) => (ascending ? 1 : -1) * order(a, b));
    body.append(...keyed.map((pair) => pair[1]));
    headers.forEach((cell, at) => {
      if (at === place) cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    });
  };
  headers.forEach((cell, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      const now = cell.getAttribute("aria-sort");
      sortBy(place, place === 0 ? now !== "ascending" : now === "descending");
    });
  });
  const tools = document.getElementById("tools");
  tools.hidden = false;
  const field = document.getElementById("search");
  const told = document.getElementById("found");
  const words = rows.map((row) => row.cells[0].textContent.toLowerCase());
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    let shown = 0;
    rows.forEach((row, at) => {
      row.hidden = !words[at].includes(wanted);
      if (!row.hidden) shown += 1;
    });
    told.textContent = wanted ? `${shown} of ${rows.length}` : "";
  });
})();
