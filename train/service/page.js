"use strict";
// Asks the server what it serves, sends it images, and shows what it answers. All of that is written as text.

const SVG = "http://www.w3.org/2000/svg";
const by = (id) => document.getElementById(id);
const percent = (share) => `${(100 * share).toFixed(2)} %`;
let token = "", round = 0, addresses = [];

function make(name, text, ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

async function ask(path, options = {}) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { ...options, headers });
  const value = await answer.json();
  if (answer.status === 401) by("login").hidden = false;
  if (value.error) throw new Error([value.error.what, value.error.why, value.error.remedy].filter(Boolean).join("; "));
  return value;
}

function list(place, facts) {
  place.replaceChildren(...facts.filter(([, text]) => text).map(([name, text]) => make("div", "", make("dt", name), make("dd", text))));
}

async function introduce() {
  try {
    const facts = await ask("metadata");
    by("login").hidden = true;
    document.title = by("title").textContent = `${facts.model} for ${facts.dataset}`;
    by("lead").textContent = `An image classifier for ${facts.classes.length} classes. It sees ${facts.input.height}x${facts.input.width} pixels; other sizes are cropped and scaled.`;
    const result = facts.result;
    list(by("numbers"), [["Test accuracy", result.test_accuracy === undefined ? "" : percent(result.test_accuracy)], ["Classes", String(facts.classes.length)], ["Epochs", String(result.epochs ?? "")]]);
    by("numbers").hidden = false;
    const software = Object.entries(facts.software).map((pair) => pair.join(" ")).join(", ");
    list(by("facts"), [
      ["Run", facts.run], ["Kernels", facts.kernels], ["Note", facts.note], ["Weights", facts.digests.weights],
      ["Configuration", facts.digests.config], ["Data", facts.digests.data], ["Wheel", facts.digests.wheel], ["Made in", facts.parent.digest || ""], ["Software", software],
    ]);
  } catch (error) {
    by("lead").textContent = error.message;
  }
}

function draw(share) {
  const bar = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({ viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" })) bar.setAttribute(key, value);
  for (const [kind, width] of [["rest", 100], ["", 100 * share]]) {
    const part = document.createElementNS(SVG, "rect");
    part.setAttribute("class", kind);
    part.setAttribute("width", width);
    part.setAttribute("height", 4);
    bar.append(part);
  }
  return bar;
}

function picture(source, alt, caption) {
  const image = make("img");
  image.src = source;
  image.alt = alt;
  return make("figure", "", image, make("figcaption", caption));
}

function show(file, found) {
  const article = make("article");
  article.className = "result";
  article.append(make("h3", file.name));
  if (found.problem) {
    const problem = make("p", `It cannot be read: ${found.problem}`);
    problem.className = "problem";
    article.append(problem);
    return article;
  }
  const address = URL.createObjectURL(file);
  addresses.push(address);
  const best = found.guesses[0].label;
  const pictures = make("div", "", picture(address, `The image ${file.name}`, "The image"));
  pictures.className = "pictures";
  if (found.explanation) pictures.append(picture(found.explanation, `The image as the network sees it, red where it speaks for ${best}`, `Red speaks for ${best} (Grad-CAM)`));
  const guesses = make("ol", "", ...found.guesses.map((guess) => make("li", "", make("span", guess.label), make("b", percent(guess.probability)), draw(guess.probability))));
  guesses.className = "guesses";
  article.append(pictures, guesses);
  return article;
}

async function classify(files) {
  if (!files.length) return;
  const mine = ++round, form = new FormData();
  for (const file of files) form.append("image", file, file.name);
  by("said").textContent = `Waiting for ${files.length === 1 ? files[0].name : `${files.length} images`}.`;
  try {
    const value = await ask("predictions?explain=1", { method: "POST", body: form });
    if (mine !== round) return; // newer images were chosen meanwhile
    for (const address of addresses.splice(0)) URL.revokeObjectURL(address);
    by("results").replaceChildren(...value.predictions.map((found, index) => show(files[index], found)));
    const first = value.predictions.find((found) => found.guesses.length);
    by("said").textContent = first ? `${files.length === 1 ? files[0].name : "The first one"}: ${first.guesses[0].label}, ${percent(first.guesses[0].probability)}.` : "No image can be read.";
  } catch (error) {
    if (mine !== round) return;
    by("results").replaceChildren();
    by("said").textContent = error.message;
  }
}

by("file").addEventListener("change", (event) => {
  classify([...event.target.files]);
  event.target.value = "";
});
for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
  addEventListener(kind, (event) => {
    event.preventDefault();
    by("drop").classList.toggle("over", kind === "dragenter" || kind === "dragover");
    if (kind === "drop") classify([...event.dataTransfer.files]);
  });
}
by("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = by("token").value.trim();
  introduce();
});
introduce();
