"""Cases for benchmarks/task_recipes.py, from templates in five languages: English, German, French, Spanish and Italian.

The same seed makes the same cases. Texts have one to three sentences; what a text does not say is absent in its case.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

LANGUAGES = ("en", "de", "fr", "es", "it")
PEOPLE = (
    "Ann Lindberg", "Tom Becker", "Maria Silva", "Luc Moreau", "Eva Novak", "Paolo Conti", "Rosa Diaz", "Omar Haddad",
    "Nina Schulz", "Peter Maas", "Claire Dubois", "Carla Bruno", "Ivan Petrov", "Sara Lind", "Hugo Vidal", "Grete Holm",
)  # fmt: skip
CITIES = (
    "Oslo",
    "Graz",
    "Lyon",
    "Sevilla",
    "Torino",
    "Leeds",
    "Bremen",
    "Nantes",
    "Toledo",
    "Parma",
    "Bergen",
    "Basel",
)
COMPANIES = ("Nordwind", "Altamar", "Brightfield", "Kessler", "Delorme", "Montenero", "Vidalux", "Hartwell")
THINGS = {
    "en": ("desk lamps", "notebooks", "chairs", "kettles", "blankets"),
    "de": ("Lampen", "Hefte", "Stühle", "Kessel", "Decken"),
    "fr": ("lampes", "cahiers", "chaises", "bouilloires", "couvertures"),
    "es": ("lámparas", "cuadernos", "sillas", "teteras", "mantas"),
    "it": ("lampade", "quaderni", "sedie", "bollitori", "coperte"),
}
COUNTS = {
    "en": "two three four five six seven eight nine ten eleven twelve",
    "de": "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    "fr": "deux trois quatre cinq six sept huit neuf dix onze douze",
    "es": "dos tres cuatro cinco seis siete ocho nueve diez once doce",
    "it": "due tre quattro cinque sei sette otto nove dieci undici dodici",
}
MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
}
EVENTS = {
    "en": ("chess club", "book fair", "spring concert"),
    "de": ("Schachabend", "Buchmesse", "Frühlingskonzert"),
    "fr": ("club d'échecs", "salon du livre", "concert de printemps"),
    "es": ("club de ajedrez", "feria del libro", "concierto de primavera"),
    "it": ("circolo di scacchi", "fiera del libro", "concerto di primavera"),
}
PLACES = {
    "en": ("town hall", "old library"),
    "de": ("Rathaus", "Stadtpark"),
    "fr": ("théâtre municipal", "parc central"),
    "es": ("teatro municipal", "parque central"),
    "it": ("teatro comunale", "parco centrale"),
}


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split()}


TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
DAY = {"type": "string", "format": "date"}
SCHEMAS = {
    "order": _object("customer quantity total", customer=TEXT, city=TEXT, quantity=WHOLE, price=NUMBER, total=NUMBER),
    "event": _object("title", title=TEXT, date=DAY, place=TEXT, seats=WHOLE),
    "person": _object("name", name=TEXT, age=WHOLE, city=TEXT, employer=TEXT),
    "invoice": _object(
        "number total",
        number=TEXT,
        issued=DAY,
        seller=_object("name", name=TEXT, city=TEXT),
        total=NUMBER,
        currency={"enum": ["EUR", "CHF", "GBP"]},
    ),
    "basket": _object(
        "customer items",
        customer=TEXT,
        items={"type": "array", "items": _object("name quantity", name=TEXT, quantity=WHOLE)},
    ),
}
ORDERS = {
    "en": "{customer} from {city} ordered {quantity} {thing} at {price} each. Total: {total}.",
    "de": "{customer} aus {city} bestellt {quantity} {thing} zu je {price}. Gesamtbetrag: {total}.",
    "fr": "{customer} de {city} commande {quantity} {thing} à {price} pièce. Montant total : {total}.",
    "es": "{customer} de {city} pide {quantity} {thing} a {price} cada uno. Importe total: {total}.",
    "it": "{customer} di {city} ordina {quantity} {thing} a {price} l'uno. Importo totale: {total}.",
}
FEWER = {
    "en": "Order of {customer}: {quantity} {thing}, {total} in all.",
    "de": "Bestellung von {customer}: {quantity} {thing}, zusammen {total}.",
    "fr": "Commande de {customer} : {quantity} {thing}, {total} en tout.",
    "es": "Pedido de {customer}: {quantity} {thing}, en total {total}.",
    "it": "Ordine di {customer}: {quantity} {thing}, in tutto {total}.",
}
MEETINGS = {
    "en": ("The {title} takes place on {date} in the {place}.", " There are {seats} seats."),
    "de": ("{title} am {date}, Ort: {place}.", " Es gibt {seats} Plätze."),
    "fr": ("Le {title} a lieu le {date} au {place}.", " Il y a {seats} places."),
    "es": ("El {title} tiene lugar el {date} en el {place}.", " Hay {seats} plazas."),
    "it": ("Il {title} si tiene il {date} nel {place}.", " Ci sono {seats} posti."),
}
LIVES = {
    "en": ("{name} is {age} years old", " and lives in {city}", " and works for {employer}"),
    "de": ("{name} ist {age} Jahre alt", " und wohnt in {city}", " und arbeitet bei {employer}"),
    "fr": ("{name} a {age} ans", " et habite à {city}", " et travaille chez {employer}"),
    "es": ("{name} tiene {age} años", " y vive en {city}", " y trabaja en {employer}"),
    "it": ("{name} ha {age} anni", " e vive a {city}", " e lavora per {employer}"),
}
INVOICES = {
    "en": "Invoice {number} of {date}. {seller}, {city}. Amount due: {total} {currency}.",
    "de": "Rechnung {number} vom {date}. {seller}, {city}. Zu zahlen: {total} {currency}.",
    "fr": "Facture {number} du {date}. {seller}, {city}. À payer : {total} {currency}.",
    "es": "Factura {number} del {date}. {seller}, {city}. A pagar: {total} {currency}.",
    "it": "Fattura {number} del {date}. {seller}, {city}. Da pagare: {total} {currency}.",
}
BASKETS = {
    "en": "{customer} would like {0} and {1}.",
    "de": "{customer} möchte {0} und {1}.",
    "fr": "{customer} voudrait {0} et {1}.",
    "es": "{customer} quiere {0} y {1}.",
    "it": "{customer} vorrebbe {0} e {1}.",
}


@dataclass(frozen=True)
class ExtractCase:
    """A text, the schema asked for and the document that is right."""

    group: str
    language: str
    text: str
    document: dict[str, Any]

    @property
    def schema(self) -> dict[str, Any]:
        return SCHEMAS[self.group]


def _amount(value: float, language: str) -> str:
    """A sum as the language writes it."""
    text = f"{value:,.2f}"
    return text if language == "en" else text.translate(str.maketrans(",.", "\u00a0," if language == "fr" else ".,"))


def _day(day: date, language: str, draw: random.Random) -> str:
    if draw.random() < 0.3:
        return day.isoformat()
    month = MONTHS[language].split()[day.month - 1]
    if language == "en":
        return f"{month} {day.day}, {day.year}" if draw.random() < 0.5 else f"{day.day} {month} {day.year}"
    return f"{day.day}{'.' if language == 'de' else ''} {'de ' if language == 'es' else ''}{month} {day.year}"


def _extract_case(group: str, language: str, draw: random.Random) -> ExtractCase:
    customer, city, company = draw.choice(PEOPLE), draw.choice(CITIES), draw.choice(COMPANIES)
    day = date(2026, 1, 1) + timedelta(draw.randrange(700))
    if group == "order":
        count, price = draw.randint(2, 12), draw.randint(150, 30000) / 100
        total = round(count * price * draw.choice((1, 1, 0.9)) + draw.choice((0, 4.9)), 2)  # discounts and postage
        said = COUNTS[language].split()[count - 2] if draw.random() < 0.3 else str(count)
        document = {"customer": customer, "quantity": count, "total": total}
        is_full = draw.random() < 0.6
        document |= {"city": city, "price": price} if is_full else {}
        text = (ORDERS if is_full else FEWER)[language].format(
            customer=customer,
            city=city,
            quantity=said,
            thing=draw.choice(THINGS[language]),
            price=_amount(price, language),
            total=_amount(total, language),
        )
        return ExtractCase(group, language, text, document)
    if group == "event":
        title, place = draw.choice(EVENTS[language]), draw.choice(PLACES[language])
        text = MEETINGS[language][0].format(title=title, date=_day(day, language, draw), place=place)
        document = {"title": title, "date": day.isoformat(), "place": place}
        if draw.random() < 0.5:
            document["seats"] = draw.randint(20, 900)
            text += MEETINGS[language][1].format(**document)
        return ExtractCase(group, language, text, document)
    if group == "person":
        document = {"name": customer, "age": draw.randint(18, 90)}
        parts = [LIVES[language][0]]
        for name, value, part in (("city", city, LIVES[language][1]), ("employer", company, LIVES[language][2])):
            if draw.random() < 0.6:
                document[name] = value
                parts.append(part)
        return ExtractCase(group, language, "".join(parts).format(**document) + ".", document)
    if group == "invoice":
        total, number = draw.randint(1000, 900000) / 100, f"{draw.choice('ABR')}-{draw.randint(100, 9999)}"
        currency = draw.choice(("EUR", "CHF", "GBP"))
        document = {"number": number, "issued": day.isoformat(), "seller": {"name": company, "city": city}}
        document |= {"total": total, "currency": currency}
        text = INVOICES[language].format(
            number=number,
            date=_day(day, language, draw),
            seller=company,
            city=city,
            total=_amount(total, language),
            currency=currency,
        )
        return ExtractCase(group, language, text, document)
    items = [(thing, draw.randint(2, 12)) for thing in draw.sample(THINGS[language], 2)]
    words = COUNTS[language].split()
    wishes = [f"{words[count - 2] if draw.random() < 0.5 else count} {thing}" for thing, count in items]
    document = {"customer": customer, "items": [{"name": thing, "quantity": count} for thing, count in items]}
    return ExtractCase(group, language, BASKETS[language].format(*wishes, customer=customer), document)


def extract_cases(seed: int, count: int) -> list[ExtractCase]:
    """Kinds and languages in turns."""
    draw = random.Random(seed)
    groups = tuple(SCHEMAS)
    return [
        _extract_case(groups[n % len(groups)], LANGUAGES[n // len(groups) % len(LANGUAGES)], draw) for n in range(count)
    ]


@dataclass(frozen=True)
class ClassifyCase:
    """A text, its labels and the right one."""

    group: str
    language: str
    text: str
    labels: tuple[str, ...]
    right: str


SIZES = (2, 3, 4, 6, 8, 12)


def classify_cases(seed: int, count: int) -> list[ClassifyCase]:
    """Topics among two to twelve labels, and moods: each label is right as often as the others, up to one."""
    draw = random.Random(seed)
    banks = json.loads((Path(__file__).parent / "tasks" / "sentences.json").read_text("utf-8"))
    queues = {
        name: {
            label: [(language, text) for language, texts in rows.items() for text in texts]
            for label, rows in bank.items()
        }
        for name, bank in banks.items()
    }
    for bank in queues.values():
        for texts in bank.values():
            draw.shuffle(texts)
    cases: list[ClassifyCase] = []
    for n in range(count):
        group = ("topic", "topic", "department", "mood")[n % 4]
        bank = queues[group]
        most = max(map(len, bank.values()))
        right = draw.choice([label for label, texts in bank.items() if len(texts) == most]) if most else ""
        if not right:
            continue
        language, text = bank[right].pop()
        labels = list(bank)
        if group == "topic":
            size = SIZES[len(cases) % len(SIZES)]
            labels = draw.sample([each for each in bank if each != right], size - 1) + [right]
        draw.shuffle(labels)
        cases.append(ClassifyCase(group, language, text, tuple(labels), right))
    return cases


@dataclass(frozen=True)
class AskCase:
    """A question to a set of documents, the words that a right answer has, and the passage that has them."""

    group: str
    question: str
    answer: str
    heading: str


OFFICES = {
    "en": "Accounting Purchasing Marketing Logistics Research Training Security Catering Printing Archives Travel Law",
    "de": "Buchhaltung Einkauf Werbung Versand Forschung Ausbildung Wachdienst Küche Druckerei Archiv Reisen Recht",
    "fr": "Comptabilité Achats Publicité Livraison Recherche Formation Sécurité Cuisine Imprimerie Archives Droit",
}
FACTS = {
    "en": (
        "The head of {office} is {person}. Its desk is in room {room} and opens at {hour}. "
        "The budget is {budget} euros.",
        ("Who is the head of {office}?", "In which room is {office}?", "What is the budget of {office}?"),
    ),
    "de": (
        "{office} leitet {person}. Der Schalter ist in Raum {room} und öffnet um {hour} Uhr. "
        "Das Budget ist {budget} Euro.",
        ("Wer leitet {office}?", "In welchem Raum ist {office}?", "Wie hoch ist das Budget von {office}?"),
    ),
    "fr": (
        "{office} : la direction revient à {person}. Le guichet est en salle {room} et ouvre à {hour} heures. "
        "Le budget est de {budget} euros.",
        ("Qui dirige {office} ?", "Dans quelle salle est {office} ?", "Quel est le budget de {office} ?"),
    ),
}  # fmt: skip


def documents(seed: int) -> tuple[dict[str, str], list[AskCase]]:
    """Three documents by name, in a language each, and three questions about each of their sections."""
    draw = random.Random(seed)
    texts, cases = {}, []
    for language, (said, questions) in FACTS.items():
        sections = []
        for office in OFFICES[language].split():
            person = draw.choice(PEOPLE)
            room, budget = str(draw.randint(100, 499)), str(draw.randint(1000, 9999))
            values = {"office": office, "person": person, "room": room, "hour": draw.randint(7, 10), "budget": budget}
            sections.append(f"# {office}\n\n{said.format(**values)}\n")
            for question, answer in zip(questions, (person, room, budget), strict=True):
                cases.append(AskCase(language, question.format(office=office), answer, office))
        texts[f"{language}.md"] = "\n".join(sections)
    draw.shuffle(cases)
    return texts, cases
