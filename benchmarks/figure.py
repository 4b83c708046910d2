"""What a measurement says, and the table of all of them."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    name: str
    ratio: float
    target: str
    """such as "≤ 1.10" or "≥ 2.5"; empty where nothing was promised"""
    detail: str
    """the two sides of the ratio, in words and numbers"""
    facts: dict[str, object] = field(default_factory=dict)
    """what is worth keeping beside them"""

    @property
    def reached(self) -> bool | None:
        if not self.target:
            return None
        sign, limit = self.target.split()
        return self.ratio <= float(limit) if sign == "≤" else self.ratio >= float(limit)


def table(columns: dict[str, list[Figure]]) -> str:
    """Markdown: a line for each figure, a column for each kind of machine."""
    targets = {figure.name: figure.target for figures in columns.values() for figure in figures}
    lines = [f"| figure | target | {' | '.join(columns)} |", "|---|---|" + "---|" * len(columns)]
    for name, target in targets.items():
        found = [next((figure for figure in figures if figure.name == name), None) for figures in columns.values()]
        lines.append(f"| {name} | {target} | {' | '.join(_cell(figure) if figure else '' for figure in found)} |")
    return "\n".join(lines)


def _cell(figure: Figure) -> str:
    mark = {True: " ✓", False: " ✗", None: ""}[figure.reached]
    return f"**{figure.ratio:.3g}×**{mark} {figure.detail}"
