// What is read beside the conversation: leap's guides, and the server's measurements.
import { ask, byId, made, read } from "./server.js";

let guides = {};

function show(title, ...content) {
  byId("reader-title").textContent = title;
  byId("reader-body").replaceChildren(...content);
  if (!byId("reader").open) byId("reader").showModal();
  byId("reader-body").scrollTop = 0;
}

async function guide(name) {
  const page = await read(`leap/guides/${name}`), place = made("div", { className: "text" });
  if (page.html === undefined) place.append(made("pre", {}, page.text));
  else place.innerHTML = page.html; // cleaned by the server as answers are
  for (const link of place.querySelectorAll("a")) {
    const address = link.getAttribute("href") || "", [, other] = address.match(/^([\w-]+)\.md(#|$)/) || [];
    if (guides[other]) {
      link.removeAttribute("target");
      link.onclick = (event) => { event.preventDefault(); guide(other).catch(failed); };
    } else if (!/^(https?|mailto):/.test(address)) link.replaceWith(...link.childNodes); // a file that is not here
  }
  show(guides[name], choice(name), place);
}

function choice(chosen) {
  const select = made("select", { id: "guide" }, ...Object.entries(guides).map(([name, title]) => new Option(title, name)));
  select.value = chosen;
  select.onchange = () => guide(select.value).catch(failed);
  return made("p", { className: "row" }, made("label", { htmlFor: "guide" }, "Guide"), select);
}

const failed = (error) => show("Error", made("p", { className: "error" }, error.message));

export function beginReader() {
  byId("open-metrics").addEventListener("click", async () => {
    try {
      show("Measurements, for Prometheus at /metrics", made("pre", {}, await (await ask("metrics")).text()));
    } catch (error) { failed(error); }
  });
  byId("open-guides").addEventListener("click", () => guide(guides["first-hour"] ? "first-hour" : Object.keys(guides)[0]).catch(failed));
}

export function offerGuides(titles) {
  guides = titles;
  byId("open-guides").hidden = !Object.keys(titles).length;
}
