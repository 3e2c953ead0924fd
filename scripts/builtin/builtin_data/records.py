"""Persons, orders and events as facts, and as the sentences that state them."""

from __future__ import annotations

from typing import Any

from builtin_data import wordlists as lists
from builtin_data.phrasing import alternatives, expand, fill
from builtin_data.values import Values

Facts = dict[str, Any]
NUMBER_WORDS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
    "ten", "eleven", "twelve",
]  # fmt: skip
ORDER = {
    "person": ("name", "age", "city", "job", "email"),
    "order": ("item", "quantity", "price", "customer"),
    "event": ("title", "date", "time", "place"),
}


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _labelled(values: Values, facts: Facts) -> str:
    """`Name: Ann, Age: 31`, on one line or several."""
    labels = {
        "title": "event",
        "place": values.pick(["place", "location", "where"]),
        "item": values.pick(["item", "product"]),
    }
    style = values.pick([str.capitalize, str.lower, str.capitalize])
    joint = values.pick([", ", "\n", "; ", ", "])
    mark = values.pick([": ", ": ", " = ", " - "])
    return joint.join(style(labels.get(key, key)) + mark + str(value) for key, value in facts.items())


def _article(job: str) -> str:
    return ("an " if job[0] in "aeiou" else "a ") + job


def person(values: Values) -> tuple[Facts, str]:
    draws = {
        "age": values.integer(1, 99),
        "city": values.place_name(),
        "job": values.fresh(lambda: values.pick(lists.JOBS)),
        "email": values.email(),
    }
    weights = {"age": 0.75, "city": 0.7, "job": 0.4, "email": 0.08}
    keys = [key for key in draws if values.chance(weights[key])] or ["age"]
    facts: Facts = {"name": values.name()} | {key: draws[key] for key in keys}
    if values.chance(0.1):
        return facts, _labelled(values, facts)
    if values.chance(0.12) and "age" in facts and "city" in facts:
        text = fill(
            expand(
                values.rng,
                "[{n}, {a}, {c}|{n} ({a}), {c}|{n}, {a} years, from {c}|{a}-year-old {n} from {c}|{n} from {c} is {a}|"
                "In {c} lives {n}, {a}[ years old|]|{n}, {a}, from {c}|{n}, {a}, lives in {c}|{n} of {c}, aged {a}]",
            ),
            n=facts["name"],
            a=facts["age"],
            c=facts["city"],
        )
        if "job" not in facts and "email" not in facts:
            return facts, text + values.pick([".", "", "."])
    first_person = values.chance(0.12)
    clauses = {
        "age": "[am|is] {v} years old|[am|is] {v}|[am|is] {v} years of age|just turned {v}"
        "|turned {v} [last week|yesterday|in May]|[am|is] aged {v}",
        "city": "[live/s] in {v}|[live/s] in {v}|[come/s] from {v}|[am|is] from {v}|[am|is] based in {v}"
        "|[reside/s] in {v}|moved to {v}|grew up in {v}",
        "job": "[work/s] as {art}|[am|is] {art}|[work/s] as {art}|[have/has] a job as {art}",
        "email": "can be reached at {v}|[use/s] the email {v}|[have/has] the email address {v}",
    }
    values.rng.shuffle(keys)
    name = facts["name"]
    subject, appositive = name, ""
    if not first_person and values.chance(0.3):
        if "age" in keys and values.chance(0.6):
            appositive = values.pick([" ({}),", ", {},", ", aged {},", ", {} years old,", " ({})", ", age {},"]).format(
                facts["age"]
            )
            if appositive.endswith(")") is False and appositive.startswith(" ("):
                appositive = appositive.rstrip(",")
            keys.remove("age")
        elif "job" in keys:
            appositive = (
                f", {_article(facts['job'])}"
                + (f" from {facts['city']}" if "city" in keys and values.chance(0.5) else "")
                + ","
            )
            keys = [key for key in keys if key != "job" and not (key == "city" and " from " in appositive)]
    spoken = []
    for key in keys:
        clause = values.pick(alternatives(clauses[key]))
        clause = clause.replace("[am|is]", "am" if first_person else "is")
        for verb in ("live/s", "come/s", "reside/s", "work/s", "use/s", "have/has"):
            base, ending = verb.split("/")
            third = ending if len(ending) > 1 else base + ending
            clause = clause.replace(f"[{verb}]", base if first_person else third)
        spoken.append(
            fill(expand(values.rng, clause), v=facts[key], art=_article(facts["job"]) if "job" in facts else "")
        )
    if first_person:
        opening = values.pick(["My name is {}", "I'm {}", "I am {}", "Hi, I'm {}", "Hello, my name is {}"]).format(name)
        return facts, opening + (
            values.pick([". ", ", ", " and "]) + _listed(["I " + clause for clause in spoken]) if spoken else ""
        ) + "."
    if not spoken:
        return facts, values.pick(
            [
                f"{name}{appositive.rstrip(',')}",
                f"{values.pick(['I met', 'This is', 'We hired', 'Meet'])} {name}{appositive.rstrip(',')}.",
            ]
        )
    if appositive and not appositive.startswith(" (") and not appositive.endswith(","):
        appositive += ","
    subject += appositive
    if len(spoken) > 1 and values.chance(0.35):
        pronoun = values.pick(["He", "She", "They", "he", "she"]).capitalize()
        pronoun_clauses = [
            c.replace("is ", "are ", 1) if pronoun == "They" and c.startswith("is ") else c for c in spoken[1:]
        ]
        return facts, f"{subject} {spoken[0]}. {pronoun} {_listed(pronoun_clauses)}."
    lead = values.pick(
        [
            "",
            "",
            "",
            "",
            "",
            "",
            "My friend ",
            "Our colleague ",
            "Yesterday I met someone new: ",
            "This is about ",
        ]
    )
    return facts, lead + subject + " " + _listed(spoken) + values.pick([".", ".", ".", "", "!"])


def order(values: Values) -> tuple[Facts, str]:
    quantity = values.integer(1, values.pick([12, 60, 60])) if values.chance(0.9) else values.integer(61, 5000)
    price = values.price()
    facts: Facts = {"item": values.item()}
    if values.chance(0.9):
        facts["quantity"] = quantity
    if values.chance(0.72):
        facts["price"] = price
    if values.chance(0.35):
        facts["customer"] = values.name()
    if len(facts) == 1:
        facts["quantity"] = quantity
    if values.chance(0.12):
        return facts, _labelled(values, facts)
    shown = f"{price:.2f}" if isinstance(price, float) else str(price)
    if isinstance(price, float):
        facts = facts | {"price": float(shown)} if "price" in facts else facts
    money = values.pick(
        ["${}", "${}", "{} euros", "{} dollars", "€{}", "{} EUR", "£{}", "{} USD", "{}€", "{} pounds", "EUR {}"]
    ).format(shown)
    count = NUMBER_WORDS[quantity] if quantity <= 12 and values.chance(0.35) else str(quantity)
    goods = (
        f"{count} {facts['item']}" if "quantity" in facts else f"{values.pick(['the', 'some', 'the'])} {facts['item']}"
    )
    each = ""
    if "price" in facts:
        each = values.pick(
            [
                " for {}",
                " at {} each",
                " for {} each",
                ", {} each",
                " at {}",
                " for {} apiece",
                ", price {}",
                " at a price of {}",
                " ({})",
                ", total {}",
                " costing {}",
                ". The price is {}",
                " and paid {}",
            ]
        ).format(money)
    if "customer" in facts:
        who = facts["customer"]
        if "paid" in each:
            return facts, f"{who} {values.pick(['bought', 'ordered', 'took'])} {goods}{each}."
        text = values.pick(
            [
                f"{who} [ordered|bought|wants|would like|needs|purchased|has ordered|just ordered|is buying] {goods}"
                f"{each}",
                f"{who} [ordered|bought|wants] {goods}{each}",
                f"[Order from|Order for|New order from] {who}: {goods}{each}",
                f"{goods} for {who}{each}",
                f"[Please |]send {goods} to {who}{each}",
                f"Customer {who} [ordered|wants] {goods}{each}",
                f"I am {who} and I [want|would like|need] {goods}{each}",
            ]
        )
    else:
        text = values.pick(
            [
                f"I [would like|want|need|ordered|bought|'d like to order|want to buy|will take] {goods}{each}",
                f"{goods}{each}",
                f"[Please |]send me {goods}{each}",
                f"[Order|New order|My order]: {goods}{each}",
                f"We [need|want|ordered|bought] {goods}{each}",
                f"[Can I get|Could I have|Give me|I'll have] {goods}{each}",
                f"[The customer|Someone|A client] ordered {goods}{each}",
                f"[Please |]order {goods}{each}",
                f"{values.pick(['Yesterday', 'Today', 'Last week'])} I bought {goods}{each}",
            ]
        )
        if "price" in facts and "quantity" not in facts and values.chance(0.3):
            text = f"[The|These] {facts['item']} [cost|costs|are sold for] {money}"
    text = expand(values.rng, text.replace("I 'd", "I'd"))
    named_first = "customer" in facts and text.startswith(facts["customer"])
    if not named_first and values.chance(0.5):
        text = text[0].upper() + text[1:]
    if facts.keys() == {"item", "quantity"} and values.chance(0.08) and count.isdigit():
        text = f"{quantity} x {facts['item']}"
    return facts, text.replace("and paid", "at") + values.pick(
        [".", ".", "", "!", ", please."] if not text.startswith(("The", "Some")) else ["."]
    )


def event(values: Values) -> tuple[Facts, str]:
    draws = {"date": values.date(), "time": values.clock(), "place": values.venue()}
    weights = {"date": 0.9, "time": 0.25, "place": 0.8}
    facts: Facts = {"title": values.title()} | {key: draws[key] for key in draws if values.chance(weights[key])}
    if len(facts) == 1:
        facts["date"] = draws["date"]
    if values.chance(0.1):
        return facts, _labelled(values, facts)
    date, time, place = facts.get("date"), facts.get("time"), facts.get("place")
    bare = date is not None and date.startswith(("today", "tomorrow"))
    when = "" if date is None else (date if bare else values.pick([f"on {date}", f"on {date}", f"on {date}"]))
    at = f"{values.pick(['at', 'at', 'starting at', 'from'])} {time}" if time else ""
    article = "the " if place in lists.EVERYDAY_PLACES and (place.islower() or values.chance(0.5)) else ""
    where = f"{values.pick(['in', 'in', 'at'])} {article}{place}" if place else ""
    pieces = [piece for piece in (when, at, where) if piece]
    if values.chance(0.4):
        pieces = [piece for piece in (where, when, at) if piece]
    details = " ".join(pieces)
    title = facts["title"]
    proper = title != title.lower()
    the = values.pick(["The ", "The ", "", "Our ", "The annual ", "This year's "] if proper else ["The ", "Our ", "A "])
    text = values.pick(
        [
            f"{the}{title} [takes place|is|will be held|happens|will take place|is held|is planned|is scheduled"
            f"|was held|starts] {details}",
            f"{the}{title} [takes place|is|will be|will take place] {details}",
            f"[Join us for|Come to|Don't miss|See you at|Welcome to] [the |]{title} {details}",
            f"[We are going to|We invite you to|You are invited to|I am going to|Let's meet at] the {title} {details}",
            f"{title} {details}",
            f"{title}: " + ", ".join(str(facts[key]) for key in facts if key != "title"),
            f"{title}, " + ", ".join(str(facts[key]) for key in facts if key != "title"),
            f"{details if bare and pieces[0] == when else details[0].upper() + details[1:]}[:|,] {title}",
            f"{where[0].upper() + where[1:]}, the {title} [takes place|is held|starts] "
            + " ".join(filter(None, (when, at)))
            if where and (when or at)
            else f"There is a {title} {details}",
            f"There [is|will be] [a|the] {title} {details}",
        ]
    )
    return facts, expand(values.rng, text) + values.pick([".", ".", ".", "", "!"])


MAKERS = {"person": person, "order": order, "event": event}
