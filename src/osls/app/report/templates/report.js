"use strict";
(function () {
  var root = document.documentElement;
  var toggle = document.getElementById("theme");
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  function isDark() {
    var chosen = root.getAttribute("data-theme");
    return chosen ? chosen === "dark" : dark.matches;
  }
  function label() {
    toggle.textContent = isDark() ? "Light" : "Dark";
    toggle.setAttribute("aria-label", isDark() ? "Change to light colours" : "Change to dark colours");
  }
  toggle.hidden = false;
  toggle.addEventListener("click", function () {
    root.setAttribute("data-theme", isDark() ? "light" : "dark");
    label();
  });
  dark.addEventListener("change", label);
  label();

  function valueOf(row, column) {
    var cell = row.cells[column];
    var value = cell.getAttribute("data-value");
    return value === null ? cell.textContent.trim().toLowerCase() : Number(value);
  }
  function sort(table, column, heading) {
    var up = heading.getAttribute("aria-sort") === "descending";
    table.querySelectorAll("thead th").forEach(function (other) { other.removeAttribute("aria-sort"); });
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    var body = table.tBodies[0];
    Array.from(body.rows).sort(function (a, b) {
      var x = valueOf(a, column), y = valueOf(b, column);
      var numbers = typeof x === "number" && typeof y === "number";
      var order = numbers ? x - y : String(x).localeCompare(String(y));
      return up ? order : -order;
    }).forEach(function (row) { body.appendChild(row); });
  }
  document.querySelectorAll("table[data-sortable]").forEach(function (table) {
    Array.from(table.tHead.rows[0].cells).forEach(function (heading, column) {
      var button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      heading.textContent = "";
      heading.appendChild(button);
      button.addEventListener("click", function () { sort(table, column, heading); });
    });
  });
})();
