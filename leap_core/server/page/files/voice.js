// An answer that is spoken: played while it comes, and kept as a WAV to be heard again.
const HEADER = 44; // of the WAV that the first piece begins with
export const SPOKEN = "Respond with interleaved text and audio."; // the prompt that models which speak were trained with

export class Voice {
  constructor() {
    this.pieces = [];
    this.rate = 0;
    this.next = 0;
    this.context = new AudioContext();
    this.context.resume().catch(() => {}); // some browsers wait for a click
  }

  add(base64) {
    let bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
    if (!this.rate) {
      this.rate = new DataView(bytes.buffer).getUint32(24, true);
      bytes = bytes.slice(HEADER);
    }
    if (!bytes.length) return;
    this.pieces.push(bytes);
    const whole = new Int16Array(bytes.buffer, 0, bytes.length >> 1), sound = this.context.createBuffer(1, whole.length, this.rate);
    sound.copyToChannel(Float32Array.from(whole, (sample) => sample / 32768), 0);
    const source = this.context.createBufferSource();
    source.buffer = sound;
    source.connect(this.context.destination);
    this.next = Math.max(this.next, this.context.currentTime + 0.1);
    source.start(this.next);
    this.next += sound.duration;
  }

  // Plays on to its end, or falls silent at once.
  end(silent) {
    const left = silent ? 0 : Math.max(0, this.next - this.context.currentTime);
    setTimeout(() => this.context.close(), 1000 * left);
  }

  // The address of the sound, null where nothing was said aloud.
  get url() {
    const size = this.pieces.reduce((sum, piece) => sum + piece.length, 0);
    if (!size) return null;
    const header = new DataView(new ArrayBuffer(HEADER)), word = (at, text) => [...text].forEach((char, n) => header.setUint8(at + n, char.charCodeAt(0)));
    word(0, "RIFF");
    header.setUint32(4, size + HEADER - 8, true);
    word(8, "WAVEfmt ");
    for (const [at, value] of [[16, 16], [24, this.rate], [28, 2 * this.rate], [40, size]]) header.setUint32(at, value, true);
    for (const [at, value] of [[20, 1], [22, 1], [32, 2], [34, 16]]) header.setUint16(at, value, true);
    word(36, "data");
    return URL.createObjectURL(new Blob([header, ...this.pieces], { type: "audio/wav" }));
  }
}
