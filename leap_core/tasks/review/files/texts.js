// Places in a text: code points there, UTF-16 units here.

// For offsets in code points, in rising order, the same offsets in UTF-16 units: one pass over the text.
function unitsOf(text, offsets) {
  const units = [];
  let at = 0;
  let points = 0;
  for (const offset of offsets) {
    while (points < offset && at < text.length) {
      const unit = text.charCodeAt(at);
      const pair = unit >= 0xd800 && unit < 0xdc00 && (text.charCodeAt(at + 1) & 0xfc00) === 0xdc00;
      at += pair ? 2 : 1;
      points += 1;
    }
    units.push(at);
  }
  return units;
}

// The text in pieces, each with the numbers of the entries whose place it is in.
function piecesOf(text, evidence) {
  const placed = evidence.map((entry, number) => ({ number, ...entry.place })).filter((each) => each.end > each.start);
  const offsets = [...new Set(placed.flatMap((each) => [each.start, each.end]))].sort((one, other) => one - other);
  const units = unitsOf(text, offsets);
  const opens = new Map();
  const closes = new Map();
  for (const each of placed) {
    opens.set(each.start, [...(opens.get(each.start) || []), each.number]);
    closes.set(each.end, [...(closes.get(each.end) || []), each.number]);
  }
  const pieces = [];
  let inside = [];
  let begin = 0;
  offsets.forEach((offset, n) => {
    if (units[n] > begin) pieces.push({ text: text.slice(begin, units[n]), entries: inside });
    begin = units[n];
    inside = [...inside.filter((number) => !(closes.get(offset) || []).includes(number)), ...(opens.get(offset) || [])];
  });
  if (begin < text.length) pieces.push({ text: text.slice(begin), entries: [] });
  return pieces;
}
