const value = (cell) => {
  if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
  const text = cell.textContent.trim();
  const number = Number(text.replace(/[,%+\s]/g, ""));
  return text !== "" && !Number.isNaN(number) ? number : text;
};
const compare = (a, b) =>
  typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
for (const head of document.querySelectorAll("thead th")) {
  head.dataset.sorts = "";
  head.tabIndex = 0;
  const sort = () => {
    const body = head.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].map((row) => [value(row.cells[head.cellIndex]), row]);
    rows.sort((a, b) => compare(a[0], b[0]) * (down ? -1 : 1));
    body.append(...rows.map((pair) => pair[1]));
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", (event) => event.key === "Enter" && sort());
}
