// The documents are in the page itself, or come from the server whose key is in the address.

function tellKept(words, isBad) {
  const line = byId("kept");
  if (line.textContent !== words) line.textContent = words;
  line.classList.toggle("bad", isBad);
}

async function served() {
  const fromAddress = new URLSearchParams(location.hash.slice(1)).get("key"); // never sent to a server
  if (fromAddress) {
    sessionStorage.setItem("leap-key", fromAddress);
    history.replaceState(null, "", location.pathname);
  }
  const key = sessionStorage.getItem("leap-key") || "";
  const read = async () => {
    const answer = await asked(key, "/review");
    const data = await answer.json();
    if (!answer.ok) throw new Error(data.error.message);
    return data;
  };
  try {
    const data = await read();
    const again = async (why) => {
      let data;
      do {
        while (review.editor) await new Promise((done) => setTimeout(done, 200)); // what is being typed is no shortcut
        data = await read();
      } while (review.editor);
      review.begin(data);
      review.say(`${why}. You see what is in the file now.`);
    };
    const review = new Review(data, new OnServer(key, data.digest, data.save_as, tellKept, again));
    review.start();
  } catch (error) {
    tellKept(`The documents do not come: ${error.message}. Open the address that leap printed.`, true);
  }
}

const own = JSON.parse(byId("data").textContent);
if (own) new Review(own, new InBrowser(own.digest, own.save_as, tellKept)).start();
else served();
