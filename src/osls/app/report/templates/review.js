(function () {
  "use strict";
  var source = document.getElementById("data");
  var data = JSON.parse(source.textContent);
  var place = source.getAttribute("data-storage");
  var PAGE = 12, MORE = 100;
  var pictured = Object.keys(data.rows).some(function (row) { return data.rows[row].picture; });
  // names: by group; into: a group merged into another; labels: of single rows; moved: rows split off into a
  // group; extra: groups made by splitting.
  var state = { names: {}, into: {}, labels: {}, moved: {}, extra: 0 };
  try {
    var kept = JSON.parse(window.localStorage.getItem(place));
    if (kept && typeof kept === "object") { Object.assign(state, kept); }
  } catch (error) { /* storage is full, off or broken: the page works without it */ }

  function save() {
    try { window.localStorage.setItem(place, JSON.stringify(state)); } catch (error) { /* as above */ }
    summarise();
  }
  function make(tag, className, text) {
    var element = document.createElement(tag);
    if (className) { element.className = className; }
    if (text !== undefined) { element.textContent = text; }
    return element;
  }
  function spelled(name) { return name.normalize("NFKC").trim().replace(/\s+/g, " ").toLowerCase(); }
  function count() { return data.groups.length + state.extra; }
  function rowsOf(group) {
    var own = group < data.groups.length ? data.groups[group].rows : [];
    var moved = Object.keys(state.moved).map(Number).filter(function (row) { return state.moved[row] === group; });
    return own.filter(function (row) { return !(row in state.moved); }).concat(moved);
  }
  function target(group) {
    for (var step = 0; group in state.into && step < count(); step++) { group = state.into[group]; }
    return group;
  }
  function nameOf(group) { return (state.names[target(group)] || "").trim(); }
  function twin(name) {
    var others = data.classes.concat([data.novel]);
    return others.find(function (other) { return other !== name && spelled(other) === spelled(name); });
  }

  // -- Labels -----------------------------------------------------------------------------------------

  function labels() {
    var chosen = {};
    for (var group = 0; group < count(); group++) {
      var name = nameOf(group);
      if (!name) { continue; }
      var rows = rowsOf(group);
      (group < data.groups.length ? rows.slice(0, data.exported) : rows).forEach(function (row) { chosen[row] = name; });
    }
    Object.keys(state.labels).forEach(function (row) {
      var name = state.labels[row].trim();
      if (name) { chosen[row] = name; }
    });
    return chosen;
  }
  function quoted(text) { return /[",\r\n]|^\s|\s$/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text; }
  function csv() {
    var chosen = labels();
    var lines = [[data.key, "label"]].concat(Object.keys(chosen).map(function (row) { return [data.rows[row].key, chosen[row]]; }));
    return lines.map(function (line) { return line.map(quoted).join(","); }).join("\n") + "\n";
  }
  function download() {
    var link = make("a");
    link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
    link.download = "labels.csv";
    document.body.appendChild(link);
    link.click();
    link.remove();
  }
  function summarise() {
    var chosen = labels(), names = {};
    Object.keys(chosen).forEach(function (row) { names[chosen[row]] = (names[chosen[row]] || 0) + 1; });
    var words = Object.keys(names).map(function (name) { return name + " (" + names[name] + ")"; });
    document.getElementById("summary").textContent = words.length
      ? Object.keys(chosen).length + " rows labelled: " + words.join(", ")
      : "Nothing is labelled yet.";
    document.getElementById("download").disabled = !words.length;
    var list = document.getElementById("names");
    list.textContent = "";
    data.classes.concat(Object.keys(names)).filter(function (name, i, all) { return all.indexOf(name) === i; })
      .forEach(function (name) { var option = make("option"); option.value = name; list.appendChild(option); });
  }

  // -- What is shown ----------------------------------------------------------------------------------

  function nameBox(words, value, change) {
    var box = make("div", "ask");
    var label = make("label", "", words), input = make("input"), hint = make("p", "hint");
    input.type = "text";
    input.id = "box-" + Math.random().toString(36).slice(2);
    input.maxLength = data.longest;
    input.setAttribute("list", "names");
    input.autocomplete = "off";
    input.value = value;
    label.htmlFor = input.id;
    hint.hidden = true;
    function check() {
      var other = twin(input.value);
      hint.hidden = !other;
      hint.textContent = other ? "This differs from the class '" + other + "' by case or blanks only; write it alike." : "";
      input.setAttribute("aria-invalid", other ? "true" : "false");
    }
    input.addEventListener("input", function () { check(); change(input.value); });
    input.addEventListener("keydown", function (event) {
      if (event.key !== "Enter") { return; }
      var boxes = Array.from(document.querySelectorAll(".ask input[type=text]"));
      var next = boxes[boxes.indexOf(input) + 1];
      if (next) { next.focus(); }
    });
    check();
    box.append(label, input, hint);
    return box;
  }
  function content(item, row) {
    if (row.picture) {
      var image = make("img");
      image.src = row.picture;
      image.alt = row.name;
      image.loading = "lazy";
      item.appendChild(image);
    }
    if (row.text) {
      var text = make("p", "text", row.text);
      text.dir = "auto";
      item.appendChild(text);
    }
    if (row.values.length) {
      var list = make("dl");
      row.values.forEach(function (value, i) {
        var pair = make("div");
        pair.append(make("dt", "", data.columns[i]), make("dd", "", value));
        list.appendChild(pair);
      });
      item.appendChild(list);
    }
  }
  function showSuggested() {
    var list = make("ul", "items" + (pictured ? " pictured" : ""));
    data.suggestions.forEach(function (suggestion) {
      var row = data.rows[suggestion.row], item = make("li"), top = make("div", "top");
      top.append(make("b", "", row.name), make("span", "reason", suggestion.reason), make("span", "soft", row.novelty + " novel"));
      item.appendChild(top);
      content(item, row);
      item.appendChild(nameBox("It is", state.labels[suggestion.row] || "", function (value) {
        if (value) { state.labels[suggestion.row] = value; } else { delete state.labels[suggestion.row]; }
        save();
      }));
      list.appendChild(item);
    });
    var here = document.getElementById("suggested");
    here.textContent = "";
    here.appendChild(data.suggestions.length ? list : make("p", "soft", "There is nothing to ask about."));
  }
  function selectOf(words, options, choose) {
    var select = make("select");
    select.setAttribute("aria-label", words);
    [["", words]].concat(options).forEach(function (pair) {
      var option = make("option", "", pair[1]);
      option.value = pair[0];
      select.appendChild(option);
    });
    select.addEventListener("change", function () { if (select.value) { choose(select.value); } });
    return select;
  }
  function title(group) { return "Group " + (group + 1); }
  function showGroup(group) {
    var box = make("article", "group"), known = data.groups[group], rows = rowsOf(group), ticked = {};
    box.id = "group-" + group;
    if (nameOf(group)) { box.classList.add("named"); }
    box.appendChild(make("h3", "", title(group) + (known ? ": " + known.share + " of the new data (" + known.interval + ")" : ": split off")));
    box.appendChild(make("p", "soft small", known
      ? known.size + " rows; " + known.purity + " sure on average" + (known.nearest ? "; nearest known class: " + known.nearest : "")
      : rows.length + " rows"));
    if (known) {
      [["Against the known rows:", known.traits], ["Against the other groups:", known.apart]].forEach(function (part) {
        if (!part[1].length) { return; }
        box.appendChild(make("p", "", part[0]));
        var traits = make("ul", "traits");
        part[1].forEach(function (trait) { traits.appendChild(make("li", "", trait)); });
        box.appendChild(traits);
      });
    }
    if (group in state.into) {
      var merged = make("p", "", "Merged into " + title(target(group)) + (nameOf(group) ? ", " + nameOf(group) : "") + ". ");
      var back = make("button", "plain-button", "Undo");
      back.type = "button";
      back.addEventListener("click", function () { delete state.into[group]; save(); showGroups(); });
      merged.appendChild(back);
      box.appendChild(merged);
      return box;
    }
    box.appendChild(nameBox("Name", state.names[group] || "", function (value) {
      state.names[group] = value;
      box.classList.toggle("named", !!value.trim());
      save();
    }));
    function rename(value) { state.names[group] = value; save(); showGroups(); }
    var tools = make("div", "ask"), others = [];
    for (var other = 0; other < count(); other++) {
      if (other !== group && target(other) !== group) { others.push([String(other), title(other) + (nameOf(other) ? ": " + nameOf(other) : "")]); }
    }
    tools.appendChild(selectOf("It is really ...", data.classes.map(function (name) { return [name, name]; }), rename));
    if (others.length) {
      tools.appendChild(selectOf("Merge into ...", others, function (value) { state.into[group] = Number(value); save(); showGroups(); }));
    }
    var notNew = make("button", "plain-button", "Not new");
    notNew.type = "button";
    notNew.setAttribute("aria-pressed", String(state.names[group] === data.notNew));
    notNew.addEventListener("click", function () { rename(state.names[group] === data.notNew ? "" : data.notNew); });
    var split = make("button", "plain-button", "Split off ticked rows");
    split.type = "button";
    split.disabled = true;
    split.addEventListener("click", function () {
      var made = count();
      state.extra += 1;
      Object.keys(ticked).forEach(function (row) { state.moved[row] = made; });
      save();
      showGroups();
      document.querySelector("#group-" + made + " input[type=text]").focus();
    });
    tools.append(notNew, split);
    box.appendChild(tools);
    var list = make("ul", "items" + (pictured ? " pictured" : "")), shown = 0;
    var more = make("button", "plain-button", "");
    more.type = "button";
    function grow() {
      var until = Math.min(rows.length, shown + (shown ? MORE : PAGE));
      rows.slice(shown, until).forEach(function (number) {
        var row = data.rows[number], item = make("li"), top = make("div", "top"), label = make("label"), tick = make("input");
        tick.type = "checkbox";
        tick.addEventListener("change", function () {
          if (tick.checked) { ticked[number] = true; } else { delete ticked[number]; }
          split.disabled = !Object.keys(ticked).length;
        });
        label.append(tick, make("span", "", row.name));
        top.append(label, make("span", "soft", row.novelty + " novel"));
        item.appendChild(top);
        content(item, row);
        list.appendChild(item);
      });
      shown = until;
      more.hidden = shown >= rows.length;
      more.textContent = "Show more of the other " + (rows.length - shown) + " rows";
    }
    more.addEventListener("click", grow);
    var details = make("details"), summary = make("summary", "", "Rows, the most typical first");
    details.appendChild(summary);
    details.open = group < 3;
    details.append(list, more);
    // Rows of closed groups are made when they are opened.
    if (details.open) { grow(); }
    details.addEventListener("toggle", function () { if (details.open && shown === 0) { grow(); } });
    box.appendChild(details);
    return box;
  }
  function showGroups() {
    var here = document.getElementById("list");
    here.textContent = "";
    for (var group = 0; group < count(); group++) { here.appendChild(showGroup(group)); }
    if (!count()) { here.appendChild(make("p", "soft", "No row was called novel, so there are no groups.")); }
  }
  document.getElementById("download").addEventListener("click", download);
  document.getElementById("again").addEventListener("click", function () {
    state = { names: {}, into: {}, labels: {}, moved: {}, extra: 0 };
    save();
    showSuggested();
    showGroups();
  });
  showSuggested();
  showGroups();
  summarise();
})();
