"""A report as one HTML file that needs neither network nor server."""

import json
from importlib.resources import files
from typing import Any

from csml.extras import extra
from csml.reporting.charts import COLORS
from csml.reporting.content import Content, RunMap
from csml.reporting.glossary import TERMS, meaning_of, occurs
from csml.reporting.headline import estimated, headline, without_folders
from csml.reporting.seed_groups import mean_rows
from csml.reporting.svg import as_svg, dots

with extra("report", "a report"):
    import jinja2
    from markupsafe import Markup


def render(content: Content) -> str:
    """The page as HTML."""
    data = {
        "collections": [
            {
                "names": one.names,
                "labels": one.labels,
                "classes": one.classes,
                "sheet": {"side": one.sheets.side, "perRow": one.sheets.per_row, "perSheet": one.sheets.per_sheet},
            }
            for one in content.collections
        ],
        "maps": [
            {
                "name": one.name,
                "collection": one.collection,
                "x": _short(one.points[:, 0]),
                "y": _short(one.points[:, 1]),
                "clusters": one.clusters.tolist(),
                "neighbors": one.neighbors.tolist(),
            }
            for one in content.maps
        ],
        "colors": COLORS,
    }
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(asset("report.html")).render(
        content=content,
        drawn=lambda chart: Markup(as_svg(chart)),
        dots=lambda one: Markup(dots(one.points, _groups_of(content, one))),
        headline=headline(content.runs, content.labeled),
        estimates=[
            (run.name, run.results["finetune"]["how"], run.results["finetune"].get("tried", []))
            for run in content.runs
            if estimated(run)
        ],
        means=mean_rows(content.runs, content.tasks),
        meaning_of=meaning_of,
        occurs=occurs,
        terms=TERMS,
        shown=without_folders,
        data=as_script(data),
        style=Markup(asset("style.css") + asset("report.css")),
        script=Markup(asset("report.js")),
        title=", ".join(run.name for run in content.runs[:3]) + (" …" if len(content.runs) > 3 else ""),
    )


def _groups_of(content: Content, one: RunMap) -> list[int]:
    """Class of each point of a map, or its cluster if there are no labels."""
    return content.collections[one.collection].labels or one.clusters.tolist()


def asset(name: str) -> str:
    """The text of a file in page/."""
    return (files(__package__) / "page" / name).read_text("utf-8")


def as_script(value: Any) -> Markup:
    """JSON for a script element; file names cannot end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character, escaped in (
        ("&", "\\u0026"),
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("\u2028", "\\u2028"),
        ("\u2029", "\\u2029"),
    ):
        text = text.replace(character, escaped)
    return Markup(text)


def _short(values: Any) -> list[float]:
    return [round(float(value), 4) for value in values]
