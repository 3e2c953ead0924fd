// Documents, pictures and sound that go with a message: dropped, pasted, chosen, or recorded.
import { byId, made } from "./server.js";

const RATE = 16000, LARGEST = 24 * 1024 * 1024; // a request holds no larger document
let attached = [], abilities = [], recorder = null, asking = false, tell = () => {};

export const files = () => attached;
export const recording = () => recorder !== null;

export function attach(parts) {
  attached = parts;
  byId("attached").replaceChildren(...parts.map((part) => {
    const remove = made("button", { type: "button", className: "small", ariaLabel: `Leave out ${part.name || "it"}` }, "×");
    remove.onclick = () => { attach(attached.filter((each) => each !== part)); byId("prompt").focus(); };
    return made("li", {}, part.name || "a file", " ", remove);
  }));
}

async function heard(file) { // any sound that the browser knows, as the samples that models take
  const sound = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await file.arrayBuffer());
  const channels = Array.from({ length: sound.numberOfChannels }, (_, n) => sound.getChannelData(n));
  const samples = channels[0].map((_, n) => channels.reduce((sum, channel) => sum + channel[n], 0) / channels.length);
  const url = await fileAsUrl(new Blob([samples]));
  return { type: "input_audio", input_audio: { data: url.slice(url.indexOf(",") + 1), format: "pcm_f32le", sample_rate: RATE } };
}

function fileAsUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = Object.assign(new FileReader(), { onload: () => resolve(reader.result), onerror: () => reject(reader.error) });
    reader.readAsDataURL(file);
  });
}

async function take(chosen) {
  tell("");
  for (const file of chosen) {
    const [kind] = file.type.split("/"), name = file.name || kind, can = { image: "vision", audio: "audio" }[kind];
    if (can ? !abilities.includes(can) : file.size > LARGEST) {
      tell(`${byId("model").value} takes no such file: ${name}`);
      continue;
    }
    let part;
    try {
      if (can) part = kind === "audio" ? await heard(file) : { type: "image_url", image_url: { url: await fileAsUrl(file) } };
      else part = { type: "file", file: { filename: name, file_data: await fileAsUrl(file) } };
    } catch {
      tell(`This browser cannot read ${name}.`);
      continue;
    }
    attach([...attached, { ...part, name }]);
  }
}

async function record() {
  if (recorder) return recorder.stop();
  if (asking) return;
  tell("");
  let stream;
  asking = true; // for the microphone, which takes a person a while
  try {
    stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  } catch (error) {
    return tell(`There is no microphone that may be used: ${error.message}`);
  } finally {
    asking = false;
  }
  const pieces = [], begun = Date.now(), button = byId("record");
  recorder = new MediaRecorder(stream);
  const clock = setInterval(() => { byId("recorded").textContent = `${Math.round((Date.now() - begun) / 1000)} s`; }, 500);
  recorder.ondataavailable = ({ data }) => pieces.push(data);
  recorder.onstop = async () => {
    for (const track of stream.getTracks()) track.stop();
    clearInterval(clock);
    byId("recorded").textContent = "";
    button.textContent = "Record";
    const name = `Recording, ${((Date.now() - begun) / 1000).toFixed(1)} s`;
    try {
      attach([...attached, { ...await heard(new Blob(pieces)), name }]);
    } catch {
      tell("This browser cannot read what it recorded.");
    }
    recorder = null;
  };
  recorder.start();
  button.textContent = "Stop recording";
}

export function learnt(capabilities) { // what the chosen model takes
  abilities = capabilities;
  const kinds = [abilities.includes("vision") && "image/*", abilities.includes("audio") && "audio/*"].filter(Boolean);
  byId("attach").hidden = !abilities.includes("completion");
  byId("record").hidden = !abilities.includes("audio") || !navigator.mediaDevices; // there is none without TLS elsewhere
  const words = ["documents", ...kinds.map((kind) => (kind === "image/*" ? "pictures" : "sound"))];
  const last = words.pop(), before = words.length ? `${words.join(", ")} and ` : "";
  byId("keys").textContent = `Enter sends, Shift-Enter breaks the line, Esc stops. Drop or paste ${before}${last}.`;
}

export function beginAttachments(complain) {
  tell = complain;
  byId("file").addEventListener("change", () => { take([...byId("file").files]); byId("file").value = ""; });
  byId("record").addEventListener("click", record);
  byId("prompt").addEventListener("paste", (event) => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    take([...event.clipboardData.files]);
  });
  for (const kind of ["dragover", "drop"]) {
    byId("talk").addEventListener(kind, (event) => {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      if (kind === "drop") take([...event.dataTransfer.files]);
    });
  }
}
